"""What ingest counts of a chunk of sparse rows: every number as for the same rows made dense, without making them so.

A feature that no row of the chunk mentions is zero in all of them: sums, extremes and centre need to be known on the
*support*, the features that occur. The vectors are CSR arrays of one row on that support, zero elsewhere.

A store has them in an object for each chunk, ``blocks/vectors/CHUNK.ROWS``: little-endian and one after the other, the
number u of features that occur (int64), these features (int32), low and high (both in the store's dtype), total and
spread (float64), u entries each, and a crc32c of all of it. The centre is total / rows. The name says which rows are
meant: a chunk that grows gets another file, so that readers of an older commit keep statistics that fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.format import VECTORS
from coremargin.data.sparse import INDEX_DTYPE, csr_rows
from coremargin.errors import StoreError
from coremargin.formats.raw_array import CRC_BYTES
from coremargin.formats.storage import MISSING, read_checked_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scipy.sparse import csr_array

    from coremargin.data.storage import Storage
    from coremargin.formats.storage import ReadableStorage


_COUNT_BYTES = 8


def write_vectors(
    storage: Storage, chunk: int, rows: int, vectors: Mapping[str, csr_array], dtype: np.dtype[Any]
) -> int:
    """Write low, high, total, spread (1, d) of the first ``rows`` rows of a sparse chunk, all on one support.

    Returns how many bytes that takes.
    """
    low = vectors["low"]
    parts = [np.array([low.nnz], dtype="<i8"), low.indices.astype(INDEX_DTYPE, copy=False)]
    for name, kind in _kinds(dtype).items():
        parts.append(vectors[name].data.astype(kind, copy=False))
    raw = [np.ascontiguousarray(part).data.cast("B") for part in parts if part.size]
    crc = 0
    for part in raw:
        crc = crc32c(part, crc)
    storage.write(f"{VECTORS}/{chunk}.{rows}", [*raw, crc.to_bytes(CRC_BYTES, "little")])
    return sum(part.nbytes for part in raw) + CRC_BYTES


def read_vectors(
    storage: ReadableStorage, chunk: int, rows: int, features: int, dtype: np.dtype[Any]
) -> dict[str, csr_array]:
    """centre, low, high, total, spread (1, d) float64 of the first ``rows`` rows of a chunk.

    Raises StoreError that names what is damaged.
    """
    key, entry_bytes = f"{VECTORS}/{chunk}.{rows}", sum(kind.itemsize for kind in _kinds(dtype).values())
    path = f"{storage.name}/{key}"
    most = _COUNT_BYTES + features * (INDEX_DTYPE.itemsize + entry_bytes) + CRC_BYTES

    def is_whole(raw: bytes) -> bool:
        body = memoryview(raw)[:-CRC_BYTES]
        return len(body) >= _COUNT_BYTES and crc32c(body) == int.from_bytes(raw[-CRC_BYTES:], "little")

    try:
        raw = read_checked_bytes(storage, key, most, is_whole, error=StoreError)
    except MISSING as error:
        text = f"{path}: statistics cannot be read: {error.strerror}; restore the file from a copy"
        raise StoreError(text) from error
    body = memoryview(raw)[:-CRC_BYTES]
    if not is_whole(raw):
        raise StoreError(f"{path}: the checksum does not match, the file was altered; restore it from a copy")
    count, at = int.from_bytes(body[:_COUNT_BYTES], "little"), _COUNT_BYTES
    kinds = {"": INDEX_DTYPE, **_kinds(dtype)}
    if len(body) != _COUNT_BYTES + count * sum(kind.itemsize for kind in kinds.values()):
        raise StoreError(f"{path}: expected statistics of {count:,} features, got {len(raw):,} bytes; restore the file")
    found: dict[str, np.ndarray] = {}
    for name, kind in kinds.items():
        found[name] = np.frombuffer(body, dtype=kind, count=count, offset=at)
        at += count * kind.itemsize
    indices, starts = found.pop(""), np.array([0, count], dtype=np.int32)
    if count and not (indices[0] >= 0 and indices[-1] < features and (np.diff(indices) > 0).all()):
        raise StoreError(f"{path}: expected features from 0 to {features - 1} in order; restore the file from a copy")
    found["centre"] = centre_of(found["total"], rows)
    return {name: csr_rows(values.astype(np.float64), indices, starts, features) for name, values in found.items()}


def centre_of(total: np.ndarray, rows: int) -> np.ndarray:
    """The mean of rows from their sum; 0 where the sum overflowed: any point may be the centre of a radius."""
    with np.errstate(over="ignore"):
        centre = total / rows
    return np.where(np.isfinite(centre), centre, 0.0)


def _kinds(dtype: np.dtype[Any]) -> dict[str, np.dtype[Any]]:
    store, wide = dtype.newbyteorder("<"), np.dtype("<f8")
    return {"low": store, "high": store, "total": wide, "spread": wide}


_DIRECT = 1 << 22  # features up to which support is found through a table of all features
_WIDE = 16  # features a stored value up to which such a table is quicker than sorting
_WIDE_MASK = 128  # the same of a table that only tells which ones occur
_BLOCK_ELEMENTS = 1 << 16  # float64 scratch of 512 KiB stays in the second-level cache
_UNIT = np.finfo(np.float64).eps


@dataclass(frozen=True)
class SparseSums:
    """Of n rows: values (u,) float64 of each vector on ``support`` (u,), and largest sums of ``scale``-d squares.

    norm: of a row; farthest: of its difference from the centre, an upper bound where sums cancel. terms: of the longest
    of these sums. varies: not all rows are equal.
    """

    support: np.ndarray
    vectors: Mapping[str, np.ndarray]
    norm: float
    farthest: float
    terms: int
    largest: float
    varies: bool


def sparse_sums(X: csr_array, scale_of: float) -> SparseSums:
    """Sums over canonical rows X (n, d), n >= 1, in float64 and in a fixed order, that of the rows.

    scale_of: values above this are scaled by a power of two before they are squared (see ``SparseSums``).
    """
    n = X.shape[0]
    support, place, counts = _support(X)
    low, high, total = _extremes_and_sums(X, place, len(support))
    full = counts == n
    low, high = np.where(full, low, np.minimum(low, 0.0)), np.where(full, high, np.maximum(high, 0.0))
    largest = float(max(high.max(initial=0.0), -low.min(initial=0.0)))
    scale = scaling(largest, scale_of)
    centre = centre_of(total, n)
    middle = centre * scale
    spread, farthest = _sums_of_squares(X, place, scale, middle)
    with np.errstate(over="ignore"):
        spread = spread + (n - counts) * (middle * middle)
        spread = np.where(low == high, 0.0, spread / scale / scale)
    return SparseSums(
        support=support,
        vectors={"centre": centre, "low": low, "high": high, "total": total, "spread": spread},
        norm=largest_square(X, scale),
        farthest=farthest,
        terms=len(support),
        largest=largest,
        varies=bool((low != high).any() or (centre != low).any()),
    )


def scaling(largest: float, limit: float) -> float:
    """A power of two that brings ``largest`` below 1 when it lies above ``limit``, else 1."""
    return float(2.0 ** -np.frexp(largest)[1]) if largest > limit else 1.0


def _support(X: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features that occur (u,), ascending; for each stored value which of them is its own; how often each occurs."""
    if X.shape[1] > min(_DIRECT, _WIDE * X.nnz):
        support, place, counts = np.unique(X.indices, return_inverse=True, return_counts=True)
        return support, place.reshape(-1), counts
    counts = np.bincount(X.indices, minlength=X.shape[1])
    support = np.flatnonzero(counts).astype(X.indices.dtype)
    if len(support) == X.shape[1]:
        return support, X.indices, counts
    table = np.empty(X.shape[1], X.indices.dtype)
    table[support] = np.arange(len(support))
    return support, table[X.indices], counts[support]


