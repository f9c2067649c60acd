"""Delimited text: CSV, TSV and friends, plain or compressed.

NumPy's own parser reads the numbers (measured: 220 MB/s per core on 51 columns, where pyarrow's streaming reader came
to 140 to 180 and the csv module to 43), so CSV needs no extra package and there is one path only. It says little about
what it cannot read; a piece that fails is therefore searched for its first bad line and field.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.data.sources.base import Batch, SourceOptions, find_column, label_column, refuse_options
from coremargin.data.sources.paths import file_bytes
from coremargin.data.sources.text import Piece, first_lines, is_number, pieces
from coremargin.data.sources.vocabulary import MISSING
from coremargin.errors import BadRow, DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary

DELIMITERS = "\t;|,"  #: tried in this order on the first line; else runs of spaces
_WORD = re.compile(r"\S+")
MOST_COLUMNS = 1 << 22  #: of a text; each costs Python hundreds of bytes


Converters = dict[int | str, Callable[[str], float]]


class DelimitedFile:
    """Rows of one delimited text file. Quoted fields may hold delimiters, not line ends."""

    sparse = False

    def __init__(self, path: Path, options: SourceOptions) -> None:
        refuse_options(options, f"{path}, a delimited text", knows=("label", "drop", "delimiter", "header", "weights"))
        self.name, self.path = str(path), path
        self.total_bytes: int | None = file_bytes(path)
        self.rows: int | None = None
        lines = first_lines(path, 2)
        if not lines:
            raise DataError(f"{path}: only blank lines: expected rows")
        self._delimiter = _delimiter(options.delimiter, lines[0], path)
        mark = r"\s" if self._delimiter is None else re.escape(self._delimiter)
        field = rf'(?>"[^"]*+(?:""[^"]*+)*+"|[^"{mark}][^{mark}]*+|)'
        self._whole = re.compile(rf"{field}(?:{mark}{field})*+")  # a line
        self._open = re.compile(rf'(?:\A|(?<={mark}))"[^"]*+(?:""[^"]*+)*+\Z')
        self._stray = re.compile(
            rf'"(?<=[^{mark}\n]")(?=[^"{mark}\n])'
        )  # what a line that is not may have, and few others
        if self._too_wide(lines[0]):
            raise DataError(
                f"{path}: found more than {MOST_COLUMNS:,} fields in the first line, expected fewer; check "
                "--delimiter, or give such rows as .npy, .npz or SVMlight"
            )
        first = self._fields(lines[0])
        second = self._fields(lines[1]) if len(lines) > 1 else None
        self._header = looks_like_header(first, second) if options.header is None else options.header
        if self._header and second is None:
            raise DataError(f"{path}: no rows after the header line {lines[0]!r}: expected at least one")
        self.names = tuple(name.strip() for name in first) if self._header else None
        self._width = len(first)
        self._choose_columns(options)

    def _choose_columns(self, options: SourceOptions) -> None:
        out = {find_column(column, self.names, self._width, place=self.name) for column in options.drop}
        self._label: int | None = None
        if not options.unlabelled:
            self._label = label_column(options.label, self.names, self._width, place=self.name)
            if self._label in out:
                raise UsageError(f"{self.name}: {self._named(self._label)} is dropped and is the label: choose one")
        self._weights: int | None = None
        if options.weights is not None:
            self._weights = find_column(options.weights, self.names, self._width, place=self.name)
            if self._weights in out or self._weights == self._label:
                raise UsageError(f"{self.name}: {self._named(self._weights)} is dropped or is the label: choose one")
        self._kept = [i for i in range(self._width) if i not in out and i not in (self._label, self._weights)]
        if not self._kept:
            raise DataError(
                f"{self.name}: zero features: expected numbers beside the label, found {self._width} columns; "
                "if they are not split as they should be, say --delimiter"
            )
        self.features = len(self._kept)
        self.feature_names = None if self.names is None else tuple(self.names[i] for i in self._kept)
        self.label_from = None if self._label is None else self._named(self._label)
        self.weight_from = None if self._weights is None else self._named(self._weights)
        self._unused = [i for i in out if i != self._label]

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """One batch per piece of text."""
        header, empty = self._header, True
        for piece in pieces(self.path):
            if piece.blank:
                continue
            text = piece.text()
            lines = text.split("\n")
            numbers: Any = range(piece.line, piece.line + len(lines))
            if '"' in text and self._stray.search(text):
                self._refuse_stray_quotes(lines, numbers)
            if any(not line.strip() for line in lines):
                filled = [i for i, line in enumerate(lines) if line.strip()]
                numbers = [numbers[i] for i in filled]
                lines = [lines[i] for i in filled]
            if header and lines:
                lines, numbers, header = lines[1:], numbers[1:], False
            if lines:
                empty = False
                yield self._batch(lines, numbers, piece, vocabulary)
        if empty:
            raise DataError(f"{self.name}: no rows: expected at least one")

    def _refuse_stray_quotes(self, lines: list[str], numbers: Any) -> None:
        """Raise BadRow for text behind a quoted field, as "a"b would be ab, and for a field that is not closed."""
        for line, number in zip(lines, numbers, strict=True):
            if '"' in line and not self._whole.fullmatch(line):
                found = "text behind the closing quote of a field, expected the delimiter; correct the line"
                if self._open.search(line):
                    found = "a quote that is not closed, expected its end on the same line; correct the line"
                raise BadRow(f"{self.name}, line {number}: found {found}")

    def _batch(self, lines: list[str], numbers: Any, piece: Piece, vocabulary: Vocabulary) -> Batch:
        converters: Converters = dict.fromkeys(self._unused, _zero)
        if self._label is not None:
            converters[self._label] = lambda text: float(vocabulary.encode_text(text, self.name))
        table = self._parse(lines, converters)
        if table is None:
            self._refuse_stray_quotes(lines, numbers)
            self._explain(lines, numbers, converters, vocabulary)
        self._refuse_stray_quotes(lines[-1:], numbers[-1:])  # NumPy closes a quote that is open at the end of a text
        return Batch(
            rows=table if len(self._kept) == self._width else table[:, self._kept],
            codes=None if self._label is None else table[:, self._label].astype(np.int32),
            origin=self.name,
            place=lambda row: f"{self.name}, line {numbers[row]}",
            column=lambda feature: self._named(self._kept[feature]),
            done_bytes=piece.done_bytes,
            weights=None if self._weights is None else table[:, self._weights],
        )

    def _parse(self, lines: list[str], converters: Converters) -> np.ndarray | None:
        """The table (m, width) float64, or None when some line is not ``width`` fields of numbers."""
        try:
            table: np.ndarray = np.loadtxt(
                lines,
                delimiter=self._delimiter,
                dtype=np.float64,
                ndmin=2,
                comments=None,
                quotechar='"',
                converters=converters,
                encoding=None,
            )
        except ValueError:
            return None
        return table if table.shape == (len(lines), self._width) else None

    def _explain(self, lines: list[str], numbers: Any, converters: Converters, vocabulary: Vocabulary) -> NoReturn:
        """Raise BadRow for the first line that cannot be read, found by halving."""
        low, high = 0, len(lines)
        while high - low > 1:
            middle = (low + high) // 2
            if self._parse(lines[low:middle], converters) is None:
                high = middle
            else:
                low = middle
        place = f"{self.name}, line {numbers[low]}"
        fields = [] if self._too_wide(lines[low]) else self._fields(lines[low])
        if len(fields) != self._width:
            found = f"{len(fields):,}" if fields else f"more than {MOST_COLUMNS:,}"
            raise BadRow(
                f"{place}: found {found} fields, expected {self._width} as in the first line; correct the line "
                "(a quoted field must not span lines)"
            )
        for column in [*self._kept, *([] if self._weights is None else [self._weights])]:
            text = fields[column]
            if not is_number(text):
                found = "an empty field" if not text.strip() else repr(text)
                raise BadRow(
                    f"{place}, {self._named(column)}: found {found}, expected a number; correct the value, or leave "
                    f"the column out with --drop {self.names[column] if self.names else column}"
                )
        if self._label is not None:
            vocabulary.encode_text(fields[self._label], place)  # NumPy hides the error of a label that cannot be taken
        raise BadRow(f"{place}: cannot be read: {lines[low][:80]!r}; check quotes and delimiters")

    def _fields(self, line: str) -> list[str]:
        if self._delimiter is None:
            return line.split()
        try:
            return next(csv.reader([line], delimiter=self._delimiter))
        except csv.Error:  # a field of absurd length
            return [line]

    def _too_wide(self, line: str) -> bool:
        """Whether a line may hold more fields than a text can; it is not split to find out."""
        if self._delimiter is not None:
            return line.count(self._delimiter) >= MOST_COLUMNS
        return (
            len(line) > MOST_COLUMNS and sum(1 for _ in islice(_WORD.finditer(line), MOST_COLUMNS + 1)) > MOST_COLUMNS
        )

    def _named(self, column: int) -> str:
        return f"column {column}" if self.names is None else f"column {self.names[column]!r}"


def _zero(_: str) -> float:
    return 0.0


def _delimiter(wanted: str | None, line: str, path: Path) -> str | None:
    if wanted is None:
        return next((mark for mark in DELIMITERS if mark in line), None)
    mark = {"tab": "\t", "\\t": "\t", "space": " "}.get(wanted.lower(), wanted)
    if len(mark) != 1 or mark in '"\r\n':
        raise UsageError(f"{path}: --delimiter {wanted!r}: expected one character, or tab or space")
    return None if mark == " " else mark


def looks_like_header(first: list[str], second: list[str] | None) -> bool:
    """Whether the first line names the columns.

    It does when some field is a name where the next line has a number (or when there is no number at all in it), unless
    it also holds a number that nobody would call a column, such as -1 or 0.5.
    """
    names = [not is_number(field) and field.strip().lower() not in MISSING for field in first]
    if any(is_number(field) and not field.strip().isdigit() for field in first):
        return False
    if not any(is_number(field) for field in first):
        return any(names)
    return second is not None and any(name and is_number(below) for name, below in zip(names, second, strict=False))
