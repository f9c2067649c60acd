"""As crash_at.py, of commits that change labels with an append between them.

Usage: crash_labels_at.py FOLDER labels STRIDE dense|sparse. Prints how many steps on disk there are.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from coremargin.data.check import check_store
from coremargin.data.relabel import write_labels
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from crash_at import OLD, WEIGHTS, X, Y, create, dense, kill_at, write

MORE = 200
#: Rows and labels of each commit that changes some; None appends. The last chunk of the old rows is not full.
WORK: list[dict[int, Any] | None] = [
    {0: "e", 70: "a", OLD - 1: "e"},
    None,
    {OLD - 1: "f", MORE - 1: "e", 5: "e"},
    {70: None},
]


def states() -> list[tuple[int, list[Any]]]:
    """Rows and labels before the first commit and after each."""
    labels: list[Any] = Y[:OLD].tolist()
    found = [(OLD, labels)]
    for change in WORK:
        labels = [*labels, *Y[OLD:MORE].tolist()] if change is None else labels.copy()
        for row, label in (change or {}).items():
            labels[row] = label
        found.append((len(labels), labels))
    return found


def go_on(path: Path, done: int) -> None:
    """The commits that are left to do."""
    for change in WORK[done:]:
        if change is None:
            with StoreWriter.append(path) as writer:
                write(writer, slice(OLD, MORE))
        else:
            write_labels(path, list(change), list(change.values()))


def left_whole(path: Path) -> int:
    """How many commits are there, after checking them all."""
    history, expected = [entry.commit for entry in Store.open(path).log], states()
    for commit, (rows, labels) in zip(history, expected, strict=False):
        store = Store.open(path, digest=commit.digest)
        codes = np.concatenate([store.labels(chunk) for chunk in range(store.chunks)])
        assert [None if code < 0 else store.classes[code] for code in codes] == labels
        assert store.rows == rows
        assert np.array_equal(np.concatenate([dense(store.read(chunk)[0]) for chunk in range(store.chunks)]), X[:rows])
        if WEIGHTS is not None:
            weights = [np.array(store.weights(chunk)) for chunk in range(store.chunks)]
            assert np.array_equal(np.concatenate(weights), WEIGHTS[:rows])
        assert check_store(path, workers=1, digest=commit.digest).whole
    return len(history) - 1


def attempt(path: Path, step: int) -> bool:
    """Do all commits in a child that dies at ``step``; True when it came to its end."""
    child = os.fork()
    if child == 0:
        kill_at(step)
        go_on(path, 0)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main() -> None:
    """Kill, check, finish the work, check again, for every step."""
    path = Path(sys.argv[1]) / "s.zarr"
    ends = set[str]()
    for step in range(1, 1000, int(sys.argv[3])):
        shutil.rmtree(path, ignore_errors=True)
        create(path, slice(0, OLD))
        finished = attempt(path, step)
        go_on(path, left_whole(path))
        assert left_whole(path) == len(WORK)
        ends.add(Store.open(path).digest)
        assert len(ends) == 1
        assert not list(path.rglob("*.aside"))
        if finished:
            sys.stdout.write(f"{step - 1}\n")
            return


if __name__ == "__main__":
    main()
