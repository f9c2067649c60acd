"""Block bounds: what earlier scans have proven about each chunk, so that later scans can skip it. A scan at a direction
w gives each chunk a lower bound on y w.x of its rows. The rows of a chunk lie in a ball whose centre and radius ingest
has stored. So the bound, somewhat weakened, also holds for later directions (maths/screening.py). It is not about rows
of the working set, whose values are known.

Near-margin rows that are cached with a model have a common bound of this kind. They are loaded from their file only if
this bound does not prove enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.lazy_arrays import LazyArrays
from coremargin.errors import DataError
from coremargin.maths import rows as row_ops
from coremargin.maths.margin import NEGATIVE, POSITIVE, Array, safe_projections, smallest_projections
from coremargin.maths.named import below, under
from coremargin.maths.rows import Rows, take
from coremargin.maths.screening import Balls, screened_floor
from coremargin.problems.common.balls import balls_of, take_balls
from coremargin.problems.common.driver_rows import WorkingSet, isin_ids

if TYPE_CHECKING:
    from coremargin.data.source import Source


@dataclass(frozen=True)
class BlockBounds:
    """Lower bounds of chunks: lower (c, 2), of y w.x over the rows of each class outside the working set.

    Each bound holds at the direction that the chunk was last read at: directions (r, d) are all directions that are
    still in use, direction_index (c,) is that of each chunk. A chunk that no scan has read has index -1 and bounds
    -inf.
    """

    lower: Array
    direction_index: NDArray[np.int64]
    directions: Array

    @classmethod
    def unknown(cls, chunks: int, features: int) -> BlockBounds:
        """Bounds before any chunk was read."""
        return cls(np.full((chunks, 2), -np.inf), np.full(chunks, -1), np.zeros((0, features)))

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return len(self.direction_index)

    @property
    def unread(self) -> NDArray[np.int64]:
        """Chunks without bounds, increasing."""
        return np.flatnonzero(self.direction_index < 0)

    def record(self, chunks: NDArray[np.int64], lower: Array, direction: Array) -> BlockBounds:
        """Add the bounds (m, 2) that a scan at ``direction`` found for ``chunks`` (m,)."""
        new_lower, index = self.lower.copy(), self.direction_index.copy()
        new_lower[chunks] = lower
        index[chunks] = len(self.directions)
        directions = np.concatenate([self.directions, direction[None]])
        used, packed = np.unique(index[index >= 0], return_inverse=True)
        index[index >= 0] = packed
        return BlockBounds(new_lower, index, directions[used])

    def without(self, chunks: NDArray[np.int64], count: int) -> BlockBounds:
        """Extend to ``count`` chunks, and drop the bounds of ``chunks`` (m,); new chunks have none."""
        more = count - self.chunks
        lower = np.concatenate([self.lower, np.full((more, 2), -np.inf)])
        index = np.concatenate([self.direction_index, np.full(more, -1)])
        lower[chunks], index[chunks] = -np.inf, -1
        return BlockBounds(lower, index, self.directions)

    def lowered(self, chunks: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> BlockBounds:
        """Lower the bounds so that they also hold for rows (m, d) of ``chunks`` (m,) that have left the working set."""
        lower, values = self.lower.copy(), self._values(chunks, rows, signs)
        for sign, column in ((1, POSITIVE), (-1, NEGATIVE)):
            mine = np.flatnonzero((signs == sign) & (self.direction_index[chunks] >= 0))
            np.minimum.at(lower[:, column], chunks[mine], values[mine])
        return BlockBounds(lower, self.direction_index, self.directions)

    def below(self, chunks: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> NDArray[np.bool_]:
        """Which of rows (m, d) of ``chunks`` (m,), all with bounds, lie below the bound of their chunk."""
        columns = np.where(signs > 0, POSITIVE, NEGATIVE)
        return np.asarray(self._values(chunks, rows, signs) < self.lower[chunks, columns])

    def _values(self, chunks: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> Array:
        """y w.x (m,), rounded down, of rows (m, d) at the directions of their chunks; 0 without a direction."""
        found = np.zeros(len(signs))
        for index in np.unique(self.direction_index[chunks]):
            if index >= 0:
                here = np.flatnonzero(self.direction_index[chunks] == index)
                direction = self.directions[index][:, None]
                found[here] = safe_projections(take(rows, here), signs[here], direction)[:, 0]
        return found

    def screen(self, source: Source, directions: Array, chunks: NDArray[np.int64]) -> Array:
        """Lower bounds (k, 2, m) on y w.x at new directions (d, k) over the rows of ``chunks`` (m,)."""
        bound = np.full((directions.shape[1], 2, len(chunks)), -np.inf)
        known = np.flatnonzero(self.direction_index[chunks] >= 0)
        for part, balls in balls_of(source, chunks[known]):
            place = known[part]
            indices = self.direction_index[chunks[place]]
            for old in np.unique(indices):
                mine = np.flatnonzero(indices == old)
                lower, some = self.lower[chunks[place[mine]]], take_balls(balls, mine)
                for k, new in enumerate(directions.T):
                    bound[k][:, place[mine]] = screened_floor(lower, some, self.directions[old], new).T
        return bound

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {
            f"{name}_lower": self.lower,
            f"{name}_direction_index": self.direction_index,
            f"{name}_directions": self.directions,
        }

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> BlockBounds:
        """Inverse of ``to_arrays``."""
        return cls(arrays[f"{name}_lower"], arrays[f"{name}_direction_index"], arrays[f"{name}_directions"])


_PLAIN = ("ids", "signs", "places", "lower", "direction", "longest", "chunk_rows")


@dataclass(frozen=True)
class NearRows:
    """Near-margin rows of dual weight zero, loaded lazily from a file of the model's folder.

    ids (m,) int64, increasing; signs (m,) int8; places (m,): of the rows among those in the file. lower (2,): bounds on
    y w.x over the rows of each class at ``direction`` (d,); longest: no row is longer; chunk_rows: of the store.
    """

    ids: NDArray[np.int64]
    signs: NDArray[np.int8]
    places: NDArray[np.int64]
    lower: Array
    direction: Array
    longest: float
    chunk_rows: int
    filed: LazyArrays

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def from_working_set(cls, rows: WorkingSet, direction: Array, chunk_rows: int) -> NearRows:
        """Make these rows, whose weights are zero, near rows."""
        rows = rows.in_order()
        return cls(
            ids=rows.ids,
            signs=rows.signs,
            places=np.arange(len(rows)),
            lower=smallest_projections(rows.rows, rows.signs, direction[:, None])[:, 0],
            direction=direction,
            longest=float(row_ops.lengths(rows.rows).max(initial=0.0)),
            chunk_rows=chunk_rows,
            filed=LazyArrays.of(row_ops.to_arrays("rows", rows.rows)),
        )

    @property
    def chunks(self) -> NDArray[np.int64]:
        """Chunks that contain the rows, increasing."""
        return np.unique(self.ids // self.chunk_rows)

    def without(self, ids: NDArray[np.int64]) -> NearRows:
        """The near rows without these; the file does not change."""
        stay = ~isin_ids(self.ids, ids)
        return replace(self, ids=self.ids[stay], signs=self.signs[stay], places=self.places[stay])

    def screen(self, directions: Array) -> Array:
        """Lower bounds (2, k) on y w.x of the rows at directions (d, k)."""
        around = Balls(None, np.array([self.longest]))
        bounds = [
            self.lower
            if np.array_equal(new, self.direction)
            else screened_floor(self.lower[None], around, self.direction, new)[0]
            for new in directions.T
        ]
        return np.stack(bounds, axis=1)

    def read(self) -> WorkingSet:
        """Load the rows, with weights of zero. Raises DataError if the file is damaged or another one."""
        arrays = self.filed.arrays()
        try:
            rows = row_ops.from_arrays("rows", arrays)
            fits = rows.shape[0] > self.places.max(initial=-1) and rows.shape[1:] == self.direction.shape
        except (LookupError, ValueError, TypeError) as error:
            raise self.filed.another() from error
        if not fits:
            raise self.filed.another()
        mine = rows if len(self) == rows.shape[0] else row_ops.take(rows, self.places)
        return WorkingSet.unweighted(self.ids, mine, self.signs)

    def to_arrays(self, name: str) -> dict[str, Any]:
        """Plain arrays, exact, and the rows as ``LazyArrays``."""
        return {f"{name}_{field}": np.asarray(getattr(self, field)) for field in _PLAIN} | {f"{name}_filed": self.filed}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, Any]) -> NearRows:
        """Inverse of ``to_arrays``, and of ``in_memory`` after it."""
        plain: dict[str, Any] = {field: arrays[f"{name}_{field}"] for field in _PLAIN}
        plain |= {"longest": float(plain["longest"]), "chunk_rows": int(plain["chunk_rows"])}
        filed = arrays.get(f"{name}_filed")
        if filed is None:
            rows = below(f"{name}_filed", arrays)
            filed = LazyArrays.of(rows) if rows else LazyArrays.lost()
        return cls(**plain, filed=filed)


def in_memory(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """All arrays in memory, loaded from their file if need be; without those of a damaged file.

    A state is the same with loaded rows as with rows in a file, because a running scan treats both as known.
    """
    found = {name: values for name, values in arrays.items() if not isinstance(values, LazyArrays)}
    for name, values in arrays.items():
        if isinstance(values, LazyArrays):
            with suppress(DataError):
                found |= under(name, values.arrays())
    return found
