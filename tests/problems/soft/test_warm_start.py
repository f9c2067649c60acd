"""Warm starts of soft margins after a change of the store: the proof covers all rows, and little is read for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soft_kit import step, to_the_end
from stages_kit import changes, dual_of, noisy, problem_of, value_of

from coremargin.engine.allowance import Allowance
from coremargin.engine.problem import CannotWarmStart
from coremargin.problems.soft import first_read
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.state import Bounds

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.problems.soft.near_margin import SoftMargin
    from coremargin.problems.soft.state import Reading, SoftState

ALL = Allowance(1 << 30, requested=True)


BOTH = pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])


@dataclass(frozen=True)
class Rows:
    """Rows X (n, d) with labels y (n,), 0 for none, and weights (n,)."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def first(self, n: int) -> Rows:
        """The first of them."""
        return Rows(self.X[:n], self.y[:n], self.weights[:n])

    def job(self, chunk_rows: int = 100, **options: Any) -> SoftMargin:
        """A job on them; weights are not mentioned where all are 1."""
        labels = np.array([None, 1, -1], object)[self.y]
        weights = None if (self.weights == 1.0).all() else self.weights
        return problem_of(self.X, labels, chunk_rows, weights, **options)

    @property
    def counted(self) -> np.ndarray:
        """Weights (n,), 0 of rows without label."""
        return np.where(self.y == 0, 0.0, self.weights)


def difference(old: Rows, new: Rows) -> Difference:
    """From one store to another that has these rows and more."""
    codes = np.array([-1, 1, 0], np.int32)
    return changes(codes[old.y], codes[new.y], old.weights, new.weights)


def rows_of(seed: int, n: int, d: int, share: float = 0.1) -> Rows:
    """Noisy rows, all of weight 1."""
    X, y = noisy(seed, n, d, share)
    return Rows(X, y, np.ones(n))


def checked(problem: SoftMargin, state: SoftState, rows: Rows) -> None:
    """Both bounds are true, by NumPy."""
    assert state.best is not None
    value = value_of(problem, rows.X, rows.y, state.best, rows.counted)
    assert state.lower <= dual_of(problem, rows.X, rows.y, state, rows.counted) * (1 + 1e-12) + 1e-12
    assert value <= state.upper
    assert state.lower <= value


def run_to_the_end(problem: SoftMargin, state: SoftState, rows: Rows) -> tuple[SoftState, float]:
    """The last state, with bounds that are true after each round, and which share of the store was read."""
    read = state.sample_bytes / problem.source.nbytes * problem.source.chunks
    while not problem.done(state):
        assert state.round < 40
        read += int((~problem.skip(state)).sum())
        state = step(problem, state)
        if np.isfinite(state.upper):
            checked(problem, state, rows)
    return state, read / problem.source.chunks


@pytest.mark.specimens(2)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("class_weight", [None, (0.2, 5.0)])
@BOTH
def test_appended_rows_alone_are_read(loss: str, class_weight: Any, intercept: bool, weighted: bool) -> None:
    """Update after update appends a twentieth: no more than a tenth is read, and the value is that of a new job."""
    rows = rows_of(1, 13_000, 10)
    if weighted:
        rows = Rows(rows.X, rows.y, np.random.default_rng(2).choice([0.0, 0.5, 1.0, 3.0], len(rows.y)))
    given: dict[str, Any] = {"loss": LOSSES[loss], "class_weight": class_weight, "intercept": intercept, "cost": 0.1}
    old = rows.first(11_000)
    problem = old.job(**given, epsilon=2e-3)
    state = to_the_end(problem, problem.start())
    for n in (11_550, 12_140, 12_700):  # the last chunk is half full, then nearly empty, then full
        new = rows.first(n)
        problem = new.job(**given, epsilon=2e-3)
        state = problem.warm_start(problem.warm_start_state(state, ALL), difference(old, new))
        state, read = run_to_the_end(problem, state, new)
        assert state.status == "certified"
        assert read <= 0.1
        old = new
    scratch = to_the_end(problem, problem.start())
    assert max(scratch.lower, state.lower) <= min(scratch.upper, state.upper)
    assert problem.round_of(state).rows_below == pytest.approx(problem.round_of(scratch).rows_below, rel=0.01)
    assert state.histogram.sum() == np.count_nonzero(old.counted)


