"""The lines of a delimited text: what separates fields, which columns there are, and rows with the numbers of lines.

Quoted fields may hold delimiters, not line ends: so a line is a row, and an error can name it.
"""

from __future__ import annotations

import csv
import re
import string
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from coremargin.data.sources.ascending import Ascending
from coremargin.data.sources.header import names_columns
from coremargin.data.sources.paths import file_bytes
from coremargin.data.sources.text import Piece, first_lines, pieces
from coremargin.errors import BadRow, DataError, NoRows, UsageError

DELIMITERS = "\t;|,"  #: tried in this order on the first line; else runs of spaces
_LOOKED_AT, _LOOKED_AT_BYTES = 1000, 2**18  # lines below the first that may tell whether it names columns
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

    def __init__(self, path: Path, delimiter: str | None, header: bool | None, meant: Collection[str] = ()) -> None:
        """delimiter, header: as people give them; None: found out. meant: names by which columns were asked for.

        Raises DataError: no rows; UsageError.
        """
        self.name, self.path = str(path), path
        self.total_bytes = file_bytes(path)
        lines = first_lines(path, 2)
        if not lines:
            raise DataError(f"{path}: only blank lines: expected rows")
        self.delimiter = _delimiter(delimiter, lines[0], path)  #: None: runs of spaces
        mark = r"\s" if self.delimiter is None else re.escape(self.delimiter)
        field = rf'(?>"[^"]*+(?:""[^"]*+)*+"|[^"{mark}][^{mark}]*+|)'
        white = string.whitespace.replace(self.delimiter or "\0", "")  # of a blank line: empty fields are none
        self._filled = re.compile(f"[^{white}]".encode())
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
        self._header = names_columns(first, second, cache(self._below), meant) if header is None else header
        if self._header and second is None:
            raise NoRows(f"{path}: no rows after the header line {lines[0]!r}: expected at least one")
        self.names = tuple(name.strip() for name in first) if self._header else None
        self.width = len(first)

    def _below(self) -> list[list[str]]:
        """The fields of the lines after the first, as many as there are in some 256 KiB, at least one."""
        lines = first_lines(self.path, _LOOKED_AT, _LOOKED_AT_BYTES)[1:]
        return [self.fields(line) for line in lines if not self.too_wide(line)]

    def rows(self) -> Iterator[Lines]:
        """All rows, a piece of the file at a time. Raises BadRow, and DataError when there are none."""
        return map(self.lines, self.blocks())

    def blocks(self) -> Iterator[Block]:
        """The same as bytes, not looked at but for the header line. Raises DataError when there are none."""
        header, empty = self._header, True
        for piece in pieces(self.path):
            data, line = piece.data, piece.line
            if not self._filled.search(data):
                continue
            if line == 1:
                data = data.removeprefix(b"\xef\xbb\xbf")
            if header:
                blank = len(data) - len(data.lstrip())
                start = data.find(b"\n", blank) + 1 or len(data)
                line += data.count(b"\n", 0, start)
                data, header = data[start:], False
            if self._filled.search(data):
                empty = False
                yield Block(data, line, piece.done_bytes)
        if empty:
            raise NoRows(f"{self.name}: no rows: expected at least one")

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
            numbers = Ascending(block.line, ~np.array(blank))
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
