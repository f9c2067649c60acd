"""Zarr v3 arrays of raw bytes with a crc32c, written without a Zarr library; any Zarr v3 reader opens them.

Small arrays of facts (statistics) go through here; formats/raw_array.py reads them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.storage import write_json
from coremargin.formats.raw_array import CRC_BYTES
from coremargin.formats.row_types import BFLOAT16_BITS, zarr_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.storage import Writable

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
CRC32C = {"name": "crc32c"}
_CHUNK_BYTES = 1 << 20


def array_metadata(
    shape: Sequence[int],
    chunk_shape: Sequence[int],
    dtype: np.dtype[Any],
    *,
    codecs: Sequence[dict[str, Any]] = (BYTES, CRC32C),
    fill: bool | int | float,
    names: Sequence[str],
) -> dict[str, Any]:
    """The ``zarr.json`` of an array; chunks lie flat in its folder (``c.0.0``): one fsync covers their names."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [int(size) for size in shape],
        "data_type": zarr_type(dtype),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [int(size) for size in chunk_shape]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": "NaN" if math.isnan(fill) or dtype == BFLOAT16_BITS else fill,
        "codecs": list(codecs),
        "dimension_names": list(names),
        "attributes": {},
    }


def group_metadata(attributes: dict[str, Any]) -> dict[str, Any]:
    """The ``zarr.json`` of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def write_array(storage: Writable, array: str, values: np.ndarray, names: Sequence[str]) -> None:
    """Write an array (m, ...) with a key that is new, in chunks of whole rows of about 1 MiB."""
    values = np.ascontiguousarray(values)
    row_bytes = max(1, values.dtype.itemsize * math.prod(values.shape[1:]))
    step = max(1, min(len(values), _CHUNK_BYTES // row_bytes))
    fill = math.nan if values.dtype.kind == "f" else 0
    chunk_shape = (step, *(max(1, size) for size in values.shape[1:]))
    metadata = array_metadata(values.shape, chunk_shape, values.dtype, fill=fill, names=names)
    write_json(storage, f"{array}/zarr.json", metadata)
    if 0 in values.shape:
        return
    tail = ".0" * (values.ndim - 1)
    for start in range(0, len(values), step):
        part = values[start : start + step]
        if len(part) < step:  # Zarr stores the last chunk at full size
            padding = np.full((step - len(part), *values.shape[1:]), fill, dtype=values.dtype)
            part = np.concatenate([part, padding])
        data = np.ascontiguousarray(part).data.cast("B")
        storage.write(f"{array}/c.{start // step}{tail}", [data, crc32c(data).to_bytes(CRC_BYTES, "little")])
