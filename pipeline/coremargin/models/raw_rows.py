"""Tables as rows that a model decides: its columns found by their names, their values made features as in training."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.column_choice import difference
from coremargin.errors import DataError

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.models.decision import Scorer

_SLAB_ELEMENTS = 1 << 22  # of features made at a time: 32 MiB
_SLAB_ROWS = 1 << 16  # of sparse ones
_EXPORTS = ("__arrow_c_stream__", "__arrow_c_array__")  # of Arrow's interface, which most kinds of tables have


def decision_values(scorer: Scorer, X: Any, columns: ColumnsRecord | None, drop: Collection[str] = ()) -> np.ndarray:
    """Decision values (n,) or (n, k) of rows X: of a table by its columns, if the model has some; of numbers by place.

    drop: columns of a table that are not looked at, if they are there. Raises DataError for other columns than the
    model's, BadRow for a value that does not fit its column, and as ``Scorer.values`` does.
    """
    if not is_table(X):
        return scorer.values(X)
    from coremargin.data.sources.svmlight import SPARSE_BELOW
    from coremargin.data.tables.encoders import encode
    from coremargin.data.tables.objects import matrix_of, table_now

    if columns is None:
        numbers = matrix_of(X, "X")
        return scorer.values(X if numbers is None else numbers[0])

    table = table_now(X, "X")
    table.reveal(columns.names)
    places, sparse = _places(table.names or (), columns, drop), columns.filled < SPARSE_BELOW
    step = _SLAB_ROWS if sparse else max(1, _SLAB_ELEMENTS // columns.width)
    found = [
        scorer.values(encode(part, places, columns, sparse=sparse), part.place)
        for piece in table.pieces(places)
        for part in table.batch(piece, places).parts(step)
    ]
    return np.concatenate(found) if found else scorer.values(np.empty((0, columns.width)))


def is_table(X: Any) -> bool:
    """Whether X is a table, or a column of one; what else has ``iloc`` are frames of pandas before 2.2."""
    return any(hasattr(X, name) for name in (*_EXPORTS, "iloc"))


def _places(names: Sequence[str], columns: ColumnsRecord, drop: Collection[str]) -> list[int]:
    """Places of the model's columns; label, key, weights and those to ``drop`` are skipped. DataError for others."""
    if not columns.named:
        if len(names) != len(columns.columns):
            raise DataError(
                f"X: found {len(names):,} columns, expected {len(columns.columns):,} as the model was trained on"
            )
        return list(range(len(names)))
    ignored = columns.other_names | (set(drop) - set(columns.names))
    used = [name for name in names if name not in ignored]
    problem = difference(columns.names, used, "the model")
    if problem:
        raise DataError(f"X: {problem}; give the columns that the model was trained on, in any order")
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    return [places[name] for name in columns.names]
