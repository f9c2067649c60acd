"""The ledger: what earlier scans proved about each chunk, so that a later scan may skip it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import NEGATIVE, POSITIVE, Array, safe_projections
from coremargin.maths.rows import Rows, take
from coremargin.maths.screening import screened_floor
from coremargin.problems.common.balls import balls_of, some_of

if TYPE_CHECKING:
    from coremargin.data.source import Source


@dataclass(frozen=True)
class Ledger:
    """Per chunk: floor (c, 2), lower bounds on y w.x over its rows outside the pool, at direction ``which`` (c,).

    directions (r, d) are the directions of the scans that are still referred to; ``which`` is -1 for a chunk that no
    scan has read yet (its floor is -inf).
    """

    floor: Array
    which: NDArray[np.int64]
    directions: Array

    @classmethod
    def blank(cls, chunks: int, features: int) -> Ledger:
        """Nothing is known."""
        return cls(np.full((chunks, 2), -np.inf), np.full(chunks, -1), np.zeros((0, features)))

    def record(self, chunks: NDArray[np.int64], floor: Array, direction: Array) -> Ledger:
        """With the floors (m, 2) that a scan at ``direction`` found for these chunks."""
        new_floor, which = self.floor.copy(), self.which.copy()
        new_floor[chunks] = floor
        which[chunks] = len(self.directions)
        directions = np.concatenate([self.directions, direction[None]])
        used, packed = np.unique(which[which >= 0], return_inverse=True)
        which[which >= 0] = packed
        return Ledger(new_floor, which, directions[used])

    def unknown(self, chunks: NDArray[np.int64], count: int) -> Ledger:
        """Of so many chunks, at least as many as these are: nothing is known of new ones, nor of ``chunks`` (m,)."""
        more = count - len(self.which)
        floor = np.concatenate([self.floor, np.full((more, 2), -np.inf)])
        which = np.concatenate([self.which, np.full(more, -1)])
        floor[chunks], which[chunks] = -np.inf, -1
        return Ledger(floor, which, self.directions)

    @property
    def unread(self) -> NDArray[np.int64]:
        """The chunks, increasing, of which nothing is known."""
        return np.flatnonzero(self.which < 0)

    def lowered(self, chunks: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> Ledger:
        """After rows (m, d) that lie in ``chunks`` (m,) have left the pool: floors speak of them again."""
        floor, values = self.floor.copy(), self._values(chunks, rows, signs)
        for sign, column in ((1, POSITIVE), (-1, NEGATIVE)):
            mine = np.flatnonzero((signs == sign) & (self.which[chunks] >= 0))
            np.minimum.at(floor[:, column], chunks[mine], values[mine])
        return Ledger(floor, self.which, self.directions)

    def lowering(self, chunks: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> NDArray[np.bool_]:
        """Which of rows (m, d), of chunks (m,) that are known, lie below the floors that are there."""
        columns = np.where(signs > 0, POSITIVE, NEGATIVE)
        return np.asarray(self._values(chunks, rows, signs) < self.floor[chunks, columns])

    def _values(self, chunks: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> Array:
        """y w.x (m,), rounded down, of rows (m, d) at the directions of their chunks; 0 where there is none."""
        found = np.zeros(len(signs))
        for which in np.unique(self.which[chunks]):
            if which >= 0:
                here = np.flatnonzero(self.which[chunks] == which)
                at = self.directions[which][:, None]
                found[here] = safe_projections(take(rows, here), signs[here], at)[:, 0]
        return found

    def screen(self, source: Source, directions: Array, chunks: NDArray[np.int64]) -> Array:
        """Lower bounds (k, 2, m) on y w.x for directions (d, k) over the rows outside the pool of ``chunks`` (m,)."""
        bound = np.full((directions.shape[1], 2, len(chunks)), -np.inf)
        known = np.flatnonzero(self.which[chunks] >= 0)
        for part, balls in balls_of(source, chunks[known]):
            at = known[part]
            which = self.which[chunks[at]]
            for old in np.unique(which):
                mine = np.flatnonzero(which == old)
                floor, some = self.floor[chunks[at[mine]]], some_of(balls, mine)
                for k, new in enumerate(directions.T):
                    bound[k][:, at[mine]] = screened_floor(floor, some, self.directions[old], new).T
        return bound

    def to_arrays(self) -> dict[str, Array | NDArray[np.int64]]:
        """For models and checkpoints."""
        return {"ledger_floor": self.floor, "ledger_which": self.which, "ledger_directions": self.directions}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Ledger:
        """Inverse of ``to_arrays``."""
        return cls(arrays["ledger_floor"], arrays["ledger_which"], arrays["ledger_directions"])
