"""With a loss: the value and its bound, the draws of a trial, when trials come, and what stays of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from asking import answer, apart, blobs, course_of, source_of
from scipy.stats import hypergeom
from sklearn.svm import SVC, LinearSVC

from coremargin.active.learner import Learner
from coremargin.formats.draws import drawn
from coremargin.problems.active.model import evidence_of, found_of
from coremargin.problems.active.problem import ActiveMargin

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss
    from coremargin.problems.active.state import ActiveState

LOSSES: tuple[Loss, ...] = ("hinge", "squared_hinge")


def noisy(rng: np.random.Generator, rows: int = 400, share: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two classes, and codes of which a share is turned round."""
    X, signs = apart(rng, rows, 3, 0.2)
    return X, np.where(rng.random(rows) < share, signs < 0, signs > 0).astype(int)


def value_of(X: np.ndarray, signs: np.ndarray, w: np.ndarray, b: float, loss: Loss, cost: float) -> float:
    """The soft margin's value."""
    lost = np.maximum(0.0, 1.0 - signs * (X @ w + b))
    return float(0.5 * w @ w + cost * (lost if loss == "hinge" else lost**2).sum())


def bound_of(X: np.ndarray, signs: np.ndarray, a: np.ndarray, loss: Loss, cost: float) -> float:
    """What dual weights prove where they are in balance."""
    v = (a * signs) @ X
    return float(a.sum() - 0.5 * v @ v - (0.0 if loss == "hinge" else a @ a / (4 * cost)))


def first_trials(every: list[ActiveState]) -> list[ActiveState]:
    """The states in which all draws of an attempt are answered, one of each."""
    return list({state.attempt: state for state in every if state.draws.all_answered}.values())


def between(rows: int, draws: int, wrong: int, delta: float) -> tuple[int, int]:
    """The least and the most wrong rows that SciPy's hypergeometric distribution does not rule out."""
    bad = np.arange(wrong, rows - (draws - wrong) + 1)
    few, many = hypergeom.cdf(wrong, rows, bad, draws), hypergeom.sf(wrong - 1, rows, bad, draws)
    return int(bad[many > delta].min()), int(bad[few > delta].max())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [True, False])
