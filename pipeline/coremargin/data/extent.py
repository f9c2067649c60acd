"""How far the rows of a source reach in each feature, as it shows them: what bounds on rounding and on moves rest on.

``statistics`` are those of rows as they are stored; of rows that are scaled or mapped as they are read others hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.mapped import Mapped
from coremargin.data.moments import moments
from coremargin.data.scaled import Scaled
from coremargin.data.view import View

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
    if isinstance(source, Mapped) or (isinstance(source, Scaled) and source.scaling.kind == "rownorm"):
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
