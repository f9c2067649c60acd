"""Sparse rows restricted to the features that occur in them: hashed texts use a tenth of a million features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import Rows, is_sparse

#: If more than this share of the features occur, dropping the others does not pay.
MOST = 0.7


def on_occurring(rows: Rows) -> tuple[Rows, NDArray[np.intp]] | None:
    """Rows (n, u) on the features that occur, and these features (u,), increasing; None if it does not pay.

    None also for dense rows and for rows without values. Values are not copied.
    """
    if not is_sparse(rows) or not rows.nnz:
        return None
    occurs = np.zeros(rows.shape[1], bool)
    occurs[rows.indices] = True
    used = np.flatnonzero(occurs)
    if len(used) > MOST * rows.shape[1]:
        return None
    places = np.empty(rows.shape[1], rows.indices.dtype)
    places[used] = np.arange(len(used))
    narrow = type(rows)((rows.data, places[rows.indices], rows.indptr), shape=(rows.shape[0], len(used)))
    narrow.has_sorted_indices = narrow.has_canonical_format = True
    return narrow, used
