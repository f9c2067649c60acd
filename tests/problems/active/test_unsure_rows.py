"""Rows that no annotator can label, and draws by class: drawn are the first of each stratum that people can label."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from asking import answer, apart, blobs, course_of, source_of

from coremargin.active.learner import Learner
from coremargin.formats.draws import drawn
from coremargin.maths.evidence import draws_needed
from coremargin.problems.active import draws as drawing
from coremargin.problems.active.model import evidence_of, found_of
from coremargin.problems.active.problem import ActiveMargin

if TYPE_CHECKING:
    from coremargin.problems.active.state import ActiveState


def given_by(state: ActiveState, X: np.ndarray) -> np.ndarray:
    """The class (n,) that a hypothesis without doubtful rows gives each row."""
    values = X @ state.hypothesis.w.T + state.hypothesis.b
    return np.asarray(values.argmax(axis=1) if values.shape[1] > 1 else values[:, 0] >= 0).astype(int)


def is_true(problem: ActiveMargin, state: ActiveState, X: np.ndarray, codes: np.ndarray, unsure: Any) -> None:
    """Certified by draws that are, of each stratum, the first of the order that have no answer and are not unsure: so
    many as show what was asked for; evidence counts the rows that are left.
    """
    assert state.status == "certified"
    given, n = given_by(state, X), len(X)
    out = {*state.answered.ids.tolist(), *state.unsure.tolist()}
    assert set(state.unsure.tolist()) <= set(unsure)
    assert not set(state.answered.ids.tolist()) & set(unsure)
    rest = np.array([row for row in range(n) if row not in out])
    order = [row for row in drawn(problem.source.digest, problem.seed, state.attempt, n) if row not in out]
    labels = list(range(problem.classes))
    parts = [(given == k) for k in labels] if problem.by_class else [np.ones(n, bool)]
    evidence = evidence_of(problem, state, labels)
    assert found_of(problem, state).status == "certified"
    assert evidence is not None
    shown = evidence["strata"] if problem.by_class else [evidence]
    delta = (1 - problem.confidence) / (state.attempt * (state.attempt + 1)) / len(parts)
    expected = []
    for part, one in zip(parts, shown, strict=True):
        population = int(part[rest].sum())
        most = min(problem.trial, population) if problem.trial else draws_needed(population, problem.error, delta)
        first = [row for row in order if part[row]][: one["draws"]]
        assert one["population"] == population
        assert one["draws"] == most or (
            problem.loss is None and one["draws"] > most
        )  # more rows were open when they were drawn
        assert one["error_bound"] <= problem.error * population
        expected += first
    assert state.draws.ids.tolist() == sorted(expected, key=order.index)
    assert (state.draws.codes == codes[state.draws.ids]).all()
    assert evidence["population"] == len(rest)
    for name in ("draws", "wrong", "error_bound", "population"):
        assert evidence[name] == sum(one[name] for one in shown)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_draws_are_the_first_that_people_can_label(
    rng: np.random.Generator, by_class: bool, classes: int, share: float
) -> None:
    """Whichever rows no annotator can label, a tenth or half of them, as queries or as draws, by class or not."""
    X, codes = blobs(rng, 400, classes)
    unsure = set(np.flatnonzero(rng.random(400) < share).tolist())
    problem = ActiveMargin(source_of(X), classes=classes, error=0.1, by_class=by_class, resident_rows=60)
    every = list(course_of(problem, codes, unsure=unsure))
    is_true(problem, every[-1], X, codes, unsure)
    assert every[-1].attempt == 1
    assert share == 0.0 or len(every[-1].unsure)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("by_class", [False, True])
def test_with_a_loss_the_first_that_people_can_label_are_counted(rng: np.random.Generator, by_class: bool) -> None:
    """A trial's size is that of labels, not of rows that were looked at."""
    X, signs = apart(rng, 500, 3, 0.2)
    codes = np.where(rng.random(500) < 0.05, signs < 0, signs > 0).astype(int)
    unsure = set(range(0, 500, 5))
    problem = ActiveMargin(
        source_of(X), loss="hinge", error=0.3, confidence=0.9, trial=40, by_class=by_class, resident_rows=100
    )
    state = list(course_of(problem, codes, unsure=unsure))[-1]
    is_true(problem, state, X, codes, unsure)


