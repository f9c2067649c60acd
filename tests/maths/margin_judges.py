"""Judges that share no code with the package: exact rational arithmetic, brute force over supports, another solver."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog


def fractions(values: Any) -> list[Fraction]:
    """The exact numbers that a vector of floats stands for."""
    return [Fraction(float(value)) for value in np.asarray(values, np.float64)]


def exact_dot(row: Any, direction: Any) -> Fraction:
    """x.w without rounding."""
    return sum((a * b for a, b in zip(fractions(row), fractions(direction), strict=True)), Fraction(0))


def exact_margins(rows: Any, signs: Any, w: Any, b: float) -> list[Fraction]:
    """y (w.x + b) without rounding, not divided by ||w||."""
    return [int(sign) * (exact_dot(row, w) + Fraction(float(b))) for row, sign in zip(rows, signs, strict=True)]


def is_below_exact(claim: float, rows: Any, signs: Any, w: Any, b: float) -> bool:
    """Whether ``claim`` is at most min y (w.x + b) / ||w||, decided in rational arithmetic."""
    if claim == -np.inf:
        return True
    smallest = min(exact_margins(rows, signs, w, b))
    square = exact_dot(w, w)
    if claim <= 0 <= smallest:
        return True
    if claim > 0 >= smallest:
        return smallest == 0 and claim == 0
    both = (Fraction(claim) ** 2 * square, smallest**2)
    return both[0] <= both[1] if claim > 0 else both[0] >= both[1]


def exact_dual_square(rows: Any, signs: Any, weights: Any, *, intercept: bool) -> Fraction:
    """||sum a_i y_i x_i||^2 without rounding, the weights divided by their exact sums (of each class, or of all)."""
    a, signs = fractions(weights), [int(sign) for sign in signs]
    sums = {s: sum((v for v, t in zip(a, signs, strict=True) if t == s or not intercept), Fraction(0)) for s in (1, -1)}
    scaled = [s * v / sums[s] for v, s in zip(a, signs, strict=True)]
    columns = zip(*(fractions(row) for row in rows), strict=True)
    return sum((sum(v * x for v, x in zip(scaled, column, strict=True)) ** 2 for column in columns), Fraction(0))


def is_above_exact(claim: float, rows: Any, signs: Any, weights: Any, *, intercept: bool) -> bool:
    """Whether ``claim`` is at least the bound that the weights prove, decided in rational arithmetic."""
    if claim == np.inf:
        return True
    return (Fraction(claim) * (2 if intercept else 1)) ** 2 >= exact_dual_square(
        rows, signs, weights, intercept=intercept
    )


def shortest_by_supports(rows: np.ndarray, groups: np.ndarray) -> float:
    """The least ||sum a_i z_i|| over all supports: the affine minimum of each, where its weights are not negative."""
    best = np.inf
    n, wanted = len(rows), len(np.unique(groups))
    for size in range(wanted, min(n, rows.shape[1] + wanted) + 1):
        for support in itertools.combinations(range(n), size):
            chosen, of = rows[list(support)], groups[list(support)]
            if len(np.unique(of)) < wanted:
                continue
            first = {group: int(np.flatnonzero(of == group)[0]) for group in np.unique(of)}
            others = [k for k in range(size) if k not in first.values()]
            origin = chosen[list(first.values())].sum(axis=0)
            steps = np.array([chosen[k] - chosen[first[of[k]]] for k in others]).reshape(len(others), rows.shape[1])
            t = np.linalg.lstsq(steps.T, -origin, rcond=None)[0] if others else np.zeros(0)
            rest = [1 - t[[of[k] == group for k in others]].sum() for group in first]
            if min([*t, *rest]) >= -1e-9:
                best = min(best, float(np.linalg.norm(origin + t @ steps)))
    return best


def widest_by_daqp(X: np.ndarray, y: np.ndarray, *, intercept: bool) -> float | None:
    """The largest margin, None without: min ||w||^2 / 2 with y (w.x + b) >= 1 by an active-set solver of others."""
    import daqp

    X = np.asarray(X, np.float64)
    centre = X.mean(axis=0) if intercept else np.zeros(X.shape[1])
    scale = float(np.abs(X - centre).max()) or 1.0
    columns = [(X - centre) / scale * y[:, None], *([y[:, None]] if intercept else [])]
    A = np.ascontiguousarray(np.hstack(columns), dtype=np.float64)
    d = A.shape[1]
    H = np.eye(d)
    if intercept:
        H[-1, -1] = 0.0
    w, _, flag, _ = daqp.solve(
        H, np.zeros(d), A, np.full(len(A), 1e30), np.ones(len(A)), np.zeros(len(A), np.int32),
        primal_tol=1e-10, dual_tol=1e-12, iter_limit=100_000, eps_prox=1e-3 if intercept else 0.0,
    )  # fmt: skip
    if flag == -1:  # infeasible
        return None
    assert flag == 1, f"daqp ended with {flag}"
    return scale / float(np.linalg.norm(w[: X.shape[1]]))


def margin_by_daqp(X: np.ndarray, y: np.ndarray, *, intercept: bool) -> float:
    """The largest margin of rows that have one."""
    found = widest_by_daqp(X, y, intercept=intercept)
    assert found is not None
    return found


def hulls_meet(X: np.ndarray, y: np.ndarray, *, intercept: bool) -> float:
    """How far, in the largest coordinate, the hulls of these rows stay apart at least: 0 when they meet (an LP)."""
    z = np.asarray(X, np.float64) * y[:, None]
    n, d = z.shape
    # Variables: a (n,), t. Minimise t with |sum a_i z_i| <= t per coordinate and the weights summing to 1.
    inequalities = np.vstack([np.hstack([z.T, -np.ones((d, 1))]), np.hstack([-z.T, -np.ones((d, 1))])])
    groups = [y > 0, y < 0] if intercept else [np.ones(n, bool)]
    equalities = np.array([[*group.astype(float), 0.0] for group in groups])
    found = linprog(
        [*np.zeros(n), 1.0], A_ub=inequalities, b_ub=np.zeros(2 * d), A_eq=equalities, b_eq=np.ones(len(groups)),
        bounds=(0, None), method="highs",
    )  # fmt: skip
    assert found.status == 0, found.message
    return float(found.fun)


def smallest_margin(X: np.ndarray, y: np.ndarray, w: np.ndarray, b: float) -> float:
    """min y (w.x + b) / ||w|| in float64 by one matrix-vector product."""
    return float((y * (np.asarray(X, np.float64) @ w + b)).min() / np.linalg.norm(w))
