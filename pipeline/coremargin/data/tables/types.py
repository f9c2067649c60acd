"""What the types of a table's columns say of them, before a row is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from coremargin.data.sources.parquet_columns import check_label, is_list
from coremargin.data.tables.values import is_boolean, is_null, is_numeric, is_text, is_time
from coremargin.errors import UsageError
from coremargin.formats.column_kinds import Column, Lists, Numbers

if TYPE_CHECKING:
    from coremargin.data.sources.column_choice import Choice
    from coremargin.data.tables.table import Table

Records: TypeAlias = "tuple[int, Any]"  #: the number of the first row, and a record batch


def check_types(table: Table, choice: Choice) -> None:
    """Raise UsageError for a column whose type cannot become features, labels, weights or keys."""
    if table.types is None:
        return
    for position in choice.features:
        kind = table.types[position]
        inner = kind.value_type if is_list(kind) else kind
        lists = is_list(kind)
        known = (is_numeric, is_boolean) if lists else (is_numeric, is_boolean, is_text, is_time, is_null)
        if not any(test(inner) for test in known):
            raise UsageError(
                f"{table.name}, {table.named(position)}: found type {kind}, expected numbers or lists of numbers, "
                f"booleans, texts or dates; convert it, or leave it out with --drop {_name(table, position)}"
            )
    if choice.label is not None:
        check_label(table.types[choice.label], _name(table, choice.label), table.name)
    if choice.key is not None and not any(test(table.types[choice.key]) for test in (is_numeric, is_text)):
        kind = table.types[choice.key]
        raise UsageError(
            f"{table.name}, {table.named(choice.key)}: found type {kind}, expected whole numbers or texts as the rows' "
            "keys; convert it"
        )
    if choice.weights is not None and not is_numeric(table.types[choice.weights]):
        kind = table.types[choice.weights]
        raise UsageError(f"{table.name}, {table.named(choice.weights)}: found type {kind}, expected one weight per row")


def columns_by_type(table: Table, positions: Sequence[int]) -> list[Column] | None:
    """The columns, where their types alone say what they are: numbers, booleans and lists; else None."""
    if table.types is None:
        return None
    types = [table.types[position] for position in positions]
    if not all(is_numeric(kind) or is_boolean(kind) or is_list(kind) for kind in types):
        return None
    lengths = table.lengths([position for position, kind in zip(positions, types, strict=True) if is_list(kind)])
    return [
        Lists(name=_name(table, position), length=lengths[position])
        if position in lengths
        else Numbers(name=_name(table, position), boolean=is_boolean(kind))
        for position, kind in zip(positions, types, strict=True)
    ]


def _name(table: Table, position: int) -> str:
    return f"{position}" if table.names is None else table.names[position]
