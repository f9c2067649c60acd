"""Delimited text as a table of texts: what a column holds is found out from all of it, not from its first rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from coremargin.data.tables.looked_at import looked_at
from coremargin.data.tables.plain_arrays import strings
from coremargin.data.tables.table import NO_HINTS, Hint, TableBatch
from coremargin.data.tables.values import NULLS
from coremargin.errors import BadRow

if TYPE_CHECKING:
    from coremargin.data.sources.delimited_lines import Block, DelimitedLines
    from coremargin.data.tables.table import OnRows, Table


class DelimitedTable:
    """One file; ``lines`` says what separates fields and which columns there are."""

    types: Sequence[Any] | None = None  #: texts

    def __init__(self, lines: DelimitedLines) -> None:
        self._lines = lines
        self.name, self.path = lines.name, Path(lines.path)
        self.rows: int | None = None
        self.total_bytes: int | None = lines.total_bytes
        self.names, self.width = lines.names, lines.width

    def pieces(self, columns: Sequence[int]) -> Iterator[Block]:
        """Lines, some MiB at a time, whatever the columns."""
        return self._lines.blocks()

    def batch(self, piece: Block, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """Texts, without the white space around them; what stands for a missing value is null."""
        data, length, lines, padded = piece.data, _length(piece.data), None, False
        mark = self._lines.delimiter
        seen = None if mark is None or data.find(b"\r", 0, length) >= 0 else looked_at(data, mark.encode(), length)
        if mark is None or seen is None or seen.blank:
            lines = self._lines.lines(piece)
            data = "\n".join(" ".join(line.split()) if mark is None else line for line in lines.lines).encode()
            rows, padded, length = len(lines.lines), mark is not None, len(data)
        else:
            rows, padded = seen.rows, seen.padded
            if seen.quoted:
                self._refuse_quotes(data, length, piece.line, all_lines=seen.stray)
        table = self._parsed(memoryview(data)[:length], columns, () if padded else NULLS, NO_HINTS if padded else hints)
        if table is None or len(table) != rows:
            self._refuse(piece)
        found = {column: table.column(f"{column}").combine_chunks() for column in columns}
        if padded:
            white = " " if mark == "\t" else " \t"
            found = {column: _trimmed(values, white) for column, values in found.items()}
        name, numbers = self.name, lines.numbers if lines else range(piece.line, piece.line + rows)
        counted = isinstance(numbers, range)
        return TableBatch(found, rows, name, lambda row: f"{name}, line {numbers[row]}", piece.done_bytes, counted)

    def _refuse_quotes(self, data: bytes, length: int, line: int, *, all_lines: bool) -> None:
        """Raise BadRow for text behind a quoted field, or one that is not closed, of which Arrow makes what it can.

        Elsewhere than at the end of the data, an open quote makes too few rows.
        """
        first = 0 if all_lines else data.rfind(b"\n", 0, length) + 1
        lines = data[first:length].decode(errors="replace").split("\n")
        start = line + data.count(b"\n", 0, first)
        self._lines.refuse_stray_quotes(lines, range(start, start + len(lines)))

    def _parsed(self, data: memoryview, columns: Sequence[int], nulls: Sequence[str], hints: Mapping[int, Hint]) -> Any:
        """Arrow's table of the columns, None when some line has more or fewer fields, or is not UTF-8.

        Columns are of the types that are hinted at, when all of their values are, else all are texts.
        """
        import pyarrow as pa
        from pyarrow import csv

        names = [f"{column}" for column in range(self.width)]
        known = {"number": pa.float64(), "date": pa.timestamp("us"), "category": pa.dictionary(pa.int32(), pa.string())}
        types = dict.fromkeys(names, pa.string()) | {f"{column}": known[hint] for column, hint in hints.items()}
        try:
            return csv.read_csv(
                pa.BufferReader(data),
                read_options=csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
                parse_options=csv.ParseOptions(delimiter=self._lines.delimiter or " "),
                convert_options=csv.ConvertOptions(
                    column_types=types,
                    include_columns=[f"{column}" for column in columns] or names[:1],
                    strings_can_be_null=bool(nulls),
                    null_values=list(nulls),
                ),
            )
        except pa.ArrowInvalid:
            return self._parsed(data, columns, nulls, NO_HINTS) if hints else None

    def _refuse(self, piece: Block) -> NoReturn:
        """Raise BadRow for the first line that is not as it should be."""
        found = self._lines.lines(piece)
        self._lines.refuse_stray_quotes(found.lines, found.numbers)
        for line, number in zip(found.lines, found.numbers, strict=True):
            self._lines.refuse_width(line, number)
        raise BadRow(
            f"{self.name}, line {found.numbers[0]}: cannot be read, nor some line after it; check quotes and delimiters"
        )

    def lengths(self, columns: Sequence[int]) -> dict[int, int]:
        """No lists are in a text."""
        return dict.fromkeys(columns, 1)

    def named(self, column: int) -> str:
        """By name, or by number."""
        return self._lines.named(column)

    def again(self, columns: Sequence[int], on_rows: OnRows | None) -> Table:
        """It can be read again."""
        return self


def _length(data: bytes) -> int:
    """Bytes of a text without the ends of lines that it ends with."""
    length = len(data)
    while length and data[length - 1] in b"\r\n":
        length -= 1
    return length


def _trimmed(column: Any, white: str) -> Any:
    """Texts without white space around them, null where they stand for a missing value.

    white: what is looked for in the bytes, no more: else a text would depend on whether others beside it have some.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim(column, characters=white)
    return pc.if_else(pc.is_in(texts, value_set=strings(NULLS)), pa.scalar(None, pa.string()), texts)
