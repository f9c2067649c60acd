"""What soft kinds share: outside of a soft ball or ellipsoid a share nu of the weight of the rows may lie."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from coremargin.errors import StoreError, UsageError

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.problems.one_class.rows import EnclosedRows

#: The sum of all weights times nu must not be smaller, so that C of a row is a number.
SMALLEST_TOTAL = 1e-307


def check_share(enclosed: EnclosedRows, nu: float, hard: str) -> None:
    """Refuse a share that lets no row lie outside, and weights that are too small. hard: what to train instead.

    Raises LabelError, StoreError, UsageError.
    """
    enclosed.check()
    rows = enclosed.count
    if nu < 1.0 / rows:
        raise UsageError(
            f"nu: expected at least 1/n for n = {rows:,} rows, found {nu!r}, which lets no row lie outside: that is "
            f"{hard}; leave nu out"
        )
    if box_of(enclosed, nu) == math.inf:
        raise StoreError(
            f"{enclosed.source.name}: expected weights that sum up to {SMALLEST_TOTAL} / nu or more, found smaller "
            "ones, of which float64 has no reciprocal; multiply all of them by one number"
        )


def box_of(enclosed: EnclosedRows, nu: float) -> float:
    """C of a row of weight 1: 1 / (nu sum_i s_i) over the rows that count; infinite for weights too small."""
    source = enclosed.source
    if not source.chunks or source.weights(0) is None:
        return 1.0 / (nu * enclosed.count)
    total = nu * math.fsum(
        float(weights[enclosed.mask(chunk)].sum())
        for chunk in range(source.chunks)
        if (weights := source.weights(chunk)) is not None
    )
    return 1.0 / total if total >= SMALLEST_TOTAL else math.inf


def square_of_mass(masses: Array, high: float) -> float:
    """The square beyond which a mass of 1 lies, from the masses (bins,) of distances from 0 to ``high``."""
    beyond = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    place = max(0, int(np.searchsorted(-beyond, -1.0, side="right")) - 1)
    if place == len(masses) - 1:  # somewhere beyond
        return float(high * high)
    inside = (beyond[place] - 1.0) / masses[place] if masses[place] > 0 else 0.5
    return float(((place + np.clip(inside, 0.0, 1.0)) * high / len(masses)) ** 2)
