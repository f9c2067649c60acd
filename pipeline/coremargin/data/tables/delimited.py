"""Delimited text as a table of texts: what a column holds is found out from all of it, not from its first rows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.tables.table import TableBatch
from coremargin.data.tables.values import NULLS
from coremargin.errors import BadRow

if TYPE_CHECKING:
    from coremargin.data.sources.delimited_lines import DelimitedLines, Lines


class DelimitedTable:
    """One file; ``lines`` says what separates fields and which columns there are."""

    types: Sequence[Any] | None = None  #: texts

    def __init__(self, lines: DelimitedLines) -> None:
        self._lines = lines
        self.name, self.path = lines.name, Path(lines.path)
        self.rows: int | None = None
        self.total_bytes: int | None = lines.total_bytes
        self.names, self.width = lines.names, lines.width
        mark = lines.delimiter
        self._padded = None  # what shows that there is white space around fields
        if mark is not None and mark != "\t":
            self._padded = re.compile(rf" {re.escape(mark)}|{re.escape(mark)} | $", re.MULTILINE)

    def pieces(self, columns: Sequence[int]) -> Iterator[Lines]:
        """Lines, some MiB at a time, whatever the columns."""
        return self._lines.rows()

    def batch(self, piece: Lines, columns: Sequence[int]) -> TableBatch:
        """Texts, without the white space around them; what stands for a missing value is null."""
        self._lines.refuse_stray_quotes(piece.lines[-1:], piece.numbers[-1:])  # Arrow closes one at the end of a text
        text = "\n".join(piece.lines)
        padded = self._padded is not None and self._padded.search(text) is not None
        if self._lines.delimiter is None:
            text = "\n".join(" ".join(line.split()) for line in piece.lines)
        table = self._parsed(text, columns, nulls=() if padded else NULLS)
        if table is None or len(table) != len(piece.lines):
            self._refuse(piece)
        found = {column: table.column(f"{column}").combine_chunks() for column in columns}
        if padded:
            found = {column: _trimmed(values) for column, values in found.items()}
        name, numbers = self.name, piece.numbers
        return TableBatch(found, len(piece.lines), name, lambda row: f"{name}, line {numbers[row]}", piece.done_bytes)

    def _parsed(self, text: str, columns: Sequence[int], nulls: Sequence[str]) -> Any:
        """Arrow's table of the columns, None when some line has more or fewer fields."""
        import pyarrow as pa
        from pyarrow import csv

        data = text.encode()
        names = [f"{column}" for column in range(self.width)]
        try:
            return csv.read_csv(
                io.BytesIO(data),
                read_options=csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
                parse_options=csv.ParseOptions(delimiter=self._lines.delimiter or " "),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=[f"{column}" for column in columns] or names[:1],
                    strings_can_be_null=bool(nulls),
                    null_values=list(nulls),
                ),
            )
        except pa.ArrowInvalid:
            return None

    def _refuse(self, piece: Lines) -> None:
        """Raise BadRow for the first line that is not as it should be."""
        self._lines.refuse_stray_quotes(piece.lines, piece.numbers)
        for line, number in zip(piece.lines, piece.numbers, strict=True):
            self._lines.refuse_width(line, number)
        raise BadRow(
            f"{self.name}, line {piece.numbers[0]}: cannot be read, nor some line after it; check quotes and delimiters"
        )

    def lengths(self, columns: Sequence[int]) -> dict[int, int]:
        """No lists are in a text."""
        return dict.fromkeys(columns, 1)

    def named(self, column: int) -> str:
        """By name, or by number."""
        return self._lines.named(column)


def _trimmed(column: Any) -> Any:
    """Texts without white space around them, null where they stand for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(texts, value_set=pa.array(NULLS)), pa.scalar(None, pa.string()), texts)
