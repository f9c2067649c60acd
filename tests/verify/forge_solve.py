"""Best hyperplanes of small data by solvers that are not coremargin's: what can be reached, for the judges.

All that the judges take from here are hypotheses; how good these are they find out themselves. So a poor answer of
a solver can make a judge milder, never unjust.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import daqp
import numpy as np
from scipy.optimize import minimize, nnls
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, LinearSVC

Plane = tuple[np.ndarray, float]

_TIGHT = 1e5  # how much heavier an equation weighs that must hold


@contextmanager
def _patient() -> Iterator[None]:
    """A solver that ran out of steps has nevertheless found something."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def nearest_to_zero(Z: np.ndarray) -> np.ndarray:
    """The shortest convex combination of rows Z (n, p): minimise |Z' a|^2 + (sum a - 1)^2 over a >= 0, then scale."""
    scale = float(np.abs(Z).max()) or 1.0
    a, _ = nnls(np.vstack([Z.T / scale, np.ones(len(Z))]), np.append(np.zeros(Z.shape[1]), 1.0), maxiter=50 * len(Z))
    return np.asarray(a @ Z / a.sum()) if a.sum() > 0 else np.zeros(Z.shape[1])


def widest(X: np.ndarray, side: np.ndarray, *, intercept: bool) -> Plane:
    """A hyperplane with about the largest smallest margin; X (n, d), side (n,) in {-1, 1}, both there."""
    if not intercept:
        return nearest_to_zero(X * side[:, None]), 0.0
    positive, negative = X[side > 0], X[side < 0]
    scale = float(np.abs(X).max()) or 1.0
    top = np.vstack([positive, -negative]).T / scale
    one, two = (
        np.append(np.ones(len(positive)), np.zeros(len(negative))),
        np.append(np.zeros(len(positive)), np.ones(len(negative))),
    )
    a, _ = nnls(
        np.vstack([top, _TIGHT * (one - two), one]), np.append(np.zeros(X.shape[1] + 1), 1.0), maxiter=50 * len(X)
    )
    w = top @ a
    return w, -float((positive @ w).min() + (negative @ w).max()) / 2


def cheapest(X: np.ndarray, side: np.ndarray, price: np.ndarray, *, intercept: bool, squared: bool) -> list[Plane]:
    """Hyperplanes with about the smallest 1/2 |w|^2 + sum price loss(1 - side (w.x + b))."""
    known = price > 0
    X, side, price = X[known], side[known], price[known]
    d = X.shape[1]
    found: list[Plane] = [(np.zeros(d), 0.0)]
    if not squared:
        if intercept:
            svc = SVC(kernel="linear", C=1.0, tol=1e-9, max_iter=200_000)
        else:
            svc = LinearSVC(loss="hinge", C=1.0, tol=1e-9, fit_intercept=False, max_iter=20_000)
        with _patient():
            svc.fit(X, side, sample_weight=price)
        found.append((svc.coef_[0], float(svc.intercept_[0]) if intercept else 0.0))

    def value(at: np.ndarray) -> tuple[float, np.ndarray]:
        slack = np.maximum(0.0, 1 - side * (X @ at[:d] + (at[d] if intercept else 0.0)))
        pull = 2 * price * slack * side
        slope = np.append(at[:d] - pull @ X, -pull.sum() if intercept else 0.0)
        return 0.5 * float(at[:d] @ at[:d]) + float(price @ slack**2), slope

    if squared:
        at = np.zeros(d + 1)
        for _ in range(3):
            at = minimize(value, at, jac=True, method="BFGS", options={"gtol": 1e-10}).x
        found.append((at[:d], float(at[d]) if intercept else 0.0))
    return found


