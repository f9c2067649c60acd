"""Three classes and more with one margin at once: bounds by loops over rows and rivals, and by least squares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from asking import course_of, source_of
from classes_kit import kesler_vector, row_margins, separable
from scipy.optimize import nnls
from scipy.sparse import csr_array

from coremargin.active import ActiveLearner
from coremargin.active.learner import Learner
from coremargin.errors import SpecError, UsageError
from coremargin.formats.draws import drawn
from coremargin.problems.active.model import evidence_of, found_of
from coremargin.problems.active.problem import ActiveMargin
from coremargin.problems.active.spec import ActiveJob
from coremargin.spec import convert

if TYPE_CHECKING:
    from coremargin.problems.active.state import ActiveState


def collinear(rng: np.random.Generator, rows: int = 150, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 2) of squares on a line, of which no line separates an inner one from all others, and their codes."""
    codes = np.arange(rows) % classes
    return rng.uniform(-0.4, 0.4, (rows, 2)) + np.outer(4.0 * codes, [1.0, 0.5]), codes


def largest_margin(X: np.ndarray, codes: np.ndarray, classes: int, constant: float) -> float:
    """The distance of the hull of all Kesler vectors from the origin, by Lawson and Hanson's least distances."""
    flat = np.column_stack([X, np.full(len(X), constant)])
    vectors = []
    for x, own in zip(flat, codes, strict=True):
        for rival in range(classes):
            if rival != own:
                z = np.zeros((classes, flat.shape[1]))
                z[own], z[rival] = x, -x
                vectors.append(z.ravel())
    Z = np.array(vectors) / np.abs(vectors).max()
    weights, _ = nnls(np.vstack([Z.T, np.ones(len(Z))]), np.append(np.zeros(Z.shape[1]), 1.0), maxiter=100_000)
    return float(np.linalg.norm(weights @ Z) / weights.sum() * np.abs(vectors).max())


def last_of(problem: ActiveMargin, codes: np.ndarray) -> ActiveState:
    """Where a campaign ends."""
    return list(course_of(problem, codes))[-1]


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("collinear", {}),
        ("collinear", {"by_class": True}),
        ("collinear", {"method": "stream"}),
        ("four", {}),
        ("random", {"intercept": False, "epsilon": 0.01}),
        ("sparse", {"intercept": False}),
    ],
)
def test_bounds_and_draws_are_true(rng: np.random.Generator, kind: str, asked: dict[str, Any]) -> None:
    """The answers lead to a margin of all rows within epsilon of the largest, by a hull of loops and least squares."""
    if kind in ("collinear", "four"):
        X, codes = collinear(rng, 160, 4) if kind == "four" else collinear(rng)
    else:
        X, codes = separable(3, 150, 3, 3, gap=0.3)
    X = X.astype(np.float32).astype(np.float64)
    classes = int(codes.max()) + 1
    problem = ActiveMargin(
        source_of(csr_array(X) if kind == "sparse" else X),
        classes=classes, at_once=True, error=0.1, confidence=0.9, resident_rows=40, **asked,
    )  # fmt: skip
    state = last_of(problem, codes)
    assert state.status == "certified"
    [(lower, upper)] = found_of(problem, state).members
    assert lower is not None
    assert upper is not None
    w, b = state.hypothesis.w, state.hypothesis.b
    last = b / problem.constant if problem.constant else b
    flat = np.column_stack([X, np.full(len(X), problem.constant)])
    V = np.column_stack([w, last])
    assert np.isclose(np.linalg.norm(V), 1.0)
    assert (flat @ V.T).argmax(axis=1).tolist() == codes.tolist()
    assert lower <= row_margins(flat, codes, V).min() + 1e-12
    assert lower >= row_margins(flat, codes, V).min() - 1e-9
    best = largest_margin(X, codes, classes, problem.constant)
    assert best * (1 - 1e-9) <= upper
    assert (1 - problem.epsilon) * upper <= lower <= best * (1 + 1e-9)
    m = state.answered
    rows = csr_array(m.rows).toarray()
    total = kesler_vector(np.column_stack([rows, np.full(len(m), problem.constant)]), m.codes, m.weights)
    assert np.isclose(np.linalg.norm(total), upper, rtol=1e-6)
    if not problem.by_class:
        order = [row for row in drawn(problem.source.digest, 0, state.attempt, len(X)) if row not in m.ids]
        assert state.draws.ids.tolist() == order[: len(state.draws)]


