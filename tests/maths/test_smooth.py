"""The solver that keeps rows: against those that keep d x d sums, against brute force, and on rows of either kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.maths import smooth
from coremargin.maths.interior import HingeModel
from coremargin.maths.interior import minimise_hinge as by_interior
from coremargin.maths.newton import Quadratic, minimise_squared_hinge
from coremargin.maths.newton import Rows as NewtonRows
from coremargin.maths.row_model import RowModel
from coremargin.maths.rows import row_sizes, square_sums

KINDS = {"dense": np.asarray, "sparse": csr_array}


def some(seed: int, m: int, d: int, kind: str, share: float = 1.0) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a kind of which a share of the values is not zero, signs, row_c and a linear term."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d)) * (rng.random((m, d)) < share)
    signs = np.where(X @ rng.standard_normal(d) + rng.standard_normal(m) > 0.3, 1, -1).astype(np.int8)
    return KINDS[kind](X), signs, rng.uniform(0.1, 3.0, m), np.append(rng.standard_normal(d), 0.2 * m**0.5)


def model(rows: Any, signs: np.ndarray, row_c: np.ndarray, linear: np.ndarray, loss: str, intercept: bool) -> RowModel:
    """The band model of either loss."""
    squared = loss == "squared_hinge"
    return RowModel(
        linear=linear if intercept else np.append(linear[:-1], 0.0), rows=rows, signs=signs, intercept=intercept,
        target=np.ones(len(signs)), curvatures=2 * row_c if squared else row_c,
        limit=np.full(len(signs), np.inf) if squared else row_c,
    )  # fmt: skip


def dense(given: RowModel) -> np.ndarray:
    """y (x, 1) of the rows."""
    X = given.rows if isinstance(given.rows, np.ndarray) else given.rows.toarray()
    edge = np.full(len(X), float(given.intercept))
    return np.asarray(given.signs[:, None] * np.column_stack([X, edge]))


def hinge_value(given: RowModel, p: np.ndarray) -> float:
    """The hinge model's value by its definition."""
    xi = np.maximum(0, 1 - dense(given) @ p)
    return float(0.5 * p[:-1] @ p[:-1] - given.linear @ p + given.limit @ xi)


