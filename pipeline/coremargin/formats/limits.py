"""How many there may be of anything: beyond these, files are not believed and jobs are refused."""

MOST_ROWS = 1 << 53
MOST_FEATURES = 1 << 26
MOST_CLASSES = 4096
MOST_FOLDS = 1000
MOST_SEED = 2**63 - 1
LARGEST_CHUNK_BYTES = 1 << 30
