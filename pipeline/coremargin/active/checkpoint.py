"""The state of a campaign on disk (``state/``): a checkpoint that saves scans and solves, and may be lost."""

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
    """The lines of the log that a state is computed from.

    lines: their number; last: hash of the last one; about: hash of the last one that changed the state; wrong: number
    of draws predicted wrongly so far.
    """

    lines: int = 0
    last: str = ""
    about: str = ""
    wrong: int = 0


@dataclass(frozen=True)
class SavedState:
    """A state and its position in the log: saved together, so that a kill cannot separate them."""

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
        """The arrays of the state, and the position."""
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
    """The checkpoint of a campaign; it takes no lock, as callers hold that of the campaign.

    position: belongs to the next state that is saved.
    """

    def __init__(self, folder: Path, first: str) -> None:
        super().__init__(folder, {"campaign": first})
        self.folder = folder
        self.position = LogPosition()
        self._stored: LogPosition | None = None  # position of the loaded state

    def stamp(self) -> tuple[int, int] | None:
        """A value that changes with each saved state; None without one."""
        with suppress(OSError):
            found = (self.folder / RECORD).stat()
            return found.st_ino, found.st_mtime_ns
        return None

    def load_state(self, scans: int) -> SavedState | None:
        """The state on disk; None without a usable one. An unusable one is removed.

        scans: the number that computing it again takes, for the message.
        """
        try:
            saved = self.load(SavedState.from_arrays)
        except CheckpointError as error:
            saved, reason = None, str(error).rpartition("; ")[0]  # without the advice, which is for other checkpoints
            log.warning(
                "%s; the state has to be computed again from the answers, with %d scans of the store", reason, scans
            )
        if saved is None:
            self.discard()
            return None
        self.position = self._stored = saved.position
        return saved

    def scan_begins(self, state: State, history: Mapping[str, Any] | None = None) -> None:
        """As ``Checkpoint.scan_begins``; the state is saved with its position."""
        super().scan_begins(SavedState(state, self.position), history)

    def _is_stored(self, state: State) -> bool:
        """As ``Checkpoint._is_stored``; states with equal numbers of scans differ by their position in the log."""
        return super()._is_stored(state) and self.position == self._stored
