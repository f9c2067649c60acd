"""Balls that contain the rows of each chunk; ingest has stored their centres and radii."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import gamma
from coremargin.maths.screening import Balls

if TYPE_CHECKING:
    from coremargin.data.source import Source

Array = NDArray[np.float64]

#: Centres are loaded in slabs of about this size: a store of terabytes has a hundred thousand chunks.
SLAB_BYTES = 32 << 20
#: Centres of sparse chunks are used if they take at most this share of the store's bytes.
CENTRES_SHARE = 0.1


def balls_of(source: Source, chunks: NDArray[np.int64]) -> Iterator[tuple[slice, Balls]]:
    """The balls of ``chunks`` (m,), increasing, for as many chunks at a time as fit into a slab of memory.

    The centres of a sparse store are dense: with a million features one may take as many bytes as its chunk. Then the
    balls are around the origin.
    """
    scalars = source.scalars()
    if source.sparse and 8 * source.chunks * source.features > CENTRES_SHARE * source.nbytes:
        if len(chunks):
            yield slice(0, len(chunks)), Balls(None, scalars.max_norm[chunks])
        return
    step = max(1, SLAB_BYTES // (8 * source.features))
    for first in range(0, len(chunks), step):
        part = slice(first, min(first + step, len(chunks)))
        mine = chunks[part]
        yield part, Balls(_centres(source, mine, step), scalars.radius[mine])


def _centres(source: Source, chunks: NDArray[np.int64], step: int) -> Array:
    """The centres (m, d) of ``chunks`` (m,), increasing; reads those between them too, at most ``step`` at a time."""
    found = np.empty((len(chunks), source.features))
    first = 0
    while first < len(chunks):
        stop = int(np.searchsorted(chunks, chunks[first] + step))
        mine = chunks[first:stop]
        found[first:stop] = source.centres(int(mine[0]), int(mine[-1]) + 1)[mine - mine[0]]
        first = stop
    return found


def take_balls(balls: Balls, at: NDArray[np.intp]) -> Balls:
    """The balls at these positions."""
    return Balls(None if balls.centre is None else balls.centre[at], balls.radius[at])


def enclosing_radius(source: Source, *, origin: bool = False) -> float:
    """Upper bound of the radius of a ball around all rows, about the mean of the chunks' centres or the origin.

    Reads the centres of chunks twice, and no row.
    """
    scalars = source.scalars()
    longest = float(scalars.max_norm.max())
    if origin or not np.isfinite(longest):
        return longest
    chunks = np.arange(source.chunks)
    mean, rows = np.zeros(source.features), int(scalars.rows.sum())
    for part, balls in balls_of(source, chunks):
        if balls.centre is None:
            return longest
        mean += (scalars.rows[part] / rows) @ balls.centre
    farthest = 0.0
    for _, balls in balls_of(source, chunks):
        if balls.centre is not None:
            distances = np.linalg.norm(balls.centre - mean, axis=1) * (1 + gamma(source.features + 4)) + balls.radius
            farthest = max(farthest, float(distances.max()))
    return min(longest, farthest * (1 + 1e-15))
