"""The solver, the bounds and the reads of the smallest enclosing ball, on arrays."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.maths.enclosing_ball import (
    fast_distances,
    lower_bound,
    smallest_ball,
    solve_rows,
    upper_bounds,
)
from coremargin.maths.outliers import row_search
from coremargin.maths.rows import dense
from coremargin.maths.trimmed_ball import search_trimmed
from coremargin.problems.ball.enclosing_ball import BallState, BallWithOutliers, EnclosingBall


def radius_by_subsets(rows: np.ndarray) -> float:
    """The largest radius of the balls through at most d + 1 rows that contain no smaller one: brute force."""
    best = 0.0
    for size in range(1, rows.shape[1] + 2):
        for chosen in itertools.combinations(range(len(rows)), min(size, len(rows))):
            some = rows[list(chosen)]
            differences = some[1:] - some[0]
            centre = some[0] + np.linalg.lstsq(differences, (differences**2).sum(axis=1) / 2, rcond=None)[0]
            radius = float(np.linalg.norm(some[0] - centre))
            if np.linalg.norm(rows - centre, axis=1).max() <= radius * (1 + 1e-9) + 1e-12:
                return_value = radius
                best = return_value if best == 0.0 else min(best, return_value)
    return best


def proven(rows: Any, weights: np.ndarray) -> tuple[float, float]:
    """Both bounds that weights prove."""
    centre = weights @ dense(rows)
    return lower_bound(rows, weights, centre), float(upper_bounds(rows, centre).max())


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40, 300])
@pytest.mark.parametrize("features", [1, 2, 4, 12])
def test_dual_weights_prove_the_smallest_ball(count: int, features: int) -> None:
    """Of rows, repeated rows, corners of a cube, rows on a line and on a sphere, far from the origin."""
    rng = np.random.default_rng(count)
    gauss = rng.standard_normal((count, features))
    for rows in (
        gauss,
        np.concatenate([gauss, gauss]),
        rng.integers(0, 2, (count, features)) * 1.0,
        np.outer(np.arange(count), np.ones(features)),
        gauss / np.linalg.norm(gauss, axis=1)[:, None],
        gauss + 1e6,
    ):
        weights = smallest_ball(rows)
        assert weights.min() >= 0
        assert abs(weights.sum() - 1) < 1e-12
        assert np.count_nonzero(weights) <= features + 1
        lower, upper = proven(rows, weights)
        assert lower <= upper <= lower * (1 + 1e-8) + 1e-9 * np.abs(rows).max() * (count == 1)


def test_closed_forms() -> None:
    """Two rows, an equilateral and an obtuse triangle, a simplex, the corners of a cube."""
    assert proven(two := np.array([[0.0, 0.0], [6.0, 8.0]]), smallest_ball(two))[1] == pytest.approx(5)
    triangle = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    assert proven(triangle, smallest_ball(triangle))[1] == pytest.approx(1 / np.sqrt(3))
    obtuse = np.array([[0.0, 0.0], [4.0, 0.0], [1.0, 0.5]])
    assert proven(obtuse, smallest_ball(obtuse))[1] == pytest.approx(2)
    simplex = np.eye(7)
    assert proven(simplex, smallest_ball(simplex))[1] == pytest.approx(np.sqrt(6 / 7))
    cube = np.array(list(itertools.product([0.0, 1.0], repeat=5)))
    assert proven(cube, smallest_ball(cube))[1] == pytest.approx(np.sqrt(5) / 2)


@pytest.mark.parametrize("seed", range(12))
def test_tiny_cases_are_those_of_brute_force(seed: int) -> None:
    """All subsets of at most d + 1 rows."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((int(rng.integers(2, 9)), int(rng.integers(1, 4))))
    assert proven(rows, smallest_ball(rows))[1] == pytest.approx(radius_by_subsets(rows), rel=1e-9)


def test_a_general_solver_agrees() -> None:
    """SLSQP on min r with r >= ||x - c||^2, to its accuracy."""
    rows = np.random.default_rng(0).standard_normal((60, 4)) * [1, 2, 3, 4]
    constraint = {"type": "ineq", "fun": lambda at: at[-1] - ((rows - at[:-1]) ** 2).sum(axis=1)}
    start = np.append(rows.mean(axis=0), 1e3)
    found = minimize(lambda at: at[-1], start, constraints=[constraint], method="SLSQP", options={"ftol": 1e-12})
    lower, upper = proven(rows, smallest_ball(rows))
    assert lower**2 <= found.fun * (1 + 1e-8)
    assert upper**2 == pytest.approx(found.fun, rel=1e-6)


