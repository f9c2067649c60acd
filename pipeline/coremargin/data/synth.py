"""Synthetic stores of any size, from a seed: separable with a known margin, or noisy.

Rows are N(0, I), pushed ``margin`` away from a random hyperplane u.x + offset = 0 on the side where they lie; the side
is the label, flipped for a share ``noise`` of the rows. With a ``density`` below 1 rows are sparse: each has the same
number of features, one from each of as many runs of equal length, and is pushed along these alone. Rows are made in
cells of their own seed, so that the same rows come out for any number of threads and any size of chunks, and a longer
store begins with the rows of a shorter one.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from coremargin.data.chunks import ChunkSink
from coremargin.data.codecs import Encoding
from coremargin.data.commits import CommitInfo
from coremargin.data.format import Facts
from coremargin.data.ordered_threads import in_order
from coremargin.data.place import Place
from coremargin.data.sizes import CHUNK_BYTES, chunks_of, fitting_chunk_rows, fitting_sparse, scanned_bytes
from coremargin.data.sparse import csr_rows, csr_slice
from coremargin.data.store import Store
from coremargin.errors import OutputError, UsageError
from coremargin.formats.limits import LARGEST_CHUNK_BYTES, MOST_FEATURES, MOST_ROWS
from coremargin.formats.row_types import WIDE_TYPES
from coremargin.maths.rows import Rows, concatenate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coremargin.data.storages import Address

CLASSES = (-1, 1)
_CELL_ELEMENTS = 1 << 16
_OVERHEAD_BYTES = 64 << 20

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Recipe:
    """What to make; stored in the attributes of the store (``Store.about["synth"]``)."""

    rows: int
    features: int
    margin: float = 0.5
    noise: float = 0.0
    seed: int = 0
    dtype: str = "float32"
    chunk_bytes: int = CHUNK_BYTES
    density: float = 1.0

    @property
    def values(self) -> int:
        """Values that are not zero in each row."""
        return self.features if self.density == 1 else max(1, round(self.density * self.features))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row and its label as a scan reads them."""
        itemsize = np.dtype(self.dtype).itemsize
        if self.density == 1:
            return scanned_bytes(1, self.features * itemsize)
        return scanned_bytes(1, itemsize, nonzeros=self.values)

    def check(self) -> None:
        """Raise UsageError for what cannot be made."""
        limits = {
            "rows": (1, MOST_ROWS),
            "features": (1, LARGEST_CHUNK_BYTES // 8 if self.density == 1 else MOST_FEATURES),
            "chunk_bytes": (1, LARGEST_CHUNK_BYTES),
            "seed": (0, 1 << 63),
            "margin": (0.0, 1e6),
            "noise": (0.0, 1.0),
            "density": (0.0, 1.0),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise UsageError(f"{name}: expected {low:,} to {high:,}, got {value}")
        if self.dtype not in WIDE_TYPES:
            raise UsageError(f"dtype: expected {' or '.join(WIDE_TYPES)}, got {self.dtype!r}")


def plane(recipe: Recipe) -> tuple[np.ndarray, float]:
    """The hyperplane behind a recipe: unit normal u (d,) float64 and offset; labels are the signs of u.x + offset."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(recipe.seed, spawn_key=(0,))))
    u = generator.standard_normal(recipe.features)
    offset = 0.25 * float(generator.standard_normal())
    if recipe.density < 1:  # every feature counts as much, so that no row has to be pushed far; u.x is smaller then
        return np.copysign(1 / np.sqrt(recipe.features), u), offset * float(np.sqrt(recipe.density))
    return u / np.linalg.norm(u), offset


def rows_of(recipe: Recipe, start: int, stop: int) -> tuple[Rows, np.ndarray]:
    """Rows [start, stop) of a recipe, (stop - start, d), and their codes: 0 for -1, 1 for +1."""
    if recipe.density < 1:
        return sparse_rows_of(recipe, start, stop)
    X = np.empty((stop - start, recipe.features), dtype=recipe.dtype)
    codes = np.empty(stop - start, dtype=np.int32)
    u, offset = plane(recipe)
    u = u.astype(recipe.dtype)
    step = max(1, _CELL_ELEMENTS // recipe.features)
    for cell in range(start // step, (stop - 1) // step + 1):
        first, last = max(start, cell * step), min(stop, (cell + 1) * step)
        part, sides = _cell(recipe, cell, last - cell * step, u, offset)
        X[first - start : last - start] = part[first - cell * step :]
        codes[first - start : last - start] = sides[first - cell * step :]
    return X, codes


def _cell(recipe: Recipe, cell: int, rows: int, u: np.ndarray, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of a cell; drawn in row order, so that fewer rows are a prefix of more."""
    seeds = np.random.SeedSequence(recipe.seed, spawn_key=(1, cell))
    generator, flipping = (np.random.Generator(np.random.PCG64(seed)) for seed in seeds.spawn(2))
    X: np.ndarray = generator.standard_normal((rows, recipe.features), dtype=u.dtype.type)
    side = np.einsum("ij,j->i", X, u) + u.dtype.type(offset) >= 0  # einsum: one thread, one order of additions
    X += np.where(side, recipe.margin, -recipe.margin).astype(u.dtype)[:, None] * u
    flipped = flipping.random(rows) < recipe.noise
    return X, (side ^ flipped).astype(np.int32)


def sparse_rows_of(recipe: Recipe, start: int, stop: int) -> tuple[Rows, np.ndarray]:
    """The same for rows that are sparse."""
    u, offset = plane(recipe)
    step, parts, sides = max(1, _CELL_ELEMENTS // recipe.values), [], []
    for cell in range(start // step, (stop - 1) // step + 1):
        first, last = max(start, cell * step), min(stop, (cell + 1) * step)
        part, side = _sparse_cell(recipe, cell, last - cell * step, u.astype(recipe.dtype), offset)
        parts.append(csr_slice(part, first - cell * step, last - cell * step))
        sides.append(side[first - cell * step :])
    return concatenate(parts), np.concatenate(sides)


def _sparse_cell(recipe: Recipe, cell: int, rows: int, u: np.ndarray, offset: float) -> tuple[Any, np.ndarray]:
    k, d = recipe.values, recipe.features
    seeds = np.random.SeedSequence(recipe.seed, spawn_key=(1, cell))
    values_of, flipping, placing = (np.random.Generator(np.random.PCG64(seed)) for seed in seeds.spawn(3))
    X: np.ndarray = values_of.standard_normal((rows, k), dtype=u.dtype.type)
    bounds = np.arange(k + 1) * d // k
    places = bounds[:-1] + (placing.random((rows, k)) * np.diff(bounds)).astype(np.int64)
    side = np.einsum("ij,ij->i", X, u[places]) + u.dtype.type(offset) >= 0
    X += np.where(side, recipe.margin, -recipe.margin).astype(u.dtype)[:, None] * u[places] * u.dtype.type(d / k)
    X[X == 0] = 1  # never in practice; a stored zero is none
    flipped = flipping.random(rows) < recipe.noise
    starts = np.arange(rows + 1, dtype=np.int32) * k
    return csr_rows(X.reshape(-1), places.reshape(-1).astype(np.int32), starts, d), (side ^ flipped).astype(np.int32)


def synth(
    path: Address,
    recipe: Recipe,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Store:
    """Make a store; memory is a few chunks per worker (threads; default: one per core).

    on_progress(rows done, bytes done) is called in this thread. Raises UsageError, OutputError, Busy; then nothing is
    left behind.
    """
    recipe.check()
    file_entries = 0
    if recipe.density < 1:
        stored = recipe.rows * recipe.values
        chunk_rows, file_entries = fitting_sparse(recipe.rows, stored, recipe.dtype, recipe.chunk_bytes)
    else:
        chunk_rows = fitting_chunk_rows(recipe.rows, recipe.features, recipe.dtype, recipe.chunk_bytes)
    about = {"synth": asdict(recipe)}
    facts = Facts(recipe.features, recipe.dtype, chunk_rows, CLASSES, about=about, file_entries=file_entries)
    place = Place.new(path, overwrite=overwrite)
    try:
        _room_for(place, facts, recipe)
        sink = ChunkSink(place, facts, Encoding())
        _fill(sink, recipe, chunk_rows, workers or len(os.sched_getaffinity(0)), on_progress)
        sink.commit(recipe.rows, CLASSES, CommitInfo("ingest", "coremargin synth"))
    finally:
        place.close()
    return Store.open(place.target)


def _fill(
    sink: ChunkSink, recipe: Recipe, chunk_rows: int, workers: int, on_progress: Callable[[int, int], None] | None
) -> None:
    chunks = range(chunks_of(recipe.rows, chunk_rows))

    def make(index: int) -> tuple[int, Rows, np.ndarray]:
        stop = min(recipe.rows, (index + 1) * chunk_rows)
        return stop, *rows_of(recipe, index * chunk_rows, stop)

    def write(index: int) -> int:
        stop, X, codes = make(index)
        sink.put(index, X, codes, None, len(CLASSES))
        return stop

    def in_turn(pool: Executor) -> Iterator[tuple[int, list[Callable[[], None]]]]:
        """What is left to do for each chunk of sparse rows: their files follow one another."""
        for index, (stop, X, codes) in enumerate(in_order(pool, make, chunks, workers)):
            yield stop, sink.tasks(index, X, codes, None, len(CLASSES))

    def finish(left: tuple[int, list[Callable[[], None]]]) -> int:
        for task in left[1]:
            task()
        return left[0]

    with ThreadPoolExecutor(workers, thread_name_prefix="coremargin-synth") as pool:
        sparse = recipe.density < 1
        steps = in_order(pool, finish, in_turn(pool), workers) if sparse else in_order(pool, write, chunks, workers + 2)
        for stop in steps:
            if on_progress is not None:
                on_progress(stop, sink.bytes_written)
    sink.close_values(None, recipe.rows)


def _room_for(place: Place, facts: Facts, recipe: Recipe) -> None:
    """Refuse early what will not fit on the disk."""
    chunks = chunks_of(recipe.rows, facts.chunk_rows)
    itemsize = np.dtype(facts.dtype).itemsize
    support = min(facts.features, facts.chunk_rows * recipe.values)
    statistics = 5 * 8 if recipe.density == 1 else 4 + 2 * itemsize + 16
    per_chunk = facts.chunk_rows * recipe.row_bytes + statistics * support
    needed, free = chunks * per_chunk, place.target.free_bytes()
    if needed + min(_OVERHEAD_BYTES, math.ceil(needed / 20)) > free:
        raise OutputError(f"{place.name}: needs {needed:,} bytes, {free:,} are free; make room or ask for fewer rows")


def recipe_of(store: Store) -> Recipe | None:
    """The recipe of a synthetic store, or None for data from elsewhere."""
    kept: Any = store.about.get("synth")
    return Recipe(**kept) if isinstance(kept, dict) else None