def test_values_are_those_of_others(rng: np.random.Generator, loss: Loss, intercept: bool) -> None:
    """The bounds enclose the value of scikit-learn's best (w, b), and what the dual weights prove by NumPy is the lower
    one: the weights are between 0 and C, and in balance with an intercept.
    """
    X, codes = noisy(rng, 120)
    problem = ActiveMargin(source_of(X), loss=loss, cost=0.7, trial=40, intercept=intercept, resident_rows=120)
    state = problem.answered(problem.start(), dict(enumerate(codes.tolist())))
    signs, w, b = np.where(codes == 1, 1, -1), state.hypothesis.w[0], float(state.hypothesis.b[0])
    lower, upper = float(state.lower[0]), float(state.upper[0])
    assert 0 < lower <= upper <= lower * (1 + 1e-6)
    assert np.isclose(upper, value_of(X, signs, w, b, loss, 0.7), rtol=1e-8)
    a = state.answered.weights[:, 0]
    assert (a >= 0).all()
    assert loss == "squared_hinge" or (a <= 0.7).all()
    assert not intercept or abs(a @ signs) <= 1e-9 * a.sum()
    assert lower <= bound_of(X, signs, a, loss, 0.7) <= upper
    if loss == "hinge" and intercept:
        other = SVC(kernel="linear", C=0.7, tol=1e-9).fit(X, signs)
    elif loss == "squared_hinge" and not intercept:
        other = LinearSVC(C=0.7, tol=1e-9, max_iter=100_000, fit_intercept=False).fit(X, signs)
    else:
        return
    best = value_of(X, signs, other.coef_[0], float(np.ravel(other.intercept_)[0]), loss, 0.7)
    assert lower <= best <= upper * (1 + 1e-6)
    assert np.allclose(w, other.coef_[0], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_trials_come_at_doubling_answers_and_have_their_size(rng: np.random.Generator, loss: Loss) -> None:
    """Each has min(trial, N) draws, the first of its order, none answered before; no trial comes before as many answers
    are new as it has draws, and as there were, unless no open row is within |w.x + b| < 1; one that is enough ends it.
    """
    X, codes = noisy(rng, 600, 0.2)
    problem = ActiveMargin(source_of(X), loss=loss, error=0.25, confidence=0.9, trial=60, resident_rows=600)
    every = list(course_of(problem, codes))
    ends, before = first_trials(every), 0
    for number, state in enumerate(ends, 1):
        rest = np.setdiff1d(np.arange(600), state.answered.ids)
        order = [row for row in drawn(problem.source.digest, 0, number, 600) if row in rest]
        assert state.attempt == number
        assert state.draws.ids.tolist() == order[: min(60, len(rest))]
        near = np.abs(X[rest] @ state.hypothesis.w[0] + state.hypothesis.b[0]) < 1
        assert len(state.answered) - before >= max(60, before) or not near.any()
        evidence = evidence_of(problem, state, "ab")
        assert evidence is not None
        wrong = int(((X @ state.hypothesis.w[0] + state.hypothesis.b[0] >= 0) != codes)[state.draws.ids].sum())
        assert evidence["wrong"] == wrong
        assert (evidence["error_least"], evidence["error_bound"]) == between(
            len(rest), len(state.draws), wrong, 0.1 / (number * (number + 1)) / 2
        )
        assert (state.status == "certified") == (evidence["error_bound"] <= 0.25 * len(rest))
        before = len(state.answered) + 60
    assert every[-1].status == "certified"


def test_a_trial_that_is_not_enough_stays_until_the_next_answer(rng: np.random.Generator) -> None:
    """It is evidence while nothing is answered; then its draws are rows answered, and the next attempt begins."""
    X, codes = noisy(rng, 500, 0.3)
    problem = ActiveMargin(source_of(X), loss="hinge", error=0.05, trial=50, resident_rows=500)
    state = next(one for one in course_of(problem, codes) if one.draws.all_answered)
    assert state.status == "running"
    assert found_of(problem, state).status == "stopped"
    assert evidence_of(problem, state, "ab") is not None
    (row,) = Learner(problem, state).ask(1)
    assert row not in state.draws.ids
    after = answer(problem, problem.finish_trial(state), row, {row: int(codes[row])})
    assert (after.attempt, len(after.draws), after.tried) == (2, 0, len(state.answered) + 50)
    assert np.isin(state.draws.ids, after.answered.ids).all()
    assert evidence_of(problem, after, "ab") is None
    known = {int(i): int(codes[i]) for i in [*state.answered.ids, *state.draws.ids, row]}
    late = answer(problem, state, row, known)
    assert late.attempt == 2
    assert np.array_equal(late.answered.ids, after.answered.ids)
    assert np.allclose(late.upper, after.upper, rtol=1e-6)


def test_late_answers_change_nothing_once_it_is_certified(rng: np.random.Generator) -> None:
    """With a loss: not one that agrees, and not one that does not."""
    X, codes = noisy(rng, 400, 0.05)
    problem = ActiveMargin(source_of(X), loss="hinge", error=0.3, trial=60, resident_rows=400)
    state = list(course_of(problem, codes))[-1]
    assert state.status == "certified"
    row = next(row for row in range(400) if row not in state.known and row not in state.draws.ids)
    assert all(answer(problem, state, row, {row: code}) is state for code in (0, 1))


@pytest.mark.specimens(1)
@pytest.mark.parametrize("loss", LOSSES)
def test_several_classes_with_a_loss(rng: np.random.Generator, loss: Loss) -> None:
    """A soft margin for each class; a draw is wrong where the largest w.x + b is not that of its class."""
    X, codes = blobs(rng, 400, 3)
    codes = np.where(rng.random(400) < 0.1, rng.integers(0, 3, 400), codes)
    problem = ActiveMargin(
        source_of(X), classes=3, loss=loss, error=0.25, confidence=0.9, trial=50, by_class=True, resident_rows=400
    )
    state = list(course_of(problem, codes))[-1]
    evidence = evidence_of(problem, state, "abc")
    assert state.status == "certified"
    assert evidence is not None
    given = (X @ state.hypothesis.w.T + state.hypothesis.b).argmax(axis=1)
    rest = np.setdiff1d(np.arange(400), state.answered.ids)
    for k, stratum in enumerate(evidence["strata"]):
        mine = state.draws.ids[given[state.draws.ids] == k]
        assert stratum["population"] == (given[rest] == k).sum()
        assert stratum["draws"] == len(mine) == min(50, stratum["population"])
        assert stratum["wrong"] == (codes[mine] != k).sum()
        bad = (codes[rest][given[rest] == k] != k).sum()
        assert stratum["error_least"] <= bad <= stratum["error_bound"] <= 0.25 * stratum["population"]
        signs, known = np.where(codes[state.answered.ids] == k, 1, -1), np.asarray(state.answered.rows)
        value = value_of(known, signs, state.hypothesis.w[k], float(state.hypothesis.b[k]), loss, 1.0)
        a = state.answered.weights[:, k]
        assert state.lower[k] <= bound_of(known, signs, a, loss, 1.0) <= value * (1 + 1e-9)
        assert np.isclose(state.upper[k], value, rtol=1e-8)
        assert state.upper[k] - state.lower[k] <= 1e-6 * value


@pytest.mark.slow
def test_any_state_of_a_loss_leads_to_the_same_bits(rng: np.random.Generator) -> None:
    """In the middle of queries, of draws, and after a trial that was not enough."""
    X, codes = noisy(rng, 300, 0.2)
    problem = ActiveMargin(source_of(X), loss="hinge", error=0.25, trial=30, by_class=True, resident_rows=50)
    every = list(course_of(problem, codes))
    failed = next(one for one in every if one.draws.all_answered and one.status == "running")
    last = every[-1].to_arrays()
    for state in (*every[:: max(1, len(every) // 8)], failed):
        again = problem.restore({name: value.copy() for name, value in state.to_arrays().items()})
        end = list(course_of(replace(problem), codes, again, block_bytes=1 << 30))[-1].to_arrays()
        assert all(np.array_equal(end[name], last[name]) for name in last)
