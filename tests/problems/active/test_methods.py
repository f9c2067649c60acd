"""All methods: the same claim at the end, whatever they ask about on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
from asking import Person, apart, source_of, states, values_of
from nightmare import Adversary, circle
from scipy.sparse import csr_array

from coremargin.active.learner import Learner
from coremargin.formats.choices import Method
from coremargin.maths.active.centres import CENTRES
from coremargin.problems.active.problem import ActiveMargin
from coremargin.problems.active.strategies import METHODS
from margin_judges import margin_by_daqp

if TYPE_CHECKING:
    from coremargin.maths.active.version_space import VersionSpace
    from coremargin.problems.active.state import ActiveState

#: Those that draw points of the version space take long.
QUICK: tuple[Method, ...] = ("coreset", "stream", "slab", "random", "chebyshev", "analytic", "ep", "perceptron")


def check(problem: ActiveMargin, state: ActiveState, X: np.ndarray, signs: np.ndarray) -> None:
    """Certified: no row of all within the slab, the bounds hold for the best margin of all rows, no draw is wrong."""
    assert state.status == "certified"
    told = problem.round_of(state)
    best = margin_by_daqp(X, signs, intercept=problem.intercept)
    values = values_of(state, X)
    assert told.lower <= np.abs(values).min() + 1e-12
    assert told.lower >= (1 - problem.epsilon) * told.upper
    assert told.upper >= best * (1 - 1e-6)
    assert (np.sign(values[state.draws.ids]) == signs[state.draws.ids]).all()


def test_all_methods_that_can_be_named_are_there() -> None:
    """Each word that a job may say has a method, and no method has no word."""
    assert set(METHODS) == set(get_args(Method))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_ends_with_the_same_claim(method: Method) -> None:
    """On the same rows all are certified, with bounds on the same margin; each row is asked about once."""
    X, signs = apart(np.random.default_rng(4), 1500, 3, 0.3)
    problem = ActiveMargin(source_of(X), method=method, error=0.02, resident_rows=150)
    person = Person(signs)
    state = states(problem, person)[-1]
    check(problem, state, X, signs)
    assert len(set(person.asked)) == len(person.asked) == len(state.answered) + len(state.draws)
    assert len(state.answered) < (1000 if method == "random" else 80)


@pytest.mark.specimens(6)
@pytest.mark.parametrize("method", QUICK)
@pytest.mark.parametrize("sparse", [False, True])
def test_methods_take_sparse_rows_and_go_through_the_origin(method: Method, sparse: bool) -> None:
    """Without an offset b is 0, and the bounds are those of hyperplanes through the origin."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((800, 4))
    w = np.array([0.5, -0.5, 0.5, 0.5])
    signs = np.where(X @ w >= 0, 1, -1)
    X += 0.4 * signs[:, None] * w
    rows = csr_array(X) if sparse else X
    problem = ActiveMargin(source_of(rows), method=method, intercept=False, error=0.02, resident_rows=100)
    state = states(problem, Person(signs))[-1]
    check(problem, state, X, signs)
    assert state.hypothesis.b[0] == 0.0


