"""The table of rounds: the columns that pages choose from, and the rounds that are shown."""

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

ROUNDS_SHOWN = 120  #: beyond it the middle is left out


@dataclass(frozen=True)
class Column:
    """name: its head; cell: what a round has there; is_text: text, which begins at the left; meaning: of the head."""

    name: str
    cell: Callable[[Json], Any]
    is_text: bool = False
    meaning: str = ""


@dataclass(frozen=True)
class Table:
    """columns: those of a line; rows: the cells of a round, or a whole number that stands for so many left out."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...] | int, ...]


def table(rounds: Sequence[Json], columns: Sequence[Column]) -> Table | None:
    """The rounds to show; None before the first."""
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
    """The same with their power of ten in the heads."""
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
