"""Three classes and more: a hyperplane for each against the rest, with bounds of its own, and what is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from asking import blobs, course_of, scan, source_of
from scipy.sparse import csr_array

from coremargin.active.learner import Learner
from coremargin.formats.draws import drawn
from coremargin.maths.evidence import draws_needed, share_of
from coremargin.problems.active.hypothesis import NONE
from coremargin.problems.active.model import evidence_of, found_of
from coremargin.problems.active.problem import ActiveMargin
from margin_judges import margin_by_daqp

if TYPE_CHECKING:
    from coremargin.problems.active.state import ActiveState


def last_of(problem: ActiveMargin, codes: np.ndarray) -> ActiveState:
    """Where a campaign ends."""
    return list(course_of(problem, codes))[-1]


def is_true(problem: ActiveMargin, state: ActiveState, X: np.ndarray, codes: np.ndarray) -> None:
    """Certified: each class's bounds hold for all rows and the best margin of them, one class claims each row, and the
    draws are the first of the order without an answer, as many as show what was asked for.
    """
    assert state.status == "certified"
    values = X @ state.hypothesis.w.T + state.hypothesis.b
    rest = np.setdiff1d(np.arange(len(X)), state.answered.ids)
    assert ((values > 0).sum(axis=1) == 1).all()
    for k, (lower, upper) in enumerate(found_of(problem, state).members):
        assert lower is not None
        assert upper is not None
        signs = np.where(codes == k, 1, -1)
        known = state.answered.ids
        assert lower <= np.abs(values[rest, k]).min() + 1e-12
        assert lower <= (signs[known] * values[known, k]).min() + 1e-12
        assert upper >= margin_by_daqp(X, signs, intercept=problem.intercept) * (1 - 1e-6)
        assert lower >= (1 - problem.epsilon) * upper
        assert np.isclose(np.linalg.norm(state.hypothesis.w[k]), 1.0)
    order = drawn(problem.source.digest, problem.seed, state.attempt, len(X))
    open_ones = [row for row in order if row not in state.answered.ids]
    needed = draws_needed(len(rest), problem.error, share_of(1 - problem.confidence, state.attempt))
    assert state.draws.ids.tolist() == open_ones[:needed]
    assert (values[state.draws.ids].argmax(axis=1) == codes[state.draws.ids]).all()
    assert state.scanned.sides.sum() == len(rest)


@pytest.mark.specimens(7)
@pytest.mark.parametrize("classes", [3, 4, 5])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_claimed_of_each_class_is_true(
    rng: np.random.Generator, classes: int, intercept: bool, sparse: bool
) -> None:
    """Of all rows; DAQP with all labels finds no larger margin of any class against the rest than its bound."""
    X, codes = blobs(rng, 400, classes, 3)
    if not intercept:
        X[:, 2] = 1.0
    problem = ActiveMargin(
        source_of(csr_array(X) if sparse else X), classes=classes, error=0.05, intercept=intercept, resident_rows=60
    )
    state = last_of(problem, codes)
    is_true(problem, state, X, codes)
    assert len(state.answered) + len(state.draws) < 250
    assert intercept or not state.hypothesis.b.any()


def test_the_scale_of_rows_changes_no_question(rng: np.random.Generator) -> None:
    """Rows 1024 times as long: the same draws and answers, and bounds 1024 times as large."""
    X, codes = blobs(rng, 300, 3)
    ends = [
        last_of(ActiveMargin(source_of(X * scale), classes=3, error=0.1, resident_rows=300), codes)
        for scale in (1.0, 1024.0)
    ]
    assert np.isin(ends[0].answered.ids, ends[1].answered.ids).all()
    assert np.allclose(ends[1].upper, 1024.0 * ends[0].upper)


def test_a_row_that_no_class_claims_is_asked_about_first(rng: np.random.Generator) -> None:
    """With three answers, and rows in the middle of them: the next question is one that not exactly one class claims,
    and as long as there is one no rows are drawn.
    """
    X, codes = blobs(rng, 400, 3)
    X[::10] *= 0.3
    problem = ActiveMargin(source_of(X), classes=3, error=0.05, resident_rows=400)
    homeless = 0
    for state in course_of(problem, codes):
        rows = problem.questions(state)
        if state.status == "running" and len(state.answered.seen_classes) == 3 and len(rows) and not len(state.draws):
            open_ones = np.setdiff1d(np.arange(400), state.answered.ids)
            claims = ((X @ state.hypothesis.w.T + state.hypothesis.b) > 0).sum(axis=1)
            if (claims[open_ones] != 1).any():
                assert claims[rows[0]] != 1
                homeless += 1
        if len(state.draws):
            assert state.scanned.sides[NONE] == 0
    assert homeless > 0


def test_where_answers_contradict_each_other_the_class_is_named(rng: np.random.Generator) -> None:
    """Equal rows of classes 1 and 2: the first class whose hulls meet is 1; class 0 is apart from all."""
    X, codes = blobs(rng, 200, 3)
    of_two = np.flatnonzero(codes == 1)
    X[np.flatnonzero(codes == 2)[:20]] = X[of_two[:20]]
    problem = ActiveMargin(source_of(X), classes=3, resident_rows=200)
    state = last_of(problem, codes)
    found = found_of(problem, state)
    assert (state.status, state.failed, found.status, found.lower) == ("contradiction", 1, "not_separable", None)
    core = state.answered.take(np.flatnonzero(state.answered.weights[:, 1] > 0))
    assert {1} < set(core.codes.tolist())
    a = core.weights[:, 1] * np.where(core.codes == 1, 1, -1)
    assert np.abs(a @ np.asarray(core.rows)).max() <= 1e-9 * np.abs(core.weights[:, 1] @ np.abs(core.rows)).max()


def test_a_class_without_answers_leaves_no_certificate(rng: np.random.Generator) -> None:
    """Nobody has seen the fourth class: the draws are done, and what is missing is said, not claimed."""
    X, codes = blobs(rng, 300, 3)
    problem = ActiveMargin(source_of(X), classes=4, error=0.05, resident_rows=100)
    state = last_of(problem, codes)
    assert state.status == "certified"
    assert Learner(problem, state).lacks_classes
    assert found_of(problem, state).members[3] == (None, None)
    assert (found_of(problem, state).status, evidence_of(problem, state, list("abcd"))) == ("stopped", None)


def test_rows_of_no_weight_are_nobodys(rng: np.random.Generator) -> None:
    """Of several classes, too: they are not asked about, not drawn, not counted."""
    X, codes = blobs(rng, 400, 3)
    weights = np.ones(400)
    weights[::4] = 0.0
    X[::4] *= 1e-3
    problem = ActiveMargin(source_of(X, weights=weights), classes=3, error=0.05, resident_rows=60)
    state = last_of(problem, codes)
    assert state.status == "certified"
    asked = np.concatenate([state.answered.ids, state.draws.ids])
    assert (asked % 4 != 0).all()
    assert state.scanned.population == 300 - len(state.answered)


@pytest.mark.parametrize("by_class", [False, True])
def test_any_state_and_any_blocks_lead_to_the_same_bits(rng: np.random.Generator, by_class: bool) -> None:
    """Each state that was written and read again, and scans by one block or one for each chunk."""
    X, codes = blobs(rng, 240, 3)
    problem = ActiveMargin(source_of(X), classes=3, error=0.1, by_class=by_class, resident_rows=240)
    every = list(course_of(problem, codes))
    last = every[-1].to_arrays()
    for state in every[:: max(1, len(every) // 8)]:
        again = problem.restore({name: value.copy() for name, value in state.to_arrays().items()})
        end = list(course_of(replace(problem), codes, again, block_bytes=1 << 30))[-1].to_arrays()
        assert end.keys() == last.keys()
        assert all(np.array_equal(end[name], last[name]) for name in last)


def test_scans_say_what_numpy_says_by_whatever_blocks(rng: np.random.Generator) -> None:
    """Scans by blocks of any size, merged from the end, say the same to the bit, and what NumPy says of all rows."""
    X, codes = blobs(rng, 200, 3)
    problem = ActiveMargin(source_of(X), classes=3, error=0.05, resident_rows=40, blocks=4)
    some = [int(np.flatnonzero(codes == k)[0]) for k in range(3)]
    state = problem.answered(problem.start(), {row: int(codes[row]) for row in some})
    state = replace(state, wanted=np.zeros(0, np.int64))
    after = [scan(problem, state, size) for size in (1, 4000, 1 << 30)]
    values = X @ state.hypothesis.w.T + state.hypothesis.b
    rest = np.setdiff1d(np.arange(200), state.answered.ids)
    claims = (values[rest] > 0).sum(axis=1)
    for one in after:
        assert one.scanned.nearest.tobytes() == after[0].scanned.nearest.tobytes()
        assert np.allclose(one.scanned.nearest, np.abs(values[rest]).min(axis=0))
        assert one.scanned.sides[NONE] == (claims != 1).sum()
        assert one.scanned.sides[:3].tolist() == [
            int(((claims == 1) & (values[rest].argmax(axis=1) == k)).sum()) for k in range(3)
        ]
