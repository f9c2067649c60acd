"""Batches of a stream: rows as they come, one by one or many at once, which fit those before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.arrays import ArraySource
from coremargin.errors import DataError
from coremargin.problems.common.classes import check_scale

if TYPE_CHECKING:
    from coremargin.data.source import Source


def batch_of(some: Any) -> Any:
    """Rows (m, d) of what comes, which may be one row (d,), sparse or not."""
    if hasattr(some, "tocsr"):
        return some if some.ndim == 2 else some.reshape(1, -1)
    try:
        rows = np.asarray(some)
    except ValueError:  # ragged: that is said where rows are checked
        return some
    return rows[None, :] if rows.ndim == 1 and len(rows) else rows


def is_empty(batch: Any) -> bool:
    """Whether there is no row, as where a filter has left none."""
    return not (batch.shape[0] if getattr(batch, "shape", ()) else 1)


def source_of(batch: Any, first: int, before: Source | None) -> ArraySource:
    """The rows of a batch; first: number of its first row in the stream, before: rows that came before it.

    Raises BadRow, DataError, with the place in the stream.
    """
    source = ArraySource(batch, name=f"the stream from row {first:,} on", first=first)
    check_scale(source)
    if before is not None and (source.features, source.sparse) != (before.features, before.sparse):
        kinds = [f"{one.features} features, {'sparse' if one.sparse else 'dense'}" for one in (before, source)]
        raise DataError(f"row {first:,} of the stream: expected rows as before ({kinds[0]}), found {kinds[1]}")
    return source
