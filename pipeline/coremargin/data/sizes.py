"""How large chunks and files are, and how many bytes a scan reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from coremargin.data.sparse import INDEX_DTYPE, INDPTR_DTYPE
from coremargin.formats.limits import LARGEST_CHUNK_BYTES
from coremargin.formats.row_types import read_dtype

LABEL_DTYPE = np.dtype("<i4")
WEIGHT_DTYPE = np.dtype("<f8")
FILE_CHUNKS = 4  #: chunks of sparse rows whose values make one file: those that cross from file to file are copied
CHUNK_BYTES = 8 << 20  #: default size of a chunk of rows as they are read: narrow types are stored in less
SMALLEST_CHUNK_BYTES = 1 << 20  #: a store that is smaller than one chunk shrinks its chunks, but not below this
MOST_SPARSE_CHUNK_ROWS = 1 << 17  #: however few values a row has: what follows may have many more


def entry_bytes(dtype: str | np.dtype[Any]) -> int:
    """Bytes of a stored value of sparse rows and of its index."""
    return np.dtype(dtype).itemsize + INDEX_DTYPE.itemsize


def chunks_of(rows: int, chunk_rows: int) -> int:
    """Chunks that hold so many rows."""
    return -(-rows // chunk_rows)


def default_chunk_rows(features: int, dtype: str, chunk_bytes: int) -> int:
    """Rows per chunk of about ``chunk_bytes`` as they are read, at least one; dtype: a stored type."""
    return max(1, chunk_bytes // (features * read_dtype(dtype).itemsize))


def sparse_chunk_rows(rows: int, nonzeros: int, dtype: str, chunk_bytes: int) -> int:
    """Rows per chunk of about ``chunk_bytes`` of values and indices, by the average of some rows; at least one."""
    return max(1, min(MOST_SPARSE_CHUNK_ROWS, rows * chunk_bytes // max(1, nonzeros * entry_bytes(dtype))))


def fitting_chunk_rows(rows: int, features: int, dtype: str, chunk_bytes: int) -> int:
    """Rows per chunk of a new store of so many rows; Zarr stores chunks at full size: small stores get small ones."""
    full = default_chunk_rows(features, dtype, chunk_bytes)
    least = default_chunk_rows(features, dtype, min(chunk_bytes, SMALLEST_CHUNK_BYTES))
    return min(full, max(rows, least))


def fitting_sparse(rows: int, nonzeros: int, dtype: str, chunk_bytes: int) -> tuple[int, int]:
    """Rows per chunk and stored values per file of a new sparse store whose first rows are these."""
    smallest, entry = min(chunk_bytes, SMALLEST_CHUNK_BYTES), entry_bytes(dtype)
    full, least = (sparse_chunk_rows(rows, nonzeros, dtype, size) for size in (chunk_bytes, smallest))
    file_bytes = min(FILE_CHUNKS * chunk_bytes, LARGEST_CHUNK_BYTES, max(nonzeros * entry, smallest))
    return min(full, max(rows, least)), max(1, file_bytes // entry)


def scanned_bytes(rows: int, row_bytes: int, *, nonzeros: int | None = None, weighted: bool = False) -> int:
    """Bytes that a scan of so many rows reads, uncompressed: values, labels, and weights where there are any.

    row_bytes: of one dense row; nonzeros: stored values of sparse rows, then ``row_bytes`` is that of one value.
    """
    label_bytes = LABEL_DTYPE.itemsize + (WEIGHT_DTYPE.itemsize if weighted else 0)
    if nonzeros is None:
        return rows * (row_bytes + label_bytes)
    return nonzeros * (row_bytes + INDEX_DTYPE.itemsize) + rows * (INDPTR_DTYPE.itemsize + label_bytes)
