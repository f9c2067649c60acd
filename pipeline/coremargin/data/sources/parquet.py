"""Parquet files, through pyarrow (extra ``arrow``): numeric columns, or columns of lists of equal length."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.base import (
    Batch,
    SourceOptions,
    batch_rows,
    check_width,
    find_column,
    label_column,
    refuse_options,
)
from coremargin.data.sources.parquet_columns import (
    check_feature,
    check_label,
    is_list,
    label_values,
    leaves,
    list_lengths,
    numbers,
    refuse_same_names,
)
from coremargin.data.sources.parquet_pages import check_group, row_groups
from coremargin.data.sources.paths import file_bytes
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary


_BUFFER_BYTES = 2**18  #: per column


class ParquetFile:
    """Rows of one Parquet file, a record batch at a time."""

    sparse = False

    def __init__(self, path: Path, options: SourceOptions) -> None:
        refuse_options(options, f"{path}, a Parquet file", knows=("label", "drop", "weights"))
        _need_pyarrow(path)
        self.name, self.path = str(path), path
        self.total_bytes: int | None = file_bytes(path)
        with _opened(path) as file:
            schema = file.schema_arrow
            names = tuple(str(name) for name in schema.names)
            self.rows: int | None = int(file.metadata.num_rows)
            if self.rows < 1:
                raise DataError(f"{path}: no rows: expected at least one")
            self._leaves = [field.name for field in schema for _ in range(leaves(field.type))]
            refuse_same_names(names, self.name)
            self._choose_columns(names, options)
            self._check_types(schema)
            self._widths = self._list_widths(file, schema)
        self.features = sum(self._widths)
        if self.features == 0:
            raise DataError(f"{path}: zero features: expected columns of numbers beside the label {self._label!r}")
        check_width(self.features, self.name)
        self.feature_names: tuple[str, ...] | None = tuple(self._names)

    def _choose_columns(self, names: tuple[str, ...], options: SourceOptions) -> None:
        out = {find_column(column, names, len(names), place=self.name) for column in options.drop}
        label = None if options.unlabelled else label_column(options.label, names, len(names), place=self.name)
        if label in out:
            raise UsageError(f"{self.name}: column {names[label]!r} is dropped and is the label: choose one")
        weights = None
        if options.weights is not None:
            weights = find_column(options.weights, names, len(names), place=self.name)
            if weights in out or weights == label:
                raise UsageError(f"{self.name}: column {names[weights]!r} is dropped or is the label: choose one")
        self._weights = None if weights is None else names[weights]
        self.weight_from = None if weights is None else f"column {names[weights]!r}"
        self._names = [name for i, name in enumerate(names) if i not in out and i not in (label, weights)]
        self._label = None if label is None else names[label]
        self.label_from = None if label is None else f"column {names[label]!r}"

    def _check_types(self, schema: Any) -> None:
        for name in [*self._names, *([] if self._weights is None else [self._weights])]:
            kind = schema.field(name).type
            if name == self._weights and is_list(kind):
                raise UsageError(f"{self.name}, column {name!r}: found type {kind}, expected one weight per row")
            check_feature(kind, name, self.name)
        if self._label is not None:
            check_label(schema.field(self._label).type, self._label, self.name)

    def _list_widths(self, file: Any, schema: Any) -> list[int]:
        """The features that each column makes: of lists as many as the first one is long."""
        lists = [name for name in self._names if is_list(schema.field(name).type)]
        self._lists = frozenset(lists)
        if not lists:
            return [1] * len(self._names)
        group = next((group for group in row_groups(self.path) if group.rows), None)
        first = None
        if group is not None:
            check_group(self.path, group, self._leaves, self._lists, self._lists)
            first = next(file.iter_batches(batch_size=1, row_groups=[group.number], columns=lists), None)
        widths = dict.fromkeys(self._names, 1)
        for name in lists:
            column = first.column(name) if first is not None else None
            if column is not None and not column.null_count:  # a null is refused where it is read
                widths[name] = int(list_lengths(column)[0])
            if widths[name] == 0:
                raise UsageError(
                    f"{self.name}, row 0, column {name!r}: found an empty list, expected numbers; leave the column out "
                    f"with --drop {name}"
                )
        return list(widths.values())

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """One batch per record batch."""
        done, total, rows = 0, self.total_bytes or 0, self.rows or 1
        with _opened(self.path) as file:
            for records in self._records(file):
                start, done = done, done + len(records)
                place = _place(self.name, start)
                yield Batch(
                    rows=self._rows_of(records, place),
                    codes=self._codes_of(records, vocabulary, place),
                    origin=self.name,
                    place=place,
                    column=self._column,
                    done_bytes=total * done // rows,
                    weights=self._weights_of(records, place),
                )
        if done != self.rows:
            raise DataError(f"{self.name}: found {done:,} rows, expected {self.rows:,} by its end; write it again")

    def _records(self, file: Any) -> Iterator[Any]:
        """The record batches of all row groups, each of which is looked at before it is read."""
        columns = [*self._names, *(name for name in (self._label, self._weights) if name is not None)]
        size, used = batch_rows(self.features), frozenset(columns)
        groups, rows = [], 0
        for group in row_groups(self.path):
            check_group(self.path, group, self._leaves, self._lists, used)
            groups.append(group.number)
            rows += group.rows
            if rows >= size or group.number == file.num_row_groups - 1:  # small ones together
                yield from file.iter_batches(batch_size=size, row_groups=groups, columns=columns)
                groups, rows = [], 0

    def _rows_of(self, records: Any, place: Callable[[int], str]) -> np.ndarray:
        rows, at = np.empty((len(records), self.features)), 0
        for name, width in zip(self._names, self._widths, strict=True):
            rows[:, at : at + width] = numbers(records.column(name), name, width, place)
            at += width
        return rows

    def _codes_of(self, records: Any, vocabulary: Vocabulary, place: Callable[[int], str]) -> np.ndarray | None:
        if self._label is None:
            return None
        return vocabulary.encode(label_values(records.column(self._label), self._label, place), place)

    def _weights_of(self, records: Any, place: Callable[[int], str]) -> np.ndarray | None:
        if self._weights is None:
            return None
        return numbers(records.column(self._weights), self._weights, 1, place)[:, 0]

    def _column(self, feature: int) -> str:
        for name, width in zip(self._names, self._widths, strict=True):
            if feature < width:
                return f"column {name!r}" if width == 1 else f"column {name!r}, position {feature}"
            feature -= width
        raise IndexError(feature)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file for reading in small pieces; pyarrow's complaints become DataError with the name of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # By default whole row groups are read ahead: 600 MB for 600 MB of rows where this takes 130.
        # pyarrow takes a text for UTF-8, which the name of a file need not be.
        with ExitStack() as opened:
            stream = opened.enter_context(pa.OSFile(os.fsencode(path)))
            yield opened.enter_context(pq.ParquetFile(stream, pre_buffer=False, buffer_size=_BUFFER_BYTES))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a whole Parquet file ({error}): fetch or write it again") from error


def _need_pyarrow(path: Path) -> None:
    try:
        import pyarrow.parquet  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise UsageError(
            f"{path}: reading Parquet needs pyarrow, which is not installed: pip install 'coremargin[arrow]'"
        ) from error


def _place(name: str, start: int) -> Callable[[int], str]:
    return lambda row: f"{name}, row {start + row}"
