"""Few labels: what is claimed is true of all rows, and so few are asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from asking import Person, apart, codes_of, source_of, states, values_of
from scipy.sparse import csr_array
from sklearn.svm import SVC

from coremargin.formats.draws import drawn
from coremargin.maths.evidence import draws_needed
from coremargin.problems.active.model import evidence_of, found_of
from coremargin.problems.active.problem import SENT_BYTES, ActiveMargin
from margin_judges import margin_by_daqp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.problems.active.state import ActiveState, Status


def is_true(problem: ActiveMargin, state: ActiveState, X: np.ndarray, signs: np.ndarray) -> None:
    """Certified; no row without an answer is within the slab, the bounds hold, and the evidence is what was asked."""
    assert state.status == "certified"
    values = values_of(state, X)
    rest = np.setdiff1d(np.arange(len(X)), state.answered.ids)
    told = problem.round_of(state)
    assert told.upper >= margin_by_daqp(X, signs, intercept=problem.intercept) * (1 - 1e-6)
    assert (signs[state.answered.ids] * values[state.answered.ids]).min() >= told.lower
    assert np.abs(values[rest]).min(initial=np.inf) >= told.lower >= (1 - problem.epsilon) * told.upper
    assert (np.sign(values[state.draws.ids]) == signs[state.draws.ids]).all()
    assert not np.isin(state.draws.ids, state.answered.ids).any()
    assert state.scanned.sides.sum() == len(rest)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_claimed_is_true(rng: np.random.Generator, intercept: bool, sparse: bool) -> None:
    """Of all rows, whoever looks at them; DAQP with all labels finds no larger margin than the bound."""
    X, signs = apart(rng, 3000, 5, 0.2)
    if sparse:  # no row of zeros: without an intercept it has no margin
        X[:, 1:][np.abs(X[:, 1:]) < 0.3] = 0.0
        signs = np.where(X @ np.linalg.lstsq(X, signs, rcond=None)[0] >= 0, 1, -1)
    problem = ActiveMargin(source_of(csr_array(X) if sparse else X), intercept=intercept, resident_rows=300)
    person = Person(signs)
    state = states(problem, person)[-1]
    is_true(problem, state, X, signs)
    assert len(set(person.asked)) == len(person.asked) == len(state.answered) + len(state.draws)
    assert len(person.asked) < 800 < len(X)


def test_few_labels_where_random_ones_need_many(rng: np.random.Generator) -> None:
    """With as many random labels as queries, the best hyperplane is far from the best of all."""
    X, signs = apart(rng, 20_000, 10, 0.3)
    problem = ActiveMargin(source_of(X, 500), resident_rows=2000)
    state = states(problem, Person(signs))[-1]
    is_true(problem, state, X, signs)
    assert len(state.answered) < 80
    random = rng.choice(len(X), len(state.answered), replace=False)
    model = SVC(kernel="linear", C=1e10).fit(X[random], signs[random])
    margin = (signs * model.decision_function(X)).min() / np.linalg.norm(model.coef_)
    assert margin < 0.5 * problem.round_of(state).lower


def test_a_campaign_goes_on_from_any_state(rng: np.random.Generator) -> None:
    """A state that was written and read again, wherever, leads to the same bits."""
    X, signs = apart(rng, 2000, 4, 0.1)
    problem = ActiveMargin(source_of(X), resident_rows=100)
    every = states(problem, Person(signs))
    last = every[-1].to_arrays()
    for state in every[:: max(1, len(every) // 12)]:
        again = problem.restore({name: value.copy() for name, value in state.to_arrays().items()})
        end = states(problem, Person(signs), again)[-1].to_arrays()
        assert end.keys() == last.keys()
        assert all(np.array_equal(end[name], last[name]) for name in last)


def test_a_rare_class_is_tried_by_itself(rng: np.random.Generator) -> None:
    """1 % of the rows are positive: nearly all of those are drawn, where draws of all rows would see a handful."""
    X = rng.standard_normal((30_000, 3))
    X[:, 0] = np.where(np.arange(30_000) % 100 == 0, 1.0 + np.abs(X[:, 0]), -1.0 - np.abs(X[:, 0]))
    signs = np.where(X[:, 0] > 0, 1, -1)
    problem = ActiveMargin(source_of(X, 1000), error=0.05, by_class=True, resident_rows=2000)
    state = states(problem, Person(signs))[-1]
    is_true(problem, state, X, signs)
    drawn = np.array([np.count_nonzero(signs[state.draws.ids] == sign) for sign in (-1, 1)])
    needed = [
        draws_needed(int(rows), 0.05, 0.005 / (state.attempt * (state.attempt + 1))) for rows in state.scanned.sides[:2]
    ]
    assert drawn.tolist() == needed
    assert drawn.min() > 80
    assert state.round <= 4


@pytest.mark.parametrize("seen", [0, 5])
def test_a_late_answer_makes_an_attempt_void(rng: np.random.Generator, seen: int) -> None:
    """It changes the hypothesis that the draws are to try: none of those answered is evidence for the next one, and
    what was drawn has spent its chance, answered or only seen.
    """
    X, signs = apart(rng, 2000, 4, 0.1)
    problem = ActiveMargin(source_of(X), resident_rows=100)
    drawing = next(
        state
        for state in states(problem, Person(signs))
        if np.count_nonzero(state.draws.is_answered) == seen < len(state.draws)
    )
    late = next(row for row in range(2000) if row not in drawing.draws.ids and row not in drawing.answered.ids)
    after = problem.answered(drawing, {late: int(signs[late] > 0)})
    assert len(after.draws) == 0
    assert after.attempt == drawing.attempt + 1
    assert np.isin(drawing.draws.ids[drawing.draws.is_answered], after.answered.ids).all()
    is_true(problem, states(problem, Person(signs), after)[-1], X, signs)


@pytest.mark.parametrize("ended", ["stalled", "certified"])
def test_an_answer_goes_on_from_an_end(rng: np.random.Generator, ended: Status) -> None:
    """Where float64 told no rows apart another row may: the campaign runs as if it had not ended."""
    X, signs = apart(rng, 500, 3, 0.3)
    problem = ActiveMargin(source_of(X), resident_rows=100)
    before = states(problem, Person(signs, patience=12))[-1]
    (row,) = problem.questions(before)
    at_end = replace(before, status=ended, wanted=np.zeros(0, np.int64))
    after, expected = (problem.answered(state, {row: int(signs[row] > 0)}) for state in (at_end, before))
    assert (after.status, problem.questions(after)) == ("running", problem.questions(expected))
    is_true(problem, states(problem, Person(signs), after)[-1], X, signs)


def test_where_nobody_answers_it_waits(rng: np.random.Generator) -> None:
    """After 10 answers there is a state to go on from, and the end is the same as without a break."""
    X, signs = apart(rng, 2000, 4, 0.1)
    problem = ActiveMargin(source_of(X), resident_rows=100)
    before = states(problem, Person(signs, patience=10))[-1]
    assert before.status == "running"
    assert len(problem.questions(before)) == 1
    whole, after = states(problem, Person(signs))[-1], states(problem, Person(signs), before)[-1]
    assert np.array_equal(whole.hypothesis.w, after.hypothesis.w)
    assert whole.draws.ids.tolist() == after.draws.ids.tolist()


def test_rows_of_no_weight_are_nobodys(rng: np.random.Generator) -> None:
    """They are not asked for, not drawn, and may lie within the slab."""
    X, signs = apart(rng, 2000, 4, 0.2)
    X[::7] *= 1e-6
    weights = np.ones(len(X))
    weights[::7] = 0.0
    problem = ActiveMargin(source_of(X, weights=weights), resident_rows=200)
    person = Person(signs)
    state = states(problem, person)[-1]
    assert state.status == "certified"
    assert not (np.array(person.asked) % 7 == 0).any()
    counted = np.setdiff1d(np.flatnonzero(weights), state.answered.ids)
    assert state.scanned.sides.sum() == len(counted)
    assert (state.attempt, len(state.draws)) == (1, draws_needed(len(counted), 0.01, 0.005))


def test_where_few_rows_count_no_number_is_drawn_twice(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 of 20,000 rows count: the order of an attempt is walked once, however often it is scanned, not twice a scan;
    what is drawn is what the definition says, with the walk interrupted at any number.
    """
    X, signs = apart(rng, 20_000, 3, 0.3)
    weights = (np.arange(20_000) % 66 == 0).astype(float)
    walked = 0

    def counted(*attempt: Any) -> Iterator[int]:
        nonlocal walked
        for number in drawn(*attempt):
            walked += 1
            if walked == 5000:
                raise KeyboardInterrupt
            yield number

    monkeypatch.setattr("coremargin.problems.active.draws.drawn", counted)
    problem = ActiveMargin(source_of(X, 1000, weights=weights), resident_rows=20)
    with pytest.raises(KeyboardInterrupt):
        states(problem, Person(signs))
    state = states(problem, Person(signs))[-1]
    assert state.status == "certified"
    assert state.round >= state.attempt
    assert walked <= 5000 + 20_000 * state.attempt
    order = drawn(problem.source.digest, 0, state.attempt, 20_000)
    open_ones = [row for row in order if weights[row] > 0 and row not in state.answered.ids]
    assert state.draws.ids.tolist() == open_ones[: len(state.draws)]


