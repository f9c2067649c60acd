"""How far the numbers of all rows lie apart, for scikit-learn's gamma "scale": from statistics, without a read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.moments import moments
from coremargin.data.scaled import scaling_of, unscaled
from coremargin.errors import DataError, UsageError
from coremargin.formats.limits import GAMMAS

if TYPE_CHECKING:
    from coremargin.data.source import Source


def gamma_scale(source: Source) -> float:
    """1 / (d var), var being the variance of all n d numbers of a source, scaled where its rows are.

    Raises DataError where all numbers are equal, or their squares overflow; UsageError where rows are divided by their
    lengths, of which the statistics say nothing.
    """
    scaling, found = scaling_of(source), moments(unscaled(source))
    mean, variance = found.mean, found.variance
    if scaling is not None:
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
