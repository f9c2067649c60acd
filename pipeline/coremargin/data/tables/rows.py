"""A table as rows to be written: its columns chosen, understood, and made features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from coremargin.data.key_values import column_texts, hashed
from coremargin.data.labels import MISSING
from coremargin.data.ordered_threads import read_in_order
from coremargin.data.sources.base import Batch, RowSource, check_width
from coremargin.data.sources.column_choice import choose_columns, find_column, is_label_name, name_for_option
from coremargin.data.sources.svmlight import SPARSE_BELOW
from coremargin.data.tables.arrow_arrays import (
    check_label,
    decode_dictionary,
    dictionary_codes,
    is_boolean,
    is_coded,
    is_list,
    is_null,
    is_numeric,
    is_text,
    is_time,
    label_values,
    numpy_type,
)
from coremargin.data.tables.batches import BatchTable
from coremargin.data.tables.delimited import DelimitedTable
from coremargin.data.tables.encoders import encode
from coremargin.data.tables.fit import fit_columns
from coremargin.data.tables.frames import FrameTable
from coremargin.data.tables.number_text import PLAIN
from coremargin.data.tables.spill import ParsedBatches
from coremargin.data.tables.survey import SAMPLE, SAMPLES, ColumnSurvey, NumberStatistics, survey_batch, text_hints
from coremargin.data.tables.values import as_numbers
from coremargin.errors import BadRow, DataError, NoRows, UsageError
from coremargin.formats.column_kinds import Categories, Column, Dates, Hashed, Lists, Numbers
from coremargin.formats.columns import ColumnsRecord, plain_columns
from coremargin.formats.row_types import common_row_type

if TYPE_CHECKING:
    from coremargin.data.labels import LabelCoder
    from coremargin.data.sources.column_choice import ColumnChoice
    from coremargin.data.sources.options import SourceOptions
    from coremargin.data.tables.column_options import ColumnOptions
    from coremargin.data.tables.survey import Kind
    from coremargin.data.tables.table import Hint, OnRows, Table, TableBatch


def check_types(table: Table, choice: ColumnChoice) -> None:
    """Raise UsageError for a column whose type cannot become features, labels, weights or keys."""
    if table.types is None:
        return
    for position in choice.features:
        kind = table.types[position]
        inner = kind.value_type if is_list(kind) else kind
        lists = is_list(kind)
        known = (is_numeric, is_boolean) if lists else (is_numeric, is_boolean, is_text, is_time, is_null)
        if not any(test(inner) for test in known):
            raise UsageError(
                f"{table.name}, {table.named(position)}: found type {kind}, expected numbers or lists of numbers, "
                f"booleans, texts or dates; convert it, or leave it out with --drop {table.column_name(position)}"
            )
    if choice.label is not None:
        check_label(table.types[choice.label], table.column_name(choice.label), table.name)
    if choice.key is not None and not any(test(table.types[choice.key]) for test in (is_numeric, is_text)):
        kind = table.types[choice.key]
        raise UsageError(
            f"{table.name}, {table.named(choice.key)}: found type {kind}, expected whole numbers or texts as the rows' "
            "keys; convert it"
        )
    if choice.group is not None and not any(test(table.types[choice.group]) for test in (is_numeric, is_text)):
        kind = table.types[choice.group]
        raise UsageError(
            f"{table.name}, {table.named(choice.group)}: found type {kind}, expected whole numbers or texts as the "
            "groups of rows; convert it"
        )
    if choice.weights is not None and not is_numeric(table.types[choice.weights]):
        kind = table.types[choice.weights]
        raise UsageError(f"{table.name}, {table.named(choice.weights)}: found type {kind}, expected one weight per row")


def columns_by_type(table: Table, positions: Sequence[int]) -> list[Column] | None:
    """The columns, where their types alone say what they are: numbers, booleans and lists; else None."""
    if table.types is None:
        return None
    types = [table.types[position] for position in positions]
    if not all(is_numeric(kind) or is_boolean(kind) or is_list(kind) for kind in types):
        return None
    lengths = table.lengths([position for position, kind in zip(positions, types, strict=True) if is_list(kind)])
    return [
        Lists(name=table.column_name(position), length=lengths[position])
        if position in lengths
        else Numbers(name=table.column_name(position), boolean=is_boolean(kind))
        for position, kind in zip(positions, types, strict=True)
    ]


def refuse_same_features(columns: Sequence[Column], place: str) -> None:
    """Raise DataError for a feature that two columns have, as 'a' with the value 'b=c' and 'a=b' with 'c' do.

    Features are called as their column, with more behind it: so one column's name begins the other's.
    """
    ordered = sorted(columns, key=lambda column: column.name)
    for at, first in enumerate(ordered):
        longer = list(takewhile(lambda column: column.name.startswith(first.name), ordered[at + 1 :]))  # noqa: B023
        names = tuple(column.name for column in longer)
        near = {name for name in first.features if name.startswith(names)} if names else set()
        for second in longer if near else ():
            both = next((name for name in second.features if name in near), None)
            if both is not None:
                raise DataError(
                    f"{place}: columns {first.name!r} and {second.name!r} both make a feature {both!r}, expected a "
                    "name for each; rename a column, or leave one out with --drop"
                )


class TableRows(RowSource):
    """Rows of a table, whose columns are those of a store, or are fitted in a first pass over all of it.

    on_rows(rows, bytes done, bytes in all) hears of that pass. most_bytes: of the table that are surveyed; None: all.
    parsed: stores the batches of that pass, so that they are not parsed again when they are written. numbers: all
    features are numbers, and no pass is needed; other values are refused.
    Raises ColumnsUnclear for columns that need a decision, all at once.
    """

    def __init__(
        self,
        table: Table,
        options: SourceOptions,
        on_rows: OnRows | None = None,
        most_bytes: int | None = None,
        parsed: ParsedBatches | None = None,
        *,
        numbers: bool = False,
    ) -> None:
        self._most_bytes, self._parsed = most_bytes, parsed or ParsedBatches(None)
        self.name, self._table = table.name, table
        self.rows, self.total_bytes, self.excluded = table.rows, table.total_bytes, table.hidden
        self._surveyed_rows: int | None = None  # of the first pass, if it read all
        self._choice = choose_columns(table.names, table.width, options, table.name, table.named)
        if not self._choice.features:
            found = "found none" + ("; check --delimiter" if table.types is None else "")
            raise DataError(f"{table.name}: zero features: expected columns besides the label, {found}")
        check_types(table, self._choice)
        self._label, self._weights = self._choice.label, self._choice.weights
        if self._label is not None and isinstance(table, FrameTable):
            table.check_label(self._label)
        self._label_hint: dict[int, Hint] = {} if self._label is None else {self._label: "label"}
        self._label_note = "" if options.label is not None else _note_label(table, self._label)
        self.label_from = None if self._label is None else table.named(self._label)
        self.weight_from = None if self._weights is None else table.named(self._weights)
        self._form = options.text_format  #: of texts
        known = options.columns
        if known is None:
            names = [table.column_name(position) for position in self._choice.features]
            known = self._make_record(plain_columns(names)) if numbers else self._fit(options, on_rows)
        self._known = known
        key = None if self._choice.key is None else table.column_name(self._choice.key)
        group = None if self._choice.group is None else table.column_name(self._choice.group)
        self.columns = structs.replace(self._known, key=key, group=group)
        self.group_from = None if self._choice.group is None else table.named(self._choice.group)
        if options.columns is None and self._needs_no_record():
            self.columns = None
        self.features = self._known.width
        check_width(self.features, self.name)
        self.sparse = self._known.filled < SPARSE_BELOW
        types = table.every_type(self._choice.features)
        if types and all(map(is_list, types)):  # embeddings
            self.row_type = common_row_type(numpy_type(kind.value_type) for kind in types)

    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
        """A batch for each piece of the table; several are read and encoded at a time."""
        read = self._choice.read
        names = [f"{name!r}" for name in self._known.features]
        if self._table.names is None and len(names) == len(self._choice.features):
            names = [f"{position}" for position in self._choice.features]
        rows, hints = 0, self._hints()
        others = read[len(self._choice.features) :]  # features are encoded, and not kept until the batch is written

        def work(piece: Any) -> tuple[TableBatch, Any]:
            if isinstance(self._table, DelimitedTable) and self._known.plain:
                found = self._table.matrix(piece, read, hints)
                if found is not None:
                    return found
            batch = self._table.batch(piece, read, hints)
            encoded = encode(batch, self._choice.features, self._known, sparse=self.sparse, form=self._form)
            return replace(batch, columns={column: batch.columns[column] for column in others}), encoded

        for batch, encoded in read_in_order(work, self._table.pieces(read)):
            rows += batch.rows
            yield Batch(
                rows=encoded,
                codes=self._codes(batch, coder),
                origin=batch.origin,
                place=batch.place,
                column=lambda feature: f"column {names[feature]}",
                done_bytes=batch.done_bytes,
                weights=self._weights_of(batch),
                keys=self._keys_of(batch),
                groups=self._groups_of(batch),
            )
        expected = self.rows if self._surveyed_rows is None else self._surveyed_rows
        if expected is not None and rows != expected:
            raise DataError(f"{self.name}: found {rows:,} rows, expected {expected:,} by its end; write it again")

    def _hints(self) -> dict[int, Hint]:
        """As what texts may be read, by their columns."""
        kinds: dict[type, Hint] = {Numbers: "number", Dates: "date", Categories: "category", Hashed: "category"}
        found: dict[int, Hint] = dict(self._label_hint)
        for position, column in zip(self._choice.features, self._known.columns, strict=True):
            plain = not (isinstance(column, Numbers) and (column.boolean or column.unit)) and not (
                isinstance(column, Dates) and column.format
            )
            if plain and type(column) in kinds:
                found[position] = kinds[type(column)]
        return found

    def _codes(self, batch: TableBatch, coder: LabelCoder) -> np.ndarray | None:
        if self._label is None:
            return None
        values = batch.columns[self._label]
        if not is_text(values.type):
            return coder.encode_values(label_values(values), batch.place)
        # each label is encoded once, however many rows have it; dictionaries of files may hold one word twice, or none
        coded = self._table.types is None and is_coded(values.type)
        texts = values if coded else decode_dictionary(values).dictionary_encode()
        codes = dictionary_codes(texts)
        there = np.flatnonzero(codes >= 0)
        first = np.zeros(len(texts.dictionary), np.int64)
        first[codes[there][::-1]] = there[::-1]  # the first row of each word

        def place(word: int) -> str:
            return batch.place(int(first[word]))

        words = label_values(texts.dictionary)
        if self._table.types is None:
            missing = MISSING if self._form.keep_default_na else ("",)
            table = [coder.encode_text(word, place(at), missing) for at, word in enumerate(words.tolist())]
        else:
            table = coder.encode_values(words, place).tolist()
        found: np.ndarray = np.array([*table, -1], dtype=np.int32)[codes]
        return found

    def _weights_of(self, batch: TableBatch) -> np.ndarray | None:
        if self._weights is None:
            return None
        values = batch.columns[self._weights]
        found = as_numbers(values, self._form)
        if found.bad is not None:
            text = str(values[found.bad].as_py())
            place = f"{batch.place(found.bad)}, {self._table.named(self._weights)}"
            raise BadRow(f"{place}: found {text[:80]!r}, expected a number as the row's weight; correct the value")
        return found.values

    def _keys_of(self, batch: TableBatch) -> np.ndarray | None:
        column = self._choice.key
        if column is None:
            return None
        named = self._table.named(column)
        return hashed(column_texts(batch.columns[column], lambda row: f"{batch.place(row)}, {named}"))

    def _groups_of(self, batch: TableBatch) -> np.ndarray | None:
        if self._choice.group is None:
            return None
        found: np.ndarray = decode_dictionary(batch.columns[self._choice.group]).to_numpy(zero_copy_only=False)
        return found

    def _fit(self, options: SourceOptions, on_rows: OnRows | None) -> ColumnsRecord:
        """The columns, by the options and by what they hold in all rows."""
        column_options, columns = options.column_options.resolved(self._find_feature), None
        if not column_options and self._most_bytes is None:
            columns = columns_by_type(self._table, self._choice.features)
        if columns is None:
            columns = self._fit_to_rows(column_options, on_rows)
        check_width(sum(column.width for column in columns), self.name)
        refuse_same_features(columns, self.name)
        return self._make_record(columns)

    def _make_record(self, columns: list[Column]) -> ColumnsRecord:
        return ColumnsRecord(
            columns=columns,
            label=None if self._label is None else self._table.column_name(self._label),
            weights=None if self._weights is None else self._table.column_name(self._weights),
            named=self._table.names is not None,
            text=None if self._form == PLAIN or self._table.types is not None else self._form,
        )

    def _needs_no_record(self) -> bool:
        """Whether the columns are numbers without names that come first, the label behind them."""
        count = len(self._choice.features)
        usual = self._choice.features == tuple(range(count)) and self._choice.label in (None, count)
        return (
            self._table.names is None
            and usual
            and self._known.plain
            and not self._known.text
            and (self._choice.weights is None and self._choice.key is None and self._table.types is None)
            and self._choice.group is None
        )

    def _fit_to_rows(self, options: ColumnOptions, on_rows: OnRows | None) -> list[Column]:
        """The columns, by one pass over all rows, or two."""
        if isinstance(self._table, BatchTable):
            self._table = self._table.repeatable(self._choice.read, on_rows)
        self.rows = self._table.rows
        if self._table.types is None and self._most_bytes is None:
            self._parsed.begin(self._table, self._choice.read)
        surveys = self._survey(options, {}, on_rows)
        late: dict[int, Kind] = {position: "category" for position, one in surveys.items() if one.uncounted}
        if late:  # earlier values count among the categories, too; as numbers their texts were not stored
            self._parsed.close()
            surveys = self._survey(options, late, on_rows)
        self._table = self._parsed.table() or self._table
        self._surveyed_rows = next(iter(surveys.values())).rows if self._most_bytes is None else None
        return fit_columns(surveys, options, self.name, self._label_note)

    def _find_feature(self, column: str) -> str:
        """The name of a column that an option names. UsageError: there is none, or it is no feature."""
        position = find_column(column, self._table.names, self._table.width, place=self.name)
        if position not in self._choice.features:
            raise UsageError(f"{self.name}: {self._table.named(position)} is no feature: it is the label, or left out")
        return self._table.column_name(position)

    def _survey(self, options: ColumnOptions, late: dict[int, Kind], on_rows: OnRows | None) -> dict[int, ColumnSurvey]:
        """One pass over all rows."""
        features, parsed = self._choice.features, self._parsed
        wanted = {policy for _, policy in options.missing}
        sample = max(1, min(SAMPLE, SAMPLES // len(features)))
        surveys = {
            position: ColumnSurvey(
                self._table.column_name(position),
                self._table.named(position),
                name_for_option(self._table.names, position),
                typed=self._table.types is not None,
                date_format=options.date_format,
                form=self._form,
                declared=late.get(position) or _declared_kind(self._table.column_name(position), options),
                numbers=NumberStatistics(wanted, sample, seed),
                most=options.vocabulary.counted,
            )
            for seed, position in enumerate(features)
        }
        label = [] if self._label is None else [self._label]
        rows, columns = 0, self._choice.read if parsed.table() else [*features, *label]

        def work(piece: Any) -> tuple[TableBatch, memoryview | None]:
            batch = self._table.batch(piece, columns, text_hints(surveys, options) | self._label_hint)
            return batch, parsed.serialize(batch)

        for batch, data in read_in_order(work, self._table.pieces(columns)):
            parsed.add(batch, data)
            survey_batch(surveys, batch, self._label)
            rows += batch.rows
            if on_rows is not None:
                on_rows(rows, batch.done_bytes, self._table.total_bytes)
            if self._most_bytes is not None and batch.done_bytes > self._most_bytes:
                break
        if not rows:
            raise NoRows(f"{self.name}: no rows: expected at least one")
        return surveys


def _note_label(table: Table, label: int | None) -> str:
    """Which column the labels are, where no name says so."""
    named = table.names is not None and label is not None and is_label_name(table.names[label])
    if label is None or named:
        return ""
    return f"labels come from {table.named(label)}, the last one; --label names another"


def _declared_kind(name: str, options: ColumnOptions) -> Kind | None:
    """What an option says that a column is."""
    if name in options.categorical:
        return "category"
    if name in options.dates:
        return "date"
    return "text" if name in options.text else None
