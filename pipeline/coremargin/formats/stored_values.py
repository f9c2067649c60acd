"""How many values the chunks of a sparse store may say that they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.errors import StoreError
from coremargin.formats.zarr_metadata import read_array_metadata

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage


def check_stored_values(
    storage: ReadableStorage, nonzeros: np.ndarray, *, rows: int, chunk_rows: int, features: int
) -> None:
    """Raises StoreError unless each chunk stores what its rows can have, and all of them what the files can.

    nonzeros (c,) int64: values stored of each chunk. Nobody makes room for values before this was asked.
    """
    place = f"{storage.name}/blocks"
    chunk_sizes = np.minimum(chunk_rows, rows - chunk_rows * np.arange(len(nonzeros)))
    wrong = np.flatnonzero((nonzeros < 0) | (nonzeros > chunk_sizes * features))
    if len(wrong):
        chunk = int(wrong[0])
        raise StoreError(
            f"{place}: chunk {chunk}: expected 0 to {int(chunk_sizes[chunk]) * features:,} stored values in "
            f"a chunk of {chunk_sizes[chunk]:,} rows, found {nonzeros[chunk]:,}; restore it from a copy"
        )
    total = int(nonzeros.sum(dtype=object))  # of Python's numbers: no forged ones wrap around
    for name in ("X/data", "X/indices"):
        length = read_array_metadata(storage, name).shape[0]
        if total > length:
            raise StoreError(
                f"{place}: expected at most {length:,} stored values, as many as {name} has, found {total:,}; "
                f"restore it from a copy"
            )
