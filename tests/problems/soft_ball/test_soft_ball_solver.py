"""The soft ball on arrays: its solver against quadratic programming and brute force, its scans, their summaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.svm import OneClassSVM

from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.maths.soft_ball import Outside, best_square, solve_band, solve_soft_ball, squares_to
from coremargin.problems.soft_ball import soft_ball
from coremargin.problems.soft_ball.soft_ball import SoftBall, SoftBallState


def value(rows: np.ndarray, boxes: np.ndarray, centre: np.ndarray) -> float:
    """P at the best radius of a centre: the mean square of the farthest distances, by its definition."""
    squares = ((rows - centre) ** 2).sum(axis=1)
    total, left = 0.0, 1.0
    for k in np.argsort(-squares):
        share = min(boxes[k], left)
        total, left = total + share * squares[k], left - share
    return float(total)


def by_quadratic_program(rows: np.ndarray, boxes: np.ndarray) -> float:
    """The largest dual value, by daqp."""
    daqp = pytest.importorskip("daqp")
    n, z = len(rows), rows - rows.mean(axis=0)
    squares = (z**2).sum(axis=1)
    upper, lower = np.append(boxes, 1.0), np.append(np.zeros(n), 1.0)
    sense = np.append(np.zeros(n), 5).astype(np.int32)
    hessian = 2 * z @ z.T + 1e-11 * np.eye(n)
    a, _, flag, _ = daqp.solve(hessian, -squares, np.ones((1, n)), upper, lower, sense)
    assert flag == 1
    move = a @ z
    return float(a @ squares - move @ move)


@pytest.mark.parametrize("shape", [(6, 1), (12, 2), (40, 3), (25, 40), (60, 5)])
@pytest.mark.parametrize("nu", [0.15, 0.5, 0.9])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_value_is_the_least(shape: tuple[int, int], nu: float, weighted: bool) -> None:
    """By the dual of daqp, and by descent from the solution, of rows of equal and of other weights."""
    rng = np.random.default_rng(shape[0])
    rows, s = rng.standard_normal(shape) + 3.0, rng.uniform(0.5, 2.0, shape[0]) if weighted else np.ones(shape[0])
    boxes = s / (nu * s.sum())
    found = solve_soft_ball(rows, boxes, rows.mean(axis=0), epsilon=1e-12, most=1000)
    assert found.primal == pytest.approx(value(rows, boxes, found.centre), rel=1e-12)
    assert found.dual == pytest.approx(found.primal, rel=1e-10)
    assert by_quadratic_program(rows, boxes) == pytest.approx(found.primal, rel=1e-7)
    nearby = minimize(lambda c: value(rows, boxes, c), found.centre, method="Nelder-Mead", options={"maxiter": 200})
    assert nearby.fun >= found.primal * (1 - 1e-9)


def test_rows_of_one_length_have_the_machine_of_scikit_learn() -> None:
    """Its value 1/2 a'Ka, with weights that sum to nu n, and its decisions."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 6)) + 1.5
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    nu, n = 0.1, len(rows)
    machine = OneClassSVM(kernel="linear", nu=nu, tol=1e-10).fit(rows)
    found = solve_soft_ball(rows, np.full(n, 1 / (nu * n)), rows.mean(axis=0), epsilon=1e-12, most=1000)
    w = machine.coef_.ravel() / (nu * n)
    assert np.allclose(w, found.centre, atol=1e-6)
    assert 1.0 - w @ w == pytest.approx(found.dual, rel=1e-8)
    decision = found.square - squares_to(rows, found.centre)
    sure = np.abs(decision) > 1e-5
    assert ((decision > 0) == (machine.decision_function(rows) > 0))[sure].all()


@pytest.mark.parametrize("kind", ["gauss", "heavy", "clusters", "equal pairs", "integers"])
@pytest.mark.parametrize("nu", [0.02, 0.3])
def test_small_working_sets_solve_many_rows(kind: str, nu: float) -> None:
    """Only 150 rows of 2,000 at a time."""
    rng = np.random.default_rng(1)
    rows = {
        "gauss": lambda: rng.standard_normal((2000, 4)),
        "heavy": lambda: rng.standard_t(2, (2000, 4)),
        "clusters": lambda: rng.standard_normal((2000, 4)) + 9 * rng.integers(0, 3, (2000, 1)),
        "equal pairs": lambda: np.repeat(rng.standard_normal((1000, 4)), 2, axis=0),
        "integers": lambda: rng.integers(0, 9, (2000, 4)) * 1.0,
    }[kind]()
    boxes = np.full(2000, 1 / (nu * 2000))
    found = solve_soft_ball(rows, boxes, rows.mean(axis=0), epsilon=1e-9, most=150)
    whole = solve_soft_ball(rows, boxes, rows.mean(axis=0), epsilon=1e-9, most=2000)
    assert found.primal == pytest.approx(whole.primal, rel=1e-6)
    assert found.dual <= whole.primal * (1 + 1e-12)
    assert (whole.primal - whole.dual) <= 1e-8 * whole.primal


