"""What may be said of a store that is to be written, and how large its chunks are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.data.codecs import COMPRESSIONS
from coremargin.data.format import DTYPES
from coremargin.data.sizes import fitting_chunk_rows, fitting_sparse
from coremargin.errors import StoreError, UsageError
from coremargin.formats.limits import LARGEST_CHUNK_BYTES, MOST_FEATURES, MOST_ROWS
from coremargin.formats.store_record import most_chunk_rows, most_file_entries
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from coremargin.data.format import Facts
    from coremargin.maths.rows import Rows


def check_options(features: int, dtype: str, chunk_bytes: int, compression: str) -> None:
    """Raises UsageError, StoreError for what no store can be."""
    if dtype not in DTYPES:
        raise UsageError(f"dtype: expected {' or '.join(DTYPES)}, got {dtype!r}")
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression: expected one of {', '.join(COMPRESSIONS)}, got {compression!r}")
    if features == 0:
        raise StoreError("rows: expected at least one feature, got none")
    if not 1 <= features <= MOST_FEATURES:
        raise UsageError(f"features: expected 1 to {MOST_FEATURES:,}, got {features}")
    if not 1 <= chunk_bytes <= LARGEST_CHUNK_BYTES:
        raise UsageError(f"chunk_bytes: expected 1 to {LARGEST_CHUNK_BYTES:,}, got {chunk_bytes}")


def check_rows(chunk_rows: int | None, most: int) -> None:
    """Raises UsageError for other rows of a chunk than 1 to ``most``."""
    if chunk_rows is not None and not 1 <= chunk_rows <= most:
        raise UsageError(f"chunk_rows: expected 1 to {most:,} of such rows, got {chunk_rows:,}")


def shape_of(facts: Facts, rows: int, X: Rows, chunk_bytes: int, wanted: int | None, *, whole: bool) -> tuple[int, int]:
    """Rows per chunk of a new store, and for sparse ones values per file, by its first rows X.

    wanted: rows per chunk, where that was said. whole: X is one chunk, and more may follow; else it is all there is.
    """
    most = most_chunk_rows(facts.features, facts.dtype, sparse=is_sparse(X), rows=rows)
    if not is_sparse(X):
        full = whole or wanted is not None
        fitting = facts.chunk_rows if full else fitting_chunk_rows(rows, facts.features, facts.dtype, chunk_bytes)
        return min(most, fitting), 0
    chunk_rows, entries = fitting_sparse(rows, X.nnz, facts.dtype, chunk_bytes)
    if whole:
        chunk_rows, entries = fitting_sparse(MOST_ROWS, MOST_ROWS * X.nnz // rows, facts.dtype, chunk_bytes)
    return min(most, wanted or chunk_rows), min(entries, most_file_entries(facts.features, facts.dtype, rows))
