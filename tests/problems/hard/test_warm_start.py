"""Hard margins that start warm from an earlier commit: as good as from scratch, for little reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.data.difference import Difference
from coremargin.engine.allowance import Allowance
from coremargin.engine.problem import CannotWarmStart
from coremargin.maths.rows import dense, of_dense
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.hard.block_bounds import NearRows, in_memory
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.hard.state import HardMarginState
from plain_loop import Run, proceed

Maker = Callable[..., tuple[np.ndarray, np.ndarray]]
CHUNK = 50
#: A first stage of few rows, so that there are several.
SMALL: dict[str, Any] = {"sample_bytes": 1000, "sample_share": 0.02, "near_share": 0.04}

ALL = Allowance(1 << 30, requested=True)


class Rows:
    """Rows as they change from commit to commit: rows (n, d), labels (n,) in {-1, 1}, weights (n,)."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X, self.y, self.weights = X, y.astype(np.int32), np.ones(len(y))

    def source(self) -> ArraySource:
        """As they are."""
        return ArraySource(self.X, self.y.copy(), weights=self.weights.copy(), chunk_rows=CHUNK)

    def counted(self) -> np.ndarray:
        """Which rows count."""
        return self.weights > 0

    def margin(self, w: np.ndarray, b: float) -> float:
        """The smallest margin of rows that count, by plain float64."""
        mine = self.counted()
        return float((self.y[mine] * (self.X[mine].astype(np.float64) @ w + b)).min())


def changes(before: Rows, after: Rows) -> Difference:
    """What a store would say; codes are places among the labels in the order in which these came."""
    n, negative_first = len(before.y), after.source().classes == (-1, 1)
    ids = np.flatnonzero((before.y != after.y[:n]) | (before.weights != after.weights[:n]))
    old, new = (((rows.y[ids] > 0) == negative_first).astype(np.int32) for rows in (before, after))
    return Difference(n, len(after.y), ids, old, new, before.weights[ids], after.weights[ids], 0)


def problem_of(rows: Rows, **options: Any) -> HardMargin:
    """The problem on these rows."""
    return HardMargin(rows.source(), 1e-3, **{**SMALL, **options})


def trained(rows: Rows, **options: Any) -> Run:
    """From scratch."""
    problem = problem_of(rows, **options)
    return proceed(Run(problem, [problem.start()]))


def warm_started(run: Run, before: Rows, after: Rows, **options: Any) -> Run:
    """From what a run keeps."""
    problem = problem_of(after, **options)
    return proceed(
        Run(problem, [problem.warm_start(run.problem.warm_start_state(run.last, ALL), changes(before, after))])
    )


def copied(rows: Rows) -> Rows:
    """The same, apart."""
    made = Rows(rows.X, rows.y)
    made.y, made.weights = rows.y.copy(), rows.weights.copy()
    return made


def with_more(rows: Rows, X: np.ndarray, y: np.ndarray) -> Rows:
    """With rows appended."""
    made = copied(rows)
    made.X, made.y = np.concatenate([rows.X, X]), np.concatenate([rows.y, y.astype(np.int32)])
    made.weights = np.concatenate([rows.weights, np.ones(len(y))])
    return made


def assert_as_from_nothing(run: Run, rows: Rows) -> None:
    """Certified, on all rows that count, and within epsilon of what training from scratch comes to."""
    state, fresh = run.last, trained(rows, intercept=run.problem.intercept).last
    assert state.status == fresh.status == "certified"
    assert state.best is not None
    assert rows.margin(state.best.w, state.best.b) >= state.lower >= (1 - 1e-3) * state.upper
    assert state.lower <= fresh.upper
    assert fresh.lower <= state.upper
    core = state.coreset
    assert rows.counted()[core.ids].all()
    assert (rows.y[core.ids] == core.signs).all()
    assert_floors_hold(state, run.problem, rows)