@pytest.mark.parametrize("kind", ["many", "wide", "sparse", "float32"])
def test_rows_of_any_shape_are_solved(kind: str) -> None:
    """Many rows, by a working set; wide rows, in their span; sparse rows; a warm start changes nothing."""
    rng = np.random.default_rng(1)
    rows: Any = {
        "many": lambda: rng.standard_normal((8000, 5)),
        "wide": lambda: rng.standard_normal((40, 700)),
        "sparse": lambda: sp.csr_array(sp.random_array((400, 900), density=0.02, rng=rng)),
        "float32": lambda: (rng.standard_normal((6000, 8)) + 100).astype(np.float32),
    }[kind]()
    found = solve_rows(rows)
    lower = lower_bound(rows, found.weights, found.centre)
    assert upper_bounds(rows, found.centre).max() <= lower * (1 + 1e-10)
    again = solve_rows(rows, found.weights)
    assert again.radius == pytest.approx(found.radius, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("far", [0.0, 1e3])
@pytest.mark.parametrize("sparse", [False, True])
def test_fast_distances_are_bounds(dtype: Any, far: float, *, sparse: bool) -> None:
    """The distances in float64 lie between them, to the reference and to the centre."""
    rng = np.random.default_rng(2)
    rows = (rng.standard_normal((500, 30)) + far).astype(dtype)
    reference = np.zeros(30, dtype) if sparse else rows.mean(axis=0)
    centre = rows.mean(axis=0, dtype=np.float64) + rng.standard_normal(30) * 0.3
    found = fast_distances(sp.csr_array(rows) if sparse else rows, reference, centre, np.dtype(dtype))
    exact = [np.linalg.norm(rows.astype(np.float64) - one, axis=1) for one in (reference.astype(np.float64), centre)]
    assert (exact[0] <= found.reference_upper).all()
    assert (found.centre_lower <= exact[1]).all()
    assert (exact[1] <= found.centre_upper).all()
    assert np.allclose(found.centre, exact[1], rtol=1e-3)


def states_of(problem: EnclosingBall, limit: int = 30) -> tuple[list[BallState], float]:
    """All states of a job and its reads, without machinery; each comes back from arrays with the same bits."""
    states, chunks = [problem.start()], 0
    while not problem.done(states[-1]):
        assert len(states) <= limit
        if isinstance(problem, BallWithOutliers):
            states += [problem.restore(state.to_arrays()) for state in problem.work(states[-1], None)]
            if problem.done(states[-1]):
                break
        probe = problem.probe(states[-1])
        summary = probe.empty()
        for block in plan_blocks(problem.source, skip=problem.skip(states[-1])):
            found = probe.narrow(block)(problem.source, block)
            summary = summary.merge(probe.from_arrays(found.to_arrays()))
            chunks += len(block.chunks)
        states.append(problem.restore(problem.update(states[-1], summary).to_arrays()))
    return states, chunks / problem.source.chunks


def rows_like(kind: str, n: int, d: int) -> np.ndarray:
    """Rows in float32: normal, uniform, heavy-tailed, of unlike scales, clustered, sorted, of length 1."""
    rng = np.random.default_rng(7)
    gauss = rng.standard_normal((n, d))
    if kind == "cube":
        gauss = rng.random((n, d))
    elif kind == "heavy":
        gauss /= np.sqrt(rng.chisquare(2, n) / 2)[:, None]
    elif kind == "scales":
        gauss *= np.exp(np.linspace(-1.5, 1.5, d))
    elif kind in ("clusters", "sorted clusters"):
        which = rng.integers(0, 20, n)
        gauss += 10 * rng.standard_normal((20, d))[np.sort(which) if kind == "sorted clusters" else which]
    elif kind == "sorted":
        gauss = gauss[np.argsort(gauss[:, 0])]
    elif kind in ("cap", "sphere"):
        gauss += kind == "cap"
        gauss /= np.linalg.norm(gauss, axis=1)[:, None]
    return gauss.astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "features", "most"),
    [
        ("normal", 16, 1.15),
        ("cube", 16, 1.3),
        ("heavy", 16, 1.0),
        ("scales", 16, 1.15),
        ("clusters", 16, 1.6),
        ("sorted clusters", 3, 0.5),
        ("sorted", 16, 1.15),
        ("cap", 16, 1.8),
        ("sphere", 8, 2.1),
    ],
)
def test_about_one_read_proves_it(kind: str, features: int, most: float) -> None:
    """To 1e-9, of 40,000 rows, of which the centre moves more than of millions; and what is claimed is true."""
    rows = rows_like(kind, 40_000, features)
    problem = EnclosingBall(ArraySource(rows, None, chunk_rows=200), 1e-9, sample_bytes=rows.nbytes // 25)
    states, reads = states_of(problem)
    last = states[-1]
    assert last.status == "certified"
    assert reads <= most
    assert np.linalg.norm(rows.astype(np.float64) - last.best, axis=1).max() <= last.upper
    best = solve_rows(rows).radius
    for state in states:
        assert state.lower <= best * (1 + 1e-9)
        assert state.upper >= best * (1 - 1e-9)


@pytest.mark.parametrize("room", [50, 400])
def test_little_memory_takes_more_reads_and_proves_the_same(room: int) -> None:
    """Rows that leave the working set raise the bounds of their chunks."""
    rows = rows_like("normal", 20_000, 10)
    problem = EnclosingBall(
        ArraySource(rows, None, chunk_rows=100), 1e-9, sample_bytes=40_000, working_set_bytes=room * 40
    )
    states, _ = states_of(problem)
    assert states[-1].status == "certified"
    assert max(len(state.working_set) for state in states) <= max(room, problem.working_set_rows) + 1
    assert np.linalg.norm(rows.astype(np.float64) - states[-1].best, axis=1).max() <= states[-1].upper


def test_one_class_of_a_labelled_source() -> None:
    """Only its rows count, in the mean, the sample and the scans."""
    rows = rows_like("normal", 5000, 4)
    labels = np.where(np.arange(5000) % 5 == 0, "a", "b")
    rows[labels == "b"] += 100
    problem = EnclosingBall(ArraySource(rows, labels, chunk_rows=50), 1e-9, only="a", sample_bytes=2000)
    states, _ = states_of(problem)
    assert states[-1].lower == pytest.approx(solve_rows(rows[labels == "a"]).radius, rel=1e-9)


def test_summaries_merge_in_any_grouping() -> None:
    """To the bit, and the empty one is the identity."""
    rows = rows_like("normal", 1000, 4)
    problem = EnclosingBall(ArraySource(rows, None, chunk_rows=100), 1e-9, sample_bytes=2000)
    state = states_of(problem)[0][2]
    probe = problem.probe(replace(state, stage=0, stages=0))
    parts = [probe.narrow(block)(problem.source, block) for block in plan_blocks(problem.source, 1)]
    left = probe.empty()
    for part in parts:
        left = left.merge(part)
    right = probe.empty()
    for part in reversed(parts):
        right = part.merge(right)
    for one, other in zip(left.to_arrays().values(), right.to_arrays().values(), strict=True):
        assert np.array_equal(one, other)


def least_without(rows: np.ndarray, k: int) -> float:
    """The smallest radius without k rows, by brute force."""
    every = itertools.combinations(range(len(rows)), k)
    return min(proven(some := np.delete(rows, list(chosen), axis=0), smallest_ball(some))[1] for chosen in every)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_rows_are_better_to_leave_out(seed: int) -> None:
    """Tiny cases, with rows that are there twice: the search and a job find what brute force finds."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((int(rng.integers(6, 13)), int(rng.integers(1, 4))))
    rows = np.round(2 * rows) if seed % 4 == 0 else rows
    k = int(rng.integers(1, 4))
    best = least_without(rows, k)
    *_, found = search_trimmed(rows, k, 1e-9, rows.mean(axis=0))
    assert found.complete
    assert found.reached == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert (1 - 1e-9) * found.reached <= found.bound <= best
    source = ArraySource(rows, None, chunk_rows=2)
    last = states_of(BallWithOutliers(source, 1e-9, outliers=k, sample_bytes=40))[0][-1]
    assert last.status == "certified"
    assert last.upper == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_a_search_that_gives_up_has_a_bound() -> None:
    """Of certificates without a common row."""
    rows = np.random.default_rng(0).standard_normal((200, 4))
    *_, found = search_trimmed(rows, 5, 1e-9, rows.mean(axis=0), most_nodes=1)
    assert not found.complete
    assert found.proof is not None
    *_, last = search_trimmed(rows, 5, 1e-9, rows.mean(axis=0))
    assert 0 < found.bound < last.reached


def test_a_search_proves_better_bounds_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a quick search it is made for wider gaps first; where it goes does not change what it finds."""
    rows = np.random.default_rng(0).standard_normal((300, 8))
    *_, quick = search_trimmed(rows, 6, 1e-6, rows.mean(axis=0))
    monkeypatch.setattr(row_search, "QUICK", 10)
    monkeypatch.setattr(row_search, "STEP", 20)
    balls = list(search_trimmed(rows, 6, 1e-6, rows.mean(axis=0)))
    lower = [ball.bound for ball in balls]
    assert lower == sorted(lower)
    assert len(set(lower)) >= 4
    assert [ball.complete for ball in balls] == [False] * (len(balls) - 1) + [True]
    assert quick.complete
    for ball in balls:
        assert ball.bound <= quick.reached <= ball.reached * (1 + 1e-12)
    assert balls[-1].reached == pytest.approx(quick.reached, rel=1e-6)


def test_a_search_that_is_resumed_ends_with_the_same_ball(monkeypatch: pytest.MonkeyPatch) -> None:
    """From any of its states; the bounds only become better, and a forecast is made."""
    monkeypatch.setattr(row_search, "QUICK", 10)
    monkeypatch.setattr(row_search, "STEP", 20)
    rows = rows_like("normal", 500, 8)
    problem = BallWithOutliers(ArraySource(rows, None, chunk_rows=50), 1e-6, outliers=5, sample_bytes=8000)
    states = states_of(problem, 1000)[0]
    last, searching = states[-1], [state for state in states if len(state.trace)]
    assert len(searching) > 10
    assert any("gap_later" in problem.round_of(state).figures for state in searching)
    assert all(a.lower <= b.lower and a.upper >= b.upper for a, b in itertools.pairwise(searching))
    for state in [state for state in searching if state.round == last.round][:-1:2]:
        *_, resumed = problem.work(problem.restore(state.to_arrays()), None)
        ours, theirs = last.to_arrays(), resumed.to_arrays()
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours if name not in ("trace", "moves"))


