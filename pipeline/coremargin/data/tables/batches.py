"""Batches of rows from Python, one after the other: an iterator, which can be read once, or what gives fresh ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from coremargin.data.tables.chain import ColumnTypes, match_columns, remap_batch
from coremargin.data.tables.objects import is_a, table_of
from coremargin.data.tables.spill import SpilledTable, spill_table
from coremargin.data.tables.table import NO_HINTS, Hint, Table
from coremargin.errors import DataError, NoRows, UsageError

if TYPE_CHECKING:
    from coremargin.data.tables.arrow import ArrowTable
    from coremargin.data.tables.frames import FrameTable
    from coremargin.data.tables.table import OnRows, TableBatch

_LABEL = "label"  # name of the column, where labels come without one


def append_labels(rows: Any, labels: Any, place: str) -> Any:
    """A table of pandas or Arrow with its labels as the last column; others as they are. UsageError, DataError."""
    if not is_a(rows, "pandas", "DataFrame") and not hasattr(rows, "__arrow_c_stream__"):
        return rows
    name = getattr(labels, "name", None)
    name = name if isinstance(name, str) and name else _LABEL
    if len(labels) != len(rows):
        raise DataError(f"{place}: holds {len(rows):,} rows, {len(labels):,} labels: expected as many; check both")
    found = rows.columns if is_a(rows, "pandas", "DataFrame") else _arrow(rows).column_names
    if name in list(found):
        raise UsageError(
            f"{place}: found a column {name!r} and labels of this name, expected one of them; rename it, or leave "
            "it out of the rows"
        )
    if is_a(rows, "pandas", "DataFrame"):
        return rows.assign(**{name: getattr(labels, "array", labels)})  # whatever index they have
    return _arrow(rows).append_column(name, _column(labels, place))


def _arrow(rows: Any) -> Any:
    import pyarrow as pa

    return pa.table(rows)


def _column(labels: Any, place: str) -> Any:
    import pyarrow as pa

    try:
        if isinstance(labels, pa.Array | pa.ChunkedArray):
            return labels
        return pa.array(labels.tolist() if isinstance(labels, np.ndarray) else list(labels))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"{place}: found labels that are not of one kind ({error}); convert them") from error


_Piece: TypeAlias = "tuple[Table, Sequence[int], Any]"


class Batches:
    """Batches in order. each: what one is called, before its number. Raises DataError where there is none."""

    def __init__(self, name: str, start: Callable[[], Iterator[Any]], *, once: bool, each: str = "batch") -> None:
        """start: gives all batches from the first on, once or whenever it is called."""
        self.name, self.once, self.each = name, once, each
        self._start, self._begun = start, start()
        try:
            self.first = next(self._begun)  #: seen before all are read
        except StopIteration:
            raise DataError(f"{name}: found no {each}, expected at least one with rows") from None

    def named(self) -> Iterator[tuple[str, Any]]:
        """All batches with their names. Raises DataError where they could be read once, and have been."""
        begun, self._begun = self._begun, iter(())
        if self.first is not None:
            begun = chain([self.first], begun)
            self.first = None
        elif self.once:
            raise DataError(
                f"{self.name}: has been read, and can be read once only; give a function that returns a fresh iterator"
            )
        else:
            begun = self._start()
        for number, batch in enumerate(begun):
            yield f"{self.each} {number}", batch


class BatchTable(Table):
    """Batches that are tables, as one: their columns by name, in the order of the first. Close it.

    folder: for a copy of rows that can be read once; None: the folder of temporary files.
    """

    def __init__(self, batches: Batches, folder: Path | None) -> None:
        self._first, self.paired = table_of_batch(batches.first, f"{batches.each} 0")
        self.name, self._batches, self._folder = batches.name, batches, folder
        self._copy: SpilledTable | None = None
        self.reveal(())

    def reveal(self, requested: Collection[str]) -> None:
        """Show hidden columns that are requested, of all batches."""
        self._requested, first = requested, self._first
        first.reveal(requested)
        self.names, self.width, self.types, self.hidden = first.names, first.width, first.types, first.hidden

    def close(self) -> None:
        """Delete the copy."""
        if self._copy is not None:
            self._copy.close()

    def pieces(self, columns: Sequence[int]) -> Iterator[_Piece]:
        """The pieces of all batches. Raises DataError for a batch of other columns than the first."""
        kinds, rows = ColumnTypes(), False
        for name, batch in self._batches.named():
            part, paired = table_of_batch(batch, name)
            part.reveal(self._requested)
            if paired != self.paired:
                found, wanted = ("labels", "none") if paired else ("no labels", "labels")
                raise DataError(f"{name}: found {found}, expected {wanted} as in the first batch; give all of one kind")
            places = match_columns(self._first, part, (), "give batches of one kind only")
            kinds.refuse_others(part, places, columns)
            for own in part.pieces([places[column] for column in columns]):
                rows = True
                yield part, places, own
        if not rows:
            raise NoRows(f"{self.name}: no rows: expected at least one")

    def batch(self, piece: _Piece, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """A piece of a batch."""
        part, places, own = piece
        return remap_batch(part, places, own, columns, hints)

    def every_type(self, columns: Sequence[int]) -> list[Any]:
        """None: later batches may have others than the first."""
        del columns
        return []

    def lengths(self, columns: Sequence[int]) -> dict[int, int]:
        """By the first batch."""
        return dict(self._first.lengths(columns))

    def repeatable(self, columns: Sequence[int], on_rows: OnRows | None) -> Table:
        """Itself where batches can be had again, else a copy of these columns.

        on_rows(rows, bytes, None) hears of the copying.
        """
        if not self._batches.once:
            return self
        if self._copy is None:
            self._copy = spill_table(self, columns, self._folder, on_rows)
        return self._copy


def table_of_batch(batch: Any, name: str) -> tuple[FrameTable | ArrowTable, bool]:
    """A batch as a table, and whether labels came with it, which are its last column then. Raises UsageError."""
    rows, labels = batch if is_pair(batch) else (batch, None)
    table = table_of(rows if labels is None else append_labels(rows, labels, name), name)
    if table is None:
        kinds = "a DataFrame, a table of Arrow, an array, a CSR matrix, or a pair (X, y) of one with its labels"
        raise UsageError(f"{name}: found {_described(rows)}, expected {kinds}, of the same kind as the first")
    return table, labels is not None


def is_pair(batch: Any) -> bool:
    """Whether a batch is rows with their labels."""
    return isinstance(batch, tuple) and len(batch) == 2


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"
