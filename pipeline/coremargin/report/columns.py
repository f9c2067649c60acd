"""The columns of a table and their encodings, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from coremargin.formats.column_kinds import Categories, Dates, Hashed, Numbers, Texts
from coremargin.report.text import table

if TYPE_CHECKING:
    from coremargin.formats.column_kinds import Column
    from coremargin.formats.columns import ColumnsRecord

SHOWN = 20  #: columns in a terminal
_VALUES, _VALUE = 4, 24  # categories shown of a column, and characters of each


def columns_json(record: ColumnsRecord | None) -> dict[str, Any]:
    """All columns as JSON; None without a table."""
    columns = None
    if record is not None:
        columns = [{"features": column.width, **msgspec.to_builtins(column)} for column in record.columns]
    return {
        "columns": columns,
        "columns_named": None if record is None else record.named,
        "label_column": None if record is None else record.label,
        "weights_column": None if record is None else record.weights,
        "key_column": None if record is None else record.key,
        "group_column": None if record is None else record.group,
    }


def column_lines(record: ColumnsRecord | None) -> list[str]:
    """Lines for a terminal; none without a table."""
    if record is None:
        return []
    shown = record.columns[:SHOWN]
    counts = [f"{column.width:,}" for column in shown]
    width = max(len("features"), *map(len, counts))
    rows = [
        (column.name, column.word, number.rjust(width), "; ".join(_describe(column)))
        for column, number in zip(shown, counts, strict=True)
    ]
    others = ((record.label, "labels"), (record.weights, "weights"), (record.key, "keys"), (record.group, "groups"))
    rows += [(name, what, "", "") for name, what in others if name]
    head, *lines = table([("column", "holds", "features".rjust(width), ""), *rows], left=4)
    more = len(record.columns) - len(shown)
    omitted = [f"  ... and {more:,} more; --json has all"] if more else []
    return ["", head, *lines[: len(shown)], *omitted, *lines[len(shown) :]]


def _describe(column: Column) -> list[str]:
    """How a column is encoded."""
    if isinstance(column, Numbers):
        return ["true or false"] * column.boolean + _missing(
            None if column.fill is None else f"{column.fill:.6g}", feature=column.indicator
        )
    if isinstance(column, Categories):
        shown, more = ", ".join(map(_short, column.values[:_VALUES])), len(column.values) - _VALUES
        words = [shown + f" and {more:,} more" * (more > 0)] if shown else []
        words += ["a feature for other values"] * column.other + ["other values are refused"] * column.refuse
        return words + _missing(None if column.fill is None else _short(column.fill), feature=column.missing)
    if isinstance(column, Hashed):
        return _missing(None, feature=column.missing)
    if isinstance(column, Dates):
        form = column.format or "ISO 8601"
        filled = None if column.fill is None else _moment(column.fill)
        return [f"{form}{' with times' * column.time}", *_missing(filled, feature=column.indicator)]
    if isinstance(column, Texts):
        tokens = "words" if column.ngrams == 1 else f"words and n-grams of up to {column.ngrams}"
        return [tokens] + ["tf-idf weights"] * bool(column.frequencies)
    return []


def _missing(fill: str | None, *, feature: bool) -> list[str]:
    """Replacement of missing values, and whether they have a feature."""
    return [f"missing: {fill}"] * (fill is not None) + ["a feature for missing values"] * feature


def _short(value: str) -> str:
    return repr(value if len(value) <= _VALUE else value[: _VALUE - 1] + "\u2026")


def _moment(seconds: float) -> str:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # outside of the years that datetime knows
        return f"{seconds:g} s"
