"""Statistics of sparse chunks: vectors on the features that occur in a chunk, in an object of its own.

``blocks/vectors/CHUNK.ROWS`` holds, little-endian and one after the other: the number u of features that occur (int64),
these features (int32), low and high (both in the store's dtype), total and spread (float64), u entries each, and a
crc32c of all of it. The centre is total / rows. The name says which rows are meant: a chunk that grows gets another
file, so that whoever reads an older commit keeps statistics that fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.format import VECTORS
from coremargin.data.sparse import INDEX_DTYPE, csr_rows
from coremargin.errors import StoreError
from coremargin.formats.raw_array import CRC_BYTES
from coremargin.formats.storage import MISSING, read_object_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    try:
        raw = read_object_bytes(storage, key, most, error=StoreError)
    except MISSING as error:
        text = f"{path}: statistics cannot be read: {error.strerror}; restore the file from a copy"
        raise StoreError(text) from error
    body = memoryview(raw)[:-CRC_BYTES]
    if len(body) < _COUNT_BYTES or crc32c(body) != int.from_bytes(raw[-CRC_BYTES:], "little"):
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