@pytest.mark.parametrize("planted", [0, 12])
def test_outliers_take_about_as_many_reads(planted: int) -> None:
    """And those that were planted are found."""
    rows = rows_like("normal", 40_000, 10)
    rows[:planted] *= 5
    problem = BallWithOutliers(
        ArraySource(rows, None, chunk_rows=200), 1e-3, outliers=max(planted, 3), sample_bytes=rows.nbytes // 25
    )
    states, reads = states_of(problem)
    last = states[-1]
    assert last.status == "certified"
    assert reads <= 2.1
    outside = problem.outlier_ids(last)
    assert len(outside) <= max(planted, 3)
    assert not planted or outside.tolist() == list(range(planted))
    distances = np.linalg.norm(np.delete(rows, outside, axis=0).astype(np.float64) - last.best, axis=1)
    assert distances.max() <= last.upper


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "features", "most"),
    [
        ("normal", 20, 1.15),
        ("normal", 64, 1.15),
        ("normal", 100, 1.15),
        ("cube", 64, 1.15),
        ("heavy", 64, 1.15),
        ("clusters", 64, 1.15),
        ("scales", 64, 1.15),
        ("sorted", 64, 1.15),
        ("cap", 64, 1.3),
        ("sorted clusters", 3, 0.3),
    ],
)
def test_a_million_rows(kind: str, features: int, most: float) -> None:
    """The reads that the tables of the design promise."""
    rows = rows_like(kind, 1_000_000, features)
    problem = EnclosingBall(ArraySource(rows, None, chunk_rows=2500), 1e-9, working_set_bytes=1 << 30)
    states, reads = states_of(problem)
    assert states[-1].status == "certified"
    assert reads <= most
