"""The definitions of the soft margin: weak duality, the dual of a hypothesis, balance, gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coremargin.maths import soft_margin as soft


@dataclass(frozen=True)
class Rows:
    """Rows (n, d), signs (n,), row_c (n,), metric R (d,)."""

    X: np.ndarray
    y: np.ndarray
    c: np.ndarray
    metric: np.ndarray

    def primal(self, loss: str, w: np.ndarray, b: float) -> float:
        """f(w, b) by its definition."""
        slack = np.maximum(0.0, 1.0 - self.y * (self.X @ w + b))
        return float(0.5 * self.metric @ w**2 + self.c @ (slack if loss == "hinge" else slack**2))

    def dual(self, loss: str, a: np.ndarray) -> float:
        """D(a) by its definition."""
        v = (a * self.y) @ self.X
        spread = 0.0 if loss == "hinge" else float((a**2 / (4 * self.c)).sum())
        return float(a.sum() - spread - 0.5 * (v**2 / self.metric).sum())


def some_rows(seed: int, n: int = 30, d: int = 3) -> Rows:
    """Random rows of both classes with a C for each class."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 3 == 0, 1, -1)
    row_c = 10.0 ** rng.uniform(-3, 3, 2)
    return Rows(rng.standard_normal((n, d)) + 0.3 * y[:, None], y, row_c[(y > 0).astype(int)], rng.uniform(0.2, 5, d))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.floats(-3, 3), reach=st.floats(-3, 2))
def test_no_dual_is_above_any_value(loss: str, intercept: bool, seed: int, size: float, reach: float) -> None:
    """For feasible duals and any hypothesis, D(a) <= f(w, b)."""
    rows, rng = some_rows(seed), np.random.default_rng(seed + 1)
    limits = rows.c if loss == "hinge" else np.full(len(rows.c), np.inf)
    a = np.minimum(rng.random(len(rows.c)) * rows.c * 10.0**size, limits)
    if intercept:
        moved = soft.balanced(a, rows.y, np.minimum(limits, 1e6 * rows.c), float(a @ rows.y))
        assert moved is not None
        a = moved
    w, b = rng.standard_normal(3) * 10.0**reach, float(rng.standard_normal()) * intercept
    assert rows.dual(loss, a) <= rows.primal(loss, w, b) * (1 + 1e-12) + 1e-12 * np.abs(b) * a.sum()


@settings(max_examples=200, deadline=None)
@given(c=st.floats(1e-4, 1e4), margin=st.floats(-50, 50), share=st.floats(0, 1))
def test_a_row_pays_at_least_what_its_dual_says(c: float, margin: float, share: float) -> None:
    """Fenchel and Young, for one row: c loss(1 - m) >= a (1 - m) - conjugate(a), equal at the row's own dual."""
    t, slack = 1.0 - margin, max(0.0, 1.0 - margin)
    assert c * slack >= share * c * t - 1e-9 * c * abs(t)
    assert c * slack == (c if t > 0 else 0.0) * t
    a = share * 10 * c
    assert c * slack**2 >= (a * t - a * a / (4 * c)) - 1e-9 * c * (1 + t * t)
    own = 2 * c * slack
    assert c * slack**2 == pytest.approx(own * t - own**2 / (4 * c), rel=1e-12, abs=1e-12)


def sums(rows: Rows, w: np.ndarray, b: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Slacks (n,), and slack, squares, dual_sum per class, the positive one first."""
    xi = np.maximum(0.0, 1.0 - rows.y * (rows.X @ w + b))
    cost = rows.c * xi
    groups = (rows.y > 0, rows.y < 0)
    return (
        xi,
        np.array([cost[g].sum() for g in groups]),
        np.array([(cost * xi)[g].sum() for g in groups]),
        np.stack([cost[g] @ rows.X[g] for g in groups]),
    )


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_the_dual_of_a_hypothesis_is_that_of_its_dual_vector(seed: int, intercept: bool) -> None:
    """The bound in closed form is D of the explicit dual vector, and no other total of it does better."""
    rows, rng = some_rows(seed), np.random.default_rng(seed)
    w, b = rng.standard_normal(3), float(rng.standard_normal()) * intercept
    xi, slack, squares, dual_sum = sums(rows, w, b)
    found = soft.squared_hinge_dual(slack, squares, dual_sum, rows.metric, intercept, share=0.0)
    unit = np.where(rows.y > 0, slack[0], slack[1]) if intercept else slack.sum()
    shape = rows.c * xi / unit
    assert not intercept or shape @ rows.y == pytest.approx(0, abs=1e-12)
    straight, bent = shape.sum(), shape.sum() - rows.dual("squared_hinge", shape)  # D(t) = t straight - t^2 bent
    best = straight / (2 * bent)
    assert found == pytest.approx(rows.dual("squared_hinge", best * shape), rel=1e-12)
    for t in best * np.array([0.5, 0.9, 1.1, 2.0]):
        assert rows.dual("squared_hinge", t * shape) < found
    careful = soft.squared_hinge_dual(slack, squares, dual_sum, rows.metric, intercept, error=1e-3, share=1e-3)
    assert 0 < careful < found


def test_a_class_without_loss_proves_nothing_with_an_intercept() -> None:
    """Where one class has no slack there is no balanced dual of that shape: the bound is 0, not a division by zero."""
    slack, dual_sum = np.array([1.0, 0.0]), np.ones((2, 2))
    assert soft.squared_hinge_dual(slack, slack, dual_sum, np.ones(2), intercept=True) == 0
    assert soft.squared_hinge_dual(slack, slack, dual_sum, np.ones(2), intercept=False) > 0
    assert soft.squared_hinge_dual(0 * slack, 0 * slack, dual_sum, np.ones(2), intercept=False) == 0


def test_hinge_dual_is_its_definition() -> None:
    """Sum of duals minus half the length of their vector in the metric."""
    rows = some_rows(3)
    a = rows.c * 0.3
    found = soft.hinge_dual(float(a.sum()), (a * rows.y) @ rows.X, rows.metric)
    assert found == pytest.approx(rows.dual("hinge", a), rel=1e-13)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), excess=st.floats(-60, 60))
def test_balance_stays_in_the_box_or_says_that_it_cannot(seed: int, excess: float) -> None:
    """Weights move by exactly what is asked, within their limits; None exactly when the room is too small."""
    rng = np.random.default_rng(seed)
    limits, signs = rng.uniform(0.1, 3, 20), np.where(rng.random(20) < 0.5, -1, 1)
    weights = limits * rng.random(20)
    moved = soft.balanced(weights, signs, limits, excess)
    room = np.where(signs * excess > 0, weights, limits - weights).sum()
    if moved is None:
        assert abs(excess) > room
        return
    assert (moved >= 0).all()
    assert (moved <= limits * (1 + 1e-15)).all()
    assert (weights - moved) @ signs == pytest.approx(excess, abs=1e-12)


@pytest.mark.parametrize(
    ("primal", "dual", "gap"), [(2, 1, 0.5), (1, 2, 0), (0, 0, 0), (np.inf, 1, np.inf), (1, np.nan, np.inf)]
)
def test_gaps(primal: float, dual: float, gap: float) -> None:
    """The share of the value that may be missing; infinite while a bound is unknown."""
    assert soft.relative_gap(primal, dual) == gap
