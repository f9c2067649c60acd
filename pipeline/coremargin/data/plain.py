"""Zarr v3 arrays of raw bytes with a crc32c, written and read without a Zarr library.

Small arrays of facts (statistics) go through here: a missing chunk raises instead of reading as fill values, and a
worker need not import a Zarr library to learn where the rows are. Any Zarr v3 reader opens them.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.files import write_json, write_whole
from coremargin.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
CRC32C = {"name": "crc32c"}
CRC_BYTES = 4
_CHUNK_BYTES = 1 << 20
_LARGEST_JSON = 64 << 20


def array_metadata(
    shape: Sequence[int],
    chunk_shape: Sequence[int],
    dtype: np.dtype[Any],
    *,
    codecs: Sequence[dict[str, Any]] = (BYTES, CRC32C),
    fill: int | float,
    names: Sequence[str],
) -> dict[str, Any]:
    """The ``zarr.json`` of an array; chunks lie flat in its folder (``c.0.0``): one fsync covers their names."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [int(size) for size in shape],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [int(size) for size in chunk_shape]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": "NaN" if math.isnan(fill) else fill,
        "codecs": list(codecs),
        "dimension_names": list(names),
        "attributes": {},
    }


def group_metadata(attributes: dict[str, Any]) -> dict[str, Any]:
    """The ``zarr.json`` of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size.

    Raises StoreError that names the file; FileNotFoundError and NotADirectoryError pass.
    """
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise StoreError(
                f"{path}: expected at most {_LARGEST_JSON:,} bytes of metadata, got {path.stat().st_size:,}"
            )
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"{path}: expected JSON metadata, cannot be read: {error}; restore the file from a copy"
        ) from error
    if not isinstance(value, dict):
        raise StoreError(f"{path}: expected a JSON object, got {type(value).__name__}; restore the file from a copy")
    return value


def write_array(folder: Path, values: np.ndarray, names: Sequence[str]) -> None:
    """Write an array (m, ...) in chunks of whole rows of about 1 MiB; the folder must be new."""
    values = np.ascontiguousarray(values)
    row_bytes = max(1, values.dtype.itemsize * math.prod(values.shape[1:]))
    step = max(1, min(len(values), _CHUNK_BYTES // row_bytes))
    folder.mkdir()
    fill = math.nan if values.dtype.kind == "f" else 0
    chunk_shape = (step, *(max(1, size) for size in values.shape[1:]))
    write_json(folder / "zarr.json", array_metadata(values.shape, chunk_shape, values.dtype, fill=fill, names=names))
    if 0 in values.shape:
        return
    tail = ".0" * (values.ndim - 1)
    for start in range(0, len(values), step):
        part = values[start : start + step]
        if len(part) < step:  # Zarr stores the last chunk at full size
            padding = np.full((step - len(part), *values.shape[1:]), fill, dtype=values.dtype)
            part = np.concatenate([part, padding])
        data = np.ascontiguousarray(part).data.cast("B")
        write_whole(folder / f"c.{start // step}{tail}", [data, crc32c(data).to_bytes(CRC_BYTES, "little")])


def read_array(folder: Path, start: int, stop: int, dtype: str, tail: tuple[int, ...] = ()) -> np.ndarray:
    """Rows [start, stop) of an array of the given dtype and row shape.

    Raises StoreError that names the file when anything is missing, altered or of another shape.
    """
    try:
        metadata = read_json(folder / "zarr.json")
        shape = tuple(metadata["shape"])
        step = int(metadata["chunk_grid"]["configuration"]["chunk_shape"][0])
        found = metadata["data_type"]
    except (FileNotFoundError, KeyError, TypeError, IndexError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"{folder}: statistics are missing or unreadable ({error}); restore the store from a copy"
        ) from error
    if found != dtype or shape[1:] != tail or not 0 <= start <= stop <= shape[0] or step < 1:
        raise StoreError(
            f"{folder}: expected {dtype} with rows of shape {tail} up to {stop}, got {found} of shape {shape}"
        )
    if math.prod(shape) == 0 or start == stop:
        return np.zeros((stop - start, *tail), dtype=dtype)
    parts = [_read_chunk(folder, index, step, dtype, tail) for index in range(start // step, (stop - 1) // step + 1)]
    first = start // step * step
    return np.concatenate(parts)[start - first : stop - first]


def _read_chunk(folder: Path, index: int, step: int, dtype: str, tail: tuple[int, ...]) -> np.ndarray:
    path = folder / f"c.{index}{'.0' * len(tail)}"
    expected = step * math.prod(tail) * np.dtype(dtype).itemsize
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{path}: statistics cannot be read: {error.strerror}; restore the file from a copy"
        ) from error
    if len(data) != expected + CRC_BYTES:
        raise StoreError(
            f"{path}: expected {expected + CRC_BYTES:,} bytes, got {len(data):,}; restore the file from a copy"
        )
    if crc32c(memoryview(data)[:expected]) != int.from_bytes(data[expected:], "little"):
        raise StoreError(f"{path}: the checksum does not match, the file was altered; restore it from a copy")
    return np.frombuffer(data, dtype=dtype, count=expected // np.dtype(dtype).itemsize).reshape(step, *tail)
