"""Where float64 comes to its end in a solve: numbers overflow, a matrix loses its definiteness to rounding.

What overflows is infinite or NaN, without a warning. No bound is made of such a number: comparisons with NaN are false
and bounds have to be finite before they prove anything. Where a factorisation fails, solvers take another way or return
the best that they have; what still raises one of ``BREAKDOWNS`` ends a job as "stopped", with what is proven by then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

#: What arithmetic raises: a factorisation that fails, an overflow in Python's own numbers, a division by zero.
BREAKDOWNS: Final = (np.linalg.LinAlgError, ArithmeticError)


def quiet() -> np.errstate:
    """NumPy warns of nothing that float64 does while the context lasts, in this thread."""
    return np.errstate(all="ignore")


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once; NaN where it is not finite, or too large on the way."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return math.nan
