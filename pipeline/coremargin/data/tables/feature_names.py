"""Names of features: those of different columns may not be the same, as of 'a' with 'b=c' and of 'a=b' with 'c'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from coremargin.errors import DataError

if TYPE_CHECKING:
    from coremargin.formats.column_kinds import Column


def refuse_same_features(columns: Sequence[Column], place: str) -> None:
    """Raise DataError for a feature that two columns have: which is meant, nobody could say later."""
    for first, second, name in _same(columns):
        raise DataError(
            f"{place}: columns {first.name!r} and {second.name!r} both make a feature {name!r}, expected a name for "
            "each; rename a column, or leave one out with --drop"
        )


def _same(columns: Sequence[Column]) -> Iterator[tuple[Column, Column, str]]:
    """Features that two columns have.

    Features are called as their column, with more behind it: so one column's name begins the other's.
    """
    ordered = sorted(columns, key=lambda column: column.name)
    for at, first in enumerate(ordered):
        stop = at + 1
        while stop < len(ordered) and ordered[stop].name.startswith(first.name):
            stop += 1
        longer = ordered[at + 1 : stop]
        if longer:
            names = tuple(column.name for column in longer)
            near = {name for name in first.features if name.startswith(names)}
            for second in longer if near else ():
                yield from ((first, second, name) for name in second.features if name in near)
