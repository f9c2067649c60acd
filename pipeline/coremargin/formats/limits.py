"""How many there may be of anything: beyond these, files are not believed and jobs are refused."""

MOST_ROWS = 1 << 53
MOST_FEATURES = 1 << 26
MOST_CLASSES = 4096
LONGEST_LABEL = 1000  #: characters
MOST_FOLDS = 1000
MOST_SEED = 2**63 - 1
#: C times the weights of a class, summed up: beyond these float64 cannot bound the value of a soft margin.
C_LIMITS = (1e-120, 1e120)
LARGEST_WEIGHT = 1e200  #: of a row: sums of them stay finite
LARGEST_CHUNK_BYTES = 1 << 30
#: Of a chunk, or of a file of stored values, beyond what all rows of its store need: readers make room for all of it.
MOST_PADDING_BYTES = 64 << 20
#: Of rows whose products are summed up as a matrix to check a squared hinge.
CURVE_FEATURES = 2048
#: gamma of a kernel, or of a map to features of one: products with squares of rows neither over- nor underflow.
GAMMAS = (1e-100, 1e100)
#: Degrees of a polynomial; what it is beyond overflows for rows of length 2.
MOST_DEGREE = 100
#: Bound of the decision values of a relative margin: what rounding leaves out of balance costs as many times as much.
LARGEST_RELATIVE_MARGIN = 1e6
