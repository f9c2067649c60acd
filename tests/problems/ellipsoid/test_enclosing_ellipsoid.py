"""The solver, the bounds, the span and the reads of the ellipsoid of least volume, on arrays."""

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
from coremargin.errors import BadRow, UsageError
from coremargin.maths.enclosing_ellipsoid import (
    Ellipsoid,
    frame_of,
    is_certified,
    largest_levels,
    least_ellipsoid,
    lower_bound,
    safe_level,
    take_columns,
    volume_radius,
    weighted_ellipsoid,
)
from coremargin.problems.ellipsoid.enclosing_ellipsoid import EllipsoidState, EnclosingEllipsoid, solver_bytes


def solve(rows: Any, tolerance: float = 1e-10) -> tuple[float, float, np.ndarray]:
    """Both volume radii that a solution proves, and its weights."""
    x = rows.toarray() if sp.issparse(rows) else np.asarray(rows, np.float64)
    frame = frame_of(rows, rows.dtype)
    z = frame.coordinates(x)
    weights = least_ellipsoid(z, tolerance)
    used = np.flatnonzero(weights)
    one = weighted_ellipsoid(z[used], weights[used])
    lower = lower_bound(take_columns(rows[used], frame.columns), weights[used], one.of_frame(frame))
    return lower, volume_radius(one, frame, float(one.levels(z).max())), weights


def khachiyan(rows: np.ndarray, steps: int) -> tuple[float, float]:
    """Bounds of the least volume radius by Khachiyan's steps with those away from rows (Todd, Yildirim), elementary."""
    n, d = rows.shape
    lifted = np.hstack([rows, np.ones((n, 1))])
    u = np.full(n, 1.0 / n)
    for _ in range(steps):
        w = np.einsum("ij,jk,ik->i", lifted, np.linalg.inv((lifted * u[:, None]).T @ lifted), lifted)
        most, least = int(w.argmax()), int(np.where(u > 0, w, np.inf).argmin())
        k = most if w[most] - (d + 1) >= (d + 1) - w[least] else least
        step = (w[k] - (d + 1)) / ((d + 1) * (w[k] - 1))
        step = max(step, -u[k] / (1 - u[k]))
        u *= 1 - step
        u[k] = max(0.0, u[k] + step)
    off = rows - u @ rows
    covariance = (off * u[:, None]).T @ off
    level = np.einsum("ij,jk,ik->i", off, np.linalg.inv(covariance), off).max()
    scale = np.exp(np.linalg.slogdet(covariance)[1] / (2 * d))
    return float(np.sqrt(d) * scale), float(np.sqrt(level) * scale)


