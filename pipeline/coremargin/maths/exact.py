"""Dot products that are rounded once, for the few rows where the last bit decides on which side they are.

A product of two float64 numbers is the sum of two of them, exactly (Dekker 1971, with Veltkamp's splitting), and
``math.fsum`` rounds a sum once. Underflow aside, which takes values below 1e-150.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SPLITTER = 2.0**27 + 1


def exact_decisions(rows: NDArray[np.floating], w: Array, b: float) -> Array:
    """w.x + b (n,) of rows (n, d), each rounded once: the same bits whoever computes them, in whatever order."""
    values = np.empty(len(rows))
    w_high, w_low = _halves(w)
    for k, row in enumerate(rows.astype(np.float64)):
        high, low = _halves(row)
        product = row * w
        error = low * w_low - (((product - high * w_high) - low * w_high) - high * w_low)
        values[k] = math.fsum([*product.tolist(), *error.tolist(), b])
    return values


def _halves(values: Array) -> tuple[Array, Array]:
    """Two numbers of 26 bits whose sum is the value."""
    scaled = _SPLITTER * values
    high = scaled - (scaled - values)
    return high, values - high
