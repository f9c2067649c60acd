"""The dialect of a delimited text: where its rows begin, what separates fields, whether the first line names columns.

pandas takes every first line for names, ``csv.Sniffer`` lets twenty rows vote by the kinds and lengths of fields.
Here the evidence has to be clear: a row that is taken for names would be lost silently.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from coremargin.data.labels import MISSING
from coremargin.data.sources.column_choice import LABEL_NAMES
from coremargin.data.sources.text import MOST_BLANK, is_number, read_pieces
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.paths import FilePath

_LABELS = frozenset(LABEL_NAMES) - {"y"}  # "y" may be the label itself: yes
_MANY = 8  # columns; fewer whole numbers may count up by chance

Fields = list[str]


def is_header(first: Fields, below: Sequence[Fields], expected: Collection[str] = ()) -> bool:
    """Whether the first line names the columns. expected: names of columns that options name.

    A line with an expected name does, unless rows below have that, too. A line without numbers does when numbers stand
    below it, or else when the next line repeats none of it, and rows below not most of it. One with numbers that are no
    names of columns, such as -1 or 0.5, does not. Integers may be names, those of a table whose columns have none, next
    to a word: one for labels; one below which all are numbers; or, where the integers count up, one that no row below
    has, while these have few others again and again.
    """
    words = [at for at, field in enumerate(first) if not is_number(field) and not _is_missing(field)]
    if any(first[at].strip() in expected and first[at].strip() not in _column(at, below) for at in words):
        return True
    numbers = [field.strip() for field in first if is_number(field)]
    if not words or not below:
        return bool(words) and not numbers
    second = below[0]
    shared = [at for at in words if at < len(second)]
    if not numbers:
        if any(is_number(second[at]) for at in shared):
            return True
        if any(first[at] == second[at] for at in shared):
            return False
        return 2 * sum(_recurs(first, at, below) for at in words) <= len(words)
    if not all(number.isdigit() for number in numbers) or len(set(numbers)) < len(numbers):
        return False
    if any(first[at].strip().lower() in _LABELS and first[at] != second[at] for at in shared):
        return True
    columns = [_column(at, below) for at in words]
    if any(column and all(map(is_number, column)) for column in columns):
        return True
    values = [int(number) for number in numbers]  # such as 0, 1, 2, or 2010, 2015, 2020
    count_up = all(one < other for one, other in pairwise(values)) and (len(values) > 1 or values[0] <= 1)
    repeat = any(1 < len(set(column)) < len(column) for column in columns)
    return count_up and repeat and not any(_recurs(first, at, below) for at in words)


def is_numbered_header(first: Fields, below: Sequence[Fields]) -> bool:
    """Whether a line may number the columns from 0 on, as pandas names columns without names, behind an empty field
    where there is an index: no row is likely to where they are many, or where all other numbers of a column have
    decimals. A table of 0, 1, 2, ... continues in its next row.
    """
    fields = [field.strip() for field in first]
    start = len(fields) > 1 and not fields[0]
    if len(fields) < 3 or fields[start:] != [f"{number}" for number in range(len(fields) - start)]:
        return False
    if below and below[0] == [f"{len(fields) + at}" for at in range(len(fields))]:
        return False
    columns = (_column(at, below) for at in range(start, len(fields)))
    return start or len(fields) >= _MANY or any(found and all("." in one for one in found) for found in columns)


def _recurs(first: Fields, at: int, below: Sequence[Fields]) -> bool:
    """Whether rows below have a field of the line in its place, but for the whole line: that of a second file."""
    return any(at < len(row) and row[at].strip() == first[at].strip() and row != first for row in below)


def _column(at: int, below: Sequence[Fields]) -> Fields:
    found = [row[at].strip() for row in below if at < len(row)]
    return [field for field in found if not _is_missing(field)]


def _is_missing(field: str) -> bool:
    return field.strip().lower() in MISSING


DELIMITERS = "\t;|,"  #: tried in this order on the first lines; else runs of spaces


SAMPLE_ROWS, _SAMPLE_BYTES = 1000, 2**18  # rows, and bytes, that show what a file holds


_SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?[ \t]*\r?', re.IGNORECASE)  # Excel's


def read_beginning(path: FilePath) -> bytes:
    """The first bytes of a file: some 256 KiB that hold more than blank lines, or all of a short one."""
    parts, size, filled = list[bytes](), 0, 0
    for piece in read_pieces(path, 2**16):
        parts.append(piece.data)
        size += len(piece.data)
        filled += bool(piece.data.strip())
        if size >= _SAMPLE_BYTES and (filled > 1 or size > MOST_BLANK):
            break
    if not filled and size > MOST_BLANK:
        raise DataError(f"{path}: found {size:,} bytes of blank lines, expected rows; check what has written the file")
    return b"".join(parts)


def skip_separator_line(head: bytes, delimiter: str | None, path: FilePath) -> tuple[int, str | None]:
    """Where rows begin behind Excel's ``sep=;``, if that is there, and the delimiter: the given one, if any."""
    start = len(head) - len(head.lstrip(b"\r\n"))
    end = head.find(b"\n", start)
    found = _SEPARATOR_LINE.fullmatch(head, start, end if end >= 0 else len(head))
    if delimiter is not None:
        mark = {"tab": "\t", "\\t": "\t", "space": " "}.get(delimiter.lower(), delimiter)
        if len(mark.encode()) != 1 or mark in '"\r\n':
            raise UsageError(f"{path}: --delimiter {delimiter!r}: expected one character, or tab or space")
        delimiter = mark
    if found is None or end < 0:
        return start, delimiter
    return end + 1, delimiter or found.group(1).decode(errors="replace")


