"""Figure 2 of Har-Peled, Roth, Zimak (2006) on rows in memory, in the paper's own names, and what streams need of it.

``problems/active`` is the first for a store, with resident rows, scans, and draws without replacement; a test holds
both to the same questions where all rows are resident. Hypotheses go through the origin, as in the figure; rows with a
last entry that is constant have an offset. The variant for streams is ``coremargin.active.StreamLearner``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.evidence import share_of
from coremargin.maths.pool import solve_pool

if TYPE_CHECKING:
    from coremargin.maths.margin import Array


@dataclass
class Learned:
    """h (d,), of length 1; C: rows of the coreset, in order; asked: all labels asked for."""

    h: Array
    C: list[int]
    asked: int


def active_coreset_svm(U: Array, oracle: Callable[[int], int], epsilon: float, T: int, seed: int) -> Learned:
    """ACTIVE CORESET SVM: of rows U (m, d) the one nearest to h is asked about while one is within (1 - epsilon) rho.

    Then VERIFY draws T rows; one that h has wrong joins C, with none it ends. The figure begins with C empty, for which
    SVM(C) is nothing: here row 0 is asked about first.
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


#: More draws than these nobody waits for.
MOST_DRAWS = 2**63


def draws_of(attempt: int, error: float, delta: float) -> int:
    """Rows of a stream that attempt 1, 2, ... has to last: what is wrong on a share ``error`` of them hardly does.

    ln(1 / delta_j) / error, with delta_j = delta / (j (j + 1)), as in Lemma 4.1: (1 - error)^that is at most delta_j.
    """
    return math.ceil(min(math.log(1.0 / share_of(delta, attempt)) / error, MOST_DRAWS))


def share_shown(rows: int, attempt: int, delta: float) -> float:
    """The largest share that an event can have which attempt 1, 2, ... has not met in so many rows, but for delta_j.

    Of rows that come independently of each other. It holds whenever one stops to look: a share p that is ruled out
    after t rows, (1 - p)^t < delta_j, is from the first such t on.
    """
    return 1.0 if rows == 0 else -math.expm1(math.log(share_of(delta, attempt)) / rows)


def _svm(X: Array, y: NDArray[np.int8]) -> tuple[Array, float]:
    """SVM(C), and its margin rho on C. Raises ValueError where no hyperplane through the origin separates the rows."""
    found = solve_pool(X, y, intercept=False)
    rho = float((y * (X @ found.w)).min())
    if found.status == "zero" or rho <= 0:
        raise ValueError("expected labels that a hyperplane through the origin separates, found none that does")
    return found.w, rho
