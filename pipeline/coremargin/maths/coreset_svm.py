"""Figure 1 of Har-Peled, Roth, Zimak (2006), on rows in memory, with the paper's names: the reference in tests.

``strategy="paper"`` (problems/hard) is the same for a store: S is scanned out of core, and bounds are proven.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.hard_margin import solve_hard_margin


def coreset_svm(
    X: NDArray[np.float64], y: NDArray[np.integer], epsilon: float, T: int = 10_000
) -> tuple[NDArray[np.float64], list[int]]:
    """h (d,), a hyperplane through the origin with at least 1 - epsilon of the best possible margin, and the coreset C.

    S: rows X (n, d) with labels y (n,) in {-1, 1}; epsilon in (0, 1). h is 0 if nothing separates the rows of C. C: the
    numbers of its rows, in the order in which they were added; T: largest size of C.
    """
    C = [0]
    for _ in range(T):
        h = solve_hard_margin(X[C], y[C], intercept=False).w  # h_i = SVM(C)
        rho = (y[C] * (X[C] @ h)).min()  # rho_i = rho(h_i, C)
        margins = y * (X @ h)  # rho(h_i, x, y) of all of S
        worst = int(margins.argmin())
        if margins[worst] >= (1 - epsilon) * rho:
            return h, C
        C.append(worst)
    return solve_hard_margin(X[C], y[C], intercept=False).w, C
