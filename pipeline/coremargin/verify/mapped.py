"""What is said of a model's map of rows: that the proof is about mapped rows, what rounding may do, and its gamma."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from coremargin.verify.checks import Check

if TYPE_CHECKING:
    import numpy as np

    from coremargin.verify.feature_map import RowMap
    from coremargin.verify.spread import Spread

#: An honest draw is refuted once in exp(this).
_SELDOM = 40.0


def told(made: RowMap, moved: float, needs: float) -> Check:
    """What is said of a map: that the proof is about mapped rows, and what rounding may do; whether it does no more."""
    text = f"{made.kind}: the proof is about rows mapped by the model's arrays to {made.width:,} features"
    if not (needs <= moved < math.inf):
        return Check("map", ok=False, text=f"{text}; rounding may move one by {needs:.3g}, {moved:.3g} can be granted")
    drawn = "; which numbers these were drawn by is not looked at" if made.kind == "fourier" or made.sketch else ""
    return Check("map", ok=True, text=f"{text}; rounding moves none by more than {moved:.3g}{drawn}")


def gamma_checks(made: RowMap, spread: Spread, moved: np.ndarray) -> list[Check]:
    """Whether gamma is the one of "scale", where it is said to be, and random frequencies have lengths that it gives.

    moved (d,), or none: what scaling takes from the columns. The gamma of other maps is an array, which readers have
    compared with the number that is said.
    """
    checks = []
    if made.scale and made.kind != "fourier":
        gamma_of, features = float(made.numbers["gamma"][0]), made.features
        text = f"1 / (d var) of all rows is {spread.scale(features):.6g}"
        ok = spread.is_scale(gamma_of, features, moved)
        checks.append(Check("gamma", ok, text if ok else f"model claims scale, {gamma_of:.6g}; {text}"))
    if made.kind == "fourier":
        checks.append(_drawn(made.numbers["weights"], spread.scale(made.features) if made.scale else float(made.asked)))
    return checks


def _drawn(weights: np.ndarray, gamma: float) -> Check:
    """Whether normal numbers of variance 2 gamma may have such a sum of squares: all but one of 10^17 draws do.

    Of k numbers it is 2 gamma times one of chi-squared with k degrees of freedom, which is above k + 2 sqrt(k t) + 2 t
    or below k - 2 sqrt(k t) with a probability of exp(-t) at most (Laurent, Massart 2000).
    """
    k, found = weights.size, float((weights * (weights / (2.0 * gamma))).sum())
    wide = 2.0 * math.sqrt(k * _SELDOM)
    text = f"frequencies have {found / k:.4g} times the mean square that gamma {gamma:.6g} gives"
    ok = k - wide <= found <= k + wide + 2.0 * _SELDOM
    return Check("gamma", ok, text if ok else f"{text}: they were drawn for another one")
