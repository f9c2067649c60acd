"""Small Zarr arrays of raw bytes with a crc32c, as stores keep their statistics: read file by file, nothing filled in.

A missing chunk raises instead of reading as fill values, and nothing is allocated that no file backs.
"""

from __future__ import annotations

import math
from pathlib import Path

import crc32c
import numpy as np

from coremargin.errors import StoreError
from coremargin.formats.limits import MOST_PADDING_BYTES
from coremargin.formats.plain_file import read_plain
from coremargin.formats.zarr_metadata import Bytes, Crc32c, Endian, read_array_metadata

CRC_BYTES = 4
_CODECS = [Bytes(configuration=Endian(endian="little")), Crc32c()]


def read_raw_array(folder: Path, start: int, stop: int, dtype: str, tail: tuple[int, ...] = ()) -> np.ndarray:
    """Rows [start, stop) of an array of the given dtype and row shape.

    Raises StoreError that names the file when anything is missing, altered or of another shape.
    """
    metadata = read_array_metadata(folder)
    shape, step, found = tuple(metadata.shape), metadata.chunks[0], metadata.data_type
    if found != dtype or shape[1:] != tail or not 0 <= start <= stop <= shape[0]:
        raise StoreError(
            f"{folder}: expected {dtype} with rows of shape {tail} up to {stop}, got {found} of shape {shape}"
        )
    if metadata.codecs != _CODECS or metadata.chunks[1:] != tuple(max(1, size) for size in tail):
        raise StoreError(
            f"{folder}/zarr.json: expected chunks of whole rows, raw with a crc32c; restore it from a copy"
        )
    if math.prod(shape) == 0 or start == stop:
        return np.zeros((stop - start, *tail), dtype=dtype)
    row_bytes = math.prod(tail) * np.dtype(dtype).itemsize
    if step * row_bytes > (stop - start) * row_bytes + MOST_PADDING_BYTES:  # files may be nothing but holes
        raise StoreError(
            f"{folder}/zarr.json: expected chunks of at most {MOST_PADDING_BYTES:,} bytes beyond what {stop - start:,} "
            f"rows need, found chunks of {step:,} rows; restore it from a copy"
        )
    first = start // step * step
    numbers = range(start // step, (stop - 1) // step + 1)
    parts = [_read_chunk(folder / metadata.key(number), step, dtype, tail) for number in numbers]
    parts[-1] = parts[-1][: stop - numbers[-1] * step]
    parts[0] = parts[0][start - first :]
    return np.concatenate(parts)  # a copy: a few rows do not keep their files in memory


def _read_chunk(path: Path, step: int, dtype: str, tail: tuple[int, ...]) -> np.ndarray:
    expected = step * math.prod(tail) * np.dtype(dtype).itemsize
    try:
        data = read_plain(path, expected + CRC_BYTES, error=StoreError)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{path}: statistics are missing; restore the file from a copy") from None
    if len(data) != expected + CRC_BYTES:
        raise StoreError(
            f"{path}: expected {expected + CRC_BYTES:,} bytes, got {len(data):,}; restore the file from a copy"
        )
    if crc32c.crc32c(memoryview(data)[:expected]) != int.from_bytes(data[expected:], "little"):
        raise StoreError(f"{path}: the checksum does not match, the file was altered; restore it from a copy")
    return np.frombuffer(data, dtype=dtype, count=expected // np.dtype(dtype).itemsize).reshape(step, *tail)