def assert_floors_hold(state: HardMarginState, problem: HardMargin, rows: Rows) -> None:
    """Every row that counts is in the working set, or above the bound of its chunk and class."""
    free = rows.counted()
    free[state.known_ids] = False
    for chunk in range(problem.source.chunks):
        start, stop = problem.source.span(chunk)
        which = state.block_bounds.direction_index[chunk]
        values = rows.y * (rows.X.astype(np.float64) @ state.block_bounds.directions[which])
        for column, sign in enumerate((1, -1)):
            mine = np.flatnonzero(free[start:stop] & (rows.y[start:stop] == sign)) + start
            assert which >= 0
            assert (values[mine] >= state.block_bounds.lower[chunk, column]).all()


def plane_rows(rng: np.random.Generator, plane: np.ndarray, rows: int, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows pushed apart along a plane."""
    X = rng.standard_normal((rows, len(plane)))
    y = np.where(X @ plane >= 0, 1, -1)
    return (X + (margin * y)[:, None] * plane).astype(np.float32), y


def changed_at_random(rng: np.random.Generator, rows: Rows, run: Run, plane: np.ndarray, margin: float) -> Rows:
    """One of the things that happen to stores."""
    what = rng.integers(6)
    made = copied(rows)
    if what == 0:
        return with_more(rows, *plane_rows(rng, plane, int(rng.integers(1, 400)), margin))
    if what == 1:  # rows that are not near
        made.weights[rng.integers(len(rows.y), size=20)] = 0
    elif what == 2:  # rows that carry the proof
        made.weights[run.last.coreset.ids[: int(rng.integers(1, 4))]] = 0
    elif what == 3:  # they are back, all of them
        made.weights[:] = rng.uniform(0.5, 2, len(rows.y))
    elif what == 4:  # those near, which are in the pool
        w, b = run.last.newest.w, run.last.newest.b
        near = np.flatnonzero(rows.counted() & (np.abs(rows.X @ w + b) < 1.2 * margin))
        made.weights[near[:3]] = 0
    else:
        made = with_more(copied(made), *plane_rows(rng, plane, 60, margin))
        made.weights[run.last.coreset.ids[:1]] = 0
    return made


@pytest.mark.specimens(2)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_in_whatever_order(seed: int, *, intercept: bool) -> None:
    """After each of eight commits (rows appended, out, in again, those of the proof too) it is as from scratch."""
    rng = np.random.default_rng(seed)
    plane = rng.standard_normal(4)
    plane /= np.linalg.norm(plane)
    rows = Rows(*plane_rows(rng, plane, 1530, 0.4))
    run = trained(rows, intercept=intercept)
    for night in range(8):
        after = changed_at_random(rng, rows, run, plane, 0.4 * 0.99**night)
        run = warm_started(run, rows, after, intercept=intercept)
        assert_as_from_nothing(run, after)
        rows = after


def test_labels_that_are_put_right(rng: np.random.Generator) -> None:
    """Rows that had no label, then a wrong one, then the right one: fetched by number, each time as from scratch."""
    plane = np.array([1.0, 0, 0])
    X, y = plane_rows(rng, plane, 8000, 0.3)
    some = rng.choice(8000, 40, replace=False)
    rows = Rows(X, y)
    rows.weights[some] = 0  # as good as without a label
    run = trained(rows)
    right = copied(rows)
    right.weights[some] = 1
    run = warm_started(run, rows, right)
    assert sum(map(len, run.chunks)) <= 2  # rows are fetched, and the floors still prove nearly all of the rest
    assert run.states[0].sample_bytes == 40 * 3 * 4
    assert_as_from_nothing(run, right)


def test_a_wrong_label_that_separates_nothing(rng: np.random.Generator) -> None:
    """A row deep inside the other class: the proof that nothing separates them; put right, a margin once more."""
    X, y = plane_rows(rng, np.array([1.0, 0, 0]), 2000, 0.3)
    rows, wrong = Rows(X, y), Rows(X, y)
    run = trained(rows)
    worst = int(np.argmax(X[:, 0]))
    wrong.y[worst] *= -1
    met = warm_started(run, rows, wrong)
    assert met.last.status == "not_separable"
    assert worst in met.last.coreset.ids
    still = with_more(wrong, *plane_rows(rng, np.array([1.0, 0, 0]), 100, 0.3))
    again = warm_started(met, wrong, still)
    assert again.last.status == "not_separable"
    assert again.chunks == []  # what met still meets, whatever else comes
    with pytest.raises(CannotWarmStart, match="nothing separates"):
        warm_started(met, wrong, rows)


@pytest.mark.parametrize("appended", [1, 20, 49, 50, 300])
def test_only_what_is_new_is_read(rng: np.random.Generator, appended: int) -> None:
    """Rows beyond the bound: new chunks, and new rows of one that had some; the model stays as it was to the bit."""
    plane = np.array([1.0, 0, 0, 0])
    rows = Rows(*plane_rows(rng, plane, 2530, 0.3))
    run = trained(rows)
    after = with_more(rows, *plane_rows(rng, plane, appended, 0.31))
    later = warm_started(run, rows, after)
    assert sorted(chunk for read in later.chunks for chunk in read) == list(range(51, later.problem.source.chunks))
    source = later.problem.source
    assert later.states[0].sample_bytes == min(appended, 20) * (source.nbytes // source.rows)
    assert later.last.best is not None
    assert run.last.best is not None
    assert later.last.best.w.tobytes() == run.last.best.w.tobytes()
    assert later.last.upper == run.last.upper
    assert_as_from_nothing(later, after)


def test_rows_out_that_do_not_matter_cost_nothing(rng: np.random.Generator) -> None:
    """Out, but not of the coreset: no chunk is read, both bounds stay."""
    rows = Rows(*plane_rows(rng, np.array([1.0, 0, 0]), 2000, 0.3))
    run = trained(rows)
    after = copied(rows)
    after.weights[np.setdiff1d(rng.integers(2000, size=200), run.last.coreset.ids)] = 0
    later = warm_started(run, rows, after)
    assert later.chunks == []
    assert (later.last.lower, later.last.upper) == (run.last.lower, run.last.upper)
    assert_as_from_nothing(later, after)


def test_a_class_that_is_gone(rng: np.random.Generator) -> None:
    """Where no row near is left of a class there is no warm start."""
    rows = Rows(*plane_rows(rng, np.array([1.0, 0]), 500, 0.3))
    run = trained(rows)
    after = copied(rows)
    after.weights[rows.y > 0] = 0
    with pytest.raises(CannotWarmStart, match="no row near the hyperplane is left"):
        warm_started(run, rows, after)


def test_the_cached_working_set_is_small(make_separable: Maker) -> None:
    """At most half of a small store stays, and bounds hold for the others."""
    X, y = make_separable(3000, 10, margin=0.2)
    rows = Rows(X, y)
    run = trained(rows, near_share=0.8, working_set_bytes=1 << 30)
    assert len(run.last.working_set) > 1500
    kept = HardMarginState.from_arrays(run.problem.warm_start_state(run.last, ALL))
    assert len(kept.known_ids) <= 1500
    assert len(kept.sketch) <= 300
    assert_floors_hold(kept, run.problem, rows)
    again = warm_started(run, rows, rows)
    assert again.last.status == "certified"


@pytest.mark.parametrize("strategy", ["paper", "any-violator"])
def test_strategies_that_look_at_all_rows(make_separable: Maker, strategy: Any) -> None:
    """The published strategies are always trained from scratch."""
    X, y = make_separable(300, 3)
    rows = Rows(X, y)
    run = trained(rows)
    with pytest.raises(CannotWarmStart, match="again and again"):
        replace(run.problem, strategy=strategy).warm_start(
            run.problem.warm_start_state(run.last, ALL), changes(rows, rows)
        )


def test_a_state_on_the_way_comes_back_with_the_same_bits(rng: np.random.Generator) -> None:
    """Stopped after any stage and restored, it ends with the same bits."""
    plane = np.array([1.0, 0, 0])
    rows = Rows(*plane_rows(rng, plane, 1500, 0.3))
    after = with_more(rows, *plane_rows(rng, plane, 900, 0.28))
    later = warm_started(trained(rows), rows, after)
    assert len(later.states) > 2
    for state in later.states[:-1]:
        restored = later.problem.restore({name: values.copy() for name, values in state.to_arrays().items()})
        end = proceed(Run(later.problem, [restored])).last
        a, b = end.to_arrays(), later.last.to_arrays()
        assert a.keys() == b.keys()
        assert all(a[name].tobytes() == b[name].tobytes() for name in a)


# near rows in their file


@pytest.mark.slow
def test_quiet_updates_leave_the_near_rows_where_they_are(rng: np.random.Generator) -> None:
    """New rows near the margin join the working set until there are many; the file of near rows stays unread."""
    plane = np.array([1.0, 0, 0, 0])
    rows = Rows(*plane_rows(rng, plane, 20_000, 0.3))
    run = trained(rows, sample_bytes=1 << 20)
    kept, renewed = run.problem.warm_start_state(run.last, ALL), 0
    for _ in range(5):
        after = with_more(rows, *plane_rows(rng, plane, 2000, 0.32))
        problem = problem_of(after)
        run = proceed(Run(problem, [problem.warm_start(kept, changes(rows, after))]))
        state, rows, before = run.last, after, kept
        assert state.near_rows is not None
        assert state.near_rows.filed is before["near_rows_filed"]
        assert_as_from_nothing(run, rows)
        kept = problem.warm_start_state(state, ALL)
        assert sorted([*kept["working_set_ids"], *kept["near_rows_ids"]]) == sorted(state.known_ids)
        if kept["near_rows_filed"] is not before["near_rows_filed"]:
            renewed += 1
            assert set(kept["working_set_ids"]) == {
                *state.coreset.ids,
                *state.working_set.ids[state.working_set.support],
            }
    assert 1 <= renewed <= 3


@pytest.mark.parametrize("sparse", [False, True])
def test_bounds_of_near_rows_hold(rng: np.random.Generator, *, sparse: bool) -> None:
    """Their bound bounds them at any hypothesis; without some of them too; they come back to the bit."""
    X, y = plane_rows(rng, np.array([1.0, 0, 0]), 500, 0.3)
    ids, signs = rng.permutation(500), y.astype(np.int8)
    pool = WorkingSet.unweighted(ids, of_dense(X, sparse=sparse), signs)
    w = np.array([0.8, 0.6, 0.0])
    near = NearRows.from_working_set(pool, w, CHUNK)
    assert near.chunks.tolist() == list(range(10))
    away = near.without(np.arange(100))
    assert len(away) == 400
    for found in (near, away, NearRows.from_arrays("near", in_memory(away.to_arrays("near")))):
        back = found.read()
        place = np.argsort(ids)[found.ids]
        assert (back.signs == signs[place]).all()
        assert dense(back.rows).tobytes() == X[place].astype(np.float64).tobytes()
        directions = np.column_stack([w, w + 1e-9, [0.6, 0.8, 0.0], [-1.0, 0, 0]])
        values = signs[place, None] * (X[place].astype(np.float64) @ directions)
        bounds = found.screen(directions)
        for row, sign in enumerate((1, -1)):
            least = values[back.signs == sign].min(axis=0)
            assert (bounds[row] <= least).all()
            if found is near:
                assert bounds[row, :2] == pytest.approx(least[:2], abs=1e-7)


def test_near_rows_of_one_class_alone(rng: np.random.Generator) -> None:
    """A class that has none among them is bounded by nothing."""
    X, _ = plane_rows(rng, np.array([1.0, 0]), 10, 0.3)
    near = NearRows.from_working_set(
        WorkingSet.unweighted(np.arange(10), X, np.ones(10, np.int8)), np.array([1.0, 0.0]), CHUNK
    )
    assert near.screen(np.array([[1.0, 0.6], [0.0, 0.8]]))[1].tolist() == [np.inf, np.inf]
