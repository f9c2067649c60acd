"""What is proven of the levels of each chunk's rows, so that it need not be read again, or not at all.

As of a ball (ball/block_bounds.py) each chunk has two bounds, and each row counts for the one that serves better: the
level in the *frame*, whose metric is that of a sample and never changes, and the level in the ellipsoid of the stage
that read it. Levels in another ellipsoid follow exactly (``largest_levels``). Ingest's ball around the rows of a chunk
is a third bound, which needs no read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.enclosing_ellipsoid import Ellipsoid, largest_levels, rounding
from coremargin.maths.margin import Array, gamma
from coremargin.problems.ball.block_bounds import CENTRE, REFERENCE
from coremargin.problems.common.balls import balls_of

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.enclosing_ellipsoid import Frame


@dataclass(frozen=True)
class LevelBounds:
    """Upper bounds of levels of the rows of c chunks that are not in the working set.

    Every such row of chunk k has a level of at most ``upper[k, 0]`` in the frame, or of at most ``upper[k, 1]`` in the
    ellipsoid ``index[k]``; upper (c, 2), -inf: there is no such row. centres (e, r), factors (e, r, r): the ellipsoids
    still in use. A chunk that was not read has index -1 and bounds inf.
    """

    upper: Array
    index: NDArray[np.int64]
    centres: Array
    factors: Array

    @classmethod
    def unknown(cls, chunks: int, rank: int) -> LevelBounds:
        """No chunk was read."""
        return cls(np.full((chunks, 2), np.inf), np.full(chunks, -1), np.zeros((0, rank)), np.zeros((0, rank, rank)))

    @property
    def unread(self) -> NDArray[np.bool_]:
        """Mask (c,) of the chunks that no scan has read."""
        return self.index < 0

    def ellipsoid(self, k: int) -> Ellipsoid:
        """One of those that chunks are bounded by."""
        return Ellipsoid(self.centres[k], self.factors[k])

    def record(self, chunks: NDArray[np.int64], upper: Array, one: Ellipsoid) -> LevelBounds:
        """With the bounds (m, 2) that a scan about an ellipsoid found for ``chunks`` (m,)."""
        new_upper, index = self.upper.copy(), self.index.copy()
        new_upper[chunks] = upper
        index[chunks] = len(self.centres)
        centres = np.concatenate([self.centres, one.centre[None]])
        factors = np.concatenate([self.factors, one.factor[None]])
        used, packed = np.unique(index[index >= 0], return_inverse=True)
        index[index >= 0] = packed
        return LevelBounds(new_upper, index, centres[used], factors[used])

    def without(self, chunks: NDArray[np.int64], count: int) -> LevelBounds:
        """For ``count`` chunks, at least as many as now: without bounds for new ones and for ``chunks`` (m,)."""
        more = count - len(self.index)
        upper = np.concatenate([self.upper, np.full((more, 2), np.inf)])
        index = np.concatenate([self.index, np.full(more, -1)])
        upper[chunks], index[chunks] = np.inf, -1
        return replace(self, upper=upper, index=index)

    def raised(self, chunks: NDArray[np.int64], z: Array, now: Ellipsoid) -> LevelBounds:
        """Bounds that hold for points z (m, r) of rows of ``chunks`` (m,) too, which have left the working set.

        now: the present ellipsoid, for which each row counts where it does less harm.
        """
        upper, index = self.upper.copy(), self.index[chunks]
        in_frame = _upper_levels(unit_ball(z.shape[1]), z)
        harm = largest_levels(unit_ball(z.shape[1]), now, in_frame)
        for k in np.unique(index[index >= 0]).tolist():
            mine = np.flatnonzero(index == k)
            own = _upper_levels(self.ellipsoid(k), z[mine])
            less = largest_levels(self.ellipsoid(k), now, own) < harm[mine]
            np.maximum.at(upper[:, CENTRE], chunks[mine[less]], own[less])
            np.maximum.at(upper[:, REFERENCE], chunks[mine[~less]], in_frame[mine[~less]])
        return replace(self, upper=upper)

    def screen(self, source: Source, frame: Frame, one: Ellipsoid, enough: float) -> Array:
        """Upper bounds (c,) of the levels in an ellipsoid, rounded up; at most ``enough`` needs no better one."""
        found = largest_levels(unit_ball(frame.rank), one, self.upper[:, REFERENCE])
        for k in np.unique(self.index[self.index >= 0]).tolist():
            mine = np.flatnonzero(self.index == k)
            found[mine] = np.maximum(found[mine], largest_levels(self.ellipsoid(k), one, self.upper[mine, CENTRE]))
        if frame.rank < frame.features:  # a ball does not prove that its rows lie in the span
            return found
        far = np.flatnonzero(found > enough)
        widest = float(np.linalg.norm(one.factor @ frame.whiten, 2)) * (1.0 + 4 * gamma(frame.rank + 8))
        for part, balls in balls_of(source, far):
            centres = np.zeros((1, frame.features)) if balls.centre is None else balls.centre
            at_centre = _upper_levels(one, frame.coordinates(centres))
            mine = far[part]
            found[mine] = np.minimum(found[mine], (at_centre + widest * balls.radius) * (1.0 + rounding(one)))
        return found

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{field}": values for field, values in vars(self).items()}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> LevelBounds:
        """Inverse of ``to_arrays``."""
        return cls(*(arrays[f"{name}_{field}"] for field in ("upper", "index", "centres", "factors")))


def unit_ball(rank: int) -> Ellipsoid:
    """The metric of a frame."""
    return Ellipsoid(np.zeros(rank), np.eye(rank))


def _upper_levels(one: Ellipsoid, z: Array) -> Array:
    """Levels (m,) of points (m, r), rounded up."""
    return one.levels(z) * (1.0 + rounding(one))
