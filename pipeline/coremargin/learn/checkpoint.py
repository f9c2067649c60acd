"""Checkpoints: what a killed job needs to go on with the same bits.

A folder ``.NAME.checkpoint`` beside the model holds the state at the start of the current scan, the summaries of the
blocks that are done, and the rounds so far. It is written every few seconds of scanning and when the job is
interrupted, and removed when the model is in place. A lock in it refuses a second job on the same output.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from filelock import FileLock, Timeout

from coremargin.data.files import output_errors, sync_folder
from coremargin.errors import Busy, CheckpointError, DataError
from coremargin.learn.folder import read_arrays, write_arrays

if TYPE_CHECKING:
    from coremargin.scan.protocols import BlockResult, Probe, Summary

VERSION = 1
#: Seconds between two checkpoints: a kill repeats at most this much scanning and the blocks in flight.
EVERY_S = 15.0


class Checkpoint:
    """The checkpoint of the job that writes the model at ``out``.

    identity: what must be equal for a checkpoint to be of use (store digest, parameters, format). Use as a context
    manager: entering takes the lock (Busy when another job has it).
    """

    def __init__(self, out: Path, identity: Mapping[str, Any], *, every_s: float = EVERY_S) -> None:
        self.folder = out.with_name(f".{out.name}.checkpoint")
        self.out = out
        self._identity = {"version": VERSION, **identity}
        self._every_s = every_s
        self._lock = FileLock(out.with_name(f".{out.name}.lock"), timeout=0)
        self._saved = time.monotonic()
        self._state: Any = None
        self._stored_round = -1
        self._fresh: dict[int, Summary] = {}
        self._found: dict[int, dict[str, np.ndarray]] = {}
        self._parts = 0
        self.history: dict[str, Any] = {}  #: what the job wants to find again, as JSON: rounds, meters

    def __enter__(self) -> Self:
        with output_errors(self.out):
            self.out.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except Timeout:
                raise Busy(
                    f"{self.out}: another job is writing this model; wait for it, or choose another output"
                ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        Path(self._lock.lock_file).unlink(missing_ok=True)  # while it is held: who waits sees it and makes a new one
        self._lock.release()

    # what was there

    def exists(self) -> bool:
        """True when an earlier job left something to go on with."""
        return (self.folder / "job.json").exists()

    def load(self) -> dict[str, np.ndarray] | None:
        """The state to go on with; None when nothing was saved. Raises CheckpointError for another job's checkpoint."""
        if not self.exists():
            self.discard()
            return None
        place = f"{self.folder}/job.json"
        try:
            record = json.loads((self.folder / "job.json").read_text(encoding="utf-8"))
            identity, self._stored_round, self.history = record["identity"], int(record["round"]), record["history"]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{place}: cannot be read ({error}); start again with --restart") from error
        if identity != self._identity:
            differs = [key for key in self._identity if identity.get(key) != self._identity[key]] or list(identity)
            raise CheckpointError(
                f"{place}: belongs to another job, it differs in {', '.join(differs)}: expected "
                f"{self._identity.get(differs[0])!r}, found {identity.get(differs[0])!r}; run that job again, or start "
                f"this one with --restart"
            )
        try:
            state = self._read(f"state-{self._stored_round}.npz")
            for path in sorted(self.folder.glob(f"blocks-{self._stored_round}-*.npz")):
                self._parts += 1
                for name, values in self._read(path.name).items():
                    index, _, field = name.partition(".")
                    self._found.setdefault(int(index), {})[field] = values
        except (DataError, FileNotFoundError) as error:
            raise CheckpointError(f"{self.folder}: {error}; start again with --restart") from error
        return state

    def discard(self) -> None:
        """Remove what is there."""
        with output_errors(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
        self._stored_round, self._parts = -1, 0
        self._found, self._fresh = {}, {}

    # what is coming

    def scan_begins(self, state: Any) -> None:
        """From now on blocks belong to a scan that starts at ``state``."""
        self._state = state
        self._fresh = {}
        if state.round != self._stored_round:
            self._found, self._parts = {}, 0
        if time.monotonic() - self._saved >= self._every_s:
            self.save()

    def known(self, probe: Probe) -> dict[int, Summary]:
        """Summaries of blocks that need not run again."""
        return {index: probe.from_arrays(arrays) for index, arrays in self._found.items()}

    def block_done(self, result: BlockResult) -> None:
        """Remember a block; written when it is time."""
        self._fresh[result.block.index] = result.summary
        if time.monotonic() - self._saved >= self._every_s:
            self.save()

    def save(self) -> None:
        """Write what is new: the state first, then the blocks of the scan that started from it."""
        if self._state is None:
            return
        with output_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
            if self._state.round != self._stored_round:
                self._write(f"state-{self._state.round}.npz", self._state.to_arrays())
                self._point_at(self._state.round)
            if self._fresh:
                arrays = {f"{i}.{k}": v for i, s in sorted(self._fresh.items()) for k, v in s.to_arrays().items()}
                self._write(f"blocks-{self._stored_round}-{self._parts:06d}.npz", arrays)
                self._parts += 1
                self._fresh = {}
        self._saved = time.monotonic()

    def _point_at(self, number: int) -> None:
        """Make the state of this round the one to go on with; older files go."""
        record = {"identity": self._identity, "round": number, "history": self.history}
        aside = self.folder / "job.json.aside"
        with aside.open("w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.folder / "job.json")
        sync_folder(self.folder)
        self._stored_round, self._parts = number, 0
        for path in self.folder.glob("*.npz"):
            if path.name.split("-")[1].split(".")[0] != str(number):
                path.unlink()

    def _write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        aside = self.folder / f"{name}.aside"
        aside.unlink(missing_ok=True)
        write_arrays(aside, arrays)
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(aside, self.folder / name)
        sync_folder(self.folder)

    def _read(self, name: str) -> dict[str, np.ndarray]:
        with (self.folder / name).open("rb") as file:
            return read_arrays(file, str(self.folder / name), most_members=1_000_000)


class NoCheckpoint(Checkpoint):
    """For models that stay in memory: nothing is locked, written or found."""

    def __init__(self) -> None:
        super().__init__(Path("model"), {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def exists(self) -> bool:
        """Never."""
        return False

    def load(self) -> None:
        """Nothing."""
        return

    def discard(self) -> None:
        """Nothing to remove."""

    def scan_begins(self, state: Any) -> None:
        """Not remembered."""

    def block_done(self, result: BlockResult) -> None:
        """Not remembered."""

    def save(self) -> None:
        """Not written."""
