"""Names of features that come from beside the rows: a vocabulary of sparse text, names of the columns of an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from coremargin.data.sources.paths import file_bytes, is_path
from coremargin.data.sources.text import lines_of
from coremargin.errors import DataError, UsageError
from coremargin.formats.column_kinds import LONGEST_NAME
from coremargin.formats.columns import LARGEST, ColumnsRecord, plain_columns
from coremargin.formats.local_path import local_path

if TYPE_CHECKING:
    from coremargin.data.sources.base import RowSource


def named_columns(rows: RowSource, names: Any, *, append: bool) -> ColumnsRecord | None:
    """What the columns of a source are: its own, or numbers with these names, one a feature.

    names: texts, or a path to a file with one per line; append: the store is there. Raises UsageError: the source or
    the store has names of its own; DataError: too few or too many, one of them twice, empty or too long.
    """
    if names is None:
        return rows.columns
    if append:
        raise UsageError("--names cannot be combined with --append: names are those of the store")
    if rows.columns is not None and rows.columns.named:
        raise UsageError(f"{rows.name}: its columns have names: leave --names out")
    place, found = _read(names)
    if len(found) != rows.features:
        raise DataError(
            f"{place}: found {len(found):,} names, expected {rows.features:,}, one for each feature of {rows.name}"
        )
    seen: dict[str, int] = {}
    for number, name in enumerate(found):
        if not name or len(name) > LONGEST_NAME:
            raise DataError(
                f"{place}, name {number + 1:,}: found {len(name):,} characters, expected 1 to {LONGEST_NAME:,}"
            )
        if seen.setdefault(name, number) != number:
            raise DataError(
                f"{place}: names {seen[name] + 1:,} and {number + 1:,} are both {name!r}, expected a name for each"
            )
    record = ColumnsRecord(columns=plain_columns(found))
    if len(record.encoded()) > LARGEST:
        raise DataError(f"{place}: takes more than the {LARGEST:,} bytes that names may take; leave --names out")
    return record


def with_label_name(columns: ColumnsRecord, labels: Any) -> ColumnsRecord:
    """Columns with the name of the labels that were given apart, where they have one: a Series that was a column.

    Rows that come later may still have that column.
    """
    name = getattr(labels, "name", None)
    fits = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and hasattr(labels, "to_numpy")
    if not fits or columns.label is not None or not columns.named or name in columns.names:
        return columns
    return replace(columns, label=name)


def _read(names: Any) -> tuple[str, list[str]]:
    """Where the names come from, and what they are."""
    if not is_path(names):
        return "names", [str(name) for name in names]
    path = local_path(names)
    file_bytes(path)
    return str(path), [line for _, lines in lines_of(path) for line in lines]
