"""The solver of a relative margin: its value is that of daqp, its duals are dual weights, its bound holds."""

from __future__ import annotations

import numpy as np
import pytest

from coremargin.maths.relative_margin import Pieces, minimise_pieces, minimise_within, phi
from relative_margin_judge import noisy, value_by_daqp


@pytest.mark.parametrize("bound", [1.05, 1.5, 2.5, 10.0])
@pytest.mark.parametrize("cost", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_value_is_that_of_daqp(bound: float, cost: float, *, intercept: bool) -> None:
    """To 1e-8; rows are within the bound; the duals give the same number, as a dual point of the problem does."""
    X, y = noisy(1, 60, 3)
    costs = cost * np.random.default_rng(2).uniform(0.5, 2.0, 60)
    z = np.column_stack([X, np.full(60, float(intercept))])
    metric = np.array([1.0, 1.0, 1.0, 0.0])
    pieces = Pieces(metric, np.zeros(4), z * y[:, None], np.ones(60), costs)
    found = minimise_within(pieces, z, np.ones(4), bound, 1e-11)
    value = 0.5 * found.point[:3] @ found.point[:3] + costs @ np.maximum(1.0 - y * (z @ found.point), 0.0)
    assert found.within
    assert value == pytest.approx(value_by_daqp(X, y, costs, bound, intercept=intercept), rel=1e-8)
    assert np.abs(z @ found.point).max() <= bound * (1 + 1e-8)
    g = found.duals.copy()
    np.subtract.at(g, found.active, found.multipliers * found.sides * y[found.active])
    vector = (g * y) @ z
    assert abs(vector[-1]) <= 1e-8 * np.abs(g).sum()
    assert phi(g, costs, bound).sum() - 0.5 * vector[:3] @ vector[:3] == pytest.approx(value, rel=1e-8)


def test_phi_is_the_least_of_the_loss_and_a_line() -> None:
    """Over all margins within the bound, for duals of either sign, by trying many of them."""
    margins, bound, cost = np.linspace(-2.5, 2.5, 50_001), 2.5, 0.7
    for g in (-3.0, -0.1, 0.0, 0.3, 0.7, 0.8, 5.0):
        least = (cost * np.maximum(1.0 - margins, 0.0) + g * margins).min()
        assert float(phi(np.array([g]), np.array([cost]), bound)[0]) == pytest.approx(least, abs=1e-3)


def test_rows_beyond_the_bound_are_found_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginning with few, those that turn out to be needed follow, and the minimum is the same."""
    X, y = noisy(3, 400, 5)
    z = np.column_stack([X, np.ones(400)])
    pieces = Pieces(np.append(np.ones(5), 0.0), np.zeros(6), z * y[:, None], np.ones(400), np.full(400, 0.1))
    whole = minimise_within(pieces, z, np.ones(6), 1.2)
    monkeypatch.setattr("coremargin.maths.relative_margin.FIRST_CONSTRAINED", 3)
    found = minimise_within(pieces, z, np.ones(6), 1.2)
    assert found.within
    assert found.point == pytest.approx(whole.point, abs=1e-7)


def test_sums_of_other_rows_and_few_rows_near_the_margin() -> None:
    """With a linear term that pulls away from balance, conditions on both sides keep the intercept finite."""
    rng = np.random.default_rng(4)
    z = np.column_stack([rng.standard_normal((300, 4)), np.ones(300)])
    rows = np.concatenate([z[:5], -z, z])
    targets, costs = np.append(np.ones(5), np.full(600, -2.0)), np.append(np.full(5, 1e-3), np.full(600, np.inf))
    p, a = minimise_pieces(Pieces(np.append(np.ones(4), 0.0), 50.0 * rng.standard_normal(5), rows, targets, costs))
    assert np.abs(z @ p).max() == pytest.approx(2.0, rel=1e-7)
    assert (a >= 0).all()
