"""CSV, TSV and other delimited text, plain or compressed, as a table of texts: pyarrow parses it, a piece at a time.

A piece holds whole records as RFC 4180 has them: a quoted field may hold delimiters, line ends and doubled quotes. Each
row goes by the line on which its record begins. What a column holds is found out from all of it, not from its first
rows. Measured on 51 columns of numbers: 190 MB/s per core, where ``numpy.loadtxt`` comes to 55.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.data.sources.base import AscendingNumbers
from coremargin.data.sources.paths import FilePath, file_bytes
from coremargin.data.sources.text import LONGEST_LINE, count_feeds, read_pieces
from coremargin.data.tables.arrow_arrays import string_array, to_float64
from coremargin.data.tables.dialect import (
    SAMPLE_ROWS,
    is_header,
    is_numbered_header,
    read_beginning,
    skip_comments,
    skip_separator_line,
    split_records,
)
from coremargin.data.tables.number_text import EXACT, PLAIN, null_texts
from coremargin.data.tables.table import NO_HINTS, Hint, Table, TableBatch
from coremargin.errors import BadRow, DataError, NoRows

if TYPE_CHECKING:
    from coremargin.formats.columns import TextFormat


_QUOTE, _FEED, _RETURN, _SPACE, _TAB = b'"\n\r \t'


class RecordSyntax:
    """Finds records in bytes. mark: the delimiter; None: runs of spaces, and quotes mean nothing."""

    def __init__(self, mark: bytes | None) -> None:
        self.mark = mark
        end = rb"\s" if mark is None else re.escape(mark) + rb"\n"
        between = rb"\s" if mark is None else re.escape(mark)
        text, plain = rb'"[^"]*+(?:""[^"]*+)*+"', rb'[^"' + end + rb"][^" + end + rb"]*+"
        whole = rb"(?>" + text + rb"|" + plain + rb"|)"
        loose = rb"(?>" + text + rb"[^" + end + rb"]*+|" + plain + rb"|)"
        self._valid = re.compile(whole + rb"(?:" + between + whole + rb")*+")  # without its end
        self._any = re.compile(loose + rb"(?:" + between + loose + rb")*+(?:\n|\Z)")  # text may follow closing quotes

    def ends(self, data: bytes) -> np.ndarray:
        """Where records end, behind their line feeds."""
        text = np.frombuffer(data, np.uint8)
        feeds = np.flatnonzero(text == _FEED)
        if self.mark is None or b'"' not in data:
            return feeds + 1
        quotes = np.flatnonzero(text == _QUOTE)
        if self._is_regular(text, quotes):
            found: np.ndarray = feeds[np.searchsorted(quotes, feeds) % 2 == 0] + 1
            return found
        ends, at = [], 0
        while at < len(data) and (record := self._any.match(data, at)):
            at = record.end()
            if data[at - 1 : at] == b"\n":
                ends.append(at)
        return np.array(ends, np.intp)

    def last_end(self, data: bytes) -> int:
        """Where the last record that has ended ends; 0: none has."""
        ends = self.ends(data)
        return int(ends[-1]) if len(ends) else 0

    def is_open(self, data: bytes) -> bool:
        """Whether the last record ends within quotes."""
        rest = data[self.last_end(data) :]
        return bool(rest) and self._any.fullmatch(rest) is None

    def first_stray(self, data: bytes, ends: np.ndarray) -> int | None:
        """Where the first record begins that has text behind a quoted field, as "a"b, which would be read as ab."""
        text = np.frombuffer(data, np.uint8)
        if self.mark is not None and self._is_regular(text, np.flatnonzero(text == _QUOTE)):
            return None
        start = 0
        for end in ends.tolist():
            record = data[start:end]
            if b'"' in record and self._valid.fullmatch(record.removesuffix(b"\n")) is None:
                return start
            start = end
        return None

    def with_line_feeds(self, data: bytes) -> tuple[bytes, int | None]:
        """The records, ended by line feeds alone, and where the first lone carriage return is; quoted ones stay."""
        text = np.frombuffer(data, np.uint8)
        returns = np.flatnonzero(text == _RETURN)
        if b'"' in data and self.mark is not None:
            quotes = np.flatnonzero(text == _QUOTE)
            if self._is_regular(text, quotes):
                returns = returns[np.searchsorted(quotes, returns) % 2 == 0]
        follows = text[np.minimum(returns + 1, len(text) - 1)] == _FEED
        lone = None if follows.all() else int(returns[np.argmin(follows)])
        return np.delete(text, returns).tobytes(), lone

    def find_white_space(self, data: bytes) -> tuple[bool, bool]:
        """Whether some line may be blank, and whether there may be white space around a field, or within its quotes."""
        blank = b"\n\n" in data or data.startswith(b"\n")
        tabs = self.mark != b"\t" and b"\t" in data
        if b" " not in data and not tabs:
            return blank, False
        text = np.frombuffer(data, np.uint8)
        edge = np.zeros(len(text) + 2, bool)
        edge[0] = edge[-1] = True
        middle = edge[1:-1]
        middle |= text == _FEED
        middle |= text == (_SPACE if self.mark is None else self.mark[0])
        middle |= text == _QUOTE
        white = text == _SPACE
        if tabs:
            white |= text == _TAB
        padded = bool(np.any(white & (edge[:-2] | edge[2:])))
        return blank or (padded and re.search(rb"(?:\A|\n)[ \t]*(?:\n|\Z)", data) is not None), padded

    def _is_regular(self, text: np.ndarray, quotes: np.ndarray) -> bool:
        """Whether each quote begins or ends a field, or is one of two within quotes: every second one ends some."""
        if self.mark is None:
            return False
        opening, closing = quotes[::2], quotes[1::2]
        before = text[np.maximum(opening - 1, 0)]
        behind = text[np.minimum(closing + 1, len(text) - 1)]
        opens = (opening == 0) | (before == self.mark[0]) | (before == _FEED) | (before == _QUOTE)
        closes = (closing + 1 >= len(text)) | (behind == self.mark[0]) | (behind == _FEED) | (behind == _RETURN)
        return bool(opens.all() and (closes | (behind == _QUOTE)).all())


MOST_COLUMNS = 1 << 18  #: of a text; each costs Python and Arrow about a kilobyte
_WIDE, _FEW_OTHERS = 512, 16  # columns of numbers that are parsed as one, and other columns among them
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records as the bytes of the file, some of which may be blank; line: number of the first, from 1."""

    data: bytes
    line: int
    done_bytes: int  #: of the file consumed so far


