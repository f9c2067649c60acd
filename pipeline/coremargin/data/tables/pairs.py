"""Rows and labels that are given side by side, as one table: the labels are its last column."""

from __future__ import annotations

from typing import Any

import numpy as np

from coremargin.data.tables.objects import is_a
from coremargin.errors import DataError, UsageError

_LABEL = "label"  #: of the column, where labels come without a name


def with_labels(rows: Any, labels: Any, place: str) -> Any:
    """A table of pandas or Arrow with one more column; what is no table stays as it is. UsageError, DataError."""
    if not is_a(rows, "pandas", "DataFrame") and not hasattr(rows, "__arrow_c_stream__"):
        return rows
    name = getattr(labels, "name", None)
    name = name if isinstance(name, str) and name else _LABEL
    if len(labels) != len(rows):
        raise DataError(f"{place}: holds {len(rows):,} rows, {len(labels):,} labels: expected as many; check both")
    found = rows.columns if is_a(rows, "pandas", "DataFrame") else _arrow(rows).column_names
    if name in list(found):
        raise UsageError(
            f"{place}: found a column {name!r} beside labels of this name, expected one of them; rename it, or leave "
            "it out of the rows"
        )
    if is_a(rows, "pandas", "DataFrame"):
        return rows.assign(**{name: getattr(labels, "array", labels)})  # whatever index they have
    return _arrow(rows).append_column(name, _column(labels, place))


def _arrow(rows: Any) -> Any:
    import pyarrow as pa

    return pa.table(rows)


def _column(labels: Any, place: str) -> Any:
    import pyarrow as pa

    try:
        if isinstance(labels, pa.Array | pa.ChunkedArray):
            return labels
        return pa.array(labels.tolist() if isinstance(labels, np.ndarray) else list(labels))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"{place}: found labels that are not of one kind ({error}); convert them") from error