def test_closed_forms() -> None:
    """Two numbers, a simplex, the corners of a cube, the axes, a sphere, and each of them after a linear map."""
    d = 5
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=d)))
    simplex = np.vstack([np.zeros(d), np.eye(d)])
    covariance = np.cov(simplex.T, bias=True)
    gauss = np.random.default_rng(0).standard_normal((400, d))
    cases = [
        (np.array([[2.0], [7.0], [3.0]]), 2.5),
        (corners, np.sqrt(d)),
        (np.vstack([np.eye(d), -np.eye(d)]), 1.0),
        (simplex, np.sqrt(d) * np.linalg.det(covariance) ** (0.5 / d)),
        (np.vstack([gauss, -gauss]) / np.linalg.norm(np.vstack([gauss, gauss]), axis=1)[:, None], 1.0),
    ]
    rng = np.random.default_rng(1)
    for rows, radius in cases:
        turned = rng.standard_normal((rows.shape[1], rows.shape[1]))
        stretch = abs(np.linalg.det(turned)) ** (1 / rows.shape[1])
        for one, known in ((rows, radius), (rows @ turned + 100.0, radius * stretch)):
            lower, upper, weights = solve(one)
            assert lower <= known * (1 + 1e-11)
            assert upper >= known * (1 - 1e-11)
            assert upper <= lower * (1 + 1e-8)
            assert abs(weights.sum() - 1) < 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_khachiyan_and_a_general_solver_agree(seed: int) -> None:
    """Many elementary steps, and SLSQP on -log det F with ||F x - b|| <= 1, to their accuracy."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(12, 60)), int(rng.integers(2, 4))
    rows = rng.standard_normal((n, d)) * rng.uniform(0.5, 3, d)
    lower, upper, _ = solve(rows)
    least, most = khachiyan(rows, 4000)
    assert least <= upper * (1 + 1e-12)
    assert lower <= most * (1 + 1e-12)
    assert most == pytest.approx(upper, rel=1e-4)

    def triangle(at: np.ndarray) -> np.ndarray:
        made = np.zeros((d, d))
        made[np.tril_indices(d)] = at[: d * (d + 1) // 2]
        return made

    def inside(at: np.ndarray) -> np.ndarray:
        return 1.0 - ((rows @ triangle(at).T - at[-d:]) ** 2).sum(axis=1)

    start = np.concatenate([np.eye(d)[np.tril_indices(d)] * 0.05, np.zeros(d)])
    found = minimize(
        lambda at: -np.log(np.abs(np.diag(triangle(at)))).sum(),
        start,
        constraints=[{"type": "ineq", "fun": inside}],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert np.exp(found.fun / d) == pytest.approx(upper, rel=1e-5)


@pytest.mark.parametrize("kind", ["many", "sparse", "float32", "far", "repeated"])
def test_rows_of_any_form_are_solved(kind: str) -> None:
    """Many rows by a working set, sparse ones, far from the origin, each several times; the bounds meet."""
    rng = np.random.default_rng(1)
    rows: Any = {
        "many": lambda: rng.standard_normal((9000, 6)),
        "sparse": lambda: sp.csr_array(sp.random_array((500, 7), density=0.4, rng=rng)),
        "float32": lambda: (rng.standard_normal((3000, 8)) * np.logspace(-3, 3, 8)).astype(np.float32),
        "far": lambda: rng.standard_normal((300, 4)) + 1e6,
        "repeated": lambda: np.repeat(rng.standard_normal((30, 3)), 20, axis=0),
    }[kind]()
    lower, upper, weights = solve(rows)
    d = rows.shape[1]
    assert lower <= upper <= lower * (1 + 1e-8)
    assert np.count_nonzero(weights) <= d * (d + 3) // 2 * (20 if kind == "repeated" else 2)


@pytest.mark.parametrize("kind", ["normal", "heavy", "on a sphere", "signs", "repeated"])
def test_an_earlier_solution_leads_to_the_same(kind: str) -> None:
    """Of more rows than a working set holds; whether steps begin at the solution of half of them or at none."""
    rng = np.random.default_rng(11)
    rows = rng.standard_t(1.5, (2500, 12)) if kind == "heavy" else rng.standard_normal((2500, 12))
    if kind == "on a sphere":
        rows /= np.linalg.norm(rows, axis=1)[:, None]
    elif kind == "signs":
        rows = np.sign(rows)
    elif kind == "repeated":
        rows = np.repeat(rows[::10], 10, axis=0)
    z = frame_of(rows, rows.dtype).coordinates(rows)
    start = np.zeros(len(z))
    start[::2] = least_ellipsoid(z[::2], 1e-5)
    found = [least_ellipsoid(z, 1e-9, begin) for begin in (None, start)]
    first, second = (weighted_ellipsoid(z[weights > 0], weights[weights > 0]) for weights in found)
    for one in (first, second):
        assert one.levels(z).max() ** 2 <= 12 * (1 + 1e-8)
    assert first.volume_radius == pytest.approx(second.volume_radius, rel=1e-9)


def test_weights_and_metrics_that_prove_little_prove_nothing_false() -> None:
    """Any weights, by any ellipsoid, give a bound below the least; weights in a flat give 0."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((60, 3))
    lower, _, weights = solve(rows)
    own = weighted_ellipsoid(rows[weights > 0], weights[weights > 0])
    other = Ellipsoid(own.centre + 0.3, np.tril(own.factor * 3 + rng.random((3, 3))))
    assert lower_bound(rows[weights > 0], weights[weights > 0], other) == pytest.approx(lower, rel=1e-9)
    for _ in range(20):
        some = rng.random(60) ** 8
        assert lower_bound(rows, some, own) <= lower * (1 + 1e-12)
    assert lower_bound(rows[:3], np.ones(3), own) == 0.0