class DelimitedTable(Table):
    """The rows of one file."""

    def __init__(
        self,
        path: FilePath,
        delimiter: str | None = None,
        header: bool | None = None,
        expected: Collection[str] = (),
        form: TextFormat = PLAIN,
    ) -> None:
        """delimiter, header: None: detected. expected: names of columns that the options name.

        Raises DataError: no rows, or a first line that may be names or a row; UsageError.
        """
        self.name, self.path, self.form = str(path), path, form
        self.total_bytes = file_bytes(path)
        head = read_beginning(path)
        self._head = head
        start, delimiter = skip_separator_line(head, delimiter, path)
        start, self.delimiter = skip_comments(head, start, delimiter)  #: delimiter None: runs of spaces
        self._mark = None if self.delimiter is None else self.delimiter.encode()
        self._records = RecordSyntax(self._mark)
        self._start = start  # of the rows, or of the line that names columns; bytes
        sample = list(islice(split_records(head[start:], self.delimiter), SAMPLE_ROWS + 1))
        if not sample:
            raise DataError(f"{path}: only blank lines: expected rows")
        first, below = sample[0], sample[1:]
        if len(first) > MOST_COLUMNS:
            raise DataError(
                f"{path}: found more than {MOST_COLUMNS:,} fields in the first line, expected fewer; check "
                "--delimiter, or give such rows as .npy, .npz or SVMlight"
            )
        self._refuse_one_more(first, below)
        named = is_header(first, below, expected) if header is None else header
        if header is None and not named:
            named = {name.strip() for name in first} <= set(expected)
            if not named and is_numbered_header(first, below):
                raise DataError(
                    f"{path}: the first line, {','.join(first)[:40]!r}, may number the columns, as pandas does where "
                    "they have no names: say --header if it names columns, --no-header if it is a row"
                )
        self.names = None
        self.sample = [fields for fields in (below if named else sample) if fields]  #: fields of the first rows
        self.width = len(first)
        if named:
            end = self._first_end(start)
            named_by = Block(head[start:end], 1 + count_feeds(head[:start]), 0)
            self._utf8(named_by.data, named_by.line)
            self._with_line_feeds(named_by)
            self.names = tuple(name.strip() for name in first)
            self._start = end
            if not below:
                line = head[start:end].decode().strip()
                raise NoRows(f"{path}: no rows after the header line {line[:200]!r}: expected at least one")

    def _refuse_one_more(self, first: Sequence[str], below: Sequence[Sequence[str]]) -> None:
        """Raise DataError for rows that all have a field more than the first line, as R writes names of rows."""
        if {len(fields) for fields in below} != {len(first) + 1}:
            return
        found = f"{self.path}: found {len(first)} fields in the first line and {len(first) + 1} in all rows below"
        if not any(fields[-1].strip() for fields in below):
            raise DataError(f"{found}, of which the last is empty: remove the delimiter at the end of the rows")
        raise DataError(
            f"{found}, expected as many; if names of rows stand in front, as R's write.table puts them, write the file "
            "with row.names=FALSE, else name the columns of all fields in the first line"
        )

    def _first_end(self, start: int) -> int:
        """Where the first record that is not blank ends."""
        for end in (self._records.ends(self._head[start:]) + start).tolist():
            if self._head[start:end].strip():
                return int(end)
            start = end
        return len(self._head)

    def pieces(self, columns: Sequence[int] = ()) -> Iterator[Block]:
        """Records, some MiB at a time, whatever the columns. Raises BadRow, and DataError when there are none."""
        skip, line, empty, rest, again = self._start, 1, True, b"", 0
        done = 0
        for piece in read_pieces(self.path):
            data, done = rest + piece.data, piece.done_bytes
            if skip:
                cut = min(skip, len(data))
                line, data, skip = line + count_feeds(data[:cut]), data[cut:], skip - cut
            end = len(data)
            if self._mark is not None and b'"' in data:
                if len(data) < again:  # within a long record: look again when there is twice as much
                    rest = data
                    continue
                end = self._records.last_end(data)
                if not data.endswith(b"\n") and not self._records.is_open(data[end:]):
                    end = len(data)  # the last line of the file lacks its end
                again = 0 if end else 2 * len(data)
            if len(data) - end > LONGEST_LINE:
                self._refuse_open(line + count_feeds(data[:end]))
            if data[:end].strip():
                empty = False
                yield Block(data[:end], line, done)
            line, rest = line + count_feeds(data[:end]), data[end:]
        if rest and self._records.is_open(rest):
            self._refuse_open(line + count_feeds(rest[: self._records.last_end(rest)]))
        if rest:
            empty = False
            yield Block(rest, line, done)
        if empty:
            raise NoRows(f"{self.name}: no rows: expected at least one")

    def _refuse_open(self, line: int) -> NoReturn:
        raise BadRow(
            f"{self.name}, line {line}: found a quote that is not closed, expected its end before the end of the file; "
            "correct the line"
        )

    def batch(self, piece: Block, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """Texts, without the white space around them; what stands for a missing value is null.

        Numbers that float64 may not hold come as texts, whatever the hints.
        """
        data, numbers, padded = self._clean(piece)
        nulls = null_texts(self.form)
        usual = {column: hint for column, hint in hints.items() if self._is_usual(hint, padded=padded)}
        table = self._parse(data, columns, usual, nulls)
        if table is None or len(table) != len(numbers):
            self._refuse(piece)
        found = {column: table.column(at).combine_chunks() for at, column in enumerate(columns)}
        large = [column for column, values in found.items() if _may_be_rounded(values)]
        if large:
            texts = self._parse(data, large, NO_HINTS, nulls)
            found |= {column: texts.column(at).combine_chunks() for at, column in enumerate(large)}
        white = "" if not padded else " " if self.delimiter == "\t" else " \t"
        found = {
            column: values if hints.get(column) == "label" else _trim_and_mark_missing(values, white, nulls)
            for column, values in found.items()
        }
        return self._batch(found, numbers, piece)

    def _batch(self, columns: Mapping[int, Any], numbers: Sequence[int], piece: Block) -> TableBatch:
        name, counted = self.name, isinstance(numbers, range)

        def place(row: int) -> str:
            return f"{name}, line {numbers[row]}"

        return TableBatch(columns, len(numbers), name, place, piece.done_bytes, counted)

    def matrix(
        self, piece: Block, columns: Sequence[int], hints: Mapping[int, Hint]
    ) -> tuple[TableBatch, np.ndarray] | None:
        """A batch of the columns that are not hinted to be numbers, and those that are as a matrix (rows, columns).

        Many columns are parsed as the values of one: Arrow takes much time and memory for each column. None for few
        columns, and where that is not possible: there are quotes, rows of other lengths, or what is no number.
        """
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if len(columns) < _WIDE:
            return None
        data, numbers, _ = self._clean(piece)
        rows, kinds = len(numbers), {column: hints.get(column) for column in columns}
        others = [column for column in range(self.width) if kinds.get(column) != "number"]
        if self._mark is None or b'"' in data or self.form.thousands or len(others) > _FEW_OTHERS:
            return None
        text = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero((text == self._mark[0]) | (text == _FEED))
        if not data.endswith(b"\n"):
            ends = np.append(ends, len(data))
        if len(ends) != rows * self.width or (text[ends[self.width - 1 : -1 : self.width]] != _FEED).any():
            return None
        starts = np.concatenate([[0], ends[:-1] + 1])
        single, found = bytearray(data), dict[int, Any]()
        for column in others:
            here = slice(column, None, self.width)
            spans = list(zip(starts[here].tolist(), ends[here].tolist(), strict=True))
            if column in kinds:
                texts = pa.array([data[start:end] for start, end in spans], pa.binary())
                try:
                    texts = texts.cast(pa.string())
                except pa.ArrowInvalid:
                    return None
                white = " " if self.delimiter == "\t" else " \t"
                is_label = kinds[column] == "label"
                found[column] = texts if is_label else _trim_and_mark_missing(texts, white, null_texts(self.form))
            for start, end in spans:
                single[start:end] = b"0".ljust(end - start) if end > start else b""
        values = bytes(single).replace(self._mark, b"\n")
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(values),
                read_options=arrow_csv.ReadOptions(column_names=["0"], use_threads=False, block_size=len(values) + 1),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.delimiter, quote_char=False, ignore_empty_lines=False
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={"0": pa.float64()},
                    null_values=list(null_texts(self.form)),
                    decimal_point=self.form.decimal,
                ),
            )
        except pa.ArrowInvalid:
            return None
        matrix = to_float64(table.column(0).combine_chunks())
        if len(matrix) != rows * self.width or not np.max(np.abs(matrix)) < EXACT:  # or NaN, which is missing
            return None
        features = [column for column in columns if kinds[column] == "number"]
        every = features == list(range(features[0], features[0] + len(features)))
        chosen = slice(features[0], features[0] + len(features)) if every else features
        return self._batch(found, numbers, piece), matrix.reshape(rows, self.width)[:, chosen]

    def _is_usual(self, hint: Hint, *, padded: bool) -> bool:
        """Whether Arrow reads such texts as they are."""
        return not self.form.thousands if hint == "number" else hint == "label" or not padded

    def _clean(self, piece: Block) -> tuple[bytes, Sequence[int], bool]:
        """The records without blank lines, each ended by a line feed alone, and their numbers.

        Also whether there may be white space around fields. Raises BadRow for what is no record.
        """
        data = self._with_line_feeds(piece)
        ends = self._records.ends(data)
        if not len(ends) or ends[-1] < len(data):
            ends = np.append(ends, len(data))
        stray = self._records.first_stray(data, ends) if b'"' in data else None
        if stray is not None:
            raise BadRow(
                f"{self.name}, line {piece.line + count_feeds(data[:stray])}: found text behind the closing quote of a "
                "field, expected the delimiter; correct the line, or close the quote"
            )
        blank, padded = self._records.find_white_space(data)
        lines = count_feeds(data) + (not data.endswith(b"\n"))
        if not blank and len(ends) == lines and self._mark is not None:
            return data, range(piece.line, piece.line + lines), padded
        starts = np.concatenate([[0], ends[:-1]])
        records = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        white = None if self._mark is None or not self._mark.isspace() else b" \n"
        filled = np.array([bool(record.strip(white)) for record in records])
        feeds = np.flatnonzero(np.frombuffer(data, np.uint8) == _FEED)
        there = np.zeros(lines, bool)
        there[np.searchsorted(feeds, starts[filled])] = True
        numbers = AscendingNumbers(piece.line, there)
        records = list(compress(records, filled.tolist()))
        if self._mark is None:
            return b"".join(b" ".join(record.split()) + b"\n" for record in records), numbers, False
        return b"".join(records), numbers, padded

    def _with_line_feeds(self, piece: Block) -> bytes:
        """The records, ended by line feeds alone. Raises BadRow for a lone carriage return."""
        if b"\r" not in piece.data:
            return piece.data
        data, lone = self._records.with_line_feeds(piece.data)
        if lone is not None:
            line = piece.line + piece.data.count(b"\n", 0, lone)
            raise BadRow(
                f"{self.name}, line {line}: found a carriage return inside of the line, expected a line feed after "
                "every row; convert the line ends first"
            )
        return data

    def _parse(self, data: bytes, columns: Sequence[int], hints: Mapping[int, Hint], nulls: Sequence[str]) -> Any:
        """Arrow's table of the columns, None when some line has more or fewer fields, or is not UTF-8.

        Columns are of the types that are hinted at, when all of their values are, else all are texts.
        """
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        names = [f"{column}" for column in range(self.width)]
        words = pa.dictionary(pa.int32(), pa.string())
        known = {"number": pa.float64(), "date": pa.timestamp("us"), "category": words, "label": words}
        types = dict.fromkeys(names, pa.string()) | {f"{column}": known[hint] for column, hint in hints.items()}
        try:
            return arrow_csv.read_csv(
                pa.BufferReader(data),
                read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
                parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter or " ", newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=types,
                    include_columns=[f"{column}" for column in columns] or names[:1],
                    strings_can_be_null=False,
                    null_values=list(nulls),
                    decimal_point=self.form.decimal,
                ),
            )
        except pa.ArrowInvalid:
            least = {column: hint for column, hint in hints.items() if hint == "label"}
            return None if len(hints) == len(least) else self._parse(data, columns, least, nulls)

    def _refuse(self, piece: Block) -> NoReturn:
        """Raise BadRow for the first record that is not as it should be."""
        self._utf8(piece.data, piece.line)
        data, numbers, _ = self._clean(piece)
        start = 0
        for number, end in zip(numbers, [*self._records.ends(data).tolist(), len(data)], strict=False):
            record = data[start:end].decode()
            fields = [] if self._too_wide(record) else next(split_records(record.encode(), self.delimiter), [])
            if len(fields) != self.width:
                found = f"{len(fields):,}" if fields else f"more than {MOST_COLUMNS:,}"
                raise BadRow(
                    f"{self.name}, line {number}: found {found} fields, expected {self.width} as in the first line; "
                    "correct the line, or say --delimiter"
                )
            start = end
        raise BadRow(
            f"{self.name}, line {piece.line}: cannot be read, nor some line after it; check quotes and delimiters"
        )

    def _utf8(self, data: bytes, line: int) -> None:
        """Raise BadRow for bytes that are not UTF-8; line: of the first."""
        try:
            data.decode()
        except UnicodeDecodeError as error:
            line += data.count(b"\n", 0, error.start)
            found = f"found byte 0x{data[error.start]:02x}, expected UTF-8 text; convert the file first"
            raise BadRow(f"{self.name}, line {line}: {found}") from error

    def _too_wide(self, record: str) -> bool:
        """Whether a record may hold more fields than a text can; it is not split to find out."""
        if self.delimiter is not None:
            return record.count(self.delimiter) >= MOST_COLUMNS
        words = _WORD.finditer(record)
        return len(record) > MOST_COLUMNS and sum(1 for _ in islice(words, MOST_COLUMNS + 1)) > MOST_COLUMNS


def _may_be_rounded(column: Any) -> bool:
    """Whether a column of numbers has some that may be whole numbers which float64 does not hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type != pa.float64():
        return False
    found = pc.min_max(column).as_py()
    return found["max"] is not None and max(found["max"], -found["min"]) >= EXACT


def _trim_and_mark_missing(column: Any, white: str, nulls: Sequence[str]) -> Any:
    """Texts without white space around them, null where they stand for a missing value; others as they are.

    white: the characters that were looked for, no others: else a text would depend on its neighbours.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        missing = pc.is_in(column.dictionary, value_set=string_array(nulls))
        if not pc.any(missing).as_py():
            return column
        indices = pc.if_else(pc.take(missing, column.indices), pa.scalar(None, column.type.index_type), column.indices)
        return pa.DictionaryArray.from_arrays(indices, column.dictionary)
    if column.type != pa.string():
        return column
    texts = pc.utf8_trim(column, characters=white) if white else column
    return pc.if_else(pc.is_in(texts, value_set=string_array(nulls)), pa.scalar(None, pa.string()), texts)
