"""Per-chunk statistics: what ingest counts so that later scans can skip, scale and sample."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.narrow_rows import widen
from coremargin.data.sparse import INDEX_DTYPE, INDPTR_DTYPE
from coremargin.data.sparse_statistics import largest_square, occurring, on_support, scaling, sparse_sums
from coremargin.maths.rows import concatenate as stacked
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scipy.sparse import csr_array

_BLOCK_ELEMENTS = 1 << 15  # float64 scratch of 256 KiB stays in the second-level cache
_UNIT = np.finfo(np.float64).eps
_TINY = 2e-154  # a difference below this squares to less than the smallest normal float64
_SMALL = 1e-280  # sums of squares below this may have lost such differences
_LARGE = 1e150  # values above this are scaled before they are squared
_NARROW = 32  # features; fewer make runs along a row too short to vectorise


@dataclass(frozen=True)
class ChunkStatistics:
    """One entry per chunk, in chunk order; all float64 unless noted.

    rows (c,) int64; counts (c, classes) int64 rows of each class code; unlabelled (c,) int64;
    centre (c, d): the mean row; radius (c,): max ||x - centre||, rounded up; max_norm (c,): max ||x||, rounded up;
    low, high (c, d): smallest and largest value of each feature; total (c, d): sums of x; spread (c, d): sums of
    (x - centre)^2, from which variances of any union of chunks follow without cancellation (Chan, Golub, LeVeque 1979);
    digest (c,) uint64: crc32c of the rows' bytes in the high half, of the labels' bytes in the low half
    (little-endian, committed rows only, so that a chunk that grows keeps the proof of its older rows).

    nonzeros (c,) int64: values stored; n d for dense rows. marks (c, 3) uint32: crc32c of the indices of sparse rows
    (int32), of the number of values of each row (int64), and of the weights (float64); 0 for what is not there. Of
    sparse rows ``digest`` has the stored values, and centre, low, high, total, spread are CSR arrays (c, d).
    """

    rows: np.ndarray
    counts: np.ndarray
    unlabelled: np.ndarray
    centre: np.ndarray | csr_array
    radius: np.ndarray
    max_norm: np.ndarray
    low: np.ndarray | csr_array
    high: np.ndarray | csr_array
    total: np.ndarray | csr_array
    spread: np.ndarray | csr_array
    digest: np.ndarray
    nonzeros: np.ndarray
    marks: np.ndarray

    @property
    def scalars(self) -> ChunkScalars:
        """What is a number per chunk, or per class and chunk."""
        return ChunkScalars(**{field.name: getattr(self, field.name) for field in fields(ChunkScalars)})


@dataclass(frozen=True)
class ChunkScalars:
    """The entries of ``ChunkStatistics`` that are one number (or one per class) per chunk: cheap at any size."""

    rows: np.ndarray
    counts: np.ndarray
    unlabelled: np.ndarray
    radius: np.ndarray
    max_norm: np.ndarray
    digest: np.ndarray
    nonzeros: np.ndarray
    marks: np.ndarray

    def part(self, start: int, stop: int) -> ChunkScalars:
        """Those of the chunks [start, stop)."""
        return ChunkScalars(**{name: values[start:stop] for name, values in vars(self).items()})


def chunk_digest(X: np.ndarray | csr_array, codes: np.ndarray) -> int:
    """Checksums of the bytes of rows (n, d) and labels (n,) in one uint64, as in ``ChunkStatistics.digest``."""
    return crc32c(_raw(X.data if is_sparse(X) else X)) << 32 | crc32c(_raw(codes))


def chunk_marks(X: np.ndarray | csr_array, weights: np.ndarray | None) -> np.ndarray:
    """The checksums (3,) uint32 of ``ChunkStatistics.marks``."""
    marks = [0, 0, 0 if weights is None else crc32c(_raw(weights.astype(np.float64, copy=False)))]
    if is_sparse(X):
        lengths = np.diff(X.indptr).astype(INDPTR_DTYPE)
        marks[:2] = crc32c(_raw(X.indices.astype(INDEX_DTYPE, copy=False))), crc32c(_raw(lengths))
    return np.array(marks, dtype=np.uint32)


def _raw(values: np.ndarray) -> memoryview:
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return little.data.cast("B")


def measure(
    X: np.ndarray | csr_array, codes: np.ndarray, classes: int, weights: np.ndarray | None = None
) -> ChunkStatistics:
    """Statistics of one chunk: rows X (n, d) as they are stored, finite, n >= 1; codes (n,) int32, -1 unlabelled.

    Everything is computed in float64 with a fixed order of operations, so that the same rows give the same bits.
    """
    vectors, radius, norm = _of_sparse(X) if is_sparse(X) else _of_dense(widen(np.asarray(X)))
    return ChunkStatistics(
        **vectors,
        rows=np.array([X.shape[0]], dtype=np.int64),
        counts=np.bincount(codes[codes >= 0], minlength=classes).astype(np.int64)[None, :],
        unlabelled=np.array([np.count_nonzero(codes < 0)], dtype=np.int64),
        radius=np.array([radius]),
        max_norm=np.array([norm]),
        digest=np.array([chunk_digest(X, codes)], dtype=np.uint64),
        nonzeros=np.array([X.nnz if is_sparse(X) else np.size(X)], dtype=np.int64),
        marks=chunk_marks(X, weights)[None, :],
    )


def _of_dense(X: np.ndarray) -> tuple[dict[str, Any], float, float]:
    """The vectors (1, d) of dense rows, their radius and largest norm."""
    n, d = X.shape
    low, high, total = _extremes_and_sums(X)
    largest = max(float(high.max()), -float(low.min()))
    scale = scaling(largest, _LARGE)  # squares must not overflow
    centre = total / n
    if not np.isfinite(centre).all():  # the sum overflowed, the mean need not
        centre = _extremes_and_sums(X.astype(np.float64) / n)[2]
    _, norm = _sums_of_squares(X, np.zeros(d), scale)
    spread, farthest = _sums_of_squares(X, centre, scale)
    varies = bool((low != high).any() or (centre != low).any())  # a mean of equal rows may round away from them
    with np.errstate(over="ignore"):  # squares of distances beyond 1e154 are infinite, and reported as such
        spread = np.where(low == high, 0.0, spread / scale / scale)
    vectors = {"centre": centre, "low": low, "high": high, "total": total, "spread": spread}
    radius = _rounded_up(farthest, scale, d) if varies else 0.0
    return {name: values[None, :] for name, values in vectors.items()}, radius, _norm(norm, scale, d, largest)


def _of_sparse(X: csr_array) -> tuple[dict[str, Any], float, float]:
    """The vectors (1, d) of sparse rows as CSR arrays, their radius and largest norm."""
    sums = sparse_sums(X, _LARGE)
    scale = scaling(sums.largest, _LARGE)
    vectors = {name: on_support(values, sums.support, X.shape[1]) for name, values in sums.vectors.items()}
    radius = _rounded_up(sums.farthest, scale, sums.terms) if sums.varies else 0.0
    return vectors, radius, _norm(sums.norm, scale, sums.terms, sums.largest)


def longest(X: np.ndarray | csr_array) -> float:
    """``ChunkStatistics.max_norm`` of rows X (n, d), n >= 1, and no more of it."""
    values = X.data if is_sparse(X) else np.asarray(X)
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    scale = scaling(largest, _LARGE)
    if is_sparse(X):
        return _norm(largest_square(X, scale), scale, occurring(X), largest)
    return _norm(_sums_of_squares(X, np.zeros(X.shape[1]), scale)[1], scale, X.shape[1], largest)


def _norm(square: float, scale: float, d: int, largest: float) -> float:
    return _rounded_up(square, scale, d) if largest > 0 else 0.0


def _parts(X: np.ndarray) -> Iterator[np.ndarray]:
    """Runs of rows in float64, small enough for the cache; narrow ones (d, m) so that sums run along memory."""
    n, d = X.shape
    step = max(1, _BLOCK_ELEMENTS // d)
    for start in range(0, n, step):
        part = X[start : start + step]
        yield np.array(part.T if d < _NARROW else part, dtype=np.float64, order="C")


def _extremes_and_sums(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Smallest and largest value and sum of each feature: (d,) each."""
    d = X.shape[1]
    low, high, total = np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d)
    rows = 1 if d < _NARROW else 0
    for part in _parts(X):
        np.minimum(low, part.min(axis=rows), out=low)
        np.maximum(high, part.max(axis=rows), out=high)
        with np.errstate(over="ignore"):
            total += np.add.reduce(part, axis=rows)
    return low, high, total


