"""What reading a row group of Parquet takes, by the headers of its pages: a page is inflated whole, in every column.

The end of the file says how large parts are, too, but who reads the file never checks that: 900 bytes that lie there
hold a list of a billion zeros. How many values a page has and how many bytes it inflates to is believed by all readers.
pyarrow has no call that reads the header of a page, so it is done here; the pages themselves are left to pyarrow.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coremargin.data.sources.memory import refuse_beyond_memory
from coremargin.data.sources.thrift_compact import INT32, INT64, LIST, STRUCT, Fields, read_list, read_struct
from coremargin.errors import DataError
from coremargin.formats.limits import MOST_FEATURES

_HEADER_BYTES = (1 << 9, 1 << 16, 1 << 22)  # read for one header, and more where that is too short
_LIST_BYTES = 16  # of a number in a list while it is read: its own bytes, and float64
_SLACK = 100  # bytes of a header that the first writers in C++ forgot to count
_TAIL = 8  # the length of the file's description, and four letters
_ROW_GROUPS = 4  # fields of the file's description, ...
_CHUNKS, _ROWS = (1, LIST), (3, INT64)  # ... of a row group, ...
_META, _PACKED_ALL, _FIRST, _DICTIONARY = (3, STRUCT), (7, INT64), (9, INT64), (11, INT64)  # ... of a column in it, ...
_SIZE, _PACKED, _DATA, _DATA_2, _COUNT = (2, INT32), (3, INT32), (5, STRUCT), (8, STRUCT), (1, INT32)  # ... of a page


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that are stored together: how many, and the bytes [start, stop) of each of their columns."""

    number: int
    rows: int
    columns: tuple[tuple[int, int], ...]


def row_groups(path: Path) -> Iterator[RowGroup]:
    """The row groups of a file; raises DataError where it is damaged, or does not say where they are."""
    with _damage_named(f"{path}: what it says of its row groups"):
        size = path.stat().st_size
        with path.open("rb") as file:
            tail = os.pread(file.fileno(), _TAIL, max(0, size - _TAIL))
            length = int.from_bytes(tail[:4], "little")
            data = os.pread(file.fileno(), min(length, size), max(0, size - _TAIL - length))
        for number, found in enumerate(read_list(data, _ROW_GROUPS)):
            columns = tuple(_bytes_of(chunk[_META], size) for chunk in found[_CHUNKS])
            yield RowGroup(number, _natural(found, _ROWS), columns)


def check_group(
    path: Path, group: RowGroup, columns: Sequence[str], lists: Collection[str], used: Collection[str]
) -> None:
    """Raise DataError when a row group takes more memory than there is, or has lists longer than a row can be.

    columns: names in the order of the file, of lists those of their values; lists: columns that hold lists, all values
    of which may be read at once; used: columns that will be read.
    """
    needed, values = 0, dict.fromkeys(lists, 0)
    place = f"{path}, row group {group.number}"
    with path.open("rb") as file:
        if len(columns) != len(group.columns):
            found = f"found {len(group.columns)} columns, expected {len(columns)}"
            raise DataError(f"{place}: not a whole Parquet file: {found}; fetch or write it again")
        for name, (start, stop) in zip(columns, group.columns, strict=True):
            if name in used:
                largest = dictionary = 0
                for size, count in _pages(file.fileno(), start, stop, f"{place}, column {name!r}"):
                    largest, dictionary = max(largest, size if count else 0), dictionary + (0 if count else size)
                    if name in values:
                        values[name] += count
                needed += largest + dictionary
    for name, count in values.items():
        if count > MOST_FEATURES * group.rows:
            raise DataError(
                f"{place}, column {name!r}: found {count:,} values in {group.rows:,} rows, expected at most "
                f"{MOST_FEATURES:,} a row; make the lists shorter"
            )
    listed = sum(values.values())
    what = f"{place}: its pages" + (f" and lists of {listed:,} numbers" if listed else "")
    refuse_beyond_memory(needed + _LIST_BYTES * listed, what, "write the file in smaller row groups and pages")


def _bytes_of(column: Fields, size: int) -> tuple[int, int]:
    """Where the pages of a column begin, the dictionary first, and where they end."""
    start, dictionary = _natural(column, _FIRST), column.get(_DICTIONARY) or 0
    start = dictionary if 0 < dictionary < start else start
    stop = start + _natural(column, _PACKED_ALL)
    if stop > size:
        raise ValueError(f"a column ends at byte {stop:,} of {size:,}")
    return start, stop


def _pages(file: int, start: int, stop: int, place: str) -> Iterator[tuple[int, int]]:
    """Bytes that each page inflates to, and its values; none of a page without rows, the dictionary."""
    at = start
    while at < stop:
        with _damage_named(f"{place}, page at byte {at:,}"):
            found, length = _header(file, at)
            data = found.get(_DATA, found.get(_DATA_2, {}))
            size, count = _natural(found, _SIZE), _natural(data, _COUNT) if data else 0
            at += length + _natural(found, _PACKED)
            if at > stop + _SLACK:
                raise ValueError(f"it ends at byte {at:,}, expected {stop:,} at most")
        yield size, count


def _header(file: int, at: int) -> tuple[Fields, int]:
    """The fields of a page's header and its length."""
    for size in _HEADER_BYTES[:-1]:
        try:
            return read_struct(os.pread(file, size, at))
        except IndexError:  # longer than what was read
            continue
    return read_struct(os.pread(file, _HEADER_BYTES[-1], at))


def _natural(fields: Fields, key: tuple[int, int]) -> int:
    value = fields[key]
    if value < 0:
        raise ValueError(f"a count or size of {value:,}")
    return int(value)


@contextmanager
def _damage_named(place: str) -> Iterator[None]:
    """What is raised about damaged descriptions becomes DataError with the place."""
    try:
        yield
    except (IndexError, KeyError, TypeError, OSError, OverflowError) as error:
        text = f"{place}: not a whole Parquet file: cannot be read: {type(error).__name__}; fetch or write it again"
        raise DataError(text) from error
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{place}: not a whole Parquet file: {error}; fetch or write it again") from error
