"""Thrift's compact protocol, as far as what Parquet says about its parts: whole numbers, structs, lists of structs.

pyarrow shows Python the end of a file but no page header, and the end not safely: of 600 damaged ones, read column by
column by pyarrow 26, one ended the process (SIGABRT).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

INT32, INT64, LIST, STRUCT = 5, 6, 9, 12
_BINARY, _SET = 8, 10
_DEEPEST = 8

Fields = dict[tuple[int, int], Any]  #: by number and type: a field of another type is another field


def read_struct(data: bytes, at: int = 0, depth: int = 0) -> tuple[Fields, int]:
    """The numbers, structs and lists of structs of a struct, and where it ends.

    Raises IndexError when the data ends before, ValueError for what is no struct, or has fields out of order or twice.
    """
    found: Fields = {}
    field = 0
    while data[at]:
        field, kind, at = _head(data, at, field)
        value, at = _value(data, at, kind, depth)
        if value is not None:
            found[field, kind] = value
    return found, at + 1


def read_list(data: bytes, wanted: int) -> Iterator[Fields]:
    """The structs in field ``wanted`` of a struct, one after the other; none when there is no such list."""
    field, at = 0, 0
    while data[at]:
        field, kind, at = _head(data, at, field)
        if (field, kind) == (wanted, LIST):
            count, inner, at = _list_head(data, at)
            if inner != STRUCT:
                raise ValueError(f"a list of type {inner}")
            for _ in range(count):
                value, at = read_struct(data, at)
                yield value
            return
        _, at = _value(data, at, kind, 0)


def _head(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """Number and type of the next field, and where its value begins."""
    head, at = data[at], at + 1
    if head >> 4:
        return before + (head >> 4), head & 15, at
    field, at = _number(data, at)
    if field <= before:
        raise ValueError(f"field {field} follows field {before}")
    return field, head & 15, at


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind <= 2:  # yes or no: the type says it
        return None, at
    if kind <= INT64:
        return (None, at + 1) if kind == 3 else _number(data, at)
    if kind == 7:
        return None, at + 8
    if kind == _BINARY:
        count, at = _varint(data, at)
        return None, at + count
    if depth >= _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} structs in each other")
    if kind == STRUCT:
        return read_struct(data, at, depth + 1)
    if kind in (LIST, _SET):
        count, inner, at = _list_head(data, at)
        if inner <= 2:
            return None, at + count
        values = []
        for _ in range(count):
            value, at = _value(data, at, inner, depth + 1)
            values.append(value)
        return values if inner == STRUCT else None, at
    raise ValueError(f"type {kind}")


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    count, inner, at = data[at] >> 4, data[at] & 15, at + 1
    count, at = _varint(data, at) if count == 15 else (count, at)
    return count, inner, at


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte, at = data[at], at + 1
    value, shift = byte & 127, 7
    while byte > 127:
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
    return value, at
