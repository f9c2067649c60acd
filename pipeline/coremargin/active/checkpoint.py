"""The state of a campaign on disk (``state/``): a checkpoint, which saves scans and solves, and may be lost."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.engine.checkpoint import RECORD, Checkpoint
from coremargin.errors import CheckpointError
from coremargin.problems.active.state import ActiveState

if TYPE_CHECKING:
    from coremargin.engine.problem import State

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogPosition:
    """How far a state has followed the log.

    lines: that it knows; last: the hash of the last one; about: of the last one that has changed it; wrong: how many
    draws were predicted wrongly so far.
    """

    lines: int = 0
    last: str = ""
    about: str = ""
    wrong: int = 0


@dataclass(frozen=True)
class SavedState:
    """A state and its position in the log: on disk they are of one moment, whatever is killed."""

    state: Any
    position: LogPosition

    @property
    def round(self) -> int:
        """Of the state."""
        return int(self.state.round)

    @property
    def status(self) -> str:
        """Of the state."""
        return str(self.state.status)

    @property
    def sample_bytes(self) -> int:
        """Of the state."""
        return int(self.state.sample_bytes)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Those of the state, and the position."""
        hashes = np.frombuffer(bytes.fromhex(self.position.last + self.position.about), np.uint8)
        counts = np.array([self.position.lines, self.position.wrong])
        return {**self.state.to_arrays(), "mark_counts": counts, "mark_hashes": hashes}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SavedState:
        """Inverse of ``to_arrays``."""
        lines, wrong = arrays["mark_counts"].tolist()
        hashes = arrays["mark_hashes"].tobytes().hex()
        return cls(ActiveState.from_arrays(arrays), LogPosition(lines, hashes[:64], hashes[64:], wrong))


class StateCheckpoint(Checkpoint):
    """The checkpoint of a campaign; whoever uses it holds the lock of the campaign, so it takes none of its own.

    position: of the state that is handed over next.
    """

    def __init__(self, folder: Path, first: str) -> None:
        super().__init__(folder, {"campaign": first})
        self.folder = folder
        self.position = LogPosition()
        self._stored: LogPosition | None = None  # of the state that was read

    def stamp(self) -> tuple[int, int] | None:
        """What changes whenever a state is saved; None where there is none."""
        with suppress(OSError):
            found = (self.folder / RECORD).stat()
            return found.st_ino, found.st_mtime_ns
        return None

    def load_state(self, scans: int) -> SavedState | None:
        """The state on disk; None where there is none that can be used, which is then removed.

        scans: that it takes to compute it again.
        """
        try:
            saved = self.load(SavedState.from_arrays)
        except CheckpointError as error:
            saved, reason = None, str(error).rpartition("; ")[0]  # what to do is another matter here
            log.warning(
                "%s; the state has to be computed again from the answers, with %d scans of the store", reason, scans
            )
        if saved is None:
            self.discard()
            return None
        self.position = self._stored = saved.position
        return saved

    def scan_begins(self, state: State, history: Mapping[str, Any] | None = None) -> None:
        """As of any checkpoint; the state is saved with its position."""
        super().scan_begins(SavedState(state, self.position), history)

    def _is_stored(self, state: State) -> bool:
        """As of any checkpoint; states with as many scans behind them differ by what they know of the log."""
        return super()._is_stored(state) and self.position == self._stored
