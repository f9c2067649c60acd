"""Run one write of a store again and again, killed at its first, second, ... step on disk; check what is left.

Usage: crash_at.py FOLDER create|append|overwrite STRIDE dense|sparse|keyed|grouped. Prints how many steps the write
takes; sparse stores have weights, too; keyed ones are dense, and their rows have keys, in runs of 64; rows of grouped
ones are in groups of 10.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.check import check_store
from coremargin.data.group_parts import row_groups
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from keys_kit import columns, found, keys_of, small_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OLD, NEW = 150, 300
RNG = np.random.default_rng(7)
SPARSE, KEYED, GROUPED = (sys.argv[4:] == [kind] for kind in ("sparse", "keyed", "grouped"))
X = (RNG.normal(size=(NEW, 3)) * (RNG.random((NEW, 3)) < (0.6 if SPARSE else 2))).astype(np.float32)
WEIGHTS = RNG.random(NEW) if SPARSE else None
Y = np.where(X[:, 0] > 0, "a", "b")
Y[[OLD + 1, 210]] = "c", "d"  # each commit of an append brings a class
NUMBERS = RNG.permutation(NEW)  #: keys
GROUPS = np.arange(NEW) // 10
STEPS = ("replace", "rename", "fsync", "mkdir", "unlink")


def create(path: Path, rows: slice, *, overwrite: bool = False) -> None:
    """Write a new store."""
    options: dict[str, Any] = {"sparse": True, "weighted": True, "chunk_rows": 64} if SPARSE else {}
    if KEYED:
        small_runs(setattr, merged=32)
        options["columns"] = columns()
    if GROUPED:
        small_runs(setattr, merged=8)
        options["grouped"] = True
    with StoreWriter.create(path, features=3, chunk_bytes=64 * 12, overwrite=overwrite, **options) as writer:
        write(writer, rows)


def write(writer: StoreWriter, rows: slice) -> None:
    """Rows with all that belongs to them."""
    keys = keys_of(NUMBERS[rows]) if KEYED else None
    groups = GROUPS[rows] if GROUPED else None
    writer.write(X[rows], Y[rows], None if WEIGHTS is None else WEIGHTS[rows], keys, groups)


def append(path: Path) -> None:
    """Write the new rows after the old ones, in two commits."""
    with StoreWriter.append(path) as writer:
        write(writer, slice(OLD, 200))
        writer.commit()
        write(writer, slice(200, None))


def kill_at(step: int) -> None:
    """Let this process die by SIGKILL before its ``step``-th change on disk."""
    left = [step]

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    for name in STEPS:
        setattr(os, name, deadly(getattr(os, name)))


def attempt(path: Path, how: str, step: int) -> bool:
    """Write in a child that dies at ``step``; True when it came to its end."""
    child = os.fork()
    if child == 0:
        kill_at(step)
        if how == "append":
            append(path)
        else:
            create(path, slice(None), overwrite=how == "overwrite")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def left_whole(path: Path, how: str) -> int:
    """Rows of what is left, after checking that it is one of the committed states; 0 for no store at all."""
    if how == "create" and not path.exists():
        return 0
    store = Store.open(path)
    allowed = {"create": (NEW,), "append": (OLD, 200, NEW), "overwrite": (OLD, NEW)}[how]
    assert store.rows in allowed, store.rows
    rows = np.concatenate([dense(store.read(chunk)[0]) for chunk in range(store.chunks)])
    assert np.array_equal(rows, X[: store.rows])
    if WEIGHTS is not None:
        weights = [np.array(store.weights(chunk)) for chunk in range(store.chunks)]
        assert np.array_equal(np.concatenate(weights), WEIGHTS[: store.rows])
    assert check_store(path, workers=1).whole
    check_keys(store, range(NEW))
    if GROUPED:
        names = np.concatenate([row_groups(store, chunk) for chunk in range(store.chunks)])
        assert names.astype(int).tolist() == GROUPS[: store.rows].tolist()
    return store.rows


def check_keys(store: Store, rows: Iterable[int]) -> None:
    """Keys of rows of all those there are find them, where they are, and others find nothing."""
    if KEYED:
        places = {int(NUMBERS[row]): place for place, row in enumerate(rows) if place < store.rows}
        assert found(store, range(NEW)) == [places.get(key, -1) for key in range(NEW)]


def dense(rows: Any) -> np.ndarray:
    """A copy of rows of either kind."""
    return np.array(rows.toarray() if SPARSE else rows)


def main() -> None:
    """Kill, check, finish the work, check again, for every step."""
    folder, how = Path(sys.argv[1]), sys.argv[2]
    path = folder / "s.zarr"
    for step in range(1, 5000, int(sys.argv[3])):
        shutil.rmtree(path, ignore_errors=True)
        if how != "create":
            create(path, slice(0, OLD))
        finished = attempt(path, how, step)
        rows = left_whole(path, how)
        if how == "append":
            with StoreWriter.append(path) as writer:
                if rows < NEW:
                    write(writer, slice(rows, None))
        else:
            create(path, slice(None), overwrite=True)
        assert left_whole(path, how) == NEW
        assert identity(Store.open(path)) == whole_identity(folder)
        assert not [entry for entry in folder.iterdir() if entry.name not in ("s.zarr", "whole.zarr")]
        assert not list(path.rglob("*.aside"))
        if finished:
            sys.stdout.write(f"{step - 1}\n")
            return


def identity(store: Store) -> tuple[str, str]:
    """Of all rows, by either kind of checksum."""
    store.chunk_hashes()  # those of the chunks are the ones of the commit
    return store.digest, store.sha256


def whole_identity(folder: Path) -> tuple[str, str]:
    """That of all rows, written undisturbed."""
    path = folder / "whole.zarr"
    if not path.exists():
        create(path, slice(None))
    return identity(Store.open(path))


if __name__ == "__main__":
    main()
