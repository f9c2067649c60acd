"""Dot products that are rounded once, for the few rows whose side depends on the last bit.

A product of two float64 numbers is the sum of two of them, exactly (Dekker 1971, with Veltkamp's splitting), and
``exact_sum`` rounds a sum once. This holds without underflow, which needs values below 1e-150.
"""

from __future__ import annotations

import numpy as np

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.rows import Array, Rows, parts

_SPLITTER = 2.0**27 + 1


def exact_decisions(rows: Rows, w: Array, b: float) -> Array:
    """w.x + b (n,) of rows (n, d), each rounded once: the same bits in any order of summation."""
    values = np.empty(rows.shape[0])
    w_high, w_low = _halves(w)
    for k, (row, columns) in enumerate(parts(rows)):
        high, low = _halves(row)
        product, v_high, v_low = row * w[columns], w_high[columns], w_low[columns]
        error = low * v_low - (((product - high * v_high) - low * v_high) - high * v_low)
        values[k] = exact_sum([*product.tolist(), *error.tolist(), b])
    return values


def _halves(values: Array) -> tuple[Array, Array]:
    """Two numbers of 26 bits whose sum is the value."""
    scaled = _SPLITTER * values
    high = scaled - (scaled - values)
    return high, values - high