def test_the_question_is_the_row_whose_two_largest_scores_are_closest(rng: np.random.Generator) -> None:
    """Once two classes are known, with all rows in memory, up to the draws."""
    X, codes = collinear(rng)
    problem, asked = ActiveMargin(source_of(X), classes=3, at_once=True, error=0.1, resident_rows=150), 0
    for state in course_of(problem, codes):
        rows = problem.questions(state)
        if state.status == "running" and state.answered.both_classes and len(rows) and not len(state.draws):
            free = np.setdiff1d(np.arange(150), state.answered.ids)
            scores = np.sort(X[free] @ state.hypothesis.w.T + state.hypothesis.b, axis=1)
            assert rows[0] == free[int((scores[:, -1] - scores[:, -2]).argmin())]
            asked += 1
    assert asked > 2


def test_few_labels_are_asked_near_the_hyperplanes(rng: np.random.Generator) -> None:
    """Where each class against the rest ends in a contradiction, a dozen answers and the draws give all labels."""
    X, codes = collinear(rng, 600)
    apart = last_of(ActiveMargin(source_of(X), classes=3, resident_rows=200), codes)
    assert (apart.status, apart.failed) == ("contradiction", 1)
    state = last_of(ActiveMargin(source_of(X), classes=3, at_once=True, error=0.05, resident_rows=200), codes)
    assert state.status == "certified"
    assert len(state.answered) <= 12


def test_answers_that_contradict_each_other_are_named(rng: np.random.Generator) -> None:
    """Equal rows of two classes: the weights of pairs of rows and rivals add up to nothing."""
    X, codes = collinear(rng)
    X[codes == 2] = X[np.flatnonzero(codes == 1)[0]]
    problem = ActiveMargin(source_of(X), classes=3, at_once=True, resident_rows=150)
    state = last_of(problem, codes)
    found = found_of(problem, state)
    assert (state.status, found.status, found.kind, found.lower) == ("contradiction", *["not_separable"] * 2, None)
    m = state.answered
    total = kesler_vector(np.column_stack([np.asarray(m.rows), np.full(len(m), problem.constant)]), m.codes, m.weights)
    assert np.isclose(m.weights.sum(), 1.0)
    assert np.abs(total).max() <= 1e-9 * problem.constant


def test_a_class_without_answers_leaves_no_certificate(rng: np.random.Generator) -> None:
    """The fourth class has no row: the draws are done, and nothing is claimed."""
    X, codes = collinear(rng)
    problem = ActiveMargin(source_of(X), classes=4, at_once=True, error=0.1, resident_rows=150)
    state = last_of(problem, codes)
    assert Learner(problem, state).lacks_classes
    assert (found_of(problem, state).status, evidence_of(problem, state, list("abcd"))) == ("stopped", None)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"loss": "hinge", "C": 1.0}, "cannot be combined with loss"),
        ({"map": "polynomial"}, "cannot be combined with map"),
        ({"method": "ep"}, "expected coreset, stream or random with multi_class 'crammer-singer', found 'ep'"),
        ({"classes": ["a", "b"]}, "is for three classes or more, found 2"),
        ({"multi_class": "one"}, "multi_class"),
    ],
)
def test_what_is_not_supported_is_refused(asked: dict[str, Any], message: str) -> None:
    """Before a row is read."""
    job = {"job": "active", "store": "s", "out": "o", "classes": ["a", "b", "c"], "multi_class": "crammer-singer"}
    with pytest.raises(SpecError, match=message):
        convert(job | asked, ActiveJob, where="a job", base=Path())


def test_arrays_in_memory(rng: np.random.Generator) -> None:
    """``ActiveLearner`` with three classes; of the first two that come it is refused."""
    X, codes = collinear(rng)
    learner = ActiveLearner(X, classes=list("abc"), multi_class="crammer-singer", error=0.1)
    while len(rows := learner.query(1)[0]):
        learner.teach(rows, ["abc"[codes[row]] for row in rows])
    assert learner.status == "certified"
    assert learner.predict(X).tolist() == ["abc"[code] for code in codes]
    with pytest.raises(UsageError, match="three classes or more"):
        ActiveLearner(X, multi_class="crammer-singer")
