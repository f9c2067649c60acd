"""How far the rows of a source reach in each feature, as it shows them: what bounds on rounding and on moves rest on.

``gamma_scale`` is scikit-learn's gamma "scale". Both follow from statistics, without a read.

``statistics`` are those of rows as they are stored; of rows that are scaled or mapped as they are read others hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.mapped import Mapped
from coremargin.data.moments import moments
from coremargin.data.scaled import Scaled, scaling_of, unscaled
from coremargin.data.view import View
from coremargin.errors import DataError, UsageError
from coremargin.formats.limits import GAMMAS

if TYPE_CHECKING:
    from coremargin.data.source import Source


@dataclass(frozen=True)
class Extent:
    """Of each feature over all rows, labelled or not: (d,) float64.

    low, high: no value lies beyond; square: at least the mean of the squares of its values.
    """

    low: np.ndarray
    high: np.ndarray
    square: np.ndarray

    @property
    def widest(self) -> np.ndarray:
        """At least the largest |x_j| (d,) of any row."""
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)))


def extent(source: Source) -> Extent:
    """How far rows reach, without reading them: of scaled columns from theirs, of other changed rows by length."""
    if isinstance(source, Mapped) or (isinstance(source, Scaled) and source.scaling.factor is None):
        longest = np.full(source.features, float(source.scalars().max_norm.max()))
        return Extent(-longest, longest, longest * longest)
    if isinstance(source, Scaled):
        return _scaled(source)
    if isinstance(source, View):
        return extent(source.base)
    found = moments(source)
    return Extent(found.low, found.high, found.variance + found.mean**2)


def _scaled(source: Scaled) -> Extent:
    """Scaling a value is monotone, in any precision; squares are off by two operations in that of the store."""
    found, scaling = moments(source.base), source.scaling
    shift, factor = (np.asarray(values, np.float64) for values in (scaling.shift, scaling.factor))
    low, high = source.scaled_values(np.stack([found.low, found.high]))
    unit: Any = np.finfo(source.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        square = factor * factor * (found.variance + (found.mean - shift) ** 2) * (1 + 16 * float(unit.eps))
    return Extent(low, high, square + float(unit.tiny))


def gamma_scale(source: Source) -> float:
    """1 / (d var), var being the variance of all n d numbers of a source, scaled where its rows are.

    Raises DataError where all numbers are equal, or their squares overflow; UsageError where rows are divided by their
    lengths, of which the statistics say nothing.
    """
    scaling, found = scaling_of(source), moments(unscaled(source))
    mean, variance = found.mean, found.variance
    if scaling is not None:
        if scaling.kind == "ellipsoid":
            raise UsageError(
                f"{source.name}: gamma 'scale' of rows in the metric of an ellipsoid needs a read of its own; give a "
                f"number: rows lie within sqrt(d) of the centre, so that {1 / source.features:.3g} is a beginning"
            )
        if scaling.factor is None or scaling.shift is None:
            raise UsageError(
                f"{source.name}: gamma 'scale' of rows that are divided by their lengths needs a read of its own; give "
                f"a number: rows of length 1 lie 2 - 2 cos apart, so that 1 is a beginning"
            )
        factor, shift = scaling.factor.astype(np.float64), scaling.shift.astype(np.float64)
        mean, variance = (mean - shift) * factor, variance * factor * factor
    with np.errstate(over="ignore", invalid="ignore"):
        middle = float(mean.mean())
        spread = math.fsum(((mean - middle) ** 2 + variance).tolist())  # d times the variance of all numbers
    if spread == 0:
        raise DataError(
            f"{source.name}: gamma 'scale' is 1 / (d var), and all numbers are equal; nothing can be learnt from them, "
            f"or give gamma a number"
        )
    if not (1.0 / GAMMAS[1] <= spread <= 1.0 / GAMMAS[0]):
        raise DataError(
            f"{source.name}: gamma 'scale' is 1 / (d var), and d var is {spread:g}; scale the rows (--scaling standard)"
        )
    return 1.0 / spread
