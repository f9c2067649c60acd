"""Arrow's types and arrays: what a column may hold, and its values as NumPy arrays.

pyarrow's own conversions import pandas where that is installed, which takes a second; these read the buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coremargin.errors import LabelError, UsageError


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or categories that are."""
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_string_view(plain))


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type is numbers; booleans are not."""
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_integer(plain) or pa.types.is_floating(plain) or pa.types.is_decimal(plain))


def is_double(column: Any) -> bool:
    """Whether an Arrow array is of float64."""
    import pyarrow as pa

    return bool(column.type == pa.float64())


def is_boolean(kind: Any) -> bool:
    """Whether an Arrow type is booleans."""
    import pyarrow as pa

    return bool(pa.types.is_boolean(kind.value_type if pa.types.is_dictionary(kind) else kind))


def is_time(kind: Any) -> bool:
    """Whether an Arrow type is dates, or dates with times."""
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def is_null(kind: Any) -> bool:
    """Whether an Arrow type says nothing: no value has been there."""
    import pyarrow as pa

    return bool(pa.types.is_null(kind))


def is_coded(kind: Any) -> bool:
    """Whether an Arrow type has a dictionary."""
    import pyarrow as pa

    return bool(pa.types.is_dictionary(kind))


def decode_dictionary(column: Any) -> Any:
    """The array without Arrow's dictionary, where it has one."""
    return column.dictionary_decode() if is_coded(column.type) else column


def null_mask(column: Any) -> np.ndarray:
    """Where (m,) no value is there."""
    bits = column.buffers()[0] if column.null_count else None
    if bits is None:  # a type of nulls alone has no bits at all
        return np.full(len(column), bool(column.null_count))
    return ~_bits(bits, column.offset, len(column))


def boolean_values(column: Any) -> np.ndarray:
    """The values (m,) of booleans; what is missing has any."""
    bits = column.buffers()[1]
    return np.zeros(len(column), bool) if bits is None else _bits(bits, column.offset, len(column))


def fixed_width_values(column: Any, dtype: Any) -> np.ndarray:
    """The values (m,) of an array whose values are of this NumPy type; what is missing has any."""
    values = column.buffers()[1]
    kind = np.dtype(dtype)
    if values is None:
        return np.zeros(len(column), kind)
    found: np.ndarray = np.frombuffer(values, kind, len(column), column.offset * kind.itemsize)
    return found


def to_float64(column: Any) -> np.ndarray:
    """Numbers (m,) as float64, NaN where one is missing."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        values = boolean_values(column).astype(np.float64)
    else:
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.string())  # Arrow divides by a power of ten, which rounds twice
        wide = column if column.type == pa.float64() else column.cast(pa.float64(), safe=False)
        values = fixed_width_values(wide, np.float64).copy()
    if column.null_count:
        values[null_mask(column)] = np.nan
    return values


def numpy_values(column: Any) -> np.ndarray:
    """Numbers or booleans (m,) in the NumPy type of Arrow's; decimals as float64; what is missing has any."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        return boolean_values(column)
    if pa.types.is_decimal(column.type):
        return to_float64(column)
    return fixed_width_values(column, column.type.to_pandas_dtype())


def numpy_type(kind: Any) -> str:
    """The name of the NumPy type that has the values of a type of numbers or booleans; of decimals "float64"."""
    import pyarrow as pa

    return "float64" if pa.types.is_decimal(kind) else np.dtype(kind.to_pandas_dtype()).name


def dictionary_codes(column: Any) -> np.ndarray:
    """The indices (m,) of a dictionary array, -1 where none is there."""
    indices = column.indices
    found = fixed_width_values(
        indices, f"{'u' if str(indices.type).startswith('u') else 'i'}{indices.type.bit_width // 8}"
    )
    return np.where(null_mask(column), -1, found).astype(np.int32)


def string_array(words: Sequence[str]) -> Any:
    """An Arrow array of texts."""
    import pyarrow as pa

    encoded = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(words), pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(encoded)))


def _bits(buffer: Any, offset: int, count: int) -> np.ndarray:
    found: np.ndarray = np.unpackbits(np.frombuffer(buffer, np.uint8), count=offset + count, bitorder="little")
    return found[offset:].astype(bool)


def is_list(kind: Any) -> bool:
    """Whether a type is lists, of one length or not."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def check_label(kind: Any, name: str, place: str) -> None:
    """Refuse a column that cannot hold labels: lists, times, decimals and what else has no one text or number."""
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    known = (*texts, pa.types.is_fixed_size_binary, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    if pa.types.is_null(plain):
        raise LabelError(f"{place}, column {name!r}: holds no label, expected one for every row; fill it in")
    if pa.types.is_decimal(plain) or not any(test(plain) for test in known):
        raise UsageError(
            f"{place}, column {name!r}: found type {kind}, expected integers, floats, booleans or texts as labels; "
            "name the right column with --label, or convert it"
        )


def list_lengths(column: Any) -> np.ndarray:
    """The lengths (m,) of lists without nulls."""
    import pyarrow.compute as pc

    return np.asarray(pc.list_value_length(column))


def first_length(column: Any, name: str, place: str) -> int:
    """How long the first list of a column is, 1 where it is missing: that is refused later. UsageError: it is empty."""
    if not len(column) or column.slice(0, 1).null_count:
        return 1
    length = int(list_lengths(column.slice(0, 1))[0])
    if not length:
        raise UsageError(
            f"{place}, row 0, column {name!r}: found an empty list, expected numbers; leave the column out with "
            f"--drop {name}"
        )
    return length


def label_values(column: Any) -> np.ndarray:
    """The labels (m,) of a column: numbers or booleans, or objects where some are texts, bytes or null."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)
    if plain and not column.null_count:
        return np.asarray(column)
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_pylist()
    return values


def first_not_utf8(column: Any) -> int | None:
    """The first row of a column of texts, or categories that are, whose bytes are not UTF-8."""
    import pyarrow as pa

    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        values = enumerate(plain.cast("large_binary").to_pylist())
        return next((row for row, value in values if not _is_utf8(value)), None)
    return None


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
