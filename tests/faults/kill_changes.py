"""Change a store, or retrain a model, in a process that dies by SIGKILL at a random moment; check what is left.

Usage: kill_changes.py FOLDER plain|sparse|keyed KILLS SEED. Each kind of change is made undisturbed first, twice: that
says how long it takes, and which files come out the same whenever it is made. Then it is made in processes that are
killed after delays drawn over that time, until KILLS of them have died on the way, and made again, or resumed: that
ends as if nobody had been killed. Sparse stores have weights; rows of keyed ones are named by keys. Prints, as JSON,
how many processes of each kind of change died, and how many of them had made their commit by then.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import coremargin
from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.opened import forget
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.learn import train as train_module
from coremargin.learn.retrain import prepare_retraining, retrain_job_of
from coremargin.verify import verify
from keys_kit import FEATURES, columns, keys_of, small_runs
from train_kit import sample_little

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.engine.checkpoint import Begin

    Change = Callable[[Path], None]  #: is made in a folder that holds a store, and models of its first commit

KIND, RNG = sys.argv[2], np.random.default_rng(int(sys.argv[4]))
OLD, NEW, CHUNK_ROWS = 3000, 3600, 64
Y = np.where(RNG.random(NEW) < 0.5, 1, -1)
X = RNG.standard_normal((NEW, FEATURES))
X[:, 0] = Y * (0.2 + np.abs(X[:, 0]))
if KIND == "sparse":
    X[:, 1:] *= RNG.random((NEW, FEATURES - 1)) < 0.6
X = X.astype(np.float32)
WEIGHTS = RNG.choice([1.0, 2.0], NEW) if KIND == "sparse" else None
NUMBERS = RNG.permutation(NEW)  #: keys
SOME = RNG.choice(OLD, 60, replace=False)  #: rows that are changed: the first of them come without a label
#: A delay is drawn over so many times the time that a change takes undisturbed.
LONGER = 1.1
#: So many processes for each that is to die, at most.
TRIES = 10
LOSSES: dict[str, dict[str, Any]] = {"hard": {}, "hinge": {"loss": "hinge", "C": 0.1}}


def write(writer: StoreWriter, start: int, stop: int) -> None:
    """Some rows, with all that belongs to them."""
    labels: list[Any] = Y[start:stop].tolist()
    for row in SOME[:20]:
        if start <= row < stop:
            labels[row - start] = None
    weights = None if WEIGHTS is None else WEIGHTS[start:stop]
    writer.write(X[start:stop], labels, weights, keys_of(NUMBERS[start:stop]) if KIND == "keyed" else None)


def create(folder: Path) -> None:
    """The old rows, in two commits, and models of them."""
    options: dict[str, Any] = {"sparse": True, "weighted": True} if KIND == "sparse" else {}
    options |= {"columns": columns()} if KIND == "keyed" else {}
    path = folder / "s.zarr"
    with StoreWriter.create(path, features=FEATURES, dtype="float32", chunk_rows=CHUNK_ROWS, **options) as writer:
        write(writer, 0, OLD // 2)
        writer.commit()
        write(writer, OLD // 2, OLD)
    for name, loss in LOSSES.items():
        coremargin.train(path, out=folder / name, cluster="threads", **loss)


def append(folder: Path) -> None:
    """The new rows."""
    with StoreWriter.append(folder / "s.zarr") as writer:
        for start in range(OLD, NEW, 150):
            write(writer, start, start + 150)


def named(rows: np.ndarray) -> dict[str, Any]:
    """Rows by their numbers, or by their keys."""
    return {"keys": NUMBERS[rows]} if KIND == "keyed" else {"ids": rows}


def correct(folder: Path) -> None:
    """Labels are given and withdrawn."""
    write_labels(folder / "s.zarr", **named(SOME[:40]), labels=[*Y[SOME[:20]].tolist(), *[None] * 20])


def take_out(folder: Path) -> None:
    """Rows that have labels."""
    remove_rows(folder / "s.zarr", **named(SOME[40:]))


def weigh(folder: Path) -> None:
    """Rows weigh more, and some come back."""
    rows = SOME[10:50]
    set_weights(folder / "s.zarr", **named(rows), weights=np.linspace(0.5, 3.0, len(rows)))


def make_compact(folder: Path) -> None:
    """In place."""
    compact(folder / "s.zarr")


def retrain(folder: Path, name: str, begin: Begin) -> None:
    """A model of the store's first commit again, with a checkpoint after each chunk."""
    said = {"model": folder / name, "store": folder / "s.zarr", "out": folder / f"new-{name}", "block": 1}
    begun = prepare_retraining(retrain_job_of(said, where="test"), begin)
    train_module.train_job(begun.job, Store.open(folder / "s.zarr"), InProcess(1), begin=begin, retraining=begun)


@dataclass(frozen=True)
class Work:
    """make: the change; again: the same after somebody was killed at it; commits: whether it makes a commit.

    twice: it may be made again where it has been made, and comes to the same.
    """

    name: str
    make: Change
    again: Change
    commits: bool = True
    twice: bool = False