@pytest.mark.specimens(1)
@BOTH
def test_changed_rows_are_taken_out_of_the_sums(loss: str) -> None:
    """Labels that are corrected, rows that are out and other weights: a few rows are read, and no chunk."""
    old = rows_of(3, 12_000, 8)
    options: dict[str, Any] = {"loss": LOSSES[loss], "cost": 0.1, "epsilon": 2e-3}
    problem = old.job(**options)
    state = to_the_end(problem, problem.start())
    ids = np.random.default_rng(4).choice(12_000, 90, replace=False)
    y, weights = old.y.copy(), old.weights.copy()
    y[ids[:30]] *= -1
    y[ids[30:40]] = 0
    weights[ids[40:70]], weights[ids[70:]] = 0.0, 3.0
    new = Rows(old.X, y, weights)
    problem = new.job(**options)
    state = problem.warm_start(problem.warm_start_state(state, ALL), difference(old, new))
    assert problem.skip(state).all()
    state, read = run_to_the_end(problem, state, new)
    assert state.status == "certified"
    assert read <= 0.01
    assert state.histogram.sum() == np.count_nonzero(new.counted)
    for back in (old, new):  # there and back again
        problem = back.job(**options)
        state = problem.warm_start(problem.warm_start_state(state, ALL), difference(new if back is old else old, back))
        state, _ = run_to_the_end(problem, state, back)
        assert state.status == "certified"


