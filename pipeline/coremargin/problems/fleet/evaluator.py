"""Evaluating the members of a fleet: confusion matrices of the classes that they predict together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import Rows, many_products

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ensemble:
    """Members that decide together: one for each class, in the order of the classes, or the one of two classes.

    members: their numbers; held_out: the fold whose rows evaluate them, None: all rows do.
    """

    members: tuple[int, ...]
    held_out: int | None


@dataclass(frozen=True)
class Evaluator:
    """hypotheses (d + 1, m): (w, b) of all members; codes (k,): label codes of the classes in their order."""

    hypotheses: Array
    codes: NDArray[np.int64]
    ensembles: tuple[Ensemble, ...]

    @classmethod
    def none(cls, features: int, codes: NDArray[np.int64]) -> Evaluator:
        """An evaluator of no members."""
        return cls(np.zeros((features + 1, 0)), codes, ())

    def no_rows(self) -> NDArray[np.int64]:
        """Confusion matrices of no rows: zeros (ensembles, k, k)."""
        return np.zeros((len(self.ensembles), len(self.codes), len(self.codes)), np.int64)

    def evaluate(self, rows: Rows, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Confusion matrices (ensembles, k, k) of rows (n, d), without folds."""
        values = many_products(rows, self.hypotheses[:-1]) + self.hypotheses[-1][:, None]
        return self.confusion(values, codes, None)

    def confusion(self, values: Array, codes: NDArray[np.int32], fold: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Confusion matrices (ensembles, k, k): rows of each class that are predicted as each class.

        values (m, n): decision values of the members; codes, fold (n,): of the rows; fold None: there are none.
        """
        found, k = self.no_rows(), len(self.codes)
        truth = class_places(self.codes, codes)
        for ensemble, counts in zip(self.ensembles, found, strict=True):
            mine = truth >= 0
            if ensemble.held_out is not None and fold is not None:
                mine &= fold == ensemble.held_out
            predicted = predicted_places(values[list(ensemble.members)])
            counts += np.bincount(truth[mine] * k + predicted[mine], minlength=k * k).reshape(k, k)
        return found


def class_places(classes: NDArray[np.int64], codes: NDArray[np.int32]) -> NDArray[np.intp]:
    """Positions (n,) of label codes (n,) in ``classes`` (k,); -1 for others and for rows without label."""
    places = np.full(max(int(classes.max()), int(codes.max(initial=0))) + 2, -1, np.intp)
    places[classes] = np.arange(len(classes))
    return places[codes]  # code -1 finds the last entry, which is no class's


def predicted_places(values: Array) -> NDArray[np.intp]:
    """The class (n,) with the largest decision value (m, n), the first of equal ones; for one member its side."""
    return np.asarray(values.argmax(axis=0) if len(values) > 1 else values[0] > 0, np.intp)