def skip_comments(head: bytes, start: int, delimiter: str | None) -> tuple[int, str | None]:
    """Where rows begin behind lines that begin with #, and what separates fields; None: runs of spaces.

    Such lines that have as many fields as the first other one are rows, or names of columns, unless that one names
    columns itself. Names behind "# " are those behind it.
    """
    marked, at = list[int](), start
    while at < len(head):
        end = head.find(b"\n", at) + 1 or len(head)
        line = head[at:end].strip()
        if line and not line.startswith(b"#"):
            break
        if line:
            marked.append(at)
        at = end
    if at >= len(head):
        return start, _find_delimiter(head[start:], delimiter)
    mark = _find_delimiter(head[at:], delimiter)
    rows = list(islice(split_records(head[at:], mark), SAMPLE_ROWS))
    if not rows:  # one record that does not end, or bytes that are no text: refused where rows are read
        return start, mark
    alike = at
    for before in reversed(marked):
        if len(rows[0]) < 2 or len(next(split_records(head[before:alike], mark), [])) != len(rows[0]):
            break
        alike = before
    if is_header(rows[0], rows[1:]):
        return at, mark
    if marked and head.startswith(b"# ", marked[-1]):  # as numpy.savetxt writes names
        named = head[marked[-1] : at].lstrip(b"# \t")
        fields = next(split_records(named, mark), [])
        if 1 < len(fields) == len(rows[0]) and is_header(fields, rows):
            return at - len(named), mark
    return alike, mark


def _find_delimiter(head: bytes, wanted: str | None) -> str | None:
    """What separates fields: the first mark that gives the first two rows as many, or else that the first one has."""
    if wanted is not None:
        return None if wanted == " " else wanted
    counts = {mark: [len(row) for row in islice(split_records(head, mark), 2)] for mark in DELIMITERS}
    there = [mark for mark, found in counts.items() if found and found[0] > 1]
    even = [mark for mark in there if len(set(counts[mark])) == 1]
    return next(iter([*even, *there]), None)


def split_records(data: bytes, mark: str | None) -> Iterator[list[str]]:
    """The fields of the records that are not blank."""
    text = data.decode(errors="replace")
    if mark is None or mark == " ":
        yield from (line.split() for line in text.split("\n") if line.strip())
        return
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    while True:
        try:
            row = next(rows, None)
        except csv.Error:  # a field of absurd length
            continue
        if row is None:
            return
        if len(row) > 1 or (row and row[0].strip()):
            yield row