def test_a_band_without_room_has_no_solution() -> None:
    """Others outweigh it, or it is too light; at the very limit all its rows have no weight, or all of it."""
    z, boxes = np.array([[1.0], [2.0], [4.0]]), np.full(3, 0.25)
    assert solve_band(z, boxes, Outside(1.1, np.zeros(1), 1.0)) is None
    assert solve_band(z, boxes, Outside(0.1, np.zeros(1), 1.0)) is None
    light, full = (solve_band(z, boxes, Outside(mass, np.zeros(1), 1.0)) for mass in (1.0, 0.25))
    assert light is not None
    assert full is not None
    assert (light.weights == 0).all()
    assert (full.weights == boxes).all()


def test_the_best_square_leaves_the_share_beyond() -> None:
    """By comparison with all candidates."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        squares, boxes = rng.integers(0, 6, 9) * 1.0, rng.uniform(0.1, 0.4, 9)
        found = best_square(squares, boxes)
        values = {r: r + float(boxes @ np.maximum(squares - r, 0)) for r in {*squares.tolist(), found}}
        assert values[found] == pytest.approx(min(values.values()), rel=1e-12)


def scans(rows: Any, nu: float, epsilon: float = 1e-9, **options: Any) -> tuple[SoftBall, list[SoftBallState]]:
    """All states of a run, block by block."""
    source = ArraySource(rows, np.zeros(rows.shape[0]), chunk_rows=100)
    problem = SoftBall(source, epsilon, nu, **options)
    problem.check()
    states = [problem.start()]
    while not problem.done(states[-1]):
        probe = problem.probe(states[-1])
        summary = probe.empty()
        for block in plan_blocks(source, 1):
            summary = summary.merge(probe.from_arrays(probe.narrow(block)(source, block).to_arrays()))
        states.append(problem.update(problem.restore(states[-1].to_arrays()), summary))
    return problem, states


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("nu", "most"), [(0.02, 4), (0.2, 4)])
def test_few_scans_after_a_sample_prove_it(monkeypatch: pytest.MonkeyPatch, form: str, nu: float, most: int) -> None:
    """To 1e-9, of rows that are sent in part, in order of their first feature."""
    monkeypatch.setattr(soft_ball, "BAND_LEAST", 800)
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((5000, 5))
    rows = rows[np.argsort(rows[:, 0])]
    given = sp.csr_array(rows) if form == "sparse" else rows
    problem, states = scans(given, nu, sample_bytes=200_000, sample_share=0.05)
    last = states[-1]
    assert (last.status, last.round <= most) == ("certified", True), [(s.primal, s.dual) for s in states]
    assert problem.band_rows == 800
    assert last.band_rows <= 1600
    boxes = np.full(5000, 1 / (nu * 5000))
    assert value(rows, boxes, last.best) <= last.primal <= value(rows, boxes, last.best) * (1 + 1e-9)
    assert last.dual <= solve_soft_ball(rows, boxes, last.best, epsilon=1e-12, most=9000).primal
    assert int((squares_to(rows, last.best) > last.best_square).sum()) <= nu * 5000


def test_a_sphere_that_misses_the_share_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a radius that is far too small or too large the next scans find the right one."""
    monkeypatch.setattr(soft_ball, "BAND_LEAST", 800)
    rng = np.random.default_rng(4)
    source = ArraySource(rng.standard_normal((5000, 3)), np.zeros(5000), chunk_rows=100)
    problem = SoftBall(source, 1e-6, 0.1, sample_bytes=200_000, sample_share=0.05)
    for factor in (0.2, 2.0):
        state = problem.start()
        state = problem.restore(state.to_arrays() | {"square": np.array(state.square * factor)})
        for _ in range(6):
            if problem.done(state):
                break
            probe = problem.probe(state)
            summary = probe.empty()
            for block in plan_blocks(source, 1):
                summary = summary.merge(probe(source, block))
            state = problem.update(state, summary)
        assert state.status == "certified"


def test_a_sample_unlike_the_store_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clusters in order a few chunks show a few: one more scan sends rows of all of them."""
    monkeypatch.setattr(soft_ball, "BAND_LEAST", 400)
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((6000, 6)) + 5 * rng.standard_normal((20, 6))[np.sort(rng.integers(0, 20, 6000))]
    _, states = scans(rows, 0.05, sample_bytes=6000)
    assert states[-1].status == "certified"
    assert states[-1].spread
    assert states[-1].round <= 10
