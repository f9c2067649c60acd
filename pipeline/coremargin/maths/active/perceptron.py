"""Rosenblatt's perceptron, as Louche and Ralaivola 2015 have it in Algorithm 3, line 14: its updates are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from coremargin.maths.margin import Array


@dataclass(frozen=True)
class Trained:
    """w (d,), not of unit length; updates: how many times a row was added to it."""

    w: Array
    updates: int


def perceptron(z: Array, start: Array, most: int = 10_000_000) -> Trained:
    """Rows z = y x (n, d), no further than ``most`` updates from w = start: until z.w > 0 for all of them.

    Of the rows that it gets wrong the one with the least z.w is added, the first of equal ones, as in section 4.1. The
    paper asks for z.w < 0: then w = 0, where Algorithm 3 starts, would never be left. Raises ValueError where so many
    updates do not do.
    """
    w, products = start.astype(np.float64), z @ z.T if len(z) <= len(z.T) else None
    scores = z @ w
    for updates in range(most + 1):
        worst = int(scores.argmin())
        if scores[worst] > 0:
            return Trained(w, updates)
        w = w + z[worst]
        scores = scores + products[worst] if products is not None else z @ w
    raise ValueError(f"expected rows that a hyperplane separates within {most} updates, found none that does")
