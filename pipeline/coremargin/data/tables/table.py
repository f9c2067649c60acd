"""What a table is: rows with named columns, a batch at a time, from the start as often as it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True)
class TableBatch:
    """Some columns of some rows.

    columns: Arrow's arrays by position in the table, all of one length; null is what is missing.
    """

    columns: Mapping[int, Any]
    rows: int
    origin: str  #: the file or object that the rows come from
    place: Callable[[int], str]  #: names row i of the batch as a person would look it up: "train.csv, line 17"
    done_bytes: int  #: bytes of the table consumed so far


Hint = Literal["number", "date", "category"]
NO_HINTS: Mapping[int, Hint] = MappingProxyType({})


class Table(Protocol):
    """Rows with columns of any kind."""

    name: str
    rows: int | None  #: None when only reading tells
    total_bytes: int | None
    names: tuple[str, ...] | None  #: of the columns; None: they are known by number only
    width: int  #: columns
    types: Sequence[Any] | None  #: Arrow's types of the columns; None: all are texts, whatever they look like

    def pieces(self, columns: Sequence[int]) -> Iterator[Any]:
        """What ``batch`` reads, in order; what cannot be read raises DataError."""

    def batch(self, piece: Any, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """Some columns of a piece; in any thread. Raises BadRow with the place of what cannot be read.

        hints: what texts seem to be; they may come as such where all of them are, which is faster.
        """

    def lengths(self, columns: Sequence[int]) -> Mapping[int, int]:
        """How long the lists in some columns are, by the first of each."""

    def named(self, column: int) -> str:
        """A column for messages."""
