"""Checkpoints: a killed job resumes from them with the same bits.

A folder ``.NAME.checkpoint`` next to the model, or where ``local_place`` says for one at an address, holds the state at
the start of the current scan, the summaries of the blocks that are done, and the rounds so far. It is written every few
seconds of scanning and when the job is interrupted, and removed when the model is in place. ``job.json`` makes it a
checkpoint: it is written after the state that it names and removed first, so that a kill leaves a complete checkpoint
or none. Each state that is written has its own number, which is part of the names of its blocks' files. The lock
``.NAME.lock`` rejects a second job on the same output; the kernel frees it when a job is killed.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from coremargin.data.files import output_errors, put_in_place, sync_folder, write_whole
from coremargin.data.folder import write_arrays
from coremargin.data.locked import Locked, local_place
from coremargin.data.owned import Kind
from coremargin.errors import CheckpointError, DataError, raise_if_limit
from coremargin.formats.npz import read_arrays
from coremargin.version import version

if TYPE_CHECKING:
    from coremargin.engine.problem import State
    from coremargin.engine.protocols import Block, BlockResult, Probe, Summary

S = TypeVar("S")
#: What to do with the checkpoint of an earlier run: refuse, resume or discard it.
Begin = Literal["new", "resume", "restart"]

VERSION = 8
RECORD = "job.json"
_STEP = r"(?:state-(\d+)|blocks-(\d+)-\d+)\.npz"
#: The entries of a record that identify the coremargin that wrote it.
_WRITER = ("version", "software")
#: Errors that a problem may raise when it restores its state from the arrays of another problem.
_UNUSABLE = (
    DataError,
    OSError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    EOFError,
)
#: The folder of a checkpoint. Other files in it are never removed.
CHECKPOINT = Kind(what="a checkpoint", records={}, files=rf"{re.escape(RECORD)}|{_STEP}")
#: Seconds between two checkpoints: after a kill at most this much scanning is repeated, and the blocks in flight.
EVERY_S = 15.0


def folder_of(out: str | os.PathLike[str]) -> Path:
    """The folder of the checkpoint of the model at ``out``."""
    place = local_place(out)
    return place.with_name(f".{place.name}.checkpoint")


def identity_then(out: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The identity of the checkpoint of ``out``, such as its store's digest; empty without a readable one."""
    try:
        return dict(json.loads((folder_of(out) / RECORD).read_text(encoding="utf-8"))["identity"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return {}


class Checkpoint:
    """The checkpoint of the job that writes the model at ``out``.

    identity: entries that must be equal for a checkpoint to be usable (store digest, parameters, format). Use as a
    context manager: entering takes the lock (Busy if another job has it).
    """

    def __init__(self, out: str | os.PathLike[str], identity: Mapping[str, Any], *, every_s: float = EVERY_S) -> None:
        self.folder = folder_of(out)
        self._identity = {"version": VERSION, "software": version(), **identity}
        self._every_s = every_s
        self._lock = Locked(out, "this model")
        self._saved = time.monotonic()
        self._state: State | None = None
        self._state_is_new = False  # not written yet
        self._stored_round = -1
        self._number = -1  # of the state on disk
        self._loaded = False  # the state on disk was read, and no scan has begun since
        self._fresh: dict[int, Summary] = {}
        self._found: dict[int, dict[str, np.ndarray]] = {}
        self._parts = 0
        self.history: Mapping[str, Any] = {}  #: further data of the job, as JSON: rounds, meters

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    # reading

    def exists(self) -> bool:
        """Whether there is a checkpoint to resume from. Raises CheckpointError if its folder is a file or link."""
        if os.path.lexists(self.folder) and (self.folder.is_symlink() or not self.folder.is_dir()):
            raise CheckpointError(f"{self.folder}: expected a checkpoint's folder, found a file or link; move it away")
        return (self.folder / RECORD).exists()

    def load(self, restore: Callable[[Mapping[str, np.ndarray]], S]) -> S | None:
        """The state to resume from, made by ``restore`` from its arrays; None if nothing was saved.

        Raises CheckpointError for the checkpoint of another job and for damaged files.
        """
        self._forget()
        if not self.exists():
            self.discard()
            return None
        self.check()
        CHECKPOINT.sweep(self.folder)
        try:
            state = restore(self._read(f"state-{self._number}.npz"))
            for path in sorted(self.folder.glob(f"blocks-{self._number}-*.npz")):
                self._parts = int(path.stem.rpartition("-")[2]) + 1
                for name, values in self._read(path.name).items():
                    index, _, field = name.partition(".")
                    self._found.setdefault(int(index), {})[field] = values
        except _UNUSABLE as error:
            raise self._damaged(error) from error
        self._loaded = True
        return state

    def _forget(self) -> None:
        """Forget the loaded files and the unwritten results."""
        self._state, self._state_is_new, self._loaded = None, False, False
        self._stored_round, self._number, self._parts = -1, -1, 0
        self._found, self._fresh = {}, {}

    def check(self) -> None:
        """Read the record. Raises CheckpointError if it is another job's, or cannot be read."""
        try:
            record = json.loads((self.folder / RECORD).read_text(encoding="utf-8"))
            identity = dict(record["identity"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            raise self._damaged(error) from error
        if [identity.get(key) for key in _WRITER] != [self._identity[key] for key in _WRITER]:
            earlier = "an earlier one" if identity.get("version") in range(VERSION) else "another"
            raise CheckpointError(
                f"{self.folder}: expected a checkpoint that this coremargin wrote ({version()}, format {VERSION}), "
                f"found one that {earlier} wrote ({identity.get('software')}, format {identity.get('version')}); "
                f"resume with that one, or start again with --restart"
            )
        try:  # other formats have other names
            history = dict(record["history"])
            at, number = int(record["round"]), int(record["state"])
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise self._damaged(error) from error
        changed = [key for key in self._identity | identity if identity.get(key) != self._identity.get(key)]
        if changed:
            changes = "; ".join(f"{key} was {identity.get(key)!r}, is {self._identity.get(key)!r}" for key in changed)
            raise CheckpointError(
                f"{self.folder}: expected a checkpoint of this job, found one of another: {changes}; "
                f"resume with the earlier values, or start again with --restart"
            )
        self._stored_round, self._number, self.history = at, number, history

    def _damaged(self, error: Exception) -> CheckpointError:
        raise_if_limit(error, self.folder)
        reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError | IndexError) else str(error)
        return CheckpointError(f"{self.folder}: the checkpoint cannot be read ({reason}); start again with --restart")

    def discard(self) -> None:
        """Remove the checkpoint's files, the record first."""
        with output_errors(self.folder):
            if self.exists():
                (self.folder / RECORD).unlink()
            with suppress(OSError):
                CHECKPOINT.remove(self.folder)
        self._forget()

    # writing

    def scan_begins(self, state: State, history: Mapping[str, Any] | None = None) -> None:
        """Assign all later blocks to a scan that starts at ``state``; history: None leaves it unchanged.

        State, history and blocks change together, without a signal in between, so that a checkpoint is consistent.
        """
        if state is not self._state:
            resumes = self._loaded and len(self._found) > 0 and self._is_stored(state)
            self._state_is_new, self._loaded = not resumes, False
            self._found = self._found if resumes else {}
        self._state, self.history = state, self.history if history is None else history
        self._fresh = {}
        if time.monotonic() - self._saved >= self._every_s:
            self.save()

    def _is_stored(self, state: State) -> bool:
        """Whether a state is the loaded one, whose file is on disk with the blocks of its scan."""
        return state.round == self._stored_round

    def known(self, probe: Probe) -> dict[int, Summary]:
        """Summaries of blocks that need not run again, by index."""
        return {index: probe.from_arrays(arrays) for index, arrays in self._found.items()}

    def missing(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks that have no summary yet."""
        return [block for block in blocks if block.index not in self._found]

    def block_done(self, result: BlockResult) -> None:
        """Add a block; saves when the last save is ``every_s`` old."""
        self._fresh[result.block.index] = result.summary
        if time.monotonic() - self._saved >= self._every_s:
            self.save()

    def save(self) -> None:
        """Write what has changed: the state first, then the blocks of the scan that started from it."""
        if self._state is None:
            return
        with output_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
            if self._state_is_new:
                number = self._unused()
                self._write(f"state-{number}.npz", self._state.to_arrays())
                self._number, self._stored_round, self._parts = number, self._state.round, 0
                self._state_is_new = False
            self._point_at(self._number)
            if self._fresh:
                arrays = {f"{i}.{k}": v for i, s in sorted(self._fresh.items()) for k, v in s.to_arrays().items()}
                self._write(f"blocks-{self._number}-{self._parts:06d}.npz", arrays)
                self._parts += 1
                self._fresh = {}
        self._saved = time.monotonic()

    def _steps(self) -> Iterator[tuple[Path, int]]:
        """The files of states and blocks, each with the number of its state."""
        for path in self.folder.iterdir():
            step = re.fullmatch(_STEP, path.name)
            if step is not None:
                yield path, int(step[1] or step[2])

    def _unused(self) -> int:
        """A number that no file has: files that a kill left belong to other states."""
        return 1 + max([self._number, *(number for _, number in self._steps())])

    def _point_at(self, number: int) -> None:
        """Write a record that names this state, and remove files of other states."""
        record = {"identity": self._identity, "state": number, "round": self._stored_round, "history": self.history}
        write_whole(self.folder / RECORD, [json.dumps(record).encode()])
        sync_folder(self.folder)
        for path, state in list(self._steps()):
            if state != number:
                path.unlink()

    def _write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        with put_in_place(self.folder / name) as aside:
            write_arrays(aside, arrays)
            with aside.open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(self.folder)

    def _read(self, name: str) -> dict[str, np.ndarray]:
        with (self.folder / name).open("rb") as file:
            return read_arrays(file, str(self.folder / name), most_members=1_000_000)


class NoCheckpoint(Checkpoint):
    """For models in memory: nothing is locked, written or loaded."""

    def __init__(self) -> None:
        super().__init__(Path("model"), {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def exists(self) -> bool:
        """No."""
        return False

    def load(self, restore: Callable[[Mapping[str, np.ndarray]], S]) -> S | None:
        """None."""
        return None

    def discard(self) -> None:
        """Do nothing."""

    def scan_begins(self, state: State, history: Mapping[str, Any] | None = None) -> None:
        """Do nothing."""

    def block_done(self, result: BlockResult) -> None:
        """Do nothing."""

    def save(self) -> None:
        """Do nothing."""
