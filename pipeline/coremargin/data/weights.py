"""Sample weights as they come in: one number per row, finite and not negative."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.labels import is_missing
from coremargin.errors import BadRow, UsageError
from coremargin.formats.limits import LARGEST_WEIGHT

if TYPE_CHECKING:
    from coremargin.data.source import Source


def as_weights(values: Any, rows: int, place: str, first: int = 0) -> np.ndarray:
    """Weights (rows,) float64, read-only. first: number of the first row, for messages.

    Raises BadRow that names the row (negative, NaN, infinite) or the kind, UsageError for another number of weights.
    """
    found = _numbers(values)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1 or found.dtype.kind not in "biuf":
        raise BadRow(f"{place}: expected one number per row, got {found.dtype} of shape {found.shape}")
    if len(found) != rows:
        raise UsageError(f"{place}: expected as many weights as rows, {rows:,}, got {len(found):,}")
    weights = np.array(found, dtype=np.float64)
    bad = ~((weights >= 0) & (weights <= LARGEST_WEIGHT))
    if bad.any():
        row = int(np.argmax(bad))
        raise BadRow(f"{place}: row {first + row}: {refused_weight(weights[row])}")
    weights += 0.0  # -0.0 becomes 0.0
    weights.flags.writeable = False
    return weights


def _numbers(values: Any) -> np.ndarray:
    """Weights as an array; entries that are masked, null or missing become NaN."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        found = np.array(values.data, np.float64)
        found[np.ma.getmaskarray(values)] = np.nan
        return found
    found = np.asarray(values)
    if found.dtype.kind == "O" and found.ndim == 1:
        plain = [np.nan if is_missing(value) else value for value in found.tolist()]
        if all(isinstance(value, Real) for value in plain):
            return np.array(plain, dtype=np.float64)
    return found


def all_weights(values: Any, rows: int, place: str) -> np.ndarray:
    """The weights (rows,) of all rows there are: as ``as_weights``, and not all zero."""
    weights = as_weights(values, rows, place)
    if rows and not weights.any():
        raise nothing_left(place)
    return weights


def refused_weight(value: float) -> str:
    """What is wrong with a weight that is refused."""
    return f"found weight {value}, expected a number from 0 to {LARGEST_WEIGHT:g}; 0 leaves a row out"


def nothing_left(place: str) -> BadRow:
    """The error for rows whose weights are all zero."""
    return BadRow(f"{place}: all weights are zero, which leaves every row out: expected a positive one")


def weights_in(source: Source, chunk: int) -> np.ndarray:
    """The weights (n,) of a chunk: 1 where rows have none."""
    weights = source.weights(chunk)
    start, stop = source.span(chunk)
    return np.ones(stop - start) if weights is None else weights


def rows_left(source: Source) -> int:
    """How many rows have a weight above 0: those that were not taken out. Weights are read, where there are any."""
    if source.weights(0) is None:
        return source.rows
    return sum(int(np.count_nonzero(weights_in(source, chunk))) for chunk in range(source.chunks))
