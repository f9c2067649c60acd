"""The table of rounds, and the columns that pages choose from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coremargin.formats.run_record import step_name
from coremargin.report.numbers import (
    DASH,
    NO_BREAK,
    Precision,
    count,
    relative_gap,
    seconds,
    significant,
    size,
    without_unit,
)

if TYPE_CHECKING:
    from coremargin.report.page import Json

ROUNDS_SHOWN = 120  #: the middle of longer tables is omitted


@dataclass(frozen=True)
class Column:
    """cell: value for a round. is_text: align left. meaning: explanation of the heading."""

    name: str
    cell: Callable[[Json], Any]
    is_text: bool = False
    meaning: str = ""


@dataclass(frozen=True)
class Table:
    """rows: cells of a round, or the number of rounds omitted at this place."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...] | int, ...]


def table(rounds: Sequence[Json], columns: Sequence[Column]) -> Table | None:
    """None without rounds."""
    if not rounds:
        return None
    shown: list[Json | int] = list(rounds)
    if len(rounds) > ROUNDS_SHOWN:
        tail = ROUNDS_SHOWN * 2 // 3
        shown = [*rounds[: ROUNDS_SHOWN - tail], len(rounds) - ROUNDS_SHOWN, *rounds[-tail:]]
    rows = (row if isinstance(row, int) else tuple(column.cell(row) for column in columns) for row in shown)
    return Table(tuple(columns), tuple(rows))


def counted(name: str, key: str, meaning: str = "") -> Column:
    """A column of whole numbers."""
    return Column(name, lambda row: count(row.get(key)), meaning=meaning)


def gap(name: str) -> Column:
    """The relative gap between the bounds."""
    return Column(name, lambda row: significant(relative_gap(row)))


def bounds(precision: Precision, lower: str = "Lower bound", upper: str = "Upper bound") -> tuple[Column, ...]:
    """Both bounds, and the gap between them."""
    return (
        Column(lower, lambda row: precision.down(row.get("lower"))),
        Column(upper, lambda row: precision.up(row.get("upper"))),
        gap("Gap"),
    )


def bare_bounds(precision: Precision, lower: str = "Lower bound", upper: str = "Upper bound") -> tuple[Column, ...]:
    """Both bounds and the gap, with the power of ten in the headings."""
    unit = f" \u00d7{NO_BREAK}{precision.unit}" if precision.unit else ""
    return (
        Column(lower + unit, lambda row: without_unit(precision.down(row.get("lower")))),
        Column(upper + unit, lambda row: without_unit(precision.up(row.get("upper")))),
        gap("Gap"),
    )


NUMBER = counted("Round", "round")
KIND = Column(
    "Kind",
    lambda row: step_name(row) if row.get("kind") in ("sample", "stage") else row.get("kind") or DASH,
    is_text=True,
)
CHUNKS = (counted("Chunks read", "chunks_read"), counted("Skipped", "chunks_skipped"))
COSTS = (
    Column("Bytes read", lambda row: size(row.get("bytes_read"))),
    Column("Scan", lambda row: seconds(row.get("seconds"))),
    Column("Solve", lambda row: seconds(row.get("solve_seconds"))),
)