def test_levels_in_another_ellipsoid_are_bounded_and_reached() -> None:
    """The bound is the largest level of the points of an ellipsoid, by a dense sample of its surface."""
    rng = np.random.default_rng(4)
    y = rng.standard_normal((20_000, 3))
    y /= np.linalg.norm(y, axis=1)[:, None]
    for _ in range(4):
        inner, outer = (
            Ellipsoid(rng.standard_normal(3), np.tril(rng.standard_normal((3, 3))) + 3 * np.eye(3)) for _ in range(2)
        )
        levels = np.array([0.0, 0.3, 2.0, -np.inf, np.inf])
        bounds = largest_levels(inner, outer, levels)
        assert bounds[3:].tolist() == [-np.inf, np.inf]
        for level, bound in zip(levels[:3], bounds[:3], strict=True):
            points = np.linalg.solve(inner.factor, level * y.T).T + inner.centre
            reached = outer.levels(points).max()
            assert reached <= bound <= reached * (1 + 3e-3) + 1e-9
            assert safe_level(inner, outer, bound) == pytest.approx(level, rel=1e-9, abs=1e-5)


def test_a_safe_level_is_the_largest() -> None:
    """Its points are within the level of the other ellipsoid, some of them hardly; of any centres and any axes."""
    rng = np.random.default_rng(7)
    for case in range(60):
        r = int(rng.integers(1, 7))
        factors = (np.tril(rng.standard_normal((r, r))) + np.diag(10.0 ** rng.uniform(-3, 3, r)) for _ in range(2))
        inner, outer = (Ellipsoid(rng.standard_normal(r) * 10.0 ** rng.uniform(-3, 1), factor) for factor in factors)
        if case % 3 == 0:
            outer = Ellipsoid(inner.centre, outer.factor)
        level = 10.0 ** rng.uniform(-1, 2)
        safe = safe_level(inner, outer, level)
        if not safe:
            assert outer.levels(inner.centre[None])[0] >= level * (1 - 1e-6)
            continue
        at, beyond = largest_levels(inner, outer, np.array([safe, safe * (1 + 1e-6)]))
        assert at <= level * (1 + 1e-12)
        assert beyond > level * (1 - 1e-9)


