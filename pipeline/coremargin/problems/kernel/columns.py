"""The columns of a machine: of two classes one, of more one a class, which stands against the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.machine import Side

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """classes: how many there are; class_c (k, 2): c of a row of weight 1 of the positive and the other class."""

    classes: int
    class_c: Array
    loss: Loss | None
    intercept: bool

    def __len__(self) -> int:
        return len(self.class_c)

    def signs(self, places: NDArray[np.int32]) -> NDArray[np.int8]:
        """Sides (n, k) of rows whose classes are these (n,)."""
        return signs_of(places, self.classes)

    def costs(self, signs: NDArray[np.int8], shares: Array) -> Array:
        """c (n, k) of rows with these signs (n, k) and sample weights (n,)."""
        return np.asarray(np.where(signs > 0, self.class_c[:, 0], self.class_c[:, 1]) * shares[:, None])

    def side(self, k: int, signs: NDArray[np.int8], costs: Array) -> Side:
        """Column k of a problem on rows with these signs and costs (n, k)."""
        return Side(signs[:, k].astype(np.float64), np.ascontiguousarray(costs[:, k]), self.loss, self.intercept)


def count_of(classes: int) -> int:
    """How many columns there are for so many classes."""
    return 1 if classes == 2 else classes


def signs_of(places: NDArray[np.int32], classes: int) -> NDArray[np.int8]:
    """Sides (n, k): of two classes 1 for the second; of more 1 in the column of a row's own class."""
    positive = np.array([1]) if classes == 2 else np.arange(classes)
    return np.where(places[:, None] == positive[None, :], 1, -1).astype(np.int8)


def positives(totals: Array) -> Array:
    """Of sums (K,) over the classes those (k,) of the positive side of each column."""
    return totals[1:] if len(totals) == 2 else totals


def class_costs(cost: float, weight: str | tuple[float, float] | None, totals: Array) -> Array:
    """c (k, 2) of the positive and the other side of each column; totals (K,): sums of weights of the classes.

    "balanced" is C n / (2 n_side) in each column, as scikit-learn has it for two classes.
    """
    positive, every = positives(totals), totals.sum()
    if weight == "balanced":
        return np.asarray(cost * every / (2 * np.column_stack([positive, every - positive])))
    factors = (1.0, 1.0) if weight is None else (float(weight[1]), float(weight[0]))
    return np.asarray(cost * np.tile(factors, (len(positive), 1)))
