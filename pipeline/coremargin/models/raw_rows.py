"""Tables as rows that a model decides: its columns found by their names, their values made features as in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.choice import difference
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.tables.table import TableBatch
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.models.decision import Scorer

_SLAB_ELEMENTS = 1 << 22  # of features made at a time: 32 MiB
_SLAB_ROWS = 1 << 16  # of sparse ones
_EXPORTS = ("__arrow_c_stream__", "__arrow_c_array__")  # of Arrow's interface, which most kinds of tables have


def decision_values(scorer: Scorer, X: Any, columns: ColumnsRecord | None) -> np.ndarray:
    """Decision values (n,) or (n, k) of rows X: of a table by its columns, if the model has some; of numbers by place.

    Raises DataError for other columns than the model's, BadRow for a value that does not fit its column, and as
    ``Scorer.values`` does.
    """
    if columns is None or not _is_table(X):
        return scorer.values(X)
    from coremargin.data.sources.svmlight import SPARSE_BELOW
    from coremargin.data.tables.encode import encode

    table = _arrow_of(X)
    places, sparse = _places(table.column_names, columns), columns.filled < SPARSE_BELOW
    step = _SLAB_ROWS if sparse else max(1, _SLAB_ELEMENTS // columns.width)
    found = [
        scorer.values(encode(batch, places, columns, sparse=sparse), batch.place) for batch in _batches(table, step)
    ]
    return np.concatenate(found)


def _is_table(X: Any) -> bool:
    """Whether X is a table, or a column of one; what else has ``iloc`` are frames of pandas before 2.2."""
    return any(hasattr(X, name) for name in (*_EXPORTS, "iloc"))


def _arrow_of(X: Any) -> Any:
    """X as a table of Arrow. Raises UsageError for what cannot be one."""
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(X, preserve_index=False) if hasattr(X, "iloc") else pa.table(X)
    except (pa.ArrowException, AttributeError, NotImplementedError, TypeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(f"X: expected a table of plain columns, got {type(X).__name__}: {why}; convert it") from error


def _places(names: Sequence[str], columns: ColumnsRecord) -> list[int]:
    """Where the model's columns lie; labels and weights may be there as well. Raises DataError for others."""
    if not columns.named:
        if len(names) != len(columns.columns):
            raise DataError(
                f"X: found {len(names):,} columns, expected {len(columns.columns):,} as the model was trained on"
            )
        return list(range(len(names)))
    aside = {columns.label, columns.weights} - set(columns.names)
    kept = [name for name in names if name not in aside]
    problem = difference(columns.names, kept, "the model")
    if problem:
        raise DataError(f"X: {problem}; give the columns that the model was trained on, in whatever order")
    twice = next((name for name in kept if kept.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"X: found column {twice!r} twice, expected a name for each; rename one")
    return [names.index(name) for name in columns.names]


def _batches(table: Any, step: int) -> Iterator[TableBatch]:
    """The rows, so many at a time; of none one batch."""
    from coremargin.data.tables.table import TableBatch

    for start in range(0, max(1, table.num_rows), step):
        part = table.slice(start, step)
        arrays = {place: column.combine_chunks() for place, column in enumerate(part.columns)}
        yield TableBatch(arrays, part.num_rows, "X", lambda row, first=start: f"X, row {first + row}", 0)  # type: ignore[misc]