def test_a_rare_class_is_reached(rng: np.random.Generator) -> None:
    """20 of 6000 rows are of one class: all of them are drawn that have no answer, wherever the order has them, and
    with one that no annotator can label the others are.
    """
    X, codes = blobs(rng, 6000, 2)
    rare = np.flatnonzero(codes == 1)[20:]
    X, codes = np.delete(X, rare, axis=0), np.delete(codes, rare)
    problem = ActiveMargin(source_of(X, 500), error=0.05, by_class=True, resident_rows=200)
    some = set(np.flatnonzero(codes == 1)[::3].tolist())
    for unsure in (set(), some):
        state = list(course_of(problem, codes, unsure=unsure))[-1]
        is_true(problem, state, X, codes, unsure)
        assert (codes[state.draws.ids] == 1).sum() + (codes[state.answered.ids] == 1).sum() == 20 - len(unsure)


def test_a_draw_that_nobody_can_label_voids_no_attempt(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next of the order takes its place, at its place of the order; what is answered already stays, and no more
    rows are looked up than lie behind the last draw of its stratum.
    """
    monkeypatch.setattr(drawing, "MOST_LOOKED_UP", 100)
    X, codes = blobs(rng, 6000, 2)
    some = np.flatnonzero(codes == 1)[300:]
    X, codes = np.delete(X, some, axis=0), np.delete(codes, some)
    problem = ActiveMargin(source_of(X, 500), error=0.05, by_class=True, resident_rows=200)
    state = next(one for one in course_of(problem, codes) if one.draws.is_answered.sum() == 7)
    for _ in range(5):
        before, row = state, int(state.draws.ids[~state.draws.is_answered & (state.draws.sides == 1)][0])
        state = problem.exclude(state, row)
        assert (state.attempt, state.draws.is_answered.sum()) == (before.attempt, 7)
        assert set(before.draws.ids.tolist()) - set(state.draws.ids.tolist()) == {row}
        assert len(state.draws) >= len(before.draws) - 1
    assert set(state.unsure.tolist()).isdisjoint(state.draws.ids.tolist())
    is_true(problem, list(course_of(problem, codes, state))[-1], X, codes, state.unsure.tolist())


def test_a_certified_campaign_stays_so_without_a_row_that_nobody_can_label(rng: np.random.Generator) -> None:
    """Rows are set aside after the end: the draws are shown of those that are left, with more where it takes."""
    X, codes = blobs(rng, 500, 3)
    problem = ActiveMargin(source_of(X), classes=3, error=0.1, by_class=True, resident_rows=100)
    state = list(course_of(problem, codes))[-1]
    open_ones = np.setdiff1d(np.arange(500), np.concatenate([state.known, state.draws.ids]))
    for row in open_ones[:12].tolist():
        state = list(course_of(problem, codes, problem.exclude(state, row)))[-1]
        assert row in state.unsure
        assert state.attempt == 1
    is_true(problem, state, X, codes, open_ones[:12].tolist())


def test_what_is_answered_cannot_be_set_aside(rng: np.random.Generator) -> None:
    """Nor a draw that has its answer, nor a row that is set aside already: nothing changes."""
    X, codes = blobs(rng, 300, 2)
    problem = ActiveMargin(source_of(X), error=0.1, resident_rows=100)
    state = next(one for one in course_of(problem, codes, unsure=range(0, 300, 7)) if one.draws.is_answered.sum() == 3)
    rows = [int(state.answered.ids[0]), int(state.draws.ids[state.draws.is_answered][0]), int(state.unsure[0])]
    assert all(problem.exclude(state, row) is state for row in rows)


def test_a_row_of_no_weight_that_is_set_aside_changes_no_count(rng: np.random.Generator) -> None:
    """It is not among the rows that the draws speak of."""
    X, codes = blobs(rng, 300, 2)
    weights = np.ones(300)
    weights[::3] = 0.0
    problem = ActiveMargin(source_of(X, weights=weights), error=0.1, resident_rows=100)
    state = list(course_of(problem, codes))[-1]
    assert problem.exclude(state, 0).scanned.sides.tolist() == state.scanned.sides.tolist()


def test_an_unsure_row_that_is_labelled_later_is_answered(rng: np.random.Generator) -> None:
    """It is among the rows answered, no longer unsure, and the attempt on the way is void."""
    X, codes = blobs(rng, 400, 2)
    problem = ActiveMargin(source_of(X), error=0.1, resident_rows=100)
    state = next(one for one in course_of(problem, codes, unsure=range(0, 400, 3)) if one.draws.is_answered.sum() == 5)
    row = int(state.unsure[0])
    known = {int(i): int(codes[i]) for i in [*state.answered.ids, *state.draws.ids[state.draws.is_answered], row]}
    after = answer(problem, state, row, known)
    assert row in after.answered.ids
    assert row not in after.unsure
    assert (after.attempt, len(after.draws)) == (2, 0)
    is_true(problem, list(course_of(problem, codes, after, unsure=after.unsure))[-1], X, codes, after.unsure)


@pytest.mark.parametrize("by_class", [False, True])
def test_where_nobody_can_label_any_other_row_it_ends(rng: np.random.Generator, by_class: bool) -> None:
    """All rows but 30 are unsure: those that can be labelled are all answered, and the claim is about none."""
    X, codes = blobs(rng, 120, 2)
    unsure = set(range(30, 120))
    problem = ActiveMargin(source_of(X), error=0.01, by_class=by_class, resident_rows=120)
    state = list(course_of(problem, codes, unsure=unsure))[-1]
    assert state.status == "certified"
    assert state.scanned.population == len(state.draws)
    assert {*state.answered.ids.tolist(), *state.draws.ids.tolist()} == set(range(30))


def test_where_too_much_is_to_be_looked_up_the_attempt_is_void(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one begins, with draws of its own, and what it shows is true."""
    monkeypatch.setattr(drawing, "MOST_LOOKED_UP", 0)
    X, codes = blobs(rng, 2000, 2)
    problem = ActiveMargin(source_of(X, 500), error=0.1, by_class=True, resident_rows=100)
    state = next(one for one in course_of(problem, codes) if one.draws.is_answered.sum() == 7)
    after = problem.exclude(state, int(state.wanted[0]))
    assert (after.attempt, len(after.draws)) == (2, 0)
    assert np.isin(state.draws.ids[state.draws.is_answered], after.answered.ids).all()
    is_true(problem, list(course_of(problem, codes, after))[-1], X, codes, after.unsure)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("loss", [None, "squared_hinge"])
def test_any_state_with_unsure_rows_leads_to_the_same_bits(rng: np.random.Generator, loss: Any) -> None:
    """Written and read again, in the middle of draws that were set aside, too."""
    X, codes = blobs(rng, 300, 2)
    unsure = set(range(0, 300, 4))
    problem = ActiveMargin(source_of(X), error=0.1, by_class=True, loss=loss, trial=loss and 30, resident_rows=50)
    every = list(course_of(problem, codes, unsure=unsure))
    last = every[-1].to_arrays()
    for state in every[:: max(1, len(every) // 8)]:
        again = problem.restore({name: value.copy() for name, value in state.to_arrays().items()})
        end = list(course_of(replace(problem), codes, again, unsure, block_bytes=1 << 30))[-1].to_arrays()
        assert all(np.array_equal(end[name], last[name]) for name in last)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [None, "hinge"])
def test_an_answer_that_is_taken_back_leaves_nothing(rng: np.random.Generator, loss: Any) -> None:
    """As if the others had been given from the start: the same rows answered, and bounds, and those that are unsure."""
    X, codes = blobs(rng, 300, 3)
    problem = ActiveMargin(source_of(X), classes=3, error=0.2, loss=loss, trial=loss and 30, resident_rows=100)
    unsure = set(range(0, 300, 6))
    for state in [one for one in course_of(problem, codes, unsure=unsure) if len(one.answered) > 6][::7]:
        draws = state.draws.ids[state.draws.is_answered]
        known = {int(row): int(codes[row]) for row in [*state.answered.ids, *draws]}
        known.pop(int(state.answered.ids[0]))
        after = Learner(problem, state).recompute(known).state
        begun = problem.answered(problem.start(state.unsure), known)
        assert after.answered.ids.tolist() == begun.answered.ids.tolist() == sorted(known)
        assert after.unsure.tolist() == state.unsure.tolist()
        assert np.allclose(after.upper, begun.upper, rtol=1e-6)
        assert after.attempt == state.attempt + bool(len(state.draws))
        is_true(problem, list(course_of(problem, codes, after, unsure))[-1], X, codes, unsure)
    assert Learner(problem, state).recompute({}).state.unsure.tolist() == state.unsure.tolist()