def _blocks(starts: np.ndarray) -> Iterator[tuple[np.ndarray, slice]]:
    """Rows whose values fit the cache together: where each of them starts among these, and where these lie."""
    first, rows = 0, len(starts) - 1
    while first < rows:
        fitting = int(np.searchsorted(starts, starts[first] + _BLOCK_ELEMENTS, side="right")) - 1
        stop = max(first + 1, fitting)
        yield starts[first : stop + 1] - starts[first], slice(int(starts[first]), int(starts[stop]))
        first = stop


def _extremes_and_sums(X: csr_array, place: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Smallest and largest stored value (u,) of each feature that occurs, and the sum."""
    low, high, total = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count)
    with np.errstate(over="ignore", invalid="ignore"):
        for _, part in _blocks(X.indptr):
            at, values = place[part].astype(np.intp), X.data[part].astype(np.float64)
            np.minimum.at(low, at, values)
            np.maximum.at(high, at, values)
            np.add.at(total, at, values)
    return low, high, total


def _sums_of_squares(X: csr_array, place: np.ndarray, scale: float, centre: np.ndarray) -> tuple[np.ndarray, float]:
    """Of scaled values: sums (u,) of squares of differences from the centre, as far as values are stored; and an upper
    bound on the largest sum of squares of a row's difference from it.

    A row's own features are subtracted one by one. What the centre has elsewhere is the difference of two sums of at
    most u squares, each with a relative error of u units: that much is added.
    """
    u = len(centre)
    spread, ones, squares = np.zeros(u), np.ones(u), centre * centre
    farthest, whole = 0.0, float(squares.sum())
    for starts, part in _blocks(X.indptr):
        at, values = place[part].astype(np.intp), X.data[part].astype(np.float64)
        if scale != 1.0:
            values *= scale
        values -= centre.take(at)
        values *= values
        np.add.at(spread, at, values)
        terms = csr_rows(values, place[part], starts, u)
        own = terms @ ones  # sums of rows in their order
        terms.data = np.ones(len(values))
        elsewhere = np.maximum(whole - terms @ squares, 0.0) + 2 * (u + 8) * _UNIT * whole
        elsewhere[np.diff(starts) == u] = 0.0  # the row has all features that occur
        farthest = max(farthest, float((own + elsewhere).max()))
    return spread, farthest


def largest_square(X: csr_array, scale: float) -> float:
    """The largest sum of squares of a row's scaled values, added in their order."""
    one, largest = np.ones(1), 0.0
    for starts, part in _blocks(X.indptr):
        values = X.data[part].astype(np.float64)
        if scale != 1.0:
            values *= scale
        terms = csr_rows(values * values, np.zeros(len(values), starts.dtype), starts, 1)  # columns do not matter
        largest = max(largest, float((terms @ one).max()))
    return largest


def occurring(X: csr_array) -> int:
    """How many features occur in rows X (n, d)."""
    if X.shape[1] > min(_DIRECT, _WIDE_MASK * X.nnz):
        return len(np.unique(X.indices))
    found = np.zeros(X.shape[1], bool)
    found[X.indices] = True
    return int(np.count_nonzero(found))


def on_support(values: np.ndarray, support: np.ndarray, features: int) -> csr_array:
    """One row (1, d) of these values on the support; zeros among them stay."""
    indices = support.astype(np.int32)
    return csr_rows(values, indices, np.array([0, len(support)], dtype=np.int32), features)
