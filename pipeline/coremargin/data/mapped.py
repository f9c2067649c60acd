"""Rows mapped as they are read: the view behind ``--map``. No data is rewritten, no extra scan is made.

Mapped rows are dense, in float64, whatever the rows are that they are made of; maths/feature_map.py says what they are.
A map of rows that are scaled, too, is one of the scaled rows. Several maps of the same rows are columns side by side:
each chunk is read once, whatever is made of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.reused import Reused
from coremargin.data.view import View
from coremargin.errors import BadRow, UsageError
from coremargin.formats.feature_map import PREFIX
from coremargin.maths.feature_map import feature_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coremargin.data.source import Source
    from coremargin.data.statistics import ChunkScalars
    from coremargin.maths.mapping import FeatureMap


#: Bytes that a chunk of mapped rows may have: the sample that a training begins with has one at least.
LARGEST_CHUNK = 1 << 31
#: Bytes of the mapped rows that a scan has at a time.
SLICE_BYTES = 64 << 20


class Mapped(View):
    """Mapped rows of a source. ``statistics`` stay those of the rows as they are stored."""

    kind = "mapped"

    def __init__(
        self, base: Source, how: str, shape: tuple[int, int, int, float], numbers: tuple[tuple[str, np.ndarray], ...]
    ) -> None:
        """Use ``mapped``; shape and numbers as of ``feature_map``."""
        super().__init__(base, how, shape, numbers)
        self.map: FeatureMap = feature_map(how, dict(numbers), shape)
        self.features, self.dtype, self.sparse = self.map.width, np.dtype(np.float64), False
        self.buffers = Reused()  #: for mapped rows; views that are asked in turn may share them

    @property
    def nbytes(self) -> int:
        """Bytes of all rows as they are mapped, and of their labels: what they would take in memory."""
        return self.rows * (8 * self.features + 4)

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Mapped rows (n, M) float64 and codes (n,) of a chunk, read-only."""
        rows, codes = self.base.read(chunk)
        return self._made(rows, chunk, self.span(chunk)[0]), codes

    def slices(self, chunk: int) -> Iterator[tuple[Any, np.ndarray]]:
        """The same some rows at a time, whose bits are those of ``read``: rows (n, M) and codes (n,), in order."""
        rows, codes = self.base.read(chunk)
        tile = self.map.tile_rows
        step = max(1, SLICE_BYTES // (8 * self.features) // tile) * tile
        for first in range(0, len(codes), step):
            part = slice(first, first + step)
            yield self._made(rows[part], chunk, self.span(chunk)[0] + first), codes[part]

    def _made(self, rows: Any, chunk: int, start: int) -> np.ndarray:
        """Rows (n, d) of a chunk, from row ``start`` on, mapped: (n, M), read-only."""
        n = rows.shape[0]
        out = self.buffers.take("rows", n * self.features, self.dtype).reshape(n, self.features)
        self._check(self.map.into(rows, out), start + np.arange(n), self._most[chunk : chunk + 1])
        out.flags.writeable = False
        return out

    def rows_at(self, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        """Mapped rows (m, M) float64 and codes (m,) of the given row ids, in the order given."""
        rows, codes = self.base.rows_at(ids)
        out = np.empty((rows.shape[0], self.features))
        squares = self.map.into(rows, out)
        self._check(squares, ids, self._most[ids // self.chunk_rows])
        return out, codes

    def _check(self, squares: np.ndarray, ids: np.ndarray, most: np.ndarray) -> None:
        """Raise BadRow for rows that are longer than mapped rows are; squares (n,): of their lengths."""
        bad = np.flatnonzero(~(squares <= most * most))
        if len(bad):
            raise BadRow(
                f"{self.name}: row {ids[bad[0]]}: mapped, it has length {np.sqrt(squares[bad[0]]):g}, expected at most "
                f"{most.max():g}: rounding decides about it; take fewer components or another gamma"
            )

    @cached_property
    def _most(self) -> np.ndarray:
        """Lengths (chunks,) that no mapped row of a chunk exceeds."""
        return self.map.longest(self.base.scalars().max_norm)

    def scalars(self) -> ChunkScalars:
        """Counts of the base; radius and largest norm of the mapped rows."""
        base = self.base.scalars()
        return replace(base, radius=self._most, max_norm=self._most, nonzeros=base.rows * self.features)

    def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Points (stop - start, M) from which no mapped row of the chunk is farther than the radius: the origin."""
        return np.zeros((len(range(*slice(start, stop).indices(self.chunks))), self.features))


def mapped(source: Source, made: FeatureMap | None) -> Source:
    """The source with its rows mapped, or itself for None. Raises UsageError for rows that do not fit."""
    if made is None:
        return source
    check_fits(source, made)
    return Mapped(source, *argument_of(made))


def check_fits(source: Source, made: FeatureMap) -> None:
    """Raises UsageError for rows that a map is none of, or takes too much memory or too many digits for."""
    if made.features != source.features:
        raise UsageError(f"{source.name}: expected rows of {made.features:,} features, found {source.features:,}")
    chunk = min(source.rows, source.chunk_rows)
    size = 8 * chunk * made.width
    if size > LARGEST_CHUNK:
        raise UsageError(
            f"{source.name}: a chunk of {chunk:,} rows would take {size:,} bytes when it is mapped to "
            f"{made.width:,} components, expected at most {LARGEST_CHUNK:,}; take fewer components, or ingest with a "
            f"smaller --chunk-size"
        )
    longest = float(source.scalars().max_norm.max(initial=0.0))
    if not longest <= made.surest():
        raise UsageError(
            f"{source.name}: gamma: rounding would decide about mapped rows of length {longest:g}, expected at most "
            f"{made.surest():g} with this map; take a smaller gamma, or --scaling standard"
        )


def argument_of(made: FeatureMap) -> tuple[str, tuple[int, int, int, float], tuple[tuple[str, np.ndarray], ...]]:
    """What ``Mapped`` takes beside its base: plain values and arrays that are all of a map."""
    degree, coef0 = getattr(made, "degree", 0), getattr(made, "coef0", 0.0)
    return made.KIND, (made.features, made.width, degree, float(coef0)), tuple(sorted(made.numbers().items()))


def map_of(source: Source) -> FeatureMap | None:
    """How the rows of a source are mapped, None for rows that are not."""
    while isinstance(source, View):
        if isinstance(source, Mapped):
            return source.map
        source = source.base
    return None


def moves_of(source: Source) -> float:
    """How far the exact mapped rows may be from those of a source, and from what another makes of them; 0 unmapped."""
    inner = source
    while isinstance(inner, View):
        if isinstance(inner, Mapped):
            return inner.map.moves(float(inner.base.scalars().max_norm.max(initial=0.0)))
        inner = inner.base
    return 0.0


def unmapped(source: Source) -> Source:
    """The rows under a map, or the source itself; labels and weights are those of the source under it."""
    inner = source
    while isinstance(inner, View):
        if isinstance(inner, Mapped):
            return inner.base
        inner = inner.base
    return source


def map_arrays(source: Source) -> Mapping[str, np.ndarray]:
    """The arrays that a model keeps of the map of a source's rows: none where they are not mapped."""
    made = map_of(source)
    return {} if made is None else {PREFIX + name: values for name, values in made.numbers().items()}


def as_kept(source: Source, ids: np.ndarray, rows: Any) -> Any:
    """Rows (m, M) of these ids as a model keeps them: before they are mapped; rows of no features stay as they are."""
    if map_of(source) is None or not rows.shape[1]:
        return rows
    return unmapped(source).rows_at(ids)[0]


class LastRead(View):
    """The same rows; the chunk that a thread has read last it finds again, for several views that are asked in turn."""

    def __init__(self, base: Source) -> None:
        super().__init__(base)
        self.digest = base.digest  # nothing differs
        self._local = threading.local()

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Rows and codes of a chunk, read-only."""
        last = getattr(self._local, "last", None)
        if last is None or last[0] != chunk:
            last = self._local.last = None  # the reader may fill its array again
            last = self._local.last = chunk, self.base.read(chunk)
        found: tuple[Any, np.ndarray] = last[1]
        return found

    def forget(self) -> None:
        """Let go of the chunk that this thread has read last."""
        self._local.last = None


class MappedEach(View):
    """Rows of a source as each of several maps makes them, side by side; ``each``: the views of one map each.

    What is asked of ``each`` about one chunk, one after the other and in one thread, reads it once.
    """

    kind = "mapped each"

    def __init__(self, base: Source, *maps: tuple[Any, ...]) -> None:
        """Use ``mapped_each``; maps: the arguments of a ``Mapped`` each."""
        super().__init__(base, *maps)
        self.last = LastRead(base)
        self.each = tuple(Mapped(self.last, *one) for one in maps)
        for one in self.each[1:]:  # asked in turn, they need no more room than one of them
            one.buffers = self.each[0].buffers
        self.features = sum(one.features for one in self.each)
        self.dtype, self.sparse = np.dtype(np.float64), False

    @property
    def nbytes(self) -> int:
        """Bytes of all rows as all maps make them, and of their labels."""
        return self.rows * (8 * self.features + 4)

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Mapped rows (n, M) float64 and codes (n,) of a chunk."""
        rows, codes = zip(*(one.read(chunk) for one in self.each), strict=True)
        self.last.forget()
        return np.concatenate(rows, axis=1), codes[0]

    def rows_at(self, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        """Mapped rows (m, M) float64 and codes (m,) of the given row ids, in the order given."""
        rows, codes = zip(*(one.rows_at(ids) for one in self.each), strict=True)
        return np.concatenate(rows, axis=1), codes[0]

    @cached_property
    def _most(self) -> np.ndarray:
        lengths = [one.scalars().max_norm for one in self.each]
        return np.asarray(np.sqrt(np.sum(np.square(lengths), axis=0)) * (1 + 1e-12))

    def scalars(self) -> ChunkScalars:
        """Counts of the base; radius and largest norm of the mapped rows."""
        base = self.base.scalars()
        return replace(base, radius=self._most, max_norm=self._most, nonzeros=base.rows * self.features)

    def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """The origin, for each chunk."""
        return np.concatenate([one.centres(start, stop) for one in self.each], axis=1)


def mapped_each(source: Source, maps: Sequence[FeatureMap]) -> MappedEach:
    """The source with its rows mapped by each of these. Raises UsageError for rows that do not fit one of them."""
    for made in maps:
        check_fits(source, made)
    return MappedEach(source, *map(argument_of, maps))
