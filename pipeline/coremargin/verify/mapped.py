"""What is said of a model's map of rows: that the proof is about mapped rows, what rounding may do, and its gamma."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from coremargin.verify.checks import Check

if TYPE_CHECKING:
    from coremargin.verify.feature_map import RowMap
    from coremargin.verify.spread import Spread


def told(made: RowMap, moved: float, needs: float) -> Check:
    """What is said of a map: that the proof is about mapped rows, and what rounding may do; whether it does no more."""
    text = f"{made.kind}: the proof is about rows mapped by the model's arrays to {made.width:,} features"
    if not (needs <= moved < math.inf):
        return Check("map", ok=False, text=f"{text}; rounding may move one by {needs:.3g}, {moved:.3g} can be granted")
    drawn = "; which numbers these were drawn by is not looked at" if made.kind == "fourier" or made.sketch else ""
    return Check("map", ok=True, text=f"{text}; rounding moves none by more than {moved:.3g}{drawn}")


def scaled_gamma(made: RowMap, spread: Spread) -> list[Check]:
    """Whether gamma is the one of "scale", where it is said to be and the arrays say what it is."""
    if not made.scale or made.kind == "fourier":
        return []
    gamma_of, features = float(made.numbers["gamma"][0]), made.features
    text = f"1 / (d var) of all rows is {spread.scale(features):.6g}"
    ok = spread.is_scale(gamma_of, features)
    return [Check("gamma", ok, text if ok else f"model claims scale, {gamma_of:.6g}; {text}")]