def assert_sums(problem: SoftMargin, reading: Reading, rows: Rows) -> None:
    """The sums of the far rows of each stage are what NumPy finds of the rows that are not near."""
    ids = np.arange(len(rows.y))
    near = np.isin(ids, reading.near.ids)
    for stage in range(reading.count):
        mine = ~near & (rows.counted > 0) & (reading.stage_of[ids // 100] == stage)
        points, at = np.column_stack([rows.X[mine].astype(float), np.ones(mine.sum())]), reading.far.hypotheses[stage]
        slack = np.maximum(1.0 - rows.y[mine] * (points @ at), 0.0)
        slopes = 0.2 * slack if problem.loss.curves else 0.1 * (slack > 0)
        assert reading.far.duals[stage].sum() == pytest.approx(slopes.sum())
        assert reading.far.dual_sum[stage].sum(axis=0) == pytest.approx((slopes * rows.y[mine]) @ points)
        if problem.loss.curves:
            curve = 0.1 * points[slack > 0].T @ points[slack > 0]
            losing = reading.far.rings[stage, : problem.edges].sum(axis=0)
            assert losing == pytest.approx(curve, rel=1e-4, abs=1e-3)
            assert reading.far.value[stage] == pytest.approx(0.1 * slack @ slack)


@BOTH
def test_sums_without_some_rows_are_those_of_the_others(loss: str) -> None:
    """What is left of far rows, once some have changed, is what NumPy finds of those that were not."""
    old = rows_of(5, 8000, 5)
    problem = old.job(loss=LOSSES[loss], cost=0.1, epsilon=5e-3)
    before = to_the_end(problem, problem.start())
    weights = old.weights.copy()
    weights[np.random.default_rng(6).choice(8000, 60, replace=False)] = 0.0
    new = Rows(old.X, old.y, weights)
    problem = new.job(loss=LOSSES[loss], cost=0.1, epsilon=5e-3)
    reading = problem.warm_start(before.to_arrays(), difference(old, new)).reading
    assert reading is not None
    assert before.reading is not None
    assert_sums(problem, reading, new)
    assert reading.far.removed.sum() > 0


@BOTH
def test_new_rows_of_a_chunk_that_was_not_full_are_added_to_its_sums(loss: str) -> None:
    """They are read by their ids, nothing else is read, and some of them are near rows."""
    rows = rows_of(9, 8090, 5)
    rows.weights[8040:8050] = 0.0
    old, options = rows.first(8020), {"loss": LOSSES[loss], "cost": 0.1, "epsilon": 5e-3}
    before = to_the_end(old.job(**options), old.job(**options).start())
    problem = rows.job(**options)
    state = problem.warm_start(before.to_arrays(), difference(old, rows))
    assert state.sample_bytes == 70 * (problem.source.nbytes // problem.source.rows)
    assert state.reading is not None
    assert problem.skip(state).all()
    assert 0 < np.count_nonzero(state.reading.near.ids >= 8020) < 50
    assert_sums(problem, state.reading, rows)
    state, _ = run_to_the_end(problem, state, rows)
    assert state.status == "certified"
    assert state.histogram.sum() == 8080


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("factor", [1.0, 0.5])
@BOTH
def test_other_costs_take_no_look_at_far_rows(loss: str, factor: float, class_weight: Any) -> None:
    """Sums know no C: another one is a factor of them. With the squared hinge both classes have the same, or none."""
    rows = rows_of(7, 9000, 6)
    options: dict[str, Any] = {"loss": LOSSES[loss], "class_weight": class_weight, "epsilon": 3e-3}
    old, problem = rows.first(8600), rows.first(8600).job(**options, cost=0.1)
    state = to_the_end(problem, problem.start())
    problem = rows.job(**options, cost=0.1 * factor)
    if class_weight is not None and loss == "squared_hinge":
        with pytest.raises(CannotWarmStart, match="cost more"):
            problem.warm_start(problem.warm_start_state(state, ALL), difference(old, rows))
        return
    state = problem.warm_start(problem.warm_start_state(state, ALL), difference(old, rows))
    first = int((~problem.skip(state)).sum())
    state, _ = run_to_the_end(problem, state, rows)
    assert first == 4
    assert state.status == "certified"


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([1e-2, 1e-4]), st.sampled_from([0.01, 1.0, 100.0]),
    st.sampled_from(["hinge", "squared_hinge"]), st.booleans(),
)  # fmt: skip
def test_whatever_happens_no_claim_is_false(
    seed: int, intercept: bool, epsilon: float, cost: float, loss: str, hostile: bool
) -> None:
    """Rows come, change their labels and weights, and go: bounds are true after each round, and the job ends."""
    rng = np.random.default_rng(seed)
    rows = rows_of(seed % 1000, 1000, 3, 0.05)
    options: dict[str, Any] = {
        "memory_bytes": 150_000, "sample_bytes": 2000, "loss": LOSSES[loss], "intercept": intercept,
        "epsilon": epsilon, "cost": cost,
    }  # fmt: skip
    old = rows.first(600)
    problem = old.job(20, **options)
    state = to_the_end(problem, problem.start())
    for _ in range(4):
        n = min(1000, len(old.y) + int(rng.choice([0, 3, 25, 90])))
        y, weights = rows.y.copy(), rows.weights.copy()
        y[: len(old.y)], weights[: len(old.y)] = old.y, old.weights
        ids = rng.choice(n, int(rng.choice([0, 2, 15, 200])), replace=False)
        what = rng.integers(0, 4, len(ids))
        y[ids] = np.where(what == 0, -rows.y[ids], np.where(what == 1, 0, y[ids]))
        others = rng.choice([0.5, 1.0, 4.0], len(ids))
        weights[ids] = np.where(what == 2, 0.0, np.where(what == 3, others, weights[ids]))
        if hostile and n > len(old.y):
            rows.X[len(old.y) : n] *= np.float32(rng.choice([0.0, -1.0, 30.0]))
        y[:2], weights[:2] = (1, -1), 1.0
        new = Rows(rows.X[:n], y[:n], weights[:n])
        problem = new.job(20, **options)
        try:
            state = problem.warm_start(problem.warm_start_state(state, ALL), difference(old, new))
        except CannotWarmStart:
            state = problem.start()
        state, _ = run_to_the_end(problem, state, new)
        assert state.status == "certified"
        old = new


@BOTH
def test_a_hypothesis_on_the_way_may_be_the_best(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two that lie on either side of the minimum there is a better one, whose value is true, without a read."""
    rows = rows_of(10, 4000, 4)
    problem = rows.job(loss=LOSSES[loss], cost=0.1, epsilon=5e-3)
    state = to_the_end(problem, problem.start())
    assert state.reading is not None
    read, away = problem._first_read, 0.3 * np.eye(5)[0]
    ends = {"best": state.newest + away, "newest": state.newest - away}
    values = [read.value(state.reading, at) for at in ends.values()]
    begun = replace(state, bounds=Bounds.unknown(state.newest), **ends)
    found = read.with_bounds(begun, state.reading, np.zeros(0))
    checked(problem, found, rows)
    assert found.upper < 0.99 * min(values)
    monkeypatch.setattr(first_read, "BETWEEN", 0)
    assert read.with_bounds(begun, state.reading, np.zeros(0)).upper == min(values)


@BOTH
def test_what_is_read_again_has_wide_rings_and_few_near_rows(loss: str) -> None:
    """In later updates, rows of a zone are sent, rings reach far beyond it, and no second store is kept."""
    rows = rows_of(11, 4000, 4)
    problem = rows.job(loss=LOSSES[loss], cost=0.1, epsilon=5e-3)
    state = to_the_end(problem, problem.start())
    assert state.reading is not None
    read, every = problem._first_read, np.arange(problem.source.chunks)
    zone, edges = read.zone_width(state.reading, every), read.ring_edges(state.reading, every)
    assert edges[first_read.CROSSING] == pytest.approx(first_read.WIDE * zone)
    each, _ = read.rows_to_send(state.reading, len(every), first=False)
    assert each * len(every) <= max(read.near_rows, read.final_near_rows)
    again = replace(state.reading, reread=state.reading.reread | True)
    assert problem.probe(replace(state, reading=again)).zone == zone


@pytest.mark.specimens(1)
@BOTH
def test_stages_do_not_multiply_without_end(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for one more, the smallest are read with the new rows, and are one from then on."""
    monkeypatch.setattr("coremargin.problems.soft.near_margin.STAGES", 4)
    rows = rows_of(8, 8000, 4)
    options: dict[str, Any] = {"loss": LOSSES[loss], "cost": 0.1, "epsilon": 5e-3}
    n = 6000
    problem = rows.first(n).job(**options)
    state, most = to_the_end(problem, problem.start()), problem.stages.count
    while n < 8000:
        old, n = rows.first(n), n + 200
        problem = rows.first(n).job(**options)
        state = problem.warm_start(problem.warm_start_state(state, ALL), difference(old, rows.first(n)))
        state, _ = run_to_the_end(problem, state, rows.first(n))
        assert state.status == "certified"
        assert state.reading is None or state.reading.count <= max(4, most)


def test_a_state_without_sums_is_refused() -> None:
    """What ended by scans of all rows, or was made of rows that are scaled otherwise, says nothing."""
    rows = rows_of(9, 4000, 4)
    problem = rows.job()
    state = to_the_end(problem, problem.start())
    same, arrays = difference(rows, rows), dict(problem.warm_start_state(state, ALL))
    with pytest.raises(CannotWarmStart, match="scaled otherwise"):
        problem.warm_start(arrays | {"reading_terms_scaling": arrays["reading_terms_scaling"] ^ 1}, same)
    with pytest.raises(CannotWarmStart, match="keeps no sums of rows that are far"):
        problem.warm_start(problem.warm_start_state(replace(state, reading=None), ALL), same)
