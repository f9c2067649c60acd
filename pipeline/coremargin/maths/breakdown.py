"""Numerical breakdowns of solves: numbers overflow, or rounding makes a matrix indefinite.

Overflow gives infinity or NaN, without a warning. Such numbers prove nothing: comparisons with NaN are false, and
bounds have to be finite. If a factorisation fails, solvers use another method or return their best result; an error of
``BREAKDOWNS`` that is still raised ends a job as "stopped", with the bounds proven so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

#: Errors of arithmetic: a failed factorisation, an overflow of Python numbers, a division by zero.
BREAKDOWNS: Final = (np.linalg.LinAlgError, ArithmeticError)


def quiet() -> np.errstate:
    """Suppress NumPy's floating-point warnings within the context, in this thread."""
    return np.errstate(all="ignore")


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once; NaN if it, or an intermediate sum, overflows."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return math.nan
