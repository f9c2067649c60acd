"""How the members of a fleet do together: whom the largest decision value names, against the labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import Rows, many_products

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ensemble:
    """Members that decide together: one a class, in the order of the classes, or the one of two classes.

    members: their numbers; held_out: the fold of rows that they are judged by, None: all rows.
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
    def absent(cls, features: int, codes: NDArray[np.int64]) -> Evaluator:
        """Nobody is judged."""
        return cls(np.zeros((features + 1, 0)), codes, ())

    def nothing(self) -> NDArray[np.int64]:
        """No rows: zeros (ensembles, k, k)."""
        return np.zeros((len(self.ensembles), len(self.codes), len(self.codes)), np.int64)

    def of(self, rows: Rows, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """The same of rows (n, d) themselves, where there are no folds."""
        values = many_products(rows, self.hypotheses[:-1]) + self.hypotheses[-1][:, None]
        return self.confusion(values, codes, None)

    def confusion(self, values: Array, codes: NDArray[np.int32], fold: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Rows (ensembles, k, k) of each class that were given each class, from the members' decision values (m, n).

        codes (n,): of the rows; fold (n,): theirs, None where there are no folds.
        """
        found, k = self.nothing(), len(self.codes)
        truth = class_places(self.codes, codes)
        for ensemble, counts in zip(self.ensembles, found, strict=True):
            mine = truth >= 0
            if ensemble.held_out is not None and fold is not None:
                mine &= fold == ensemble.held_out
            chosen = decided(values[list(ensemble.members)])
            counts += np.bincount(truth[mine] * k + chosen[mine], minlength=k * k).reshape(k, k)
        return found


def class_places(codes: NDArray[np.int64], given: NDArray[np.int32]) -> NDArray[np.intp]:
    """Places (n,) of label codes ``given`` (n,) in ``codes`` (k,), -1 for others and for rows without label."""
    places = np.full(max(int(codes.max()), int(given.max(initial=0))) + 2, -1, np.intp)
    places[codes] = np.arange(len(codes))
    return places[given]  # code -1 finds the last entry, which is no class's


def decided(values: Array) -> NDArray[np.intp]:
    """The class (n,) by decision values (m, n): the largest, ties to the first class; of one member, its side."""
    return np.asarray(values.argmax(axis=0) if len(values) > 1 else values[0] > 0, np.intp)
