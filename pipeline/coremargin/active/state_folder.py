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
class Mark:
    """How far a state has come: lines of the log that it knows, the hash of the last one and that of the last one that
    has changed it, and how many draws were wrong.
    """

    lines: int = 0
    last: str = ""
    about: str = ""
    wrong: int = 0


@dataclass(frozen=True)
class Marked:
    """A state with its mark, as it lies on disk: both are of one moment, whatever is killed."""

    state: Any
    mark: Mark

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
        """Those of the state, and the mark."""
        hashes = np.frombuffer(bytes.fromhex(self.mark.last + self.mark.about), np.uint8)
        counts = np.array([self.mark.lines, self.mark.wrong])
        return {**self.state.to_arrays(), "mark_counts": counts, "mark_hashes": hashes}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Marked:
        """Inverse of ``to_arrays``."""
        lines, wrong = arrays["mark_counts"].tolist()
        hashes = arrays["mark_hashes"].tobytes().hex()
        return cls(ActiveState.from_arrays(arrays), Mark(lines, hashes[:64], hashes[64:], wrong))


class Kept(Checkpoint):
    """The checkpoint of a campaign; whoever uses it holds the lock of the campaign, so it takes none of its own.

    mark: of the state that is handed over next.
    """

    def __init__(self, folder: Path, first: str) -> None:
        super().__init__(folder, {"campaign": first})
        self.folder = folder
        self.mark = Mark()
        self._stored: Mark | None = None  # of the state that was read

    def stamp(self) -> tuple[int, int] | None:
        """What changes whenever a state is saved; None where there is none."""
        with suppress(OSError):
            found = (self.folder / RECORD).stat()
            return found.st_ino, found.st_mtime_ns
        return None

    def found(self, scans: int) -> Marked | None:
        """The state on disk; None where there is none that can be used, which is then removed.

        scans: that it takes to compute it again.
        """
        try:
            marked = self.load(Marked.from_arrays)
        except CheckpointError as error:
            marked, reason = None, str(error).rpartition("; ")[0]  # what to do is another matter here
            log.warning(
                "%s; the state has to be computed again from the answers, with %d scans of the store", reason, scans
            )
        if marked is None:
            self.discard()
            return None
        self.mark = self._stored = marked.mark
        return marked

    def scan_begins(self, state: State, history: Mapping[str, Any] | None = None) -> None:
        """As of any checkpoint; the state is saved with its mark."""
        super().scan_begins(Marked(state, self.mark), history)

    def _is_stored(self, state: State) -> bool:
        """As of any checkpoint; states with as many scans behind them differ by what they know of the log."""
        return super()._is_stored(state) and self.mark == self._stored
