"""Small Zarr arrays of raw bytes with a crc32c, as stores keep their statistics, read chunk by chunk.

A missing chunk raises instead of reading as fill values, and nothing is allocated that no object backs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import crc32c
import numpy as np

from coremargin.errors import StoreError
from coremargin.formats.limits import MOST_PADDING_BYTES
from coremargin.formats.storage import MISSING, read_checked_bytes
from coremargin.formats.zarr_metadata import Bytes, Crc32c, Endian, read_array_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coremargin.formats.storage import ReadableStorage

CRC_BYTES = 4
_CODECS = [Bytes(configuration=Endian(endian="little")), Crc32c()]


def preload_raw_arrays(storage: ReadableStorage, arrays: Iterable[tuple[str, int]]) -> None:
    """Fetch what is read first of arrays, each given by its key and its number of dimensions, at once."""
    keys = [(array, f"c.0{'.0' * (dimensions - 1)}") for array, dimensions in arrays]
    storage.preload(f"{array}/{name}" for array, chunk in keys for name in ("zarr.json", chunk))


def read_raw_array(
    storage: ReadableStorage, array: str, start: int, stop: int, dtype: str, tail: tuple[int, ...] = ()
) -> np.ndarray:
    """Rows [start, stop) of the array with this key, of the given dtype and row shape.

    Raises StoreError that names the file when anything is missing, altered or of another shape.
    """
    metadata, place = read_array_metadata(storage, array), f"{storage.name}/{array}"
    shape, step, found = tuple(metadata.shape), metadata.chunks[0], metadata.data_type
    if found != dtype or shape[1:] != tail or not 0 <= start <= stop <= shape[0]:
        raise StoreError(
            f"{place}: expected {dtype} with rows of shape {tail} up to {stop}, got {found} of shape {shape}"
        )
    if metadata.codecs != _CODECS or metadata.chunks[1:] != tuple(max(1, size) for size in tail):
        raise StoreError(f"{place}/zarr.json: expected chunks of whole rows, raw with a crc32c; restore it from a copy")
    if math.prod(shape) == 0 or start == stop:
        return np.zeros((stop - start, *tail), dtype=dtype)
    row_bytes = math.prod(tail) * np.dtype(dtype).itemsize
    if step * row_bytes > (stop - start) * row_bytes + MOST_PADDING_BYTES:  # files may be nothing but holes
        raise StoreError(
            f"{place}/zarr.json: expected chunks of at most {MOST_PADDING_BYTES:,} bytes beyond what {stop - start:,} "
            f"rows need, found chunks of {step:,} rows; restore it from a copy"
        )
    first = start // step * step
    numbers = range(start // step, (stop - 1) // step + 1)
    parts = [_read_chunk(storage, f"{array}/{metadata.key(number)}", step, dtype, tail) for number in numbers]
    parts[-1] = parts[-1][: stop - numbers[-1] * step]
    parts[0] = parts[0][start - first :]
    return np.concatenate(parts)  # a copy: a few rows do not keep their files in memory


def _read_chunk(storage: ReadableStorage, key: str, step: int, dtype: str, tail: tuple[int, ...]) -> np.ndarray:
    place = f"{storage.name}/{key}"
    expected = step * math.prod(tail) * np.dtype(dtype).itemsize

    def is_whole(data: bytes) -> bool:
        return crc32c.crc32c(memoryview(data)[:expected]) == int.from_bytes(data[expected:], "little")

    try:
        data = read_checked_bytes(storage, key, expected + CRC_BYTES, is_whole, error=StoreError)
    except MISSING:
        raise StoreError(f"{place}: statistics are missing; restore the file from a copy") from None
    if len(data) != expected + CRC_BYTES:
        raise StoreError(
            f"{place}: expected {expected + CRC_BYTES:,} bytes, got {len(data):,}; restore the file from a copy"
        )
    if not is_whole(data):
        raise StoreError(f"{place}: the checksum does not match, the file was altered; restore it from a copy")
    return np.frombuffer(data, dtype=dtype, count=expected // np.dtype(dtype).itemsize).reshape(step, *tail)
