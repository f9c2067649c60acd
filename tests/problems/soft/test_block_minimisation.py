"""Block minimisation: soft margins of more rows than fit into memory, with many features."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soft_kit
from scipy.sparse import vstack
from sklearn.svm import LinearSVC
from soft_kit import assert_same_bits
from wide_kit import assert_true, texts

from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.errors import UsageError
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import row_sizes
from coremargin.problems.common.sample import read_sample
from coremargin.problems.soft.block_minimisation import BlockMinimisation, BlockProbe, ProofProbe, balanced, thinned
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.make import by_memory
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.problems.soft.probe import NearMarginProbe
from coremargin.problems.soft.rows_with_c import RowsWithC

if TYPE_CHECKING:
    from coremargin.problems.soft.losses.loss import Loss
    from coremargin.problems.soft.state import SoftState
    from coremargin.problems.soft.summary import NearMarginSummary

#: Memory for a fraction of the rows: partitions of two or three chunks.
SMALL: dict[str, Any] = {"memory_bytes": 40_000, "sample_bytes": 10_000, "sample_share": 0.1}


def make(X: Any, y: np.ndarray, weights: np.ndarray | None = None, **options: Any) -> BlockMinimisation:
    """A problem in chunks of fifty rows."""
    given = {"epsilon": 1e-3, "loss": "hinge", "cost": 1.0} | SMALL | options
    given["loss"] = LOSSES[given["loss"]]
    problem = BlockMinimisation(ArraySource(X, y, weights=weights, chunk_rows=50), **given)
    assert len(problem.segments) > 2
    return problem


def scan(problem: SoftMargin | BlockMinimisation, state: SoftState, grouped: int = 1) -> NearMarginSummary:
    """The merged answer of the blocks that are not skipped."""
    size = grouped * problem.source.nbytes // 12
    return soft_kit.scan(problem, state, plan_blocks(problem.source, size, skip=problem.skip(state)))


def solve(problem: SoftMargin | BlockMinimisation, limit: int = 400) -> SoftState:
    """A whole job."""
    state = problem.start()
    while not problem.done(state):
        assert state.round < limit, f"no end: {state.lower} .. {state.upper}"
        state = problem.update(state, scan(problem, state))
    return state


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_it_is_proven_and_agrees_with_other_solvers(loss: str, intercept: bool) -> None:
    """Certified, true by plain float64, no worse than the solve on all rows, nor than LIBLINEAR (no intercept)."""
    X, y = texts(2)
    problem = make(X, y, loss=loss, intercept=intercept, cost=0.3)
    state = solve(problem)
    assert state.status == "certified"
    assert_true(X, y, np.full(len(y), 0.3), problem, state)
    whole = SoftMargin(ArraySource(X, y), 1e-7, LOSSES[loss], 0.3, intercept=intercept)  # type: ignore[arg-type]
    best = solve(whole)
    assert best.status == "certified"
    assert state.lower <= best.upper * (1 + 1e-12)
    assert best.lower <= state.upper * (1 + 1e-12)
    assert state.upper <= best.upper * (1 + 1e-3)
    if not intercept:
        other = LinearSVC(loss=loss, C=0.3, fit_intercept=False, tol=1e-8, max_iter=100_000, random_state=0).fit(
            X.toarray(), y
        )
        xi = np.maximum(0, 1 - y * (X.astype(np.float64) @ other.coef_[0]))
        theirs = 0.5 * other.coef_[0] @ other.coef_[0] + 0.3 * (xi if loss == "hinge" else xi**2).sum()
        assert state.lower <= theirs * (1 + 1e-12)
        assert state.upper <= theirs * (1 + 1e-3)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_every_partition_raises_the_dual(loss: str) -> None:
    """Duals stay within their limits and balanced, their sums are up to date, and no step lowers their value."""
    X, y = texts(5)
    weights = np.random.default_rng(5).choice([0.0, 0.5, 3.0], len(y))
    problem = make(X, y, weights, loss=loss, class_weight="balanced")
    row_c = np.where(y > 0, problem.class_c[0], problem.class_c[1]) * weights
    state, values = problem.start(), [0.0]
    for _ in range(3 * len(problem.segments)):
        block_pass = state.block_pass
        assert block_pass is not None
        a = block_pass.duals * np.where(y > 0, 1, -1)
        assert (a >= 0).all()
        assert (a[weights == 0] == 0).all()
        if loss == "hinge":
            assert (a <= row_c).all()
        assert abs(block_pass.duals.sum()) <= 0.05 * a.sum()  # solves need not be sharp while much is gained
        assert block_pass.dual_sum[:-1] == pytest.approx(X.astype(np.float64).T @ block_pass.duals, abs=1e-9)
        cached = row_c > 0
        spread = (a[cached] ** 2 / (4 * row_c[cached])).sum() if loss == "squared_hinge" else 0.0
        assert block_pass.value == pytest.approx(
            a.sum() - spread - 0.5 * block_pass.dual_sum[:-1] @ block_pass.dual_sum[:-1]
        )
        values.append(block_pass.value)
        if problem.proving(state):
            break
        state = problem.update(state, scan(problem, state))
    assert values[-1] > 0
    assert (np.diff(values) >= -1e-3 * values[-1]).all()


def test_memory_bounds_sent_and_cached_rows() -> None:
    """What is sent and what is cached take a third of the memory each, about: rows differ in length."""
    X, y = texts(6)
    problem, state = make(X, y), make(X, y).start()
    row = X.nnz / len(y) * 12
    while not problem.done(state):
        answer = scan(problem, state)
        assert len(answer.row_id) * row <= 1.3 * 40_000 / 3 or problem.proving(state)
        assert answer.row_x.shape[0] == (0 if problem.proving(state) else len(answer.row_id))
        assert not np.isin(answer.row_id, state.rows.cached.ids).any() or problem.proving(state)
        state = problem.update(state, answer)
        assert state.rows.cached.rows.data.nbytes + state.rows.cached.rows.indices.nbytes <= 40_000 / 3


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_labels_in_order_of_class_do_no_harm(loss: str) -> None:
    """Segments of one class only: it takes longer, and ends certified all the same."""
    X, y = texts(7)
    order = np.argsort(y, kind="stable")
    problem = make(X[order], y[order], loss=loss, cost=0.3)
    state = solve(problem)
    assert state.status == "certified"
    assert_true(X[order], y[order], np.full(len(y), 0.3), problem, state)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_equal_rows_many_times_over(loss: str) -> None:
    """A few rows with both labels, repeated: all of them lie at the margin, and the dual is not unique."""
    X, y = texts(8, n=60)
    problem = make(vstack([X] * 10, format="csr"), np.tile(y, 10), loss=loss, cost=0.1)
    state = solve(problem)
    assert state.status == "certified"
    assert_true(vstack([X] * 10), np.tile(y, 10), np.full(600, 0.1), problem, state)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_state_goes_on_from_its_arrays_with_the_same_bits(loss: str) -> None:
    """A state and a summary that were written to arrays and read back lead to the same bits."""
    X, y = texts(3)
    problem = make(X, y, loss=loss)
    state = problem.start()
    other = problem.restore(state.to_arrays())
    while not problem.done(state):
        answer = scan(problem, state)
        again = problem.probe(other).from_arrays(scan(problem, other).to_arrays())
        state, other = problem.update(state, answer), problem.restore(problem.update(other, again).to_arrays())
        assert_same_bits(state, other)
    assert state.status == "certified"


@pytest.mark.parametrize("grouped", [1, 5, 100])
def test_blocks_may_be_of_any_size(grouped: int) -> None:
    """The rows that are sent, and those that are named, do not depend on the blocks in which a partition is read."""
    X, y = texts(4)
    problem, state = make(X, y), make(X, y).start()
    kinds = set()
    while not problem.done(state):
        kinds.add(type(problem.probe(state)))
        answer, again = scan(problem, state), scan(problem, state, grouped)
        assert np.array_equal(answer.row_id, again.row_id)
        assert np.array_equal(answer.row_c, again.row_c)
        assert again.far_linear == pytest.approx(answer.far_linear, abs=1e-9)
        state = problem.update(state, answer)
    assert kinds == {BlockProbe, ProofProbe}


def test_the_proof_of_the_squared_hinge_asks_for_no_rows() -> None:
    """Its duals are those of the hypothesis."""
    X, y = texts(4)
    problem = make(X, y, loss="squared_hinge")
    state = problem.start()
    while not problem.proving(state):
        state = problem.update(state, scan(problem, state))
    assert type(problem.probe(state)) is NearMarginProbe
    assert len(scan(problem, state).row_id) == 0


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_contradictions_are_those_of_the_best_dual(loss: Loss) -> None:
    """No contradiction exactly where a grid finds no better dual for a row that is alone in changing its own."""
    rng = np.random.default_rng(0)
    row_c, squared = 0.7, loss.word == "squared_hinge"
    for _ in range(200):
        margin, a = rng.choice([0.2, 1.0, 1.7, rng.normal()]), rng.choice([0.0, row_c, rng.uniform(0, row_c)])
        slope = 1 - margin - (a / (2 * row_c) if squared else 0.0)
        up, down = slope > 1e-12 and (squared or a < row_c), slope < -1e-12 and a > 0
        found = loss.violations(np.array([margin]), np.array([a]), np.array([row_c]))[0]
        assert (found > 1e-12) == (up or down)
        assert found in (0.0, pytest.approx(abs(slope)))


def test_block_minimisation_is_used_if_neither_rows_nor_sums_fit() -> None:
    """Problems whose rows or sums fit stay as they are; others are refused without block minimisation."""
    X, y = texts(9)
    fits = SoftMargin(ArraySource(X, y), 1e-3, LOSSES["hinge"], 1.0)
    assert by_memory(fits) is fits
    dense = SoftMargin(ArraySource(X.toarray(), y), 1e-3, LOSSES["hinge"], 1.0, memory_bytes=40_000)
    assert by_memory(dense) is dense
    for problem in (fits, dense):
        problem.check()
    neither = SoftMargin(ArraySource(X, y), 1e-3, LOSSES["hinge"], 1.0, memory_bytes=40_000)
    partitioned = by_memory(neither)
    assert isinstance(partitioned, BlockMinimisation)
    assert (partitioned.cost, partitioned.memory_bytes) == (1.0, 40_000)
    partitioned.check()
    with pytest.raises(UsageError, match="expected room for all rows, or for sums of d x d numbers, found 39.1 KiB"):
        neither.check()


def test_passes_go_on_until_the_gap_is_closed() -> None:
    """A gap far below what a pass gains needs several proofs; each waits for as many passes as the gaps foretell."""
    X, y = texts(10)
    problem = make(X, y, epsilon=1e-6, loss="squared_hinge")
    state, proofs = problem.start(), 0
    while not problem.done(state):
        proofs += problem.proving(state)
        assert state.round < 2000
        state = problem.update(state, scan(problem, state))
    assert state.status == "certified"
    assert is_certified(state.lower, state.upper, 1e-6)
    assert 1 <= proofs <= 12


def test_rows_that_all_reach_their_limit_keep_the_intercept_where_it_belongs() -> None:
    """At a very low C few cached rows cannot balance what is missing: no partition lets the intercept diverge."""
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((200, 410)).astype(np.float32), np.where(rng.random(200) < 0.5, 1, -1)
    source = ArraySource(X, y, chunk_rows=10)
    problem = BlockMinimisation(source, 1e-2, LOSSES["hinge"], 1e-6, memory_bytes=60_000, sample_bytes=10_000)
    state = problem.start()
    while not problem.done(state):
        state = problem.update(state, scan(problem, state))
        assert abs(state.newest[-1]) < 2
        assert state.round < 400
    assert state.status == "certified"
    assert_true(X, y, np.full(len(y), 1e-6), problem, state)


def test_duals_in_balance_are_not_copied_for_a_proof() -> None:
    """Duals whose sum is 0 are left as they are; others are put in balance by the rows at hand, in their box."""
    X, y = texts(6)
    problem = make(X, y)
    state = problem.start()
    block_pass, pool = state.block_pass, state.rows.cached
    assert block_pass is not None
    even = replace(block_pass, duals=np.zeros(len(y)))
    assert balanced(pool, even) is even
    odd = replace(even, duals=np.where(np.arange(len(y)) == 3, 0.25, 0.0))
    after = balanced(pool, odd)
    assert abs(after.duals.sum()) <= 1e-12
    assert (after.duals[pool.ids] * pool.signs >= 0).all()
    assert (odd.duals != 0).sum() == 1


def test_a_sample_that_is_too_large_keeps_rows_of_both_classes() -> None:
    """Of rows in order of class, as many as have room, evenly spread, are what the start is solved on."""
    X, y = texts(7)
    order = np.argsort(y)
    X, y = X[order], y[order]
    problem = make(X, y, memory_bytes=60_000)
    state = problem.begin(read_sample(problem.source, list(range(problem.source.chunks)), problem.codes))
    pool = state.rows.cached
    assert 0.9 * 20_000 <= row_sizes(pool.rows).sum() <= 20_000
    near = np.isin(np.arange(len(y)), pool.ids)
    half = [int(near[y == label].sum()) for label in (-1, 1)]
    assert abs(half[0] - half[1]) <= 1
    assert np.diff(pool.ids).max() <= 8
    whole = RowsWithC(np.arange(len(y)), X.astype(np.float64), np.where(y > 0, 1, -1).astype(np.int8), np.ones(len(y)))
    assert thinned(whole, 10**6) is whole
    assert len(thinned(whole, 1)) == 2


@pytest.mark.parametrize(("wait", "idle"), [(1, 2), (5, 1)])
def test_a_proof_that_is_not_due_says_nothing_about_idling(wait: int, idle: int) -> None:
    """A proof that gains nothing is counted towards giving up where it was due, not where it came with others'."""
    X, y = texts(10)
    problem = make(X, y, epsilon=1e-6, loss="squared_hinge")
    state = problem.start()
    while not problem.proving(state):
        state = problem.update(state, scan(problem, state))
    known, block_pass = problem.update(state, scan(problem, state)), state.block_pass
    assert block_pass is not None
    assert known.status == "running"
    still = replace(block_pass, values=np.full(2, block_pass.values[-1]), wait=wait, waited=1)
    state = replace(state, bounds=known.bounds, best=known.best, block_pass=still, zone=replace(state.zone, idle=1))
    assert problem.update(state, scan(problem, state)).zone.idle == idle
