"""The columns of a machine: for each setting (a kernel, a C, a fold) of two classes one, of more one a class.

That of a class stands against the rest. All columns are on the rows of one pool; a row that a fold holds out has no
side in the columns of that fold: it neither costs nor carries anything there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of
from coremargin.maths.breakdown import exact_sum
from coremargin.maths.kernel.machine import Side

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What functions, one a class, were asked for: which of the kernels, C, and the fold held out, None: none is."""

    kernel: int
    cost: float
    fold: int | None


@dataclass(frozen=True)
class Columns:
    """Of every setting ``each`` columns, side by side.

    classes: how many there are; class_c (k, 2): c of a row of weight 1 of the positive and the other class; folds,
    seed: of cross-validation, 0: none.
    """

    settings: tuple[Setting, ...]
    classes: int
    class_c: Array
    loss: Loss | None
    intercept: bool
    folds: int = 0
    seed: int = 0

    def __len__(self) -> int:
        return len(self.class_c)

    @property
    def each(self) -> int:
        """Columns of a setting."""
        return count_of(self.classes)

    @property
    def kernels(self) -> NDArray[np.intp]:
        """Which kernel each column (k,) has."""
        return np.repeat(np.array([one.kernel for one in self.settings], np.intp), self.each)

    def of(self, setting: int) -> slice:
        """The columns of a setting."""
        return slice(setting * self.each, (setting + 1) * self.each)

    def fold(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The folds (n,) of rows with these ids; all 0 where there are none."""
        return fold_of(ids, self.folds, self.seed) if self.folds else np.zeros(len(ids), np.int64)

    def signs(self, places: NDArray[np.int32], ids: NDArray[np.int64]) -> NDArray[np.int8]:
        """Sides (n, k) of rows whose classes are these (n,); 0 in columns whose fold holds them out."""
        signs, fold = np.tile(signs_of(places, self.classes), len(self.settings)), self.fold(ids)
        for number, setting in enumerate(self.settings):
            if setting.fold is not None:
                signs[fold == setting.fold, self.of(number)] = 0
        return signs

    def judged(self, ids: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
        """Which rows (n,) each setting is judged by: those of its fold, which it does not know, else all."""
        fold = self.fold(ids)
        return [np.ones(len(ids), bool) if one.fold is None else fold == one.fold for one in self.settings]

    def costs(self, signs: NDArray[np.int8], shares: Array) -> Array:
        """c (n, k) of rows with these signs (n, k) and sample weights (n,)."""
        sides = np.where(signs > 0, self.class_c[:, 0], self.class_c[:, 1]) * shares[:, None]
        return np.asarray(np.where(signs == 0, 0.0, sides) if self.folds else sides)

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


def side_totals(totals: Array) -> Array:
    """Of sums (K,) over the classes those (k, 2) of the positive and the other side of each column.

    None is a difference: of a side that weighs little beside the other that would leave no digit.
    """
    if len(totals) == 2:
        return totals[None, ::-1]
    return np.array([[own, exact_sum(np.delete(totals, k).tolist())] for k, own in enumerate(totals.tolist())])


def class_costs(cost: float, weight: str | tuple[float, float] | None, totals: Array) -> Array:
    """c (k, 2) of the positive and the other side of each column; totals (K,): sums of weights of the classes.

    "balanced" is C n / (2 n_side) in each column, as scikit-learn has it for two classes.
    """
    sides = side_totals(totals)
    if weight == "balanced":
        return np.asarray(cost * totals.sum() / (2 * sides))
    factors = (1.0, 1.0) if weight is None else (float(weight[1]), float(weight[0]))
    return np.asarray(cost * np.tile(factors, (len(sides), 1)))
