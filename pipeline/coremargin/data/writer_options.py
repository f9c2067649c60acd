"""What may be said of a store that is to be written."""

from __future__ import annotations

from coremargin.data.codecs import COMPRESSIONS
from coremargin.data.format import DTYPES
from coremargin.errors import StoreError, UsageError
from coremargin.formats.limits import LARGEST_CHUNK_BYTES, MOST_FEATURES


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
