"""ALMA_p, an approximate large margin algorithm (Gentile 2001), for p = 2 and p = 2 ln d.

Rows are divided by their p-norm. With k - 1 corrections made, a row is corrected if

    y w.x <= (1 - alpha) B sqrt(p - 1) / sqrt(k),     B = sqrt(8) / alpha
    w' = g(f(w) + C / sqrt((p - 1) k) y x),           C = sqrt(2)
    w = w' / max(1, ||w'||_q),                        1 / p + 1 / q = 1

where f is the gradient of ||w||_q^2 / 2 and g its inverse, the gradient of ||.||_p^2 / 2; for p = 2 both are the
identity. It ends with (1 - alpha) of the largest margin of the rows so divided, in the q-norm of w; here alpha is the
epsilon of the job. Theorem 3 of the source: at most 2 (p - 1) / g^2 (2 / alpha - 1)^2 + 8 / alpha - 4 corrections, g
being that margin; its abstract says O((p - 1) / (alpha^2 g^2)). For p = 2 this follows from two lines, for any unit u
with the margin g: ||w'||^2 <= 1 + (8 / alpha - 6) / k before w is shortened, and u.w <= 1 grows by sqrt(2 / k) g first.
(Section 3.1 of Har-Peled, Roth and Zimak 2006 prints O(R^2 / (epsilon rho^2)), which lacks a factor 1 / epsilon.) For
p > 2 another norm's margin is maximised: the certificate is about the Euclidean margin, as for all strategies. With an
intercept rows are (x, r), r being the length of the longest row.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import filled, vector
from coremargin.problems.hard.strategies.iterative import Walk
from coremargin.problems.hard.strategies.perceptron import SLAB, hyperplane, novikoff, sizes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.maths.margin import Array
    from coremargin.problems.hard.state import Carried, Hypothesis
    from coremargin.problems.hard.strategies.iterative import Proven, RowBlock, Task


@dataclass(frozen=True)
class Alma(Walk):
    """One pass after another, until one makes no correction."""

    euclidean: bool = True  #: p = 2; else p = 2 ln d, d being the number of entries of a row, at least 2

    reading = "a read for each pass, until one makes no correction: hundreds if epsilon is small"

    def begin(self, task: Task) -> Carried:
        """w = 0; its last entry is that of the constant."""
        d = task.features + task.intercept
        p = 2.0 if self.euclidean else max(2.0, 2 * log(d))
        numbers = {"constant": task.constant, "alpha": task.epsilon, "p": p, "updates": 0, "intercept": task.intercept}
        return {"w": np.zeros(d), **{name: np.array(value) for name, value in numbers.items()}}

    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """A correction for each row whose margin is too small for the number of corrections so far."""
        w, constant, alpha, p = carried["w"].copy(), float(carried["constant"]), carried["alpha"], float(carried["p"])
        k, d, touched, factor = int(carried["updates"]) + 1, block.rows.shape[1], list[int](), sqrt(8) / alpha
        sizes = sizes_of(block, constant, "alma" if self.euclidean else "alma-p")
        if p != 2:
            sizes = _p_norms(block, constant, p)
        for first in range(0, len(sizes), SLAB):
            part, at = slice(first, first + SLAB), 0
            rows, signs, size = block.rows[part], block.signs[part], sizes[part]
            while at < len(signs):
                last = float(w[d]) * constant if len(w) > d else 0.0
                values = signs[at:] * (rows[at:] @ w[:d] + last) / size[at:]
                low = np.flatnonzero(values <= (1 - alpha) * factor * sqrt((p - 1) / k))
                if not len(low):
                    break
                at += int(low[0])
                step = float(signs[at] / size[at]) * sqrt(2 / ((p - 1) * k))
                x = vector(rows, at)
                x = np.append(x, constant) if len(w) > d else x
                w = _gradient(_gradient(w, p / (p - 1)) + step * x, p)
                w /= max(1.0, _norm(w, p / (p - 1)))
                k += 1
                touched.append(first + at)
                at += 1
        return {**carried, "w": w, "updates": np.array(k - 1)}, np.array(touched, np.intp)

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane for rows without the constant."""
        w = carried["w"]
        if not carried["intercept"]:
            return hyperplane(w, 0.0, 0.0)
        return hyperplane(w[:-1], float(w[-1]), float(carried["constant"]))

    def most_updates(self, proven: Proven, carried: Carried, *, intercept: bool) -> float | None:
        """Theorem 3 for p = 2, with the margin that the proven hyperplane has at least on rows of length 1."""
        if not self.euclidean:
            return None
        alpha = float(carried["alpha"])
        return 2 * novikoff(proven, intercept=intercept) * (2 / alpha - 1) ** 2 + 8 / alpha - 4


def _norm(v: Array, p: float) -> float:
    largest = float(np.abs(v).max(initial=0.0))
    return largest * float((np.abs(v / largest) ** p).sum()) ** (1 / p) if largest else 0.0


def _gradient(v: Array, p: float) -> Array:
    """The gradient of ||v||_p^2 / 2."""
    size = 0.0 if p == 2 else _norm(v, p)
    return np.asarray(np.sign(v) * (np.abs(v) / size) ** (p - 1) * size if size else v)


def _p_norms(block: RowBlock, constant: float, p: float) -> Array:
    found = np.empty(len(block.ids))
    for first in range(0, len(found), SLAB):
        part = np.abs(filled(block.rows[first : first + SLAB]))
        part = np.column_stack([part, np.full(len(part), constant)])
        largest = part.max(axis=1)
        found[first : first + SLAB] = largest * ((part / largest[:, None]) ** p).sum(axis=1) ** (1 / p)
    return found
