"""Arrow's arrays as NumPy's, and texts as Arrow's, by their buffers.

pyarrow's own conversions import pandas where that is installed, which takes a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def null_mask(column: Any) -> np.ndarray:
    """Where (m,) no value is there."""
    bits = column.buffers()[0] if column.null_count else None
    if bits is None:  # a type of nulls alone has no bits at all
        return np.full(len(column), bool(column.null_count))
    return ~_bits(bits, column.offset, len(column))


def truths(column: Any) -> np.ndarray:
    """The values (m,) of booleans; what is missing has any."""
    bits = column.buffers()[1]
    return np.zeros(len(column), bool) if bits is None else _bits(bits, column.offset, len(column))


def fixed(column: Any, dtype: Any) -> np.ndarray:
    """The values (m,) of an array whose values are of this NumPy type; what is missing has any."""
    values = column.buffers()[1]
    kind = np.dtype(dtype)
    if values is None:
        return np.zeros(len(column), kind)
    found: np.ndarray = np.frombuffer(values, kind, len(column), column.offset * kind.itemsize)
    return found


def floats(column: Any) -> np.ndarray:
    """Numbers (m,) as float64, NaN where one is missing."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        values = truths(column).astype(np.float64)
    else:
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.string())  # Arrow divides by a power of ten, which rounds twice
        wide = column if column.type == pa.float64() else column.cast(pa.float64(), safe=False)
        values = fixed(wide, np.float64).copy()
    if column.null_count:
        values[null_mask(column)] = np.nan
    return values


def numpy_values(column: Any) -> np.ndarray:
    """Numbers or booleans (m,) in the NumPy type of Arrow's; decimals as float64; what is missing has any."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        return truths(column)
    if pa.types.is_decimal(column.type):
        return floats(column)
    return fixed(column, column.type.to_pandas_dtype())


def codes(column: Any) -> np.ndarray:
    """The indices (m,) of a dictionary array, -1 where none is there."""
    indices = column.indices
    found = fixed(indices, f"{'u' if str(indices.type).startswith('u') else 'i'}{indices.type.bit_width // 8}")
    return np.where(null_mask(column), -1, found).astype(np.int32)


def strings(words: Sequence[str]) -> Any:
    """An Arrow array of texts."""
    import pyarrow as pa

    encoded = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(words), pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(encoded)))


def _bits(buffer: Any, offset: int, count: int) -> np.ndarray:
    found: np.ndarray = np.unpackbits(np.frombuffer(buffer, np.uint8), count=offset + count, bitorder="little")
    return found[offset:].astype(bool)
