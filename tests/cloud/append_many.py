"""``python append_many.py ADDRESS ENDPOINT NAME COMMITS FILE``: a writer that appends rows again and again.

Each commit has a note of its own, which is a line of the file once the commit is done. Leases last two seconds.
"""

from __future__ import annotations

import os
import random
import sys
import time

import numpy as np

from coremargin.data import lease
from coremargin.data.commits import CommitInfo
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy
from coremargin.formats.location import location

ROWS = 3
PAUSE = 6.0  # seconds at most, between tries: 16 writers that asked without a pause would keep a service busy


def append_once(address: str, note: str, seed: int) -> bool:
    """Whether rows were appended; not where another writer is at work, or was faster."""
    try:
        with StoreWriter.append(address) as writer:
            X = np.random.default_rng(seed).normal(size=(ROWS, writer.features))
            writer.write(X, ["a", "b", "a"])
            writer.commit_info = CommitInfo("append", note)
    except Busy:
        return False
    return True


def main(text: str, endpoint: str, name: str, commits: int, file: str) -> None:
    """Append until all commits are done."""
    lease.SECONDS = 2.0
    address, done = location(text, {"endpoint": endpoint}), 0
    chance = random.Random(name)  # noqa: S311
    with open(file, "a") as out:
        while done < commits:
            if append_once(address, f"{name}-{done}", done):
                out.write(f"{name}-{done}\n")
                out.flush()
                os.fsync(out.fileno())
                done += 1
            else:
                time.sleep(PAUSE * chance.random())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
