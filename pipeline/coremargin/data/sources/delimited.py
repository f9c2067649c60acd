"""Delimited text of numbers: CSV, TSV and friends, plain or compressed.

NumPy's own parser reads the numbers (measured: 220 MB/s per core on 51 columns, where pyarrow's streaming reader came
to 140 to 180 and the csv module to 43). It says little about what it cannot read; a piece that fails is therefore
searched for its first bad line and field. Tables that hold more than numbers are for data/tables/delimited.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from coremargin.data.key_values import hashed, texts_of
from coremargin.data.sources.base import Batch, SourceOptions
from coremargin.data.sources.choice import choose
from coremargin.data.sources.text import is_number
from coremargin.data.tables.values import NULLS
from coremargin.data.tables.words import as_option, spoken
from coremargin.errors import BadRow, DataError
from coremargin.formats.columns import ColumnsRecord, plain_columns

if TYPE_CHECKING:
    from coremargin.data.sources.delimited_lines import DelimitedLines, Lines
    from coremargin.data.sources.vocabulary import Vocabulary


Converters = dict[int | str, Callable[[str], float]]


class DelimitedFile:
    """Rows of one file whose features are all numbers."""

    sparse = False

    def __init__(self, lines: DelimitedLines, options: SourceOptions) -> None:
        self._lines = lines
        self.name = lines.name
        self.total_bytes: int | None = lines.total_bytes
        self.rows: int | None = None
        chosen = choose(lines.names, lines.width, options, self.name, lines.named)
        self._kept, self._label, self._weights = list(chosen.features), chosen.label, chosen.weights
        self._key, self._unused = chosen.key, chosen.unused
        if not self._kept:
            raise DataError(
                f"{self.name}: zero features: expected numbers beside the label, found {lines.width} columns; "
                "if they are not split as they should be, say --delimiter"
            )
        self.features = len(self._kept)
        self.label_from = None if self._label is None else lines.named(self._label)
        self.weight_from = None if self._weights is None else lines.named(self._weights)
        self.columns = self._columns(lines.names)

    def _columns(self, names: tuple[str, ...] | None) -> ColumnsRecord | None:
        """What is kept of the columns: nothing, where they have no names and come first, the label behind them."""
        usual = self._kept == list(range(self.features)) and self._label in (None, self.features)
        if names is None and usual and self._weights is None and self._key is None:
            return None
        told = [f"{column}" for column in range(self._lines.width)] if names is None else names
        label, weights, key = (None if at is None else told[at] for at in (self._label, self._weights, self._key))
        kept = plain_columns([told[i] for i in self._kept])
        return ColumnsRecord(columns=kept, label=label, weights=weights, key=key, named=names is not None)

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """One batch per piece of text."""
        for lines in self._lines.rows():
            yield self._batch(lines, vocabulary)

    def _batch(self, part: Lines, vocabulary: Vocabulary) -> Batch:
        lines, numbers = part.lines, part.numbers
        converters: Converters = dict.fromkeys(self._unused, _zero)
        keys = _Kept()
        if self._key is not None:
            converters[self._key] = keys
        if self._label is not None:
            converters[self._label] = lambda text: float(vocabulary.encode_text(text, self.name))
        table = self._parse(lines, converters)
        if table is None:
            self._lines.refuse_stray_quotes(lines, numbers)
            self._explain(lines, numbers, converters, vocabulary)
        # NumPy closes a quote that is open at the end of a text
        self._lines.refuse_stray_quotes(lines[-1:], numbers[-1:])
        place = partial(_line, self.name, numbers)
        return Batch(
            rows=table if self._kept == list(range(self._lines.width)) else table[:, self._kept],
            codes=None if self._label is None else table[:, self._label].astype(np.int32),
            origin=self.name,
            place=place,
            column=lambda feature: self._lines.named(self._kept[feature]),
            done_bytes=part.done_bytes,
            weights=None if self._weights is None else table[:, self._weights],
            keys=None if self._key is None else self._hashed(keys, self._key, place),
        )

    def _hashed(self, keys: _Kept, column: int, place: Callable[[int], str]) -> np.ndarray:
        """Hashes (m, 2) of the keys of a batch. Raises BadRow."""
        texts = (None if text.strip() in NULLS else text for text in keys.texts)
        return hashed(texts_of(texts, lambda row: f"{place(row)}, {self._lines.named(column)}"))

    def _parse(self, lines: list[str], converters: Converters) -> np.ndarray | None:
        """The table (m, width) float64, or None when some line is not ``width`` fields of numbers."""
        try:
            table: np.ndarray = np.loadtxt(
                lines,
                delimiter=self._lines.delimiter,
                dtype=np.float64,
                ndmin=2,
                comments=None,
                quotechar='"',
                converters=converters,
                encoding=None,
            )
        except ValueError:
            return None
        return table if table.shape == (len(lines), self._lines.width) else None

    def _explain(
        self, lines: list[str], numbers: Sequence[int], converters: Converters, vocabulary: Vocabulary
    ) -> NoReturn:
        """Raise BadRow for the first line that cannot be read, found by halving."""
        low, high = 0, len(lines)
        while high - low > 1:
            middle = (low + high) // 2
            if self._parse(lines[low:middle], converters) is None:
                high = middle
            else:
                low = middle
        line, number = lines[low], numbers[low]
        self._lines.refuse_width(line, number)
        place, fields = f"{self.name}, line {number}", self._lines.fields(line)
        for column in [*self._kept, *([] if self._weights is None else [self._weights])]:
            text = fields[column]
            if not is_number(text):
                found = "an empty field" if not text.strip() else repr(text)
                said = as_option([spoken((self._lines.names or {column: ""})[column], column)])
                raise BadRow(
                    f"{place}, {self._lines.named(column)}: found {found}, expected a number; correct the value, or "
                    f"leave the column out with --drop {said}"
                )
        if self._label is not None:
            vocabulary.encode_text(fields[self._label], place)  # NumPy hides the error of a label that cannot be taken
        raise BadRow(f"{place}: cannot be read: {line[:80]!r}; check quotes and delimiters")


def _zero(_: str) -> float:
    return 0.0


class _Kept:
    """Keeps the fields of a column, which are no numbers."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> float:
        self.texts.append(text)
        return 0.0


def _line(name: str, numbers: Sequence[int], row: int) -> str:
    return f"{name}, line {numbers[row]}"
