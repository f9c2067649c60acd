"""As crash_at.py, of commits that change labels and weights, with an append between them, and of a compaction.

Usage: crash_changes_at.py FOLDER changes STRIDE dense|sparse|keyed. Prints how many steps on disk there are.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from crash_at import KEYED, NUMBERS, OLD, WEIGHTS, X, Y, check_keys, create, dense, kill_at, write

MORE = 200
#: What each commit does, and to which rows. The last chunk of the old rows is not full.
WORK: list[tuple[str, dict[int, Any]]] = [
    ("label", {0: "e", 70: "a", OLD - 1: "e"}),
    ("remove", {1: 0.0, 64: 0.0, OLD - 2: 0.0}),
    ("append", {}),
    ("weigh", {1: 2.5, OLD - 1: 0.5, MORE - 1: 3.0}),
    ("label", {OLD - 1: "f", MORE - 1: "e", 5: "e"}),
    ("label", {70: None}),
    ("compact", {}),
]


@dataclass
class Rows:
    """What a commit has: rows by their old numbers, labels and weights of all."""

    ids: np.ndarray
    labels: list[Any]
    weights: np.ndarray


def states() -> list[Rows]:
    """What is there before the first commit, and after each."""
    weights = np.ones(MORE) if WEIGHTS is None else WEIGHTS[:MORE].copy()
    now = Rows(np.arange(OLD), Y[:MORE].tolist(), weights)
    found = [now]
    for did, rows in WORK:
        now = Rows(now.ids, now.labels.copy(), now.weights.copy())
        for row, value in rows.items():
            if did == "label":
                now.labels[row] = value
            else:
                now.weights[row] = value
        if did == "append":
            now.ids = np.arange(MORE)
        elif did == "compact":
            now.ids = now.ids[now.weights[now.ids] > 0]
        found.append(now)
    return found


def go_on(path: Path, done: int) -> None:
    """The commits that are left to do."""
    for did, rows in WORK[done:]:
        if did == "append":
            with StoreWriter.append(path) as writer:
                write(writer, slice(OLD, MORE))
        elif did == "label":
            write_labels(path, list(rows), list(rows.values()))
        elif did == "remove":
            remove_rows(path, keys=[NUMBERS[row] for row in rows]) if KEYED else remove_rows(path, list(rows))
        elif did == "weigh":
            set_weights(path, list(rows), list(rows.values()))
        else:
            compact(path)


def left_whole(path: Path) -> int:
    """How many commits are there, after checking them all."""
    store = Store.open(path)
    if "compacted" in store.log[-1].note:
        check(path, store.commits - 1, states()[-1])
        check_keys(store, states()[-1].ids.tolist())
        return len(WORK)
    for number, expected in enumerate(states()[: store.commits]):
        check(path, number, expected)
    check_keys(store, range(MORE))
    return store.commits - 1


def check(path: Path, number: int, expected: Rows) -> None:
    """A commit is what it was."""
    store = Store.open(path, commit=number)
    codes = np.concatenate([store.labels(chunk) for chunk in range(store.chunks)])
    labels = [None if code < 0 else store.classes[code] for code in codes]
    assert labels == [expected.labels[row] for row in expected.ids]
    parts = [store.weights(chunk) for chunk in range(store.chunks)]
    weights = np.ones(store.rows) if parts[0] is None else np.concatenate([np.array(part) for part in parts])
    assert np.array_equal(weights, expected.weights[expected.ids])
    rows = np.concatenate([dense(store.read(chunk)[0]) for chunk in range(store.chunks)])
    assert np.array_equal(rows, X[expected.ids])
    assert check_store(path, workers=1, digest=store.digest).whole


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
    for step in range(1, 5000, int(sys.argv[3])):
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