def within(X: np.ndarray, side: np.ndarray, price: np.ndarray, bound: float, *, intercept: bool) -> list[Plane]:
    """Hyperplanes with about the smallest 1/2 |w|^2 + sum price max(0, 1 - side f) and |f| <= bound, by daqp."""
    known = price > 0
    X, side, price = X[known], side[known], price[known]
    n, d = X.shape
    z, unit = np.column_stack([X, np.full(n, float(intercept))]), float(price.max())
    zero, large, free = np.zeros((n, n)), np.full(n, 1e30), np.full(d + 1, 1e6)
    found, _, _, _ = daqp.solve(
        np.diag([*np.full(d, 1.0 / unit), *np.zeros(n + 1)]), np.concatenate([np.zeros(d + 1), price / unit]),
        np.block([[z * side[:, None], np.eye(n)], [z, zero]]), np.concatenate([free, large, large, np.full(n, bound)]),
        np.concatenate([-free, np.zeros(n), np.ones(n), np.full(n, -bound)]), np.zeros(3 * n + d + 1, np.int32),
        primal_tol=1e-10, dual_tol=1e-12, iter_limit=100_000, eps_prox=1e-4,
    )  # fmt: skip
    return [(np.zeros(d), 0.0), (np.array(found[:d]), float(found[d]) * intercept)]


def likeliest(X: np.ndarray, side: np.ndarray, price: np.ndarray, *, intercept: bool) -> list[Plane]:
    """Hyperplanes with about the smallest 1/2 |w|^2 + sum price log(1 + exp(-side (w.x + b)))."""
    known, d = price > 0, X.shape[1]
    machine = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000, fit_intercept=intercept)
    with _patient():
        machine.fit(X[known], side[known], sample_weight=price[known])
    return [(np.zeros(d), 0.0), (machine.coef_[0], float(machine.intercept_[0]) if intercept else 0.0)]


def trimmed(X: np.ndarray, side: np.ndarray, most: int, *, intercept: bool) -> list[Plane]:
    """For each k = 0..most the best hyperplane when k rows may be left out, by trying all sets of k rows."""
    best: list[Plane] = []
    for k in range(most + 1):
        top, plane = -np.inf, (np.zeros(X.shape[1]), 0.0)
        for out in itertools.combinations(range(len(X)), k):
            stay = np.delete(np.arange(len(X)), out)
            if intercept and len(set(side[stay])) < 2:
                continue
            w, b = widest(X[stay], side[stay], intercept=intercept)
            size = float(np.linalg.norm(w))
            margin = float((side[stay] * (X[stay] @ w + b)).min()) / size if size > 0 else 0.0
            if margin > top:
                top, plane = margin, (w, b)
        best.append(plane)
    return best


def lifted(X: np.ndarray, y: np.ndarray, classes: int, constant: float) -> np.ndarray:
    """Kesler's vectors (n (K - 1), K (d + 1)) of rows X (n, d) of classes y (n,), each ending in ``constant``."""
    rows = np.column_stack([X, np.full(len(X), constant)])
    vectors = []
    for x, own in zip(rows, y, strict=True):
        for rival in range(classes):
            if rival != own:
                z = np.zeros((classes, rows.shape[1]))
                z[own], z[rival] = x, -x
                vectors.append(z.ravel())
    return np.array(vectors)


def widest_of_classes(X: np.ndarray, y: np.ndarray, classes: int, constant: float) -> np.ndarray:
    """V (K, d + 1) with about the largest smallest margin."""
    return nearest_to_zero(lifted(X, y, classes, constant)).reshape(classes, -1)


def cheapest_of_classes(X: np.ndarray, y: np.ndarray, price: np.ndarray, constant: float) -> np.ndarray:
    """V (K, d + 1) with about the smallest 1/2 |V|^2 + sum price max_r (1[r != y] - (v_y - v_r).x)."""
    rows, known = np.column_stack([X, np.full(len(X), constant)]), price > 0
    svc = LinearSVC(multi_class="crammer_singer", C=1.0, tol=1e-10, fit_intercept=False, max_iter=100_000)
    with _patient():
        svc.fit(rows[known], y[known], sample_weight=price[known])
    V = svc.coef_
    return np.vstack([-V, V]) / 2 if len(V) == 1 else V
