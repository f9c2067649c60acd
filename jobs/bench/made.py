"""Rows that are made from a seed when they are read: stores of terabytes that lie nowhere.

Row i is y t u + z: y = 1 or -1 in turn, u a direction, z across it, about N(0, I), and t >= ``MARGIN`` how far the row
lies from the plane through the origin. The first ``LOW`` rows of every chunk are its lowest, and of these each has its
own share of the range of t: whoever knows this need not make the rows after the first few to know what they answer. All
rows exist: any chunk can be read, and is the same whoever reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sizes import default_chunk_rows, scanned_bytes
from coremargin.data.statistics import ChunkScalars
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARGIN = 0.5
LOW = 4096  #: rows of a chunk that are its lowest, in order
TABLE = 1 << 15  #: halves of rows; each row is put together from two
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Made:
    """The handle: so many rows (n, d) float32 from a seed, in chunks of so many bytes."""

    rows: int
    features: int
    chunk_bytes: int = 8 << 20
    seed: int = 1

    def open_source(self) -> MadeSource:
        """The rows; one source a process."""
        return _opened(self)


@lru_cache(maxsize=2)
def _opened(handle: Made) -> MadeSource:
    return MadeSource(handle)


class MadeSource:
    """A source, as in coremargin/data/source.py, that reads nothing.

    asked_bytes: of centres that were asked for; answering_s: CPU time that its answers took in this process.
    """

    sparse, classes = False, (-1, 1)

    def __init__(self, handle: Made) -> None:
        self._handle = handle
        self.rows, self.features = handle.rows, handle.features
        self.name, self.dtype = f"made-{handle.rows}x{handle.features}", np.dtype(np.float32)
        self.chunk_rows = default_chunk_rows(handle.features, self.dtype.name, handle.chunk_bytes)
        self.chunks = -(-self.rows // self.chunk_rows)
        self.digest = f"sha256:{sha256(repr(handle).encode()).hexdigest()}"
        self.nbytes = scanned_bytes(self.rows, self.features * self.dtype.itemsize)
        self.step = 1 / (0.8 * self.chunk_rows)  #: of t from low row to low row: of |N(0, 1)| at its least
        self.asked_bytes, self.answering_s = 0, 0.0
        rng = np.random.default_rng(handle.seed)
        u = rng.standard_normal(self.features)
        self.u = u / np.linalg.norm(u)
        half = self.features // 2
        self._parts = [
            rng.standard_normal((TABLE, size), dtype=np.float32) for size in (half, self.features - half)
        ]  # fmt: skip
        across = float(np.sqrt(sum((part.astype(float) ** 2).sum(axis=1).max() for part in self._parts)))
        self.across = across * (1 + 1e-5)  #: no z is longer
        self.longest = float(np.hypot(self.across, self.t_of(np.array([LOW]), np.array([1 - 2**-32]))[0]))

    def t_of(self, place: NDArray[np.int64], share: NDArray[np.float64]) -> NDArray[np.float64]:
        """t (m,) of rows at these places in their chunks; share in [0, 1): of what their place leaves open."""
        low = np.minimum(place, LOW) + np.where(place < LOW, share, 0.0)
        return np.asarray(MARGIN + self.step * low + np.where(place < LOW, 0.0, np.sqrt(-2 * np.log1p(-share))))

    def handle(self) -> Made:
        """From which other processes make the same."""
        return self._handle

    def span(self, chunk: int) -> tuple[int, int]:
        """Row ids of a chunk."""
        return chunk * self.chunk_rows, min(self.rows, (chunk + 1) * self.chunk_rows)

    def make(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Rows (m, d) and codes (m,) of ids (m,)."""
        found = _mixed(ids.astype(np.uint64) + np.uint64(self._handle.seed) * _ODD)
        first, second = found % np.uint64(TABLE), (found >> np.uint64(15)) % np.uint64(TABLE)
        share = (found >> np.uint64(32)).astype(np.float64) / 2**32
        codes = self.codes(ids)
        rows = np.concatenate([self._parts[0][first], self._parts[1][second]], axis=1)
        along = (2 * codes - 1) * self.t_of(ids % self.chunk_rows, share) - rows @ self.u
        rows += (along[:, None] * self.u).astype(np.float32)
        return rows, codes

    @staticmethod
    def codes(ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """The label codes (m,) of ids (m,)."""
        return (ids % 2).astype(np.int32)

    def read(self, chunk: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """The rows of a chunk, made now."""
        return self.make(np.arange(*self.span(chunk)))

    def rows_at(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Some rows."""
        rows, codes = self.make(np.asarray(ids, np.int64))
        return rows.astype(np.float64), codes

    def labels(self, chunk: int) -> NDArray[np.int32]:
        """Codes of a chunk."""
        return self.codes(np.arange(*self.span(chunk)))

    def weights(self, _: int) -> None:
        """All are 1."""

    @cached_property
    def _scalars(self) -> ChunkScalars:
        rows = np.full(self.chunks, self.chunk_rows)
        rows[-1] = self.rows - self.span(self.chunks - 1)[0]
        ones = rows // 2
        length = np.full(self.chunks, self.longest * (1 + 1e-5))
        return ChunkScalars(
            rows=rows, counts=np.column_stack([rows - ones, ones]), unlabelled=np.zeros(self.chunks, np.int64),
            radius=length, max_norm=length, digest=np.zeros(self.chunks, np.uint64),
            nonzeros=rows * self.features, marks=np.zeros((self.chunks, 3), np.uint32),
        )  # fmt: skip

    def scalars(self) -> ChunkScalars:
        """Numbers per chunk, of true sizes: kept in memory, as a store's are."""
        return self._scalars

    def centres(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """The origin, from which no row is farther than the radius says."""
        found = np.zeros(((self.chunks if stop is None else stop) - start, self.features))
        self.asked_bytes += found.nbytes
        return found

    def statistics(self, start: int = 0, stop: int | None = None) -> Any:
        """Not made: what trains on rows as they are does not ask for it. Raises UsageError."""
        raise UsageError(f"{self.name}: chunks {start} to {stop}: rows that are made have no sums")


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers whose bits depend on all bits of the given ones (splitmix64's finalizer, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = numbers * _ODD
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