def test_the_span_is_that_of_the_rows() -> None:
    """Constant columns, linear functions, fewer rows than columns, a single row that leaves a flat, equal rows."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((300, 3))
    flat = np.c_[x, x @ [1.0, 2.0, 0.0] + 7, np.full(300, 3.0)]
    for rows in (flat, flat.astype(np.float32), flat * [1, 1e6, 1e-5, 1, 1]):
        frame = frame_of(rows, rows.dtype)
        assert frame.rank == 3
        assert 4 not in frame.columns
        away, allowed = frame.residuals(rows.astype(np.float64))
        assert (away <= allowed).all()
    assert solve(flat)[1] <= solve(flat)[0] * (1 + 1e-8)
    bent = flat.copy()
    bent[17, 4] += 1e-3
    assert frame_of(bent, bent.dtype).rank == 4
    away, allowed = frame_of(flat, flat.dtype).residuals(bent)
    assert np.flatnonzero((away > allowed).any(axis=1)).tolist() == [17]
    assert frame_of(rng.standard_normal((4, 9)), np.dtype(np.float64)).rank == 3
    assert frame_of(np.full((5, 2), 0.1), np.dtype(np.float64)).rank == 0
    assert frame_of(x + 1e7, np.dtype(np.float64)).rank == 3
    assert frame_of((x * 0.01 + 1e7).astype(np.float32), np.dtype(np.float32)).rank == 0


def test_epsilon_is_of_the_volume() -> None:
    """(lower / upper)^r against 1 - epsilon, exactly, whatever the numbers."""
    assert is_certified(0.99, 1.0, 0.1, 10)
    assert not is_certified(0.98, 1.0, 0.1, 10)
    assert not is_certified(0.0, 1.0, 0.1, 10)
    assert not is_certified(1.0, np.inf, 0.1, 10)
    assert is_certified(1e-300, 1e-300, 1e-9, 100)


def states_of(problem: EnclosingEllipsoid, limit: int = 30) -> tuple[list[EllipsoidState], float]:
    """All states of a job and its reads, without machinery; each comes back from arrays with the same bits."""
    states, chunks = [problem.start()], 0
    while not problem.done(states[-1]):
        assert len(states) <= limit
        probe = problem.probe(states[-1])
        summary = probe.empty()
        for block in plan_blocks(problem.source, skip=problem.skip(states[-1])):
            found = probe.narrow(block)(problem.source, block)
            summary = summary.merge(probe.from_arrays(found.to_arrays()))
            chunks += len(block.chunks)
        states.append(problem.restore(problem.update(states[-1], summary).to_arrays()))
    return states, chunks / problem.source.chunks


def rows_like(kind: str, n: int, d: int) -> np.ndarray:
    """Rows in float32: normal, uniform, heavy-tailed, correlated, clustered, sorted, in a flat, or nearly."""
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((n, d))
    if kind == "cube":
        rows = rng.random((n, d))
    elif kind == "heavy":
        rows /= np.sqrt(rng.chisquare(2, n) / 2)[:, None]
    elif kind == "correlated":
        rows = rows * np.exp(np.linspace(-1.5, 1.5, d)) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    elif kind in ("clusters", "sorted clusters"):
        which = rng.integers(0, 20, n)
        rows += 10 * rng.standard_normal((20, d))[np.sort(which) if kind == "sorted clusters" else which]
    elif kind == "sorted":
        rows = rows[np.argsort(rows[:, 0])]
    elif kind == "flat":
        rows = rng.standard_normal((n, d - 2)) @ rng.standard_normal((d - 2, d))
    elif kind == "bent":
        rows[:, -1] = rows[:, 0] + rows[:, 1]
        rows[n - n // 7, -1] += 3
    elif kind == "begins equal":
        rows[: n // 2] = rows[0]
    return rows.astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "features", "most"),
    [
        ("normal", 2, 1.05),
        ("normal", 8, 1.2),
        ("cube", 8, 1.35),
        ("heavy", 8, 1.05),
        ("correlated", 8, 1.2),
        ("clusters", 8, 1.8),
        ("sorted clusters", 3, 0.6),
        ("sorted", 8, 1.2),
        ("flat", 6, 1.2),
        ("bent", 4, 2.1),
        ("begins equal", 3, 2.1),
    ],
)
def test_about_one_read_proves_it(kind: str, features: int, most: float) -> None:
    """To 1e-6 of the volume, of 12,000 rows, of which the ellipsoid moves more than of millions; bounds are true."""
    rows = rows_like(kind, 12_000, features)
    source = ArraySource(rows, None, chunk_rows=60)
    states, reads = states_of(EnclosingEllipsoid(source, 1e-6, sample_bytes=rows.nbytes // 25))
    last = states[-1]
    assert last.status == "certified"
    assert reads <= most
    assert last.frame.rank == (features - 2 if kind == "flat" else features)
    x = rows.astype(np.float64)
    reached = last.best.levels(last.frame.coordinates(x)).max()
    assert volume_radius(last.best, last.frame, float(reached)) <= last.upper
    assert (last.frame.residuals(x)[0] <= np.maximum(last.residual, 0) * (1 + 1e-12)).all()
    for state in states:
        if state.frame.rank == last.frame.rank:
            assert state.lower <= last.upper
            assert state.upper >= last.lower


@pytest.mark.parametrize("room", [50, 400])
def test_little_memory_takes_more_reads_and_proves_the_same(room: int) -> None:
    """Rows that leave the working set raise the bounds of their chunks."""
    rows = rows_like("normal", 10_000, 5)
    source = ArraySource(rows, None, chunk_rows=100)
    problem = EnclosingEllipsoid(source, 1e-6, sample_bytes=20_000, working_set_bytes=solver_bytes(5) + room * 60)
    small = replace(problem, working_set_bytes=solver_bytes(5))
    object.__setattr__(small, "working_set_bytes", room * 60)  # too little for a check, not for a working set
    states, _ = states_of(small)
    assert states[-1].status == "certified"
    reached = states[-1].best.levels(states[-1].frame.coordinates(rows.astype(np.float64))).max()
    assert volume_radius(states[-1].best, states[-1].frame, float(reached)) <= states[-1].upper


@pytest.mark.parametrize(("far", "columns"), [(1e6, slice(None)), (1e9, slice(1)), (1e12, slice(1))])
def test_a_row_very_far_from_the_sample_has_a_frame_of_its_own(far: float, columns: slice) -> None:
    """In that of the sample, float64 would have no digits left for the other rows; columns of unlike scales."""
    x = np.random.default_rng(5).standard_normal((4000, 4)) * [1, 1e-6, 1e4, 1]
    x[777, columns] *= far
    states, reads = states_of(EnclosingEllipsoid(ArraySource(x, chunk_rows=50), 1e-6, sample_bytes=4000))
    lower, upper, _ = solve(x)
    assert (states[-1].status, states[-1].frame.rank) == ("certified", 4)
    assert reads <= 2.1
    assert states[-1].lower <= upper * (1 + 1e-12)
    assert lower <= states[-1].upper * (1 + 1e-12)


def test_one_class_of_a_labelled_source() -> None:
    """Only its rows count, in the frame, the sample and the scans."""
    rows = rows_like("normal", 5000, 3)
    labels = np.where(np.arange(5000) % 5 == 0, "a", "b")
    rows[labels == "b"] *= 100
    problem = EnclosingEllipsoid(ArraySource(rows, labels, chunk_rows=50), 1e-6, only="a", sample_bytes=2000)
    states, _ = states_of(problem)
    assert states[-1].upper == pytest.approx(solve(rows[labels == "a"])[1], rel=1e-6)


def test_summaries_merge_in_any_grouping() -> None:
    """To the bit, and the empty one is the identity."""
    rows = rows_like("flat", 1000, 5)
    problem = EnclosingEllipsoid(ArraySource(rows, None, chunk_rows=100), 1e-6, sample_bytes=2000)
    probe = problem.probe(states_of(problem)[0][2])
    parts = [probe.narrow(block)(problem.source, block) for block in plan_blocks(problem.source, 1)]
    left, right = probe.empty(), probe.empty()
    for part in parts:
        left = left.merge(part)
    for part in reversed(parts):
        right = part.merge(right)
    for one, other in zip(left.to_arrays().values(), right.to_arrays().values(), strict=True):
        assert np.array_equal(one, other)


def test_what_has_no_ellipsoid_is_refused() -> None:
    """Equal rows, in stages too; more features than there is memory for, which is named before a row is read."""
    rows = np.full((500, 3), 0.1, np.float32)
    for sample in (200, 10**6):
        with pytest.raises(BadRow, match="all rows are equal.*choose one_class ball"):
            states_of(EnclosingEllipsoid(ArraySource(rows, None, chunk_rows=10), 1e-6, sample_bytes=sample))
    wide = EnclosingEllipsoid(
        ArraySource(np.zeros((10, 784), np.float32), None, chunk_rows=10), 1e-6, working_set_bytes=10**8
    )
    with pytest.raises(UsageError, match=r"expected at most 1\d\d features .* found 784"):
        wide.check()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "features", "most"),
    [
        ("normal", 5, 1.1),
        ("normal", 20, 1.1),
        ("cube", 20, 1.25),
        ("correlated", 20, 1.1),
        ("heavy", 10, 1.05),
        ("clusters", 20, 1.75),
    ],
)
def test_a_million_rows(kind: str, features: int, most: float) -> None:
    """The reads that the tables of the design promise."""
    rows = rows_like(kind, 1_000_000, features)
    states, reads = states_of(
        EnclosingEllipsoid(ArraySource(rows, None, chunk_rows=2500), 1e-6, working_set_bytes=1 << 30)
    )
    assert states[-1].status == "certified"
    assert reads <= most