@pytest.mark.parametrize(("few", "narrow"), [(0, 0), (0, 100), (1000, 0)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "d"), [(120, 7), (30, 90)])
def test_squared_hinge_is_that_of_newton_with_the_hessian(
    m: int, d: int, kind: str, intercept: bool, few: int, narrow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gram systems, conjugate gradients and systems of the features all end where d x d matrices do."""
    monkeypatch.setattr(smooth, "FEW", few)
    monkeypatch.setattr(smooth, "NARROW", narrow)
    given = model(*some(0, m, d, kind, 0.6), "squared_hinge", intercept)
    found = smooth.minimise_squared_hinge(given, np.zeros(d + 1), 1e-14)
    signed, metric = dense(given), np.append(np.ones(d), 0.0)
    far = Quadratic(0.0, -given.linear, np.zeros((d + 1, d + 1)))
    known, _ = minimise_squared_hinge(
        np.zeros(d + 1), metric, far, NewtonRows(signed, given.curvatures / 2, np.zeros(m))
    )
    assert found[:-1] == pytest.approx(known[:-1], abs=1e-6)
    if intercept:
        assert found[-1] == pytest.approx(known[-1], abs=1e-6)


@pytest.mark.parametrize(("few", "narrow"), [(0, 0), (0, 100), (1000, 0)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "d"), [(120, 7), (30, 90)])
def test_hinge_is_that_of_the_interior_point(
    m: int, d: int, kind: str, intercept: bool, few: int, narrow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same value as the interior-point method, duals in their box, and a gap as small as was asked for."""
    monkeypatch.setattr(smooth, "FEW", few)
    monkeypatch.setattr(smooth, "NARROW", narrow)
    given = model(*some(1, m, d, kind, 0.6), "hinge", intercept)
    p, a = smooth.minimise_hinge(given, np.zeros(d + 1), None, 1e-8)
    signed, metric = dense(given), np.append(np.ones(d), 0.0)
    known, _ = by_interior(HingeModel(metric, given.linear, signed, given.limit, np.zeros(m)))
    best = hinge_value(given, known)
    assert hinge_value(given, p) == pytest.approx(best, abs=2e-7 * (abs(best) + given.limit.sum()))
    assert (a >= 0).all()
    assert (a <= given.limit).all()
    v = given.linear + signed.T @ a
    assert a.sum() - 0.5 * v[:-1] @ v[:-1] >= best - 1e-6 * (abs(best) + given.limit.sum())
    assert abs(v[-1]) <= 1e-6 * a.sum()
    again, same = smooth.minimise_hinge(given, p, a, 1e-7)
    assert (again == p).all()
    assert same == pytest.approx(a, abs=1e-4)


@pytest.mark.parametrize("case", ["one class", "zero rows", "repeated", "long", "no row within its limits"])
def test_unkind_models_come_to_their_end(case: str) -> None:
    """Rows of one class, without values, many times the same, or far from the margin: finite, and near the optimum."""
    rows, signs, row_c, _ = some(2, 60, 5, "dense")
    linear = np.zeros(6)
    if case == "one class":
        signs = np.ones(60, np.int8)
    elif case == "zero rows":
        rows = rows * 0
    elif case == "repeated":
        rows, signs = np.repeat(rows[:3], 20, axis=0), np.repeat(signs[:3], 20)
    elif case == "long":
        rows = rows * 1e6
    else:
        linear = np.append(100 * np.ones(5), 0.0)
    given = model(rows, signs, row_c, linear, "hinge", intercept=True)
    p, a = smooth.minimise_hinge(given, np.zeros(6), None, 1e-6)
    v = given.linear + dense(given).T @ a
    assert np.isfinite(p).all()
    scale = row_c.sum() + abs(hinge_value(given, p))
    assert hinge_value(given, p) - (a.sum() - 0.5 * v[:-1] @ v[:-1]) <= 1e-5 * scale
    assert abs(v[-1]) <= 1e-5 * row_c.sum()


def test_steps_by_which_no_value_falls_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that contradict each other at costs of 1e42, which leave nothing of ||w||^2, come to an end."""
    steps, newton = [0], smooth._newton_step

    def counted(model: RowModel, s: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        steps[0] += 1
        return newton(model, s, gradient)

    monkeypatch.setattr(smooth, "_newton_step", counted)
    rows, signs, row_c, linear = some(5, 12, 2, "dense", 0.6)
    given = model(rows, signs, row_c * 1e42, np.zeros_like(linear), "hinge", intercept=True)
    p, _ = smooth.minimise_hinge(given, np.zeros(3), None, 1e-6)
    assert np.isfinite(p).all()
    assert steps[0] < 100


def test_sums_of_squares_and_sizes_are_those_of_the_rows() -> None:
    """Dense and sparse rows give the same sums of squares; a sparse row takes as much as it holds."""
    X, _, weights, _ = some(3, 20, 6, "dense", 0.4)
    for make in KINDS.values():
        assert square_sums(make(X), weights) == pytest.approx(weights @ (X * X))
    assert row_sizes(X).tolist() == [48] * 20
    assert row_sizes(csr_array(X)).sum() >= 12 * np.count_nonzero(X)


def test_rows_that_seemed_out_of_reach_come_back(rng: np.random.Generator) -> None:
    """From a point and duals at which hardly a row loses the hinge ends where it ends from scratch."""
    X = rng.standard_normal((400, 6))
    signs = np.where(X[:, 0] + 0.5 * rng.standard_normal(400) > 0, 1, -1).astype(np.int8)
    limit = np.full(400, 0.3)
    model = RowModel(np.zeros(7), X, signs, True, np.ones(400), limit, limit)
    far = np.append(1e3 * np.eye(6)[0], 0.0)
    assert np.count_nonzero(model.margins(far) < 1.5) < 100
    values = []
    for point, duals in ((np.zeros(7), None), (far, np.zeros(400))):
        p, a = smooth.minimise_hinge(model, point, duals, 1e-9)
        primal = model.far(p) + limit @ np.maximum(1 - model.margins(p), 0)
        dual = a.sum() - 0.5 * model.dual_sum(a)[:-1] @ model.dual_sum(a)[:-1]
        assert abs(a @ signs) < 1e-6
        assert primal - dual <= 1e-8 * primal
        values.append(primal)
    assert values[0] == pytest.approx(values[1], rel=1e-8)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_odd_units_and_means_cost_few_steps(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """Features from 1e-4 to 1e4 far from the origin: conjugate gradients give up, and the system itself is solved."""
    units = np.geomspace(1e-4, 1e4, 40)
    X = (rng.standard_normal((3000, 40)) + 5 * rng.standard_normal(40)) * units
    signs = np.where((X / units) @ rng.standard_normal(40) + 3 * rng.standard_normal(3000) > 0, 1, -1).astype(np.int8)
    given = model(X, signs, np.ones(3000), np.zeros(41), loss, intercept=True)
    monkeypatch.setattr(smooth, "MAX_STEPS", 60)
    monkeypatch.setattr(smooth, "MAX_TURNS", 200)
    if loss == "hinge":
        p, a = smooth.minimise_hinge(given, np.zeros(41), None, 1e-5)
        primal, spent = hinge_value(given, p), 0.0
    else:
        p = smooth.minimise_squared_hinge(given, np.zeros(41), 1e-6)
        a = given.duals(given.margins(p))
        slack, spent = np.maximum(0, 1 - dense(given) @ p), 0.25 * float(a @ a)
        primal = 0.5 * p[:-1] @ p[:-1] + float(slack @ slack)
    v = given.dual_sum(a)
    dual = a.sum() - 0.5 * v[:-1] @ v[:-1] - spent
    assert abs(v[-1]) <= 1e-5 * a.sum()
    assert primal - dual <= 1e-4 * primal


def test_a_slope_that_no_move_makes_up_for_moves_nothing() -> None:
    """Of rows whose duals all are at their ends; of others the intercept goes where its slope vanishes."""
    rng = np.random.default_rng(0)
    signs = np.array([1, 1, -1, -1], np.int8)
    given = model(rng.standard_normal((4, 3)), signs, np.ones(4), np.array([0, 0, 0, -2.0 - 1e-12]), "hinge", True)
    p = np.array([0.0, 0.0, 0.0, -50.0])  # the positive rows lose, the negative ones are far from it
    s = given.margins(p)
    stayed, _, a = smooth._with_balanced_intercept(given, p, s)
    assert a.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert (stayed == p).all()
    within = model(given.rows, signs, np.ones(4), np.array([0, 0, 0, -1.5]), "hinge", True)
    moved, found, a = smooth._with_balanced_intercept(within, p, s)
    assert abs(float(within.linear[-1]) + float(signs @ a)) <= 1e-9
    assert found == pytest.approx(within.margins(moved), abs=1e-12)
