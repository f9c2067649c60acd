"""A soft margin's first read in stages: the hinge's sums against brute force, and whole jobs with both losses."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.svm import SVC
from soft_kit import assert_same_bits, scan, step, to_the_end
from stages_kit import dual_of, noisy, problem_of, value_of

from coremargin.data.arrays import ArraySource
from coremargin.engine.protocols import Block
from coremargin.problems.soft import first_read
from coremargin.problems.soft.losses import hinge
from coremargin.problems.soft.losses.loss import Objective
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.magnitudes import Magnitudes
from coremargin.problems.soft.probe import NearMarginProbe, StageProbe
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.state import FarRows
from coremargin.problems.soft.summary import StageSummary

CLASS_C = np.array([2.0, 0.5])
EDGES = np.array([0.0, 0.2, 0.5, 1.1])


def question(source: ArraySource, at: np.ndarray, keep: int = 3, cached: tuple[int, ...] = ()) -> StageProbe:
    """A stage at a hypothesis (w, b), of codes 0 (positive) and 1 (negative)."""
    plain = NearMarginProbe(
        base=at[:, None], points=np.ones(1), codes=(0, 1), class_c=CLASS_C, loss=LOSSES["hinge"], keep=keep,
        cached=np.array(cached, np.int64), curve=False, low=-3.0, high=5.0, bins=16, chunk_rows=source.chunk_rows,
        dtype=source.dtype.name, sparse=source.sparse,
    )  # fmt: skip
    return StageProbe(plain, EDGES, 3, float(EDGES[3]), np.arange(source.chunks), keep)


def answered(source: ArraySource, probe: StageProbe, together: int = 1) -> StageSummary:
    """The merged answer of blocks of so many chunks."""
    starts = range(0, source.chunks, together)
    blocks = [Block(k, tuple(range(c, min(c + together, source.chunks)))) for k, c in enumerate(starts)]
    return reduce(StageSummary.merge, (probe.narrow(block)(source, block) for block in blocks), probe.empty())


def some(rng: np.random.Generator, n: int = 240, d: int = 4, **options: Any) -> tuple[np.ndarray, Any, ArraySource]:
    """Rows, signs (0 for one in ten without label), their source in chunks of 30."""
    X = rng.standard_normal((n, d)).astype(np.float32)
    signs = rng.choice([1, -1, 0], n, p=[0.5, 0.4, 0.1])
    signs[:2] = 1, -1
    labels = np.array(["a", None, "b"], object)[1 - signs]
    rows = csr_array(X) if options.pop("sparse", False) else X
    return X.astype(np.float64), signs, ArraySource(rows, labels, classes=("a", "b"), chunk_rows=30, **options)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_a_dense_evaluation(rng: np.random.Generator, sparse: bool, weighted: bool) -> None:
    """Far rows by side and by ring, near rows as they are, whatever blocks chunks come in."""
    weights = rng.uniform(0.5, 2.0, 240) if weighted else None
    X, signs, source = some(rng, sparse=sparse, weights=weights)
    at = rng.standard_normal(5)
    found = answered(source, question(source, at, cached=(0, 1, 7)))
    c = np.where(signs > 0, *CLASS_C) * np.abs(signs) * (1.0 if weights is None else weights)
    points = np.column_stack([X, np.ones(len(X))])
    margins = signs * (points @ at)
    away = np.abs(margins - 1.0)
    far = (signs != 0) & ~np.isin(np.arange(240), [*found.row_id, 0, 1, 7])
    for chunk in range(source.chunks):
        mine = np.arange(30 * chunk, 30 * chunk + 30)
        free = mine[(signs[mine] != 0) & ~np.isin(mine, [0, 1, 7]) & (away[mine] < EDGES[-1])]
        nearest = np.sort(free[np.argsort(away[free], kind="stable")][:3])
        assert np.array_equal(found.row_id[found.row_id // 30 == chunk], nearest)
    losing = far & (margins < 1.0)
    assert found.duals.sum() == pytest.approx(c[losing].sum())
    assert found.dual_sum[0] == pytest.approx((c * losing * (signs > 0)) @ points)
    assert found.dual_sum[1] == pytest.approx(-(c * losing * (signs < 0)) @ points)
    assert found.below == np.count_nonzero(losing)
    assert found.least == pytest.approx(away[far].min(), rel=1e-9)
    assert found.total_c == pytest.approx([c[signs > 0].sum(), c[signs < 0].sum()])
    assert found.histogram.sum() == np.count_nonzero(far)
    for k in range(3):
        ring = far & (away >= EDGES[k]) & (away < EDGES[k + 1])
        weight = (c / away)[ring]
        assert found.rings[k] == pytest.approx((points[ring].T * weight) @ points[ring], rel=1e-4, abs=1e-3)
        assert found.ring_weight[k] == pytest.approx(weight.sum())
    assert (found.row_c == c[found.row_id]).all()
    three = answered(source, question(source, at, cached=(0, 1, 7)), together=3)
    assert np.array_equal(three.row_id, found.row_id)
    assert three.dual_sum == pytest.approx(found.dual_sum)


def test_rows_in_memory_answer_as_chunks_do(rng: np.random.Generator) -> None:
    """The first stage is summed up in memory, with the same bits as by a scan of its chunks."""
    weights = rng.uniform(0.5, 2.0, 240)
    X, signs, source = some(rng, weights=weights)
    probe = question(source, rng.standard_normal(5))
    chunks = (1, 4, 6)
    ids = np.array([row for chunk in chunks for row in range(30 * chunk, 30 * chunk + 30) if signs[row]])
    c = np.where(signs > 0, *CLASS_C) * weights
    every = RowsWithC(ids, X[ids].astype(np.float32), signs[ids].astype(np.int8), c[ids])
    memory, block = probe.in_memory(source, chunks, every).to_arrays(), Block(0, chunks)
    scanned = probe.narrow(block)(source, block).to_arrays()
    assert memory.keys() == scanned.keys()
    assert all(memory[name].tobytes() == scanned[name].tobytes() for name in memory)
    again = StageSummary.from_arrays(memory).to_arrays()
    assert all(memory[name].tobytes() == again[name].tobytes() for name in memory)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 0.6), st.integers(0, 40))
def test_no_move_costs_more_than_its_bound(seed: int, size: float, keep: int) -> None:
    """What crossing rows add to their lines is never above the bound; nothing, where no row can have crossed."""
    rng = np.random.default_rng(seed)
    X, signs, source = some(rng)
    at = rng.standard_normal(5)
    found = answered(source, question(source, at, keep))
    far_rows = FarRows.empty(2, 4, 4, 3, 16).record(1, at, EDGES, found)
    objective = Objective(LOSSES["hinge"], CLASS_C, True, 1e-3, Magnitudes(source))
    move = rng.standard_normal(5)
    move *= size / np.linalg.norm(move)
    points = np.column_stack([X, np.ones(len(X))])
    far = (signs != 0) & ~np.isin(np.arange(240), found.row_id)
    c = np.where(signs > 0, *CLASS_C) * far
    before, after = signs * (points @ at), signs * (points @ (at + move))
    most = float(np.abs(points[far] @ move).max(initial=0.0)) * (1 + 1e-9)
    lines = c[before < 1] @ (1.0 - after[before < 1])
    true = c @ np.maximum(1.0 - after, 0.0) - lines
    bound = hinge.crossing_losses(far_rows, objective, at + move, np.array([0.0, most]))
    assert bound[0] == 0.0
    assert true <= bound[1] * (1 + 1e-9) + 1e-12
    assert lines <= hinge.far_losses(far_rows, objective, at + move) <= lines + 1e-9 * (1 + c.sum())
    if most < min(EDGES[-1], np.abs(before[far] - 1).min(initial=np.inf) * 0.999):
        assert bound[1] == 0.0
    beyond = hinge.crossing_losses(far_rows, objective, at + move, np.array([0.0, 2.0]))[1]
    assert 0.9 - 1e-9 <= beyond / found.total_c.sum() <= 2.0 + 1e-9  # rows beyond the edges may be there
    forgotten = far_rows.cleared(np.array([False, True]))
    assert hinge.crossing_losses(forgotten, objective, at + move, np.array([0.0, most]))[1] == 0.0


def test_a_row_at_the_margin_leaves_the_bound_open(rng: np.random.Generator) -> None:
    """Of a row at the margin but for rounding nobody knows how far it was away: all may have crossed."""
    X, _, source = some(rng)
    at = np.append(rng.standard_normal(4), 0.0)
    at[4] = 1.0 - X[0] @ at[:4]  # row 0 is positive
    found = answered(source, question(source, at, keep=0))
    assert found.least < 1e-9
    far_rows = FarRows.empty(1, 4, 4, 3, 16).record(0, at, EDGES, found)
    objective = Objective(LOSSES["hinge"], CLASS_C, True, 1e-3, Magnitudes(source))
    assert hinge.crossing_losses(far_rows, objective, at + 1e-3, np.array([0.01])) == pytest.approx(
        0.01 * found.total_c.sum()
    )
    assert hinge.crossing_losses(far_rows, objective, at, np.array([0.0])) == [0.0]


# whole jobs


@pytest.mark.specimens(10)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("class_weight", [None, "balanced", (0.2, 5.0)])
@pytest.mark.parametrize("order", ["mixed", "sorted by label"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_one_read_proves_noisy_rows(loss: str, order: str, class_weight: Any, intercept: bool, weighted: bool) -> None:
    """Every chunk is scanned once, few twice where the first stage is another mix; both bounds are what NumPy finds."""
    X, y = noisy(1, 12_000, 10)
    if order != "mixed":
        X, y = X[np.argsort(y, kind="stable")], np.sort(y)
    weights = np.random.default_rng(2).choice([0.0, 0.5, 1.0, 3.0], len(y)) if weighted else None
    given: dict[str, Any] = {"class_weight": class_weight, "intercept": intercept, "cost": 0.1, "epsilon": 2e-3}
    problem = problem_of(X, y, weights=weights, loss=LOSSES[loss], **given)
    state, read = problem.start(), np.zeros(problem.source.chunks, int)
    while not problem.done(state):
        read += ~problem.skip(state)
        state = step(problem, state)
    assert (read >= 1).all()
    assert read.mean() <= (1.0 if order == "mixed" else 1.3)
    assert (state.status, state.stages) == ("certified", problem.stages.count)
    most = 1e-6 if loss == "hinge" else 2e-3  # how much more than it claims its point may prove
    assert state.lower <= dual_of(problem, X, y, state, weights) <= state.lower * (1 + most)
    assert state.best is not None
    assert value_of(problem, X, y, state.best, weights) <= state.upper
    counted = np.abs(y) if weights is None else np.sign(weights)
    assert problem.round_of(state).rows_below is not None
    assert state.histogram.sum() == counted.sum()


@pytest.mark.parametrize("intercept", [True, False])
def test_libsvm_finds_no_value_out_of_the_bounds(intercept: bool) -> None:
    """What libsvm finds, with an intercept, is not below the lower bound; sparse rows are as good as dense ones."""
    X, y = noisy(3, 3000, 5)
    problem = problem_of(X, y, cost=0.05, intercept=intercept)
    state = to_the_end(problem, problem.start())
    sparse = problem_of(csr_array(X), y, cost=0.05, intercept=intercept, duals_fit=False, memory_bytes=70_000)
    other = to_the_end(sparse, sparse.start())
    for found in (state, other):
        assert found.status == "certified"
        assert value_of(problem, X, y, found.best, None) <= found.upper
    assert max(state.lower, other.lower) <= min(state.upper, other.upper)
    if intercept:
        machine = SVC(C=0.05, kernel="linear", tol=1e-6).fit(X.astype(np.float64), y)
        minimum = value_of(problem, X, y, np.append(machine.coef_[0], machine.intercept_[0]))
        assert state.lower <= minimum * (1 + 1e-9)
        assert minimum <= state.upper * (1 + 1e-6)


@pytest.mark.parametrize("safety", [0.0, 0.3, 1e3])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-7])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_wrong_forecasts_cost_reads_and_no_proof(
    loss: str, safety: float, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too short or too long a move expected: what is open is read again, and both bounds stay true."""
    monkeypatch.setattr(first_read, "SAFETY", safety)
    monkeypatch.setattr(first_read, "LEAST", min(safety, 0.25))
    X, y = noisy(4, 6000, 6)
    problem = problem_of(X, y, epsilon=epsilon, near_bytes=None, memory_bytes=300_000, loss=LOSSES[loss])
    state, read = problem.start(), 0
    while not problem.done(state):
        assert state.round < 40
        read += int((~problem.skip(state)).sum())
        state = step(problem, state)
        if np.isfinite(state.upper):
            assert state.lower <= dual_of(problem, X, y, state)
            assert value_of(problem, X, y, state.best) <= state.upper  # type: ignore[arg-type]
    assert state.status == "certified"
    assert problem.source.chunks <= read
    assert safety != 0.0 or read > problem.source.chunks


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([1e-2, 1e-5]), st.sampled_from([0.01, 1.0, 100.0]),
    st.sampled_from(["hinge", "squared_hinge"]),
)  # fmt: skip
def test_a_chunk_unlike_all_others_is_not_passed_over(
    seed: int, last: bool, epsilon: float, cost: float, loss: str
) -> None:
    """Rows that contradict all others lie where they are read last, or first: no claim is false."""
    rng = np.random.default_rng(seed)
    X, y = noisy(seed, 600, 3, 0.05)
    given: dict[str, Any] = {"memory_bytes": 60_000, "sample_bytes": 2000, "loss": LOSSES[loss]}
    problem = problem_of(X, y, 20, epsilon=epsilon, cost=cost, **given)
    stage = problem.stages.count - 1 if last else 0
    chunk = int(rng.choice(problem.stages.chunks(stage)))
    X[20 * chunk : 20 * chunk + 20] *= rng.choice([0.0, -1.0, 30.0])
    y[20 * chunk : 20 * chunk + 20] *= -1
    y[:2] = 1, -1
    problem = problem_of(X, y, 20, epsilon=epsilon, cost=cost, **given)
    state = problem.start()
    while not problem.done(state) and state.round < 30:
        state = step(problem, state)
        if np.isfinite(state.upper):
            assert state.lower <= dual_of(problem, X, y, state) + 1e-12
            assert value_of(problem, X, y, state.best) <= state.upper  # type: ignore[arg-type]
    assert state.status == "certified"


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_order_and_checkpoints_change_no_bit(loss: str) -> None:
    """Blocks that come in another order, and states that were written down, lead to the same bits."""
    X, y = noisy(5, 4000, 5)
    problem = problem_of(X, y, loss=LOSSES[loss])
    state = other = problem.start()
    while not problem.done(state):
        probe, answers = problem.probe(other), []
        for chunk in reversed(np.flatnonzero(~problem.skip(other)).tolist()):
            block = Block(chunk, (chunk,))
            answers.append(probe.from_arrays(probe.narrow(block)(problem.source, block).to_arrays()))
        merged = reduce(lambda one, two: one.merge(two), reversed(answers), probe.empty())
        blocks = [Block(c, (c,)) for c in np.flatnonzero(~problem.skip(state)).tolist()]
        state = problem.update(state, scan(problem, state, blocks))
        other = problem.restore(problem.update(other, merged).to_arrays())
        assert_same_bits(state, other)
    assert state.status == "certified"


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_first_stage_without_rows_of_a_class(loss: str, sign: int) -> None:
    """Where its rows of one class, or all of them, weigh nothing, later stages tell what it cannot."""
    X, y = noisy(6, 3000, 4)
    problem = problem_of(X, y, sample_bytes=2000, loss=LOSSES[loss])
    weights = np.ones(len(y))
    for chunk in problem.stages.chunks(0):
        rows = slice(100 * chunk, 100 * chunk + 100)
        weights[rows] = np.where((y[rows] == sign) | (sign == 0), 0.0, 1.0)
    problem = problem_of(X, y, weights=weights, sample_bytes=2000, loss=LOSSES[loss])
    state = to_the_end(problem, problem.start())
    assert state.status == "certified"
    assert state.lower <= dual_of(problem, X, y, state, weights)
    assert value_of(problem, X, y, state.best, weights) <= state.upper  # type: ignore[arg-type]


def test_rows_that_cannot_balance_the_far_ones_are_not_all_that_is_solved() -> None:
    """Where no row is expected to move, the other near rows are solved after all; otherwise there is no dual bound."""
    X, y = noisy(3, 6000, 5)
    problem = problem_of(X, y, sample_bytes=1 << 14)
    state = to_the_end(problem, problem.start())
    assert state.reading is not None
    still = replace(state.reading, spread=0.0)
    at, duals = problem._first_read.minimise(still, state.newest, state.rows.sample, last=True)
    assert len(duals) == len(still.near)
    assert np.abs(at - state.newest).max() < 1e-2
