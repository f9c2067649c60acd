"""Find rows whose values at a point are below a level, without a copy of all rows in another precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import SHORTEST, Array, gamma
from coremargin.maths.rows import Rows, is_sparse, lengths, products, signed, take, weighted_sum

#: Sparse rows of at most this many features are solved as dense ones.
NARROW = 1000
#: Rows for the mean at which dense rows are centred, and rows evaluated in float64 at a time.
CENTRE_ROWS, EXACT_ROWS = 4096, 4096


class Levels:
    """Rows (m, d) as z_i = y_i (x_i - centre), and their margins at a point, without a copy in another precision.

    With an intercept the geometry does not depend on the origin; near the mean dense rows are better conditioned.
    """

    def __init__(self, rows: Rows, signs: NDArray[np.integer], *, intercept: bool) -> None:
        self.groups = (signs > 0).astype(np.int64) if intercept else np.zeros(len(signs), np.int64)
        of_groups = (np.flatnonzero(self.groups == group) for group in (0, 1))
        self.members = [some for some in of_groups if len(some)]
        self.rows = rows.toarray() if is_sparse(rows) and rows.shape[1] <= NARROW else rows
        self._signs = signs
        self._centre = np.zeros(rows.shape[1])
        if intercept and not is_sparse(self.rows):
            step = -(-len(signs) // CENTRE_ROWS)
            self._centre = np.asarray(self.rows[::step].mean(axis=0, dtype=np.float64))
        self._longest = float(lengths(self.rows).max()) if self._coarse else 0.0

    @property
    def sparse(self) -> bool:
        """Whether the z_i are sparse."""
        return is_sparse(self.rows)

    @property
    def _coarse(self) -> bool:
        return not self.sparse and self.rows.dtype != np.float64

    def z(self, places: NDArray[np.intp]) -> Rows:
        """Some of the z_i (k, d) in float64; a copy."""
        if self.sparse:
            return signed(take(self.rows, places), self._signs[places])
        return np.asarray((self.rows[places] - self._centre) * self._signs[places, None], np.float64)

    def first(self, batch: int) -> NDArray[np.intp]:
        """The first rows without a warm start: those of each group nearest to the other, between the means."""
        means = [
            weighted_sum(take(self.rows, mine), self._signs[mine] / len(mine)) - self._signs[mine].mean() * self._centre
            for mine in self.members
        ]
        direction = np.sum(means, axis=0)
        levels, _ = self._fast(direction / max(float(np.linalg.norm(direction)), SHORTEST))
        return np.concatenate([mine[np.argsort(levels[mine], kind="stable")[:batch]] for mine in self.members])

    def violators(self, point: Array, bases: Array, batch: int) -> tuple[NDArray[np.intp], float]:
        """Rows with z.point below their group's ``bases`` (g,), the lowest ``batch`` per group; and the gap over all
        rows.

        All rows are ranked in their own precision, and in float64 if that does not decide which are below.
        """
        length = float(np.linalg.norm(point))
        levels, error = self._fast(point / length)
        chosen, gap = [], 0.0
        for mine, base in zip(self.members, bases.tolist(), strict=True):
            near = _perhaps_below(levels, mine, base / length, error, batch)
            below = (self._exact(near, point) if error else length * levels[near]) - base
            gap += max(0.0, -float(below.min(initial=0.0)))
            order = np.argpartition(below, batch)[:batch] if len(below) > batch else np.arange(len(below))
            chosen.append(near[order[below[order] < 0]])
        return np.concatenate(chosen), gap

    def _exact(self, places: NDArray[np.intp], point: Array) -> Array:
        """z.point of some rows in float64."""
        parts = np.array_split(places, 1 + len(places) // EXACT_ROWS)
        return np.concatenate([self.z(part) @ point for part in parts])

    def _fast(self, point: Array) -> tuple[NDArray[np.floating[Any]], float]:
        """z.point (m,) for a point of length 1 in the rows' own precision, and a bound on the error.

        In float64, with a negligible error, if the rows' own precision overflows.
        """
        dtype = self.rows.dtype if self._coarse else np.dtype(np.float64)
        levels = self._in(dtype, point)
        if self._coarse and not np.isfinite(levels).all():
            dtype = np.dtype(np.float64)
            levels = self._in(dtype, point)
        if dtype == np.float64:
            return levels, 0.0
        size = self._longest + float(np.linalg.norm(self._centre))
        tiny = len(point) * float(np.finfo(dtype).tiny)
        return levels, gamma(len(point) + 8, dtype.type) * size + tiny

    def _in(self, dtype: np.dtype[Any], point: Array) -> NDArray[np.floating[Any]]:
        with np.errstate(over="ignore", invalid="ignore"):
            levels: NDArray[np.floating[Any]] = products(self.rows, point[:, None], dtype)[0]
            levels -= dtype.type(self._centre @ point)
            levels *= self._signs
        return levels


def _perhaps_below(
    levels: NDArray[np.floating[Any]], mine: NDArray[np.intp], level: float, error: float, batch: int
) -> NDArray[np.intp]:
    """The rows of ``mine`` that may be below a level, given the error; only the lowest, if enough certainly are."""
    if not error:
        return mine[levels[mine] < level]
    some = levels[mine].astype(np.float64)
    surely = np.flatnonzero(some < level - error)
    if len(surely) > batch:
        return mine[surely[np.argpartition(some[surely], batch)[:batch]]]
    return mine[some <= level + error]
