"""What columns of Parquet may hold: numbers, lists of numbers of one length, labels; and their values as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coremargin.data.tables.plain_arrays import floats, null_mask
from coremargin.data.tables.values import undone, whole_beyond
from coremargin.errors import BadRow, DataError, LabelError, UsageError


def refuse_same_names(names: Sequence[str], place: str) -> None:
    """Raise DataError when two columns have one name: what is read by name could be either."""
    seen: dict[str, int] = {}
    for at, name in enumerate(names):
        if seen.setdefault(name, at) != at:
            raise DataError(
                f"{place}: columns {seen[name]} and {at} are both named {name!r}, expected a name for each; rename one"
            )


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


def numbers(column: Any, name: str, width: int, place: Callable[[int], str]) -> np.ndarray:
    """Values (m, width) float64 of one column; a null or a list of another length is refused."""
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise BadRow(
            f"{place(row)}, column {name!r}: found null, expected a number; fill in the value or leave the column out "
            f"with --drop {name}"
        )
    if not is_list(column.type):
        return _floats(column, name, place).reshape(-1, 1)
    lengths = list_lengths(column)
    if np.any(lengths != width):
        row = int(np.argmax(lengths != width))
        raise BadRow(
            f"{place(row)}, column {name!r}: found {lengths[row]} values, expected {width} as in the first row; make "
            "all lists of one length"
        )
    flat = column.flatten()
    if flat.null_count:
        row = int(np.argmax(np.asarray(flat.is_null()))) // width
        raise BadRow(f"{place(row)}, column {name!r}: found null in the list, expected numbers; fill it in")
    return _floats(flat, name, lambda at: place(at // width)).reshape(-1, width)


def _floats(column: Any, name: str, place: Callable[[int], str]) -> np.ndarray:
    """A column of numbers without nulls as float64."""
    column = undone(column)
    if column.null_count:
        row = int(np.argmax(null_mask(column)))
        raise BadRow(f"{place(row)}, column {name!r}: found null, expected a number; fill in the value")
    beyond = whole_beyond(column)
    if beyond is not None:
        raise BadRow(
            f"{place(beyond)}, column {name!r}: found {column[beyond]}, expected whole numbers up to 2^53, which "
            f"float64 holds; convert the column, or leave it out with --drop {name}"
        )
    return floats(column)


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


def first_undecoded(column: Any) -> int | None:
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
