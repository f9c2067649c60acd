"""The one table of the bench: rows in groups, as text for the terminal and as markdown for the README."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from coremargin.spec import format_size


@dataclass(frozen=True)
class Row:
    """One thing measured. None: not measured, or without meaning here.

    seconds: median of the wall time, least and most beside it; ratio: wall time against the reference of the group,
    median over repetitions; whole: seconds with loading or start-up; read: bytes read over the store's bytes;
    labels: so many were asked for; margin: margin reached over the certified upper bound; value: value reached over the
    certified lower bound; memory: bytes, driver and workers together.
    """

    what: str
    seconds: float | None = None
    least: float | None = None
    most: float | None = None
    ratio: float | None = None
    whole: float | None = None
    read: float | None = None
    scans: int | None = None
    labels: int | None = None
    margin: float | None = None
    value: float | None = None
    memory: int | None = None
    note: str = ""


@dataclass
class Group:
    """Rows that belong together: measured on the same data, against the same reference."""

    part: str
    title: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _times(value: float) -> str:
    return f"{value:.2f}x" if value < 100 else f"{value:,.0f}x"


def _timing(row: Row) -> str:
    if row.seconds is None:
        return ""
    if row.least is None or row.most is None or row.least == row.most:
        return _seconds(row.seconds)
    return f"{_seconds(row.seconds)} ({_seconds(row.least)}-{_seconds(row.most)})"


def _margin(value: float) -> str:
    return f"{value:.6f}" if value > 0 else "none"


def _value(value: float) -> str:
    return f"{value:.6f}" if value < 1000 else f"{value:.0e}"


def _given(value: Any, text: Callable[[Any], str]) -> str:
    return "" if value is None else text(value)


COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("", lambda row: row.what),
    ("seconds", _timing),
    ("wall ratio", lambda row: _given(row.ratio, _times)),
    ("with load", lambda row: _given(row.whole, _seconds)),
    ("bytes/store", lambda row: _given(row.read, _times)),
    ("scans", lambda row: _given(row.scans, "{:,}".format)),
    ("labels", lambda row: _given(row.labels, "{:,}".format)),
    ("margin/bound", lambda row: _given(row.margin, _margin)),
    ("value/bound", lambda row: _given(row.value, _value)),
    ("peak memory", lambda row: _given(row.memory, format_size)),
    ("note", lambda row: row.note),
)


def _cells(group: Group) -> list[list[str]]:
    """The header and the rows, without the columns that are empty in this group."""
    used = [(name, text) for name, text in COLUMNS if name == "" or any(text(row) for row in group.rows)]
    return [[name for name, _ in used], *([text(row) for _, text in used] for row in group.rows)]


def as_text(groups: Sequence[Group], facts: dict[str, Any]) -> str:
    """For the terminal."""
    lines = []
    for group in groups:
        lines += ["", f"({group.part}) {group.title}"]
        if group.rows:
            cells = _cells(group)
            widths = [max(len(line[k]) for line in cells) for k in range(len(cells[0]))]
            last = cells[0][-1] == "note"
            for line in cells:
                padded = [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
                if last:
                    padded[-1] = line[-1]
                lines.append(("  " + "  ".join(padded)).rstrip())
        lines += [f"  - {note}" for note in group.notes]
    lines += ["", *(f"{name}: {value}" for name, value in facts.items())]
    return "\n".join(lines).lstrip("\n")


def as_markdown(groups: Sequence[Group], facts: dict[str, Any]) -> str:
    """For the README: a heading, a table and the notes of each group, then the machine."""
    lines: list[str] = []
    for group in groups:
        lines += [f"**({group.part}) {group.title}**", ""]
        if group.rows:
            head, *rows = _cells(group)
            right = ["---", *("---" if name == "note" else "---:" for name in head[1:])]
            lines += [f"| {' | '.join(line)} |" for line in (head, right, *rows)]
            lines.append("")
        lines += [*(f"- {note}" for note in group.notes), ""] if group.notes else []
    lines += ["Measured on: " + "; ".join(f"{name} {value}" for name, value in facts.items()), ""]
    return "\n".join(lines)


def as_json(groups: Sequence[Group], facts: dict[str, Any]) -> dict[str, Any]:
    """For machines."""
    return {"machine": facts, "groups": [asdict(group) for group in groups]}
