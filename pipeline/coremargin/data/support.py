"""Statistics of sparse chunks on disk: vectors on the features that occur in a chunk, in a file of its own.

``blocks/vectors/CHUNK.ROWS`` holds, little-endian and one after the other: the number u of features that occur (int64),
these features (int32), low and high (both in the store's dtype), total and spread (float64), u entries each, and a
crc32c of all of it. The centre is total / rows. The name says which rows are meant: a chunk that grows gets another
file, so that whoever reads an older commit keeps statistics that fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.files import write_whole
from coremargin.data.sparse import INDEX_DTYPE, csr_rows
from coremargin.errors import StoreError, raise_if_limit
from coremargin.formats.raw_array import CRC_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scipy.sparse import csr_array

FOLDER = "vectors"
_COUNT_BYTES = 8


def vector_file(blocks: Path, chunk: int, rows: int) -> Path:
    """Where the vectors of the first ``rows`` rows of a chunk are kept."""
    return blocks / FOLDER / f"{chunk}.{rows}"


def write_vectors(path: Path, vectors: Mapping[str, csr_array], dtype: np.dtype[Any]) -> int:
    """Write low, high, total, spread (1, d) of a sparse chunk, all on one support. Returns the bytes of the file."""
    low = vectors["low"]
    parts = [np.array([low.nnz], dtype="<i8"), low.indices.astype(INDEX_DTYPE, copy=False)]
    for name, kind in _kinds(dtype).items():
        parts.append(vectors[name].data.astype(kind, copy=False))
    raw = [np.ascontiguousarray(part).data.cast("B") for part in parts if part.size]
    crc = 0
    for part in raw:
        crc = crc32c(part, crc)
    return write_whole(path, [*raw, crc.to_bytes(CRC_BYTES, "little")])


def read_vectors(path: Path, rows: int, features: int, dtype: np.dtype[Any]) -> dict[str, csr_array]:
    """centre, low, high, total, spread (1, d) float64 of a chunk; StoreError that names the file when it is damaged."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise_if_limit(error, path)
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
