"""The lines of a delimited text: what separates fields, which columns there are, and rows with the numbers of lines.

Quoted fields may hold delimiters, not line ends: so a line is a row, and an error can name it.
"""

from __future__ import annotations

import csv
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from coremargin.data.sources.base import LABEL_NAMES
from coremargin.data.sources.paths import file_bytes
from coremargin.data.sources.text import Piece, first_lines, is_number, pieces
from coremargin.data.sources.vocabulary import MISSING
from coremargin.errors import BadRow, DataError, UsageError

DELIMITERS = "\t;|,"  #: tried in this order on the first line; else runs of spaces
_LABELS = frozenset(LABEL_NAMES) - {"y"}  # "y" may be the label itself: yes
_WORD = re.compile(r"\S+")
MOST_COLUMNS = 1 << 22  #: of a text; each costs Python hundreds of bytes


@dataclass(frozen=True, slots=True)
class Block:
    """Rows as the bytes of the file, line after line, some of which may be blank; line: number of the first, from 1."""

    data: bytes
    line: int
    done_bytes: int  #: of the file consumed so far


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows as text, none of them blank; numbers: of the lines in the file, from 1."""

    lines: list[str]
    numbers: Sequence[int]
    done_bytes: int  #: of the file consumed so far


class DelimitedLines:
    """The rows of one delimited text file as lines."""

    def __init__(self, path: Path, delimiter: str | None, header: bool | None) -> None:
        """delimiter, header: as people give them; None: found out. Raises DataError: no rows; UsageError."""
        self.name, self.path = str(path), path
        self.total_bytes = file_bytes(path)
        lines = first_lines(path, 2)
        if not lines:
            raise DataError(f"{path}: only blank lines: expected rows")
        self.delimiter = _delimiter(delimiter, lines[0], path)  #: None: runs of spaces
        mark = r"\s" if self.delimiter is None else re.escape(self.delimiter)
        field = rf'(?>"[^"]*+(?:""[^"]*+)*+"|[^"{mark}][^{mark}]*+|)'
        self._white = string.whitespace.replace(self.delimiter or "\0", "")  #: of a blank line: empty fields are none
        self._whole = re.compile(rf"{field}(?:{mark}{field})*+")  # a line
        self._open = re.compile(rf'(?:\A|(?<={mark}))"[^"]*+(?:""[^"]*+)*+\Z')
        # what a line that is none may have, and few others
        self._stray = re.compile(rf'"(?<=[^{mark}\n]")(?=[^"{mark}\n])')
        if self.too_wide(lines[0]):
            raise DataError(
                f"{path}: found more than {MOST_COLUMNS:,} fields in the first line, expected fewer; check "
                "--delimiter, or give such rows as .npy, .npz or SVMlight"
            )
        first = self.fields(lines[0])
        second = self.fields(lines[1]) if len(lines) > 1 else None
        self._header = looks_like_header(first, second) if header is None else header
        if self._header and second is None:
            raise DataError(f"{path}: no rows after the header line {lines[0]!r}: expected at least one")
        self.names = tuple(name.strip() for name in first) if self._header else None
        self.width = len(first)

    def rows(self) -> Iterator[Lines]:
        """All rows, a piece of the file at a time. Raises BadRow, and DataError when there are none."""
        return map(self.lines, self.blocks())

    def blocks(self) -> Iterator[Block]:
        """The same as bytes, not looked at but for the header line. Raises DataError when there are none."""
        header, empty = self._header, True
        for piece in pieces(self.path):
            data, line = piece.data, piece.line
            if not data.strip(self._white.encode()):
                continue
            if line == 1:
                data = data.removeprefix(b"\xef\xbb\xbf")
            if header:
                blank = len(data) - len(data.lstrip())
                start = data.find(b"\n", blank) + 1 or len(data)
                line += data.count(b"\n", 0, start)
                data, header = data[start:], False
            if data.strip(self._white.encode()):
                empty = False
                yield Block(data, line, piece.done_bytes)
        if empty:
            raise DataError(f"{self.name}: no rows: expected at least one")

    def text(self, block: Block) -> str:
        """A block as text with plain line ends; raises BadRow with the line that is not, or has a stray quote."""
        text = Piece(self.path, block.data, block.line, block.done_bytes).text()
        if '"' in text and self._stray.search(text):
            lines = text.split("\n")
            self.refuse_stray_quotes(lines, range(block.line, block.line + len(lines)))
        return text

    def lines(self, block: Block) -> Lines:
        """The lines of a block that are not blank, and their numbers. Raises BadRow."""
        lines = self.text(block).split("\n")
        numbers: Sequence[int] = range(block.line, block.line + len(lines))
        blank = [not line.strip() and (self.delimiter is None or self.delimiter not in line) for line in lines]
        if any(blank):
            filled = [i for i, empty in enumerate(blank) if not empty]
            numbers = [numbers[i] for i in filled]
            lines = [lines[i] for i in filled]
        return Lines(lines, numbers, block.done_bytes)

    def refuse_stray_quotes(self, lines: Sequence[str], numbers: Sequence[int]) -> None:
        """Raise BadRow for text behind a quoted field, as "a"b would be ab, and for a field that is not closed."""
        for line, number in zip(lines, numbers, strict=True):
            if '"' in line and not self._whole.fullmatch(line):
                found = "text behind the closing quote of a field, expected the delimiter; correct the line"
                if self._open.search(line):
                    found = "a quote that is not closed, expected its end on the same line; correct the line"
                raise BadRow(f"{self.name}, line {number}: found {found}")

    def refuse_width(self, line: str, number: int) -> None:
        """Raise BadRow for a line that has not as many fields as the first."""
        fields = [] if self.too_wide(line) else self.fields(line)
        if len(fields) != self.width:
            found = f"{len(fields):,}" if fields else f"more than {MOST_COLUMNS:,}"
            raise BadRow(
                f"{self.name}, line {number}: found {found} fields, expected {self.width} as in the first line; "
                "correct the line (a quoted field must not span lines)"
            )

    def fields(self, line: str) -> list[str]:
        """The fields of a line."""
        if self.delimiter is None:
            return line.split()
        try:
            return next(csv.reader([line], delimiter=self.delimiter))
        except csv.Error:  # a field of absurd length
            return [line]

    def too_wide(self, line: str) -> bool:
        """Whether a line may hold more fields than a text can; it is not split to find out."""
        if self.delimiter is not None:
            return line.count(self.delimiter) >= MOST_COLUMNS
        return (
            len(line) > MOST_COLUMNS and sum(1 for _ in islice(_WORD.finditer(line), MOST_COLUMNS + 1)) > MOST_COLUMNS
        )

    def named(self, column: int) -> str:
        """A column for messages."""
        return f"column {column}" if self.names is None else f"column {self.names[column]!r}"


def _delimiter(wanted: str | None, line: str, path: Path) -> str | None:
    if wanted is None:
        return next((mark for mark in DELIMITERS if mark in line), None)
    mark = {"tab": "\t", "\\t": "\t", "space": " "}.get(wanted.lower(), wanted)
    if len(mark) != 1 or mark in '"\r\n':
        raise UsageError(f"{path}: --delimiter {wanted!r}: expected one character, or tab or space")
    return None if mark == " " else mark


def looks_like_header(first: list[str], second: list[str] | None) -> bool:
    """Whether the first line names the columns.

    It does when some field is a name where the next line has a number (or when there is no number at all in it and the
    next line repeats none of it), unless it also holds a number that nobody would call a column, such as -1 or 0.5.
    Beside a word for labels whole numbers are names, too: a table whose columns have none is written so.
    """
    names = [not is_number(field) and field.strip().lower() not in MISSING for field in first]
    if any(is_number(field) and not field.strip().isdigit() for field in first):
        return False
    if not any(is_number(field) for field in first):
        repeated = second is not None and any(
            name and field == below for name, field, below in zip(names, first, second, strict=False)
        )
        return any(names) and not repeated
    if second is None:
        return False
    pairs = list(zip(first, second, strict=False))
    called = any(field.strip().lower() in _LABELS and field != below for field, below in pairs)
    return called or any(name and is_number(below) for name, below in zip(names, second, strict=False))
