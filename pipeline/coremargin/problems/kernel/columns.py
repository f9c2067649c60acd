"""The columns of a job with a kernel: binary problems that share the rows of one working set.

Each setting (a kernel, a C, a fold) of two classes is one column; of more classes it has a column for each, which
separates the class from the rest. A row that a fold holds out has sign 0 in the columns of that fold: it neither costs
nor carries anything there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of
from coremargin.maths.breakdown import exact_sum
from coremargin.maths.kernel.machine import Side
from coremargin.problems.common.driver_rows import isin_ids

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """One model: the number of its kernel, its C, and the fold that is held out (None: no rows are)."""

    kernel: int
    cost: float
    fold: int | None


@dataclass(frozen=True)
class Columns:
    """The columns of all settings, side by side.

    classes: how many there are; class_c (k, 2): c of a row of weight 1 of the positive and the other class; folds,
    seed: of cross-validation, 0: none. bound: of the decision values of a relative margin, else infinite. removed:
    sorted ids of rows that no column has, outliers.
    """

    settings: tuple[Setting, ...]
    classes: int
    class_c: Array
    loss: Loss | None
    intercept: bool
    folds: int = 0
    seed: int = 0
    bound: float = np.inf
    removed: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def has_all_rows(self) -> bool:
        """Whether every row takes part in every column."""
        return not (self.folds or len(self.removed))

    def __len__(self) -> int:
        return len(self.class_c)

    @property
    def kernels(self) -> NDArray[np.intp]:
        """The kernel of each column (k,)."""
        return np.repeat(np.array([one.kernel for one in self.settings], np.intp), column_count(self.classes))

    def of_setting(self, setting: int) -> slice:
        """The columns of a setting."""
        each = column_count(self.classes)
        return slice(setting * each, (setting + 1) * each)

    def fold(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Folds (n,) of rows with these ids; 0 without folds."""
        return fold_of(ids, self.folds, self.seed) if self.folds else np.zeros(len(ids), np.int64)

    def signs(self, classes: NDArray[np.int32], ids: NDArray[np.int64]) -> NDArray[np.int8]:
        """Signs (n, k) of rows with these classes (n,); 0 in columns whose fold holds them out."""
        signs, fold = np.tile(class_signs(classes, self.classes), len(self.settings)), self.fold(ids)
        for number, setting in enumerate(self.settings):
            if setting.fold is not None:
                signs[fold == setting.fold, self.of_setting(number)] = 0
        if len(self.removed):
            signs[isin_ids(ids, self.removed)] = 0
        return signs

    def evaluated_rows(self, ids: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
        """For each setting the rows (n,) that it is evaluated on: those of its fold, or all."""
        fold = self.fold(ids)
        return [np.ones(len(ids), bool) if one.fold is None else fold == one.fold for one in self.settings]

    def costs(self, signs: NDArray[np.int8], sample_weights: Array) -> Array:
        """c (n, k) of rows with these signs (n, k) and sample weights (n,)."""
        costs = np.where(signs > 0, self.class_c[:, 0], self.class_c[:, 1]) * sample_weights[:, None]
        return np.asarray(costs if self.has_all_rows else np.where(signs == 0, 0.0, costs))

    def side(self, k: int, signs: NDArray[np.int8], costs: Array) -> Side:
        """The problem of column k on rows with these signs and costs (n, k)."""
        own, c = signs[:, k].astype(np.float64), np.ascontiguousarray(costs[:, k])
        return Side(own, c, self.loss, self.intercept, bound=self.bound)


def column_count(classes: int) -> int:
    """The columns of one setting."""
    return 1 if classes == 2 else classes


def class_signs(classes: NDArray[np.int32], count: int) -> NDArray[np.int8]:
    """Signs (n, k) of rows of these classes: 1 for the second of two, or in the column of the row's own class."""
    positive = np.array([1]) if count == 2 else np.arange(count)
    return np.where(classes[:, None] == positive[None, :], 1, -1).astype(np.int8)


def side_totals(totals: Array) -> Array:
    """Sums (k, 2) over the positive and the other side of each column, from those (K,) of the classes.

    They are not computed as differences: next to a heavy side, a light one would keep no digits.
    """
    if len(totals) == 2:
        return totals[None, ::-1]
    return np.array([[own, exact_sum(np.delete(totals, k).tolist())] for k, own in enumerate(totals.tolist())])


def class_costs(cost: float, weight: str | tuple[float, float] | None, totals: Array) -> Array:
    """c (k, 2) of the positive and the other side of each column; totals (K,): sums of weights of the classes.

    "balanced" is C n / (2 n_side) in each column, as in scikit-learn for two classes.
    """
    sides = side_totals(totals)
    if weight == "balanced":
        return np.asarray(cost * totals.sum() / (2 * sides))
    factors = (1.0, 1.0) if weight is None else (float(weight[1]), float(weight[0]))
    return np.asarray(cost * np.tile(factors, (len(sides), 1)))
