"""Figure 2 of Har-Peled, Roth, Zimak (2006) on rows in memory, with the paper's names, and its formulas for streams.

``problems/active`` is the same algorithm for a store, with cached rows, scans, and draws without replacement; a test
checks that both ask the same questions if all rows are cached. Hypotheses go through the origin, as in the figure; rows
with a constant last entry have an offset. The variant for streams is ``coremargin.active.StreamLearner``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.evidence import share_of
from coremargin.maths.hard_margin import solve_hard_margin

if TYPE_CHECKING:
    from coremargin.maths.margin import Array


@dataclass
class Learned:
    """h (d,), of length 1; C: rows of the coreset, in order; asked: all queried rows."""

    h: Array
    C: list[int]
    asked: int


def active_coreset_svm(U: Array, oracle: Callable[[int], int], epsilon: float, T: int, seed: int) -> Learned:
    """ACTIVE CORESET SVM: of rows U (m, d), query the one nearest to h while one is within (1 - epsilon) rho.

    Then VERIFY draws T rows. A row that h labels wrongly joins C; without one the algorithm ends. The figure begins
    with an empty C, for which SVM(C) is undefined: here row 0 is queried first.
    """
    rng, y, C, asked = np.random.default_rng(seed), {0: oracle(0)}, [0], 1
    while True:
        h, rho = _svm(U[C], np.array([y[k] for k in C], np.int8))
        away = np.abs(U @ h)
        away[C] = np.inf
        nearest = int(away.argmin())
        if away[nearest] < (1 - epsilon) * rho:
            y[nearest], asked = oracle(nearest), asked + 1
            C.append(nearest)
            continue
        for x in rng.integers(len(U), size=T):
            asked += int(x) not in y
            y[int(x)] = y[int(x)] if int(x) in y else oracle(int(x))
            if y[int(x)] * float(U[x] @ h) < 0:
                C.append(int(x))
                break
        else:
            return Learned(h, C, asked)


#: A limit that no stream reaches.
MOST_DRAWS = 2**63


def draws_of(attempt: int, error: float, delta: float) -> int:
    """The number of rows in the trial of attempt 1, 2, ...: a hypothesis with more errors than ``error`` rarely passes
    it.

    ln(1 / delta_j) / error, with delta_j = delta / (j (j + 1)), as in Lemma 4.1: (1 - error)^that is at most delta_j.
    """
    return math.ceil(min(math.log(1.0 / share_of(delta, attempt)) / error, MOST_DRAWS))


def share_shown(rows: int, attempt: int, delta: float) -> float:
    """Upper bound, with confidence 1 - delta_j, on the share of an event that attempt 1, 2, ... has not met in ``rows``
    rows.

    Rows must be independent. The bound holds at any stopping time: a share p that is ruled out after t rows, (1 - p)^t
    < delta_j, stays ruled out after more.
    """
    return 1.0 if rows == 0 else -math.expm1(math.log(share_of(delta, attempt)) / rows)


def _svm(X: Array, y: NDArray[np.int8]) -> tuple[Array, float]:
    """SVM(C), and its margin rho on C. Raises ValueError if no hyperplane through the origin separates the rows."""
    found = solve_hard_margin(X, y, intercept=False)
    rho = float((y * (X @ found.w)).min())
    if found.status == "zero" or rho <= 0:
        raise ValueError("expected labels that a hyperplane through the origin separates, found none that does")
    return found.w, rho
