"""Several tables read one after the other as one, their columns put into the order of the first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coremargin.data.sources.base import sum_if_known
from coremargin.data.sources.column_choice import difference
from coremargin.data.tables.arrow_arrays import is_boolean, is_list, is_null, is_numeric, is_text, is_time
from coremargin.data.tables.table import NO_HINTS, Hint, Table
from coremargin.errors import DataError

if TYPE_CHECKING:
    from coremargin.data.tables.table import TableBatch


_ADVICE = "ingest files of one kind only, or leave columns out with --drop"


class ChainedTable(Table):
    """Tables of one kind; unused: names of columns that are not read, which may be in some of them only."""

    def __init__(self, parts: Sequence[Table], unused: Collection[str] = ()) -> None:
        first = parts[0]
        self._parts = [(part, match_columns(first, part, unused, _ADVICE)) for part in parts]
        kinds, columns = (
            ColumnTypes(),
            [column for column in range(first.width) if not _is_unused(first, column, unused)],
        )
        for part, places in self._parts:
            kinds.refuse_others(part, places, columns)
        self.name = first.name if len(parts) == 1 else f"{len(parts)} files ({first.name}, ...)"
        self.names, self.width, self.types = first.names, first.width, first.types
        self.hidden = {name: what for part in parts for name, what in part.hidden.items()}
        self.rows = sum_if_known([part.rows for part in parts])
        self.total_bytes = sum_if_known([part.total_bytes for part in parts])

    def pieces(self, columns: Sequence[int]) -> Iterator[tuple[Any, int, Any]]:
        """The pieces of all parts, in order."""
        before = 0
        for number, (part, places) in enumerate(self._parts):
            for piece in part.pieces([places[column] for column in columns]):
                yield number, before, piece
            before += part.total_bytes or 0

    def batch(
        self, piece: tuple[Any, int, Any], columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS
    ) -> TableBatch:
        """A batch of a part."""
        number, before, own = piece
        part, places = self._parts[number]
        batch = remap_batch(part, places, own, columns, hints)
        return replace(batch, done_bytes=before + batch.done_bytes)

    def every_type(self, columns: Sequence[int]) -> list[Any]:
        """Those of all parts."""
        found = [part.every_type([places[column] for column in columns]) for part, places in self._parts]
        return [kind for kinds in found for kind in kinds] if all(found) else []

    def lengths(self, columns: Sequence[int]) -> Mapping[int, int]:
        """By the first part."""
        return self._parts[0][0].lengths(columns)


def _is_unused(first: Table, column: int, unused: Collection[str]) -> bool:
    return first.names is not None and first.names[column] in unused


def remap_batch(
    part: Table, places: Sequence[int], piece: Any, columns: Sequence[int], hints: Mapping[int, Hint]
) -> TableBatch:
    """A batch of a part, its columns by their positions in the first one."""
    moved = {places[column]: hint for column, hint in hints.items()}
    batch: TableBatch = part.batch(piece, [places[column] for column in columns], moved)
    return replace(batch, columns={column: batch.columns[places[column]] for column in columns})


def match_columns(first: Table, part: Table, unused: Collection[str], advice: str) -> list[int]:
    """Where the columns of the first table lie in another one, -1 for one that is not there and need not be."""
    if part is first:
        return list(range(first.width))
    if first.names is None or part.names is None:
        if part.width != first.width:
            raise DataError(
                f"{part.name}: found {part.width} columns, expected {first.width} as in {first.name}; ingest files of "
                "one kind only"
            )
        return list(range(first.width))
    found = [name for name in part.names if name not in unused]
    problem = difference([name for name in first.names if name not in unused], found, first.name)
    if problem:
        raise DataError(f"{part.name}: {problem}; {advice}")
    places = {name: place for place, name in reversed(list(enumerate(part.names)))}
    return [places.get(name, -1) for name in first.names]


class ColumnTypes:
    """The types of the columns of several tables, each by the first table in which it has values."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, str]] = {}

    def refuse_others(self, part: Table, places: Sequence[int], columns: Sequence[int]) -> None:
        """Raise DataError for one of these columns that is of another kind here."""
        for column in columns:
            place = places[column]
            kind = None if place < 0 or part.types is None else part.types[place]
            if kind is None or is_null(kind):
                continue
            wanted, where = self._found.setdefault(column, (kind, part.name))
            if _family(kind) != _family(wanted):
                raise DataError(
                    f"{part.name}, {part.named(place)}: found type {kind}, expected {wanted} as in {where}; convert it"
                )


def _family(kind: Any) -> str:
    tests = {"numbers": is_numeric, "booleans": is_boolean, "texts": is_text, "dates": is_time, "lists": is_list}
    return next((name for name, test in tests.items() if test(kind)), str(kind))