@pytest.mark.parametrize("method", QUICK)
def test_methods_go_on_from_any_state_and_ask_about_some_rows_at_a_time(method: Method) -> None:
    """No row twice; a state that was written and read again leads to the same bits, and wants the same rows."""
    X, signs = apart(np.random.default_rng(5), 900, 3, 0.3)
    problem = ActiveMargin(source_of(X), method=method, error=0.05, resident_rows=90)
    person = Person(signs)
    every = states(problem, person)
    assert len(set(person.asked)) == len(person.asked)
    check(problem, every[-1], X, signs)
    middle = every[len(every) // 2]
    again = problem.restore({name: value.copy() for name, value in middle.to_arrays().items()})
    rows = Learner(problem, middle).ask(5)
    assert rows == Learner(problem, again).ask(5)
    assert 0 < len(set(rows)) == len(rows) <= 5
    assert not set(rows) & set(middle.answered.ids.tolist())
    last, end = every[-1].to_arrays(), states(problem, Person(signs), again)[-1].to_arrays()
    assert all(np.array_equal(end[name], last[name]) for name in last)


@pytest.mark.specimens(3)
@pytest.mark.parametrize("method", QUICK)
def test_what_is_asked_about_lies_within_the_slab(method: Method) -> None:
    """So that Corollary 3.2 covers it: every row in memory once both classes are known, but for those at random."""
    X, signs = apart(np.random.default_rng(8), 1500, 4, 0.2)
    problem = ActiveMargin(source_of(X), method=method, error=0.05, resident_rows=1500)
    beyond = 0
    for state in states(problem, Person(signs)):
        if state.status == "running" and state.answered.both_classes and not len(state.draws):
            values = np.abs(values_of(state, X[list(problem.questions(state))]))
            beyond += int((values >= (1 - problem.epsilon) * state.upper).any())
    assert (beyond > 0) == (method == "random")


@pytest.mark.slow
def test_methods_ask_about_different_rows() -> None:
    """From the same answers no two of these ask about the same 20 rows: each goes its own way."""
    X, signs = apart(np.random.default_rng(6), 4000, 6, 0.2)
    orders = {}
    some: tuple[Method, ...] = ("coreset", "stream", "slab", "random", "chebyshev", "ep")
    for method in some:
        person = Person(signs, patience=40)
        states(ActiveMargin(source_of(X, 500), method=method, resident_rows=2000), person)
        orders[method] = tuple(person.asked)
    assert len(set(orders.values())) == len(orders)


def test_the_seed_decides_what_is_left_to_chance() -> None:
    """The same seed asks about the same rows, another one about others; the coreset leaves nothing to it."""
    X, signs = apart(np.random.default_rng(6), 1000, 4, 0.2)

    def asked(method: Method, seed: int) -> list[int]:
        person = Person(signs, patience=30)
        states(ActiveMargin(source_of(X), method=method, seed=seed, resident_rows=500), person)
        return person.asked

    assert asked("random", 1) == asked("random", 1) != asked("random", 2)
    assert asked("coreset", 1)[:18] == asked("coreset", 2)[:18]  # before rows are drawn


def test_answers_that_contradict_each_other_end_every_method() -> None:
    """Equal rows with both labels: the hulls meet, whoever asked."""
    X = np.repeat(np.random.default_rng(0).standard_normal((20, 2)), 2, axis=0)
    for method in QUICK:
        state = states(ActiveMargin(source_of(X), method=method, resident_rows=40), Person(np.tile([1, -1], 20)))[-1]
        assert state.status == "contradiction", method


@pytest.mark.parametrize("method", QUICK)
def test_on_a_circle_the_last_row_is_the_one(method: Method) -> None:
    """Figure 3: where no row at all may be wrong, an adversary has all labels asked for, and the last is the only -."""
    adversary = Adversary(60)
    problem = ActiveMargin(source_of(circle(60), 10), method=method, error=0.01, resident_rows=60)
    state = states(problem, lambda rows: {row: max(0, sign) for row, sign in adversary.answers(rows).items()})[-1]
    assert state.status == "certified"
    assert sorted(adversary.asked) == list(range(60))
    signs = np.where(np.arange(60) == adversary.asked[-1], -1, 1)
    assert (np.sign(values_of(state, circle(60))) == signs).all()


def test_where_the_version_space_is_too_thin_the_nearest_row_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A centre that is not found leaves the coreset method's questions, one by one."""
    X, signs = apart(np.random.default_rng(9), 600, 3, 0.2)
    problem = ActiveMargin(source_of(X), method="perceptron", error=0.05, resident_rows=600)
    monkeypatch.setattr("coremargin.maths.active.centres.UPDATES", 0)
    thin, known = Person(signs), Person(signs)
    states(problem, thin)
    states(replace(problem, method="coreset"), known)
    assert thin.asked == known.asked


@pytest.mark.parametrize("error", [ZeroDivisionError, FloatingPointError, None])
def test_where_a_centre_overflows_the_nearest_row_is_asked_about(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None
) -> None:
    """An answer that is in the log already must never end in an error of a centre, nor in a warning of NumPy."""

    def centre(space: VersionSpace, _: int) -> np.ndarray:
        if error is not None:
            raise error
        return np.zeros(space.dimensions) / np.zeros(1)

    X, signs = apart(np.random.default_rng(9), 300, 3, 0.3)
    problem = ActiveMargin(source_of(X), method="ep", error=0.1, resident_rows=300)
    monkeypatch.setitem(CENTRES, "ep", centre)  # type: ignore[arg-type]
    thin, known = Person(signs), Person(signs)
    states(problem, thin)
    states(replace(problem, method="coreset"), known)
    assert thin.asked == known.asked
