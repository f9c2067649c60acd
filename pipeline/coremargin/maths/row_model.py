"""Losses of some rows, dense or sparse, and a linear term for all others.

    1/2 ||w||^2 - linear.p + sum_i phi_i(target_i - s_i),     s_i = y_i (w.x_i + b),     p = (w, b)

    phi_i(t) = max over a in [0, limit_i] of a t - a^2 / (2 curvature_i)

a is the dual point; see smooth.py for what the losses are of this form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import Rows, products, take, weighted_sum

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RowModel:
    """linear (d + 1,); rows (m, d); signs (m,); intercept: False keeps b at 0.

    target, curvatures, limit (m,) > 0: of phi. constant: a part of the value, to which tolerances are relative.
    """

    linear: Array
    rows: Rows
    signs: NDArray[np.int8]
    intercept: bool
    target: Array
    curvatures: Array
    limit: Array
    constant: float = 0.0

    def some(self, places: NDArray[np.intp]) -> RowModel:
        """The model of the rows at these places (increasing); no copy if these are all rows."""
        if len(places) == len(self.signs):
            return self
        return replace(
            self,
            rows=take(self.rows, places),
            signs=self.signs[places],
            target=self.target[places],
            curvatures=self.curvatures[places],
            limit=self.limit[places],
        )

    def margins(self, p: Array) -> Array:
        """s (m,) at p (d + 1,)."""
        return np.asarray(self.signs * (products(self.rows, p[:-1, None])[0] + (p[-1] if self.intercept else 0.0)))

    def duals(self, s: Array) -> Array:
        """a (m,) at margins s."""
        return np.clip(self.curvatures * (self.target - s), 0.0, self.limit)

    def dual_sum(self, a: Array) -> Array:
        """sum_i a_i y_i (x_i, 1) (d + 1,)."""
        signed = self.signs * a
        return np.append(weighted_sum(self.rows, signed), signed.sum() if self.intercept else 0.0)

    def far(self, p: Array) -> float:
        """The objective without the losses of rows."""
        return float(0.5 * p[:-1] @ p[:-1] - self.linear @ p) + self.constant

    def gradient(self, p: Array, a: Array) -> Array:
        """The gradient (d + 1,) of the objective, a being the duals at p."""
        return np.append(p[:-1], 0.0) - self.linear - self.dual_sum(a)
