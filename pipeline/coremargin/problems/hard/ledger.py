"""The ledger: what earlier scans proved about each chunk, so that a later scan may skip it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import NEGATIVE, POSITIVE, Array, safe_projections
from coremargin.maths.rows import Rows, take
from coremargin.maths.screening import Balls, screened_floor

if TYPE_CHECKING:
    from coremargin.data.source import Source

#: Centres are loaded in slabs of about this size: a store of terabytes has a hundred thousand chunks.
SLAB_BYTES = 32 << 20
#: Centres of sparse chunks are read where they are at most this share of the store's bytes.
CENTRES_SHARE = 0.1


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

    def lowered(self, chunks: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> Ledger:
        """After rows (m, d) that lie in ``chunks`` (m,) have left the pool: floors speak of them again."""
        floor = self.floor.copy()
        for which in np.unique(self.which[chunks]):
            if which < 0:
                continue
            here = np.flatnonzero(self.which[chunks] == which)
            values = safe_projections(take(rows, here), signs[here], self.directions[which][:, None])[:, 0]
            for sign, column in ((1, POSITIVE), (-1, NEGATIVE)):
                mine = here[signs[here] == sign]
                np.minimum.at(floor[:, column], chunks[mine], values[signs[here] == sign])
        return Ledger(floor, self.which, self.directions)

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


def balls_of(source: Source, chunks: NDArray[np.int64]) -> Iterator[tuple[slice, Balls]]:
    """Where the rows of ``chunks`` (m,), increasing, lie: of so many chunks at a time as fit into a slab of memory.

    The centres of a sparse store are dense: with a million features one is as long as the chunk that it may spare.
    There rows are taken to lie around the origin.
    """
    scalars = source.scalars()
    if source.sparse and 8 * source.chunks * source.features > CENTRES_SHARE * source.nbytes:
        yield slice(0, len(chunks)), Balls(None, scalars.max_norm[chunks])
        return
    step = max(1, SLAB_BYTES // (8 * source.features))
    for first in range(0, len(chunks), step):
        part = slice(first, min(first + step, len(chunks)))
        mine = chunks[part]
        yield part, Balls(_centres(source, mine, step), scalars.radius[mine])


def _centres(source: Source, chunks: NDArray[np.int64], step: int) -> Array:
    """The centres (m, d) of ``chunks`` (m,), increasing; those between them are read along, ``step`` at most."""
    found = np.empty((len(chunks), source.features))
    first = 0
    while first < len(chunks):
        stop = int(np.searchsorted(chunks, chunks[first] + step))
        mine = chunks[first:stop]
        found[first:stop] = source.centres(int(mine[0]), int(mine[-1]) + 1)[mine - mine[0]]
        first = stop
    return found


def some_of(balls: Balls, at: NDArray[np.intp]) -> Balls:
    """Those of some of the chunks."""
    return Balls(None if balls.centre is None else balls.centre[at], balls.radius[at])
