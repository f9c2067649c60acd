"""Rows far from each other: what is asked about before rows of both classes are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.maths.rows import as_float64, lengths, products

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows


def furthest(rows: Rows, before: Rows) -> int:
    """The place of the row of (n, d) that is the furthest from all rows ``before``; the longest where there is none."""
    exact, squares = as_float64(rows), lengths(rows) ** 2
    nearest = np.full(len(squares), np.inf)
    for row in before if before.shape[0] else ():
        nearest = np.minimum(nearest, _squares(exact, squares, row))
    return int((nearest if before.shape[0] else squares).argmax())


def _squares(rows: Any, squares: Array, row: Any) -> Array:
    """Squared distances (n,) of rows (n, d) from one row (1, d)."""
    row = row if getattr(row, "ndim", 2) == 2 else row[None, :]
    dense = np.asarray(row.toarray() if hasattr(row, "toarray") else row, np.float64)
    return np.asarray(np.maximum(squares - 2.0 * products(rows, dense.T)[0] + float(dense[0] @ dense[0]), 0.0))