def works() -> list[Work]:
    """What is done, in this order."""
    changes = [Work(made.__name__, made, made) for made in (append, correct, take_out, weigh)]
    for name in LOSSES:
        make, again = (partial(retrain, name=name, begin=begin) for begin in ("new", "resume"))
        changes.append(Work(f"retrain_{name}", make, again, commits=False, twice=True))
    return [*changes, Work("compact", make_compact, make_compact, twice=True)]


def made(change: Change, folder: Path, delay: float | None = None) -> tuple[bool, float]:
    """Make a change in a process that dies after ``delay`` seconds; whether it did, and how long it lived."""
    gc.collect()  # what is open here would be open in the child, and nobody may compact what somebody reads
    begun, tell = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(tell, b".")
            change(folder)
            code = 0
        except BaseException:  # noqa: BLE001 - the parent is to fail, and to say with what
            traceback.print_exc()
        finally:
            os._exit(code)
    os.read(begun, 1)
    os.close(begun)
    os.close(tell)
    started = time.perf_counter()
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)  # it may have ended: nobody has waited for it, so that it is still this child
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended == 0 or (delay is not None and ended == -signal.SIGKILL), f"exit {ended}"
    return ended != 0, time.perf_counter() - started


def commits_of(folder: Path) -> list[str]:
    """The digests of all commits, each of which can be opened; the last one, and labels of the others, are checked."""
    path = folder / "s.zarr"
    found = [entry.commit.digest for entry in Store.open(path, map_bytes=0).log]
    assert check_store(path, workers=1).whole
    for number, digest in enumerate(found):
        assert Store.open(path, commit=number, map_bytes=0).digest == digest
    forget(path)
    return found


def files_of(folder: Path) -> dict[str, bytes]:
    """All there is."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fresh(base: Path, folder: Path) -> None:
    """The folder as it was before a change."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder)


#: Files that say when something was done.
TIMED = ("s.zarr/log.jsonl", "s.zarr/zarr.json")


@dataclass(frozen=True)
class Undisturbed:
    """before, after: digests of all commits; files: names, and the bytes of those that are the same each time."""

    before: list[str]
    after: list[str]
    files: dict[str, bytes | None]
    seconds: float


def undisturbed(work: Work, base: Path, folder: Path) -> Undisturbed:
    """A change with nobody killed."""
    found, seconds = [], 0.0
    for _ in range(2):
        fresh(base, folder)
        before = commits_of(folder)
        seconds = made(work.make, folder)[1]
        found.append(files_of(folder))
    one, two = found
    assert one.keys() == two.keys()
    same = {name: content if two[name] == content else None for name, content in one.items()}
    same |= dict.fromkeys(TIMED)  # two changes may happen in one second, and a third in another
    return Undisturbed(before, commits_of(folder), same, seconds)


def whole(work: Work, alone: Undisturbed, folder: Path) -> bool:
    """Whether a change that somebody was killed at has been made; nothing lies between that and what was before."""
    commits = commits_of(folder)
    assert commits in (alone.before, alone.after), commits
    if work.commits:
        return commits == alone.after
    out = folder / work.name.replace("retrain_", "new-")
    return out.exists() and proven(out, folder)


def proven(out: Path, folder: Path) -> bool:
    """A model is whole, and true."""
    assert verify(out, folder / "s.zarr").status == "certified"
    return True


def end(work: Work, alone: Undisturbed, folder: Path) -> None:
    """Made again where it was not made, or may be made twice, it is as if nobody had been killed."""
    if work.twice or not whole(work, alone, folder):
        made(work.again, folder)
    assert whole(work, alone, folder)
    found = files_of(folder)
    assert found.keys() == alone.files.keys(), found.keys() ^ alone.files.keys()
    other = [name for name, content in alone.files.items() if content is not None and found[name] != content]
    assert not other, other


def killed_at(work: Work, base: Path, folder: Path, kills: int) -> tuple[int, int]:
    """Kill so many processes that make a change; how many died, and how many of these had made it by then."""
    alone = undisturbed(work, base, folder)
    died = done = 0
    for _ in range(TRIES * kills):
        if died == kills:
            break
        fresh(base, folder)
        killed, _ = made(work.make, folder, RNG.uniform(0.0, LONGER * alone.seconds))
        died, done = died + killed, done + (whole(work, alone, folder) and killed)
        end(work, alone, folder)
    return died, done


def main() -> None:
    """One kind of change after the other, each on what the one before it has left."""
    work_folder, kills = Path(sys.argv[1]), int(sys.argv[3])
    train_module.EVERY_S = 0.0
    sample_little()
    if KIND == "keyed":
        small_runs(setattr, merged=32)
    base, folder = work_folder / "base", work_folder / "now"
    base.mkdir()
    create(base)
    found = {}
    for work in works():
        found[work.name] = killed_at(work, base, folder, kills)
        if work.commits:
            fresh(base, folder)
            made(work.make, folder)
            fresh(folder, base)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