def with_a_far_cluster(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and signs, that a hyperplane leans away from which nobody has asked about far rows."""
    near = np.stack([rng.choice([-1, 1], 1900) * rng.uniform(0.3, 2.0, 1900), rng.uniform(-1.0, 1.0, 1900)], axis=1)
    far = np.stack([np.tile([5.0, -5.0], 50), np.full(100, 2000.0)], axis=1) + rng.standard_normal((100, 2)) * 0.1
    X = np.concatenate([near, far])
    return X, np.where(X[:, 0] > 0, 1, -1)


def from_two_examples(problem: ActiveMargin, signs: np.ndarray) -> list[ActiveState]:
    """The states of a campaign that begins with a row of each class."""
    examples = {int(np.flatnonzero(codes_of(signs) == code)[0]): code for code in (1, 0)}
    return states(problem, Person(signs), problem.answered(problem.start(), examples))


@pytest.mark.parametrize("sent", [None, 0, 1000])
def test_a_wrong_draw_begins_another_attempt(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, sent: int | None
) -> None:
    """A far cluster of the other class: the slab is empty, draws find it, and the claim is about all rows again,
    however few of the rows drawn are in memory.
    """
    if sent is not None:
        monkeypatch.setattr("coremargin.problems.active.problem.SENT_BYTES", sent)
    X, signs = with_a_far_cluster(rng)
    problem = ActiveMargin(source_of(X), resident_rows=300)
    every = from_two_examples(problem, signs)
    is_true(problem, every[-1], X, signs)
    assert every[-1].attempt > 1


def test_after_a_wrong_draw_the_others_are_told_without_a_read(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of answers about all draws costs no chunk for each of them, though the first one is wrong."""
    X, signs = with_a_far_cluster(rng)
    problem = ActiveMargin(source_of(X), resident_rows=300)
    state = next(one for one in from_two_examples(problem, signs) if len(one.draws) and not one.draws.is_answered.any())
    wrong = np.flatnonzero(state.draws.sides != codes_of(signs)[state.draws.ids])
    rows = [int(row) for row in np.roll(state.draws.ids, -int(wrong[0]))[:12]]

    def rows_at(*_: object) -> None:
        raise AssertionError("the store was read")

    monkeypatch.setattr(type(problem.source), "rows_at", rows_at)
    for row in rows:
        state = problem.answered(state, {row: int(signs[row] > 0)})
    assert state.attempt == 2
    assert np.isin(rows, state.answered.ids).all()


@pytest.mark.slow
def test_rows_that_are_wide_are_certified_like_any_others(rng: np.random.Generator) -> None:
    """Some 340 draws of 30,000 dense features each are more than come along with a scan: all of them are tried."""
    X = np.zeros((600, 30_000), np.float32)
    X[:, :3], signs = apart(rng, 600, 3, 0.3)
    problem = ActiveMargin(source_of(X, 100), resident_rows=50)
    state = states(problem, Person(signs))[-1]
    is_true(problem, state, X.astype(np.float64), signs)
    assert len(state.draws) * 30_000 * 8 > SENT_BYTES
    evidence = evidence_of(problem, state, [0, 1])
    assert (found_of(problem, state).status, evidence and evidence["draws"]) == ("certified", len(state.draws))
    assert evidence is not None
    assert evidence["error_bound"] <= 0.01 * evidence["population"]


def test_answers_that_contradict_each_other_end_it() -> None:
    """Equal rows with both labels: no hyperplane; the rows that show it carry the weight."""
    X = np.repeat(np.random.default_rng(0).standard_normal((40, 3)), 2, axis=0)
    problem = ActiveMargin(source_of(X), resident_rows=80)
    state = states(problem, Person(np.tile([1, -1], 40)))[-1]
    assert state.status == "contradiction"
    core = state.answered.take(state.answered.support)
    assert core.both_classes
    assert len(problem.questions(state)) == 0


def test_all_answers_equal_for_ever() -> None:
    """The adversary of Figure 3: one row in a circle is of the other class. What is claimed says so many may be wrong.

    Nothing but all labels could show that there is none.
    """
    angle = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    problem = ActiveMargin(source_of(X), resident_rows=500)
    person = Person(np.ones(len(X), int))
    state = states(problem, person)[-1]
    assert state.status == "certified"
    assert not state.hypothesis.w.any()
    assert state.hypothesis.b[0] == 1.0
    assert len(person.asked) < 700
    assert len(state.draws) == draws_needed(len(X) - len(state.answered), 0.01, 0.005)
    assert problem.round_of(state).lower == 0.0


def test_states_come_back_with_their_draws_and_questions(rng: np.random.Generator) -> None:
    """A state without draws and one in the middle of them both come back."""
    X, signs = apart(rng, 1000, 3, 0.3)
    problem = ActiveMargin(source_of(X), resident_rows=100)
    every = states(problem, Person(signs))
    drawing = next(state for state in every if len(state.draws) and not state.draws.is_answered.all())
    for state in (every[0], drawing, replace(drawing, round=3)):
        again = problem.restore(state.to_arrays())
        assert again.draws.ids.tolist() == state.draws.ids.tolist()
        assert problem.questions(again) == problem.questions(state)
