"""What is proven of the distances of each chunk's rows, so that it need not be read again, or not at all.

Extremes decide a ball: its centre still moves by a tenth of the radius when half of the rows are read, and a bound
around an earlier centre is weakened by all of that. So a stage leaves each chunk two bounds, around a *reference* that
never moves, the mean of the rows, and around the centre of the stage; each row counts for the one that serves better.
Ingest's own ball around the rows of a chunk is a third bound, which needs no read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.enclosing_ball import upper_bounds
from coremargin.maths.margin import Array, gamma
from coremargin.maths.rows import take
from coremargin.problems.common.balls import balls_of

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows

#: Columns of ``BlockBounds.upper``.
REFERENCE, CENTRE = 0, 1


@dataclass(frozen=True)
class BlockBounds:
    """Upper bounds of distances of the rows of c chunks that are not in the working set.

    reference (d,). Every such row of chunk k is within ``upper[k, 0]`` of the reference or within ``upper[k, 1]`` of
    ``centres[centre_index[k]]``; upper (c, 2), -inf: there is no such row. centres (r, d): those still in use. A chunk
    that was never read has index -1 and bounds inf.
    """

    reference: Array
    upper: Array
    centre_index: NDArray[np.int64]
    centres: Array

    @classmethod
    def unknown(cls, chunks: int, reference: Array) -> BlockBounds:
        """No chunk was read."""
        return cls(reference, np.full((chunks, 2), np.inf), np.full(chunks, -1), np.zeros((0, len(reference))))

    @property
    def unread(self) -> NDArray[np.bool_]:
        """Mask (c,) of the chunks that no scan has read."""
        return self.centre_index < 0

    def record(self, chunks: NDArray[np.int64], upper: Array, centre: Array) -> BlockBounds:
        """With the bounds (m, 2) that a scan around ``centre`` found for ``chunks`` (m,)."""
        new_upper, index = self.upper.copy(), self.centre_index.copy()
        new_upper[chunks] = upper
        index[chunks] = len(self.centres)
        centres = np.concatenate([self.centres, centre[None]])
        used, packed = np.unique(index[index >= 0], return_inverse=True)
        index[index >= 0] = packed
        return replace(self, upper=new_upper, centre_index=index, centres=centres[used])

    def without(self, chunks: NDArray[np.int64], count: int) -> BlockBounds:
        """For ``count`` chunks, at least as many as now: without bounds for new ones and for ``chunks`` (m,)."""
        more = count - len(self.centre_index)
        upper = np.concatenate([self.upper, np.full((more, 2), np.inf)])
        index = np.concatenate([self.centre_index, np.full(more, -1)])
        upper[chunks], index[chunks] = np.inf, -1
        return replace(self, upper=upper, centre_index=index)

    def raised(self, chunks: NDArray[np.int64], rows: Rows, centre: Array) -> BlockBounds:
        """Bounds that hold for rows (m, d) of ``chunks`` (m,) too, which have left the working set.

        centre (d,): the present one, for which each row counts where it does less harm.
        """
        upper, index = self.upper.copy(), self.centre_index[chunks]
        to_reference = upper_bounds(rows, self.reference)
        harm = to_reference + _distance(self.reference, centre)
        for k in np.unique(index[index >= 0]).tolist():
            mine = np.flatnonzero(index == k)
            to_centre = upper_bounds(take(rows, mine), self.centres[k])
            less = to_centre + _distance(self.centres[k], centre) < harm[mine]
            np.maximum.at(upper[:, CENTRE], chunks[mine[less]], to_centre[less])
            np.maximum.at(upper[:, REFERENCE], chunks[mine[~less]], to_reference[mine[~less]])
        return replace(self, upper=upper)

    def screen(self, source: Source, centre: Array, enough: float) -> Array:
        """Upper bounds (c,) of the distances to ``centre`` (d,), rounded up; at most ``enough`` needs no better one."""
        moves = np.array([_distance(one, centre) for one in self.centres] or [0.0])
        rounding = 1.0 + 4 * gamma(4)
        around = np.stack([self.upper[:, REFERENCE] + _distance(self.reference, centre), self.upper[:, CENTRE]], axis=1)
        around[:, CENTRE] += moves[self.centre_index]
        found = around.max(axis=1) * rounding
        far = np.flatnonzero(found > enough)
        for part, balls in balls_of(source, far):
            centres = np.zeros((1, len(centre))) if balls.centre is None else balls.centre
            apart = np.linalg.norm(centres - centre, axis=1) * (1.0 + 4 * gamma(len(centre) + 8))
            mine = far[part]
            found[mine] = np.minimum(found[mine], (apart + balls.radius) * rounding)
        return np.asarray(found)

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{field}": values for field, values in vars(self).items()}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> BlockBounds:
        """Inverse of ``to_arrays``."""
        return cls(*(arrays[f"{name}_{field}"] for field in ("reference", "upper", "centre_index", "centres")))


def _distance(one: Array, other: Array) -> float:
    """||one - other||, rounded up."""
    return float(np.linalg.norm(one - other)) * (1.0 + 4 * gamma(len(one) + 8))
