"""What a table is: rows with columns of any kind, read a batch at a time, as often as needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from coremargin.data.sources.base import batch_rows
from coremargin.data.sources.column_choice import refuse_same_names
from coremargin.data.tables.arrow_arrays import (
    is_list,
)

#: Hears how far a pass has come: rows, bytes done, bytes in all.
OnRows = Callable[[int, int, int | None], object]


@dataclass(frozen=True, slots=True)
class TableBatch:
    """Some columns of some rows.

    columns: Arrow's arrays by position in the table, all of one length; null is what is missing.
    """

    columns: Mapping[int, Any]
    rows: int
    origin: str  #: the file or object that the rows come from
    place: Callable[[int], str]  #: where row i of the batch is, for messages: "train.csv, line 17"
    done_bytes: int  #: bytes of the table consumed so far
    counted: bool = True  #: ``place`` counts on from the first row: it takes no memory for each

    def parts(self, most: int) -> Iterator[TableBatch]:
        """The rows, at most so many at a time."""
        for start in range(0, self.rows, most):
            found = {position: column.slice(start, most) for position, column in self.columns.items()}
            yield replace(
                self, columns=found, rows=min(most, self.rows - start), place=partial(_later, self.place, start)
            )


def _later(place: Callable[[int], str], start: int, row: int) -> str:
    return place(start + row)


Hint = Literal["number", "date", "category", "label"]  #: labels come as they are written, white space and all
INDEX = "an index of a data frame"  #: what a hidden column is
NO_HINTS: Mapping[int, Hint] = MappingProxyType({})


class Table(ABC):
    """Rows with columns of any kind."""

    name: str
    rows: int | None = None  #: None when only reading tells
    total_bytes: int | None = None
    names: tuple[str, ...] | None = None  #: of the columns; None: they are known by number only
    width: int  #: columns
    types: Sequence[Any] | None = None  #: Arrow's types of the columns; None: all are texts, whatever they look like
    #: Columns that are read only where an option names them, such as the index of a data frame, and what each is.
    hidden: Mapping[str, str] = MappingProxyType({})

    def reveal(self, requested: Collection[str]) -> None:  # noqa: B027 - most tables hide nothing
        """Show those of the hidden columns that are requested by name, before anything is read."""

    @abstractmethod
    def pieces(self, columns: Sequence[int]) -> Iterator[Any]:
        """What ``batch`` reads, in order; what cannot be read raises DataError."""

    @abstractmethod
    def batch(self, piece: Any, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """Some columns of a piece; in any thread. Raises BadRow with the place of what cannot be read.

        hints: what texts seem to be; they may come as such where all of them are, which is faster.
        """

    def lengths(self, columns: Sequence[int]) -> Mapping[int, int]:
        """How long the first list of each of some columns is, 1 where there is none. UsageError: it is empty."""
        return dict.fromkeys(columns, 1)

    def every_type(self, columns: Sequence[int]) -> list[Any]:
        """Arrow's types of these columns, in all tables that this one is made of; none where some are unknown."""
        return [] if self.types is None else [self.types[column] for column in columns]

    def column_name(self, column: int) -> str:
        """Its name, or else its number."""
        return f"{column}" if self.names is None else self.names[column]

    def named(self, column: int) -> str:
        """A column for messages."""
        return f"column {column}" if self.names is None else f"column {self.names[column]!r}"


class TypedTable(Table):
    """A table whose columns have names and types of Arrow's."""

    def __init__(self, name: str, names: Sequence[str], types: Sequence[Any], index: Collection[str] = ()) -> None:
        """index: names of columns that were the index of a data frame. Raises DataError for columns of one name."""
        self.name, self._every, self._index = name, list(zip(names, types, strict=True)), frozenset(index)
        refuse_same_names(names, name)
        self.reveal(())

    def reveal(self, requested: Collection[str]) -> None:
        """Show those of the hidden columns that are requested by name, before anything is read."""
        hidden = [name for name, _ in self._every if name in self._index and name not in requested]
        self.hidden = dict.fromkeys(hidden, INDEX)
        shown = [(name, kind) for name, kind in self._every if name not in self.hidden]
        self._show([name for name, _ in shown], [kind for _, kind in shown])

    def _show(self, names: Sequence[str], types: Sequence[Any]) -> None:
        self._names = tuple(names)
        self.names, self.width, self.types = self._names, len(self._names), types

    def _batch_rows(self, columns: Sequence[int]) -> int:
        """Rows of these columns that make a batch."""
        lists = [column for column in columns if is_list((self.types or ())[column])]
        return batch_rows(len(columns) + sum(self.lengths(lists).values()))


def numbered(name: str, start: int) -> Callable[[int], str]:
    """Where rows are, of which the first is number ``start``."""
    return lambda row: f"{name}, row {start + row}"
