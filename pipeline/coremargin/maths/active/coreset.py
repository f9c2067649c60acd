"""Figure 2 of Har-Peled, Roth, Zimak (2006) on rows in memory, in the paper's own names, and its variant for streams.

``problems/active`` is the first for a store, with resident rows, scans, and draws without replacement; a test holds
both to the same questions where all rows are resident. Hypotheses go through the origin, as in the figure; rows with a
last entry that is constant have an offset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.evidence import share_of
from coremargin.maths.margin import Array
from coremargin.maths.pool import solve_pool


@dataclass
class Learned:
    """h (d,), of length 1; C: rows of the coreset, in order; asked: all labels asked for; halted: by its own rule."""

    h: Array
    C: list[int]
    asked: int
    halted: bool = True


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


def active_coreset_stream(
    stream: Iterable[Array], oracle: Callable[[int], int], epsilon: float, error: float, delta: float
) -> Learned:
    """Section 4.1, last paragraph: rows (d,) come once, in one order; any row within the slab is asked about.

    oracle(k): the sign of the k-th row that came. The i-th hypothesis has to last T_i = ln(1 / delta_i) / error rows,
    delta_i = delta / (i (i + 1)): when so many in succession lay outside its slab, the next T_i are asked about
    wherever they lie, and the first that it has wrong joins C. With none wrong it halts: of rows that come
    independently of each other a share of at most ``error`` is labelled wrongly, and one of at most ``error`` lies
    within the slab, but for events of probability delta each. A stream that ends before has ``halted`` False.
    """
    X, y, C = list[Array](), list[int](), list[int]()
    h, rho, asked, quiet, right = np.zeros(0), math.inf, 0, 0, 0
    for row, x in enumerate(stream):
        trying = quiet >= (needed := draws_of(len(C), error, delta))
        if C and not trying and abs(float(x @ h)) >= (1 - epsilon) * rho:
            quiet += 1
            continue
        sign, asked = oracle(row), asked + 1
        if trying and sign * float(x @ h) >= 0:
            right += 1
            if right == needed:
                return Learned(h, C, asked)
            continue
        C.append(row)
        X.append(x)
        y.append(sign)
        h, rho = _svm(np.array(X), np.array(y, np.int8))
        quiet = right = 0
    return Learned(h, C, asked, halted=False)


def draws_of(hypothesis: int, error: float, delta: float) -> int:
    """How many rows hypothesis 1, 2, ... has to last."""
    return math.ceil(math.log(1.0 / share_of(delta, max(1, hypothesis))) / error)


def _svm(X: Array, y: NDArray[np.int8]) -> tuple[Array, float]:
    """SVM(C), and its margin rho on C. Raises ValueError where no hyperplane through the origin separates the rows."""
    found = solve_pool(X, y, intercept=False)
    rho = float((y * (X @ found.w)).min())
    if found.status == "zero" or rho <= 0:
        raise ValueError("expected labels that a hyperplane through the origin separates, found none that does")
    return found.w, rho