def _sums_of_squares(X: np.ndarray, centre: np.ndarray, scale: float) -> tuple[np.ndarray, float]:
    """Sums over rows of ((x - centre) scale)^2 per feature (d,), and the largest sum over features of a row."""
    squares, largest = np.zeros(len(centre)), 0.0
    narrow = len(centre) < _NARROW
    shift = (centre[:, None] if narrow else centre) * scale
    for values in _parts(X):
        part = (values * scale if scale != 1.0 else values) - shift
        np.multiply(part, part, out=part)
        squares += np.add.reduce(part, axis=1 if narrow else 0)
        largest = max(largest, float(np.add.reduce(part, axis=0 if narrow else 1).max()))
    return squares, largest


def _rounded_up(square: float, scale: float, d: int) -> float:
    """A number no smaller than the exact root of a sum of d squares, given the computed sum of the scaled values."""
    slack = _TINY * float(np.sqrt(d)) if square < _SMALL else 0.0  # squares may have underflowed
    with np.errstate(over="ignore"):
        return float(np.nextafter((np.sqrt(square) * (1.0 + (d + 8) * _UNIT) + slack) / scale, np.inf))


Entries = TypeVar("Entries", bound="ChunkStatistics | ChunkScalars")


def concatenate(parts: Sequence[Entries], classes: int) -> Entries:
    """The entries of all parts (at least one), in order; counts are widened with zeros to ``classes`` columns."""
    columns: dict[str, Any] = {}
    for field in fields(parts[0]):
        arrays = [getattr(part, field.name) for part in parts]
        if field.name == "counts":
            arrays = [widened(array, classes) for array in arrays]
        columns[field.name] = stacked(arrays) if len(arrays) > 1 else arrays[0]
    return type(parts[0])(**columns)


def widened(counts: np.ndarray, classes: int) -> np.ndarray:
    """Class counts (c, k) with zeros for the classes that were first seen later: (c, classes)."""
    wide = np.zeros((len(counts), classes), dtype=np.int64)
    width = min(classes, counts.shape[1])
    wide[:, :width] = counts[:, :width]
    return wide
