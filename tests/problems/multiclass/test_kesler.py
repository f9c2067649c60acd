"""The hard margin of several classes out of core: proofs by written-out vectors, bounds, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from classes_kit import finish, kesler_vector, row_margins, separable, solve, table
from scipy.sparse import csr_array

from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.errors import LabelError, UsageError
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.kesler import KeslerSolution, solve_kesler
from coremargin.maths.kesler_apart import solve_apart
from coremargin.problems.multiclass import kesler
from coremargin.problems.multiclass.kesler import KeslerMargin

if TYPE_CHECKING:
    from coremargin.problems.multiclass.classes_problem import ClassesState


def check(problem: KeslerMargin, state: ClassesState) -> None:
    """The claims hold by plain float64 on all rows."""
    assert state.status == "certified"
    assert state.best is not None
    X, y = table(problem)
    assert np.linalg.norm(state.best) == pytest.approx(1.0, abs=1e-14)
    assert row_margins(X, y, state.best).min() >= state.lower
    assert state.lower >= (1 - problem.epsilon) * state.upper
    assert state.duals.sum() == pytest.approx(1.0, abs=1e-12)
    assert (X[state.proof.ids, :-1] == state.proof.rows).all()
    assert np.linalg.norm(kesler_vector(X[state.proof.ids], y[state.proof.ids], state.duals)) <= state.upper


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_bounds_are_proofs(seed: int, intercept: bool) -> None:
    """From a small sample, with rows that are sent in several scans."""
    X, y = separable(seed, 1200, 5, 4)
    source = ArraySource(X, y, chunk_rows=60)
    problem = KeslerMargin(source, 1e-6, intercept=intercept, sample_bytes=2000, sample_share=0.01, blocks=40)
    states = finish(problem, problem.start())
    check(problem, states[-1])
    assert states[0].sample_bytes < source.nbytes / 4
    assert [s.lower for s in states] == sorted(s.lower for s in states)
    assert [s.upper for s in states] == sorted((s.upper for s in states), reverse=True)


def test_few_rows_at_a_time_lead_to_the_same_margin() -> None:
    """A full working set drops rows, and the job still ends."""
    X, y = separable(3, 2000, 4, 4)
    source = ArraySource(X, y, chunk_rows=100)
    blocks = len(plan_blocks(source))
    small = KeslerMargin(source, 1e-4, memory_bytes=40_000, sample_bytes=2000, sample_share=0.01, blocks=blocks)
    large = KeslerMargin(source, 1e-4)
    one, other = solve(small), solve(large)
    check(small, one)
    assert one.lower == pytest.approx(other.lower, rel=2e-4)
    assert one.rows_held <= small.working_set_rows + 500


def test_two_classes_are_a_hyperplane_times_root_two() -> None:
    """Through the origin the margin is root 2 times that of one hyperplane."""
    X, y = separable(4, 300, 6, 2)
    state = solve(KeslerMargin(ArraySource(X, y, chunk_rows=50), 1e-6, intercept=False))
    plane = solve_hard_margin(X, 2 * y - 1, intercept=False)
    assert state.lower == pytest.approx(np.sqrt(2) * plane.upper, rel=2e-6)


def test_sparse_rows_are_rows() -> None:
    """CSR rows have the bounds of the same rows written out."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 30)).astype(np.float32) * (rng.random((400, 30)) < 0.3)
    y = (X @ rng.standard_normal((30, 3))).argmax(axis=1)
    one = KeslerMargin(ArraySource(csr_array(X), y, chunk_rows=50), 1e-4)
    other = KeslerMargin(ArraySource(X, y, chunk_rows=50), 1e-4)
    sparse, dense = solve(one), solve(other)
    assert sparse.status == dense.status == "certified"
    assert sparse.lower == pytest.approx(dense.lower, rel=2e-4)
    assert row_margins(*table(one), sparse.best).min() >= sparse.lower  # type: ignore[arg-type]


def test_rows_of_weight_zero_are_left_out() -> None:
    """A row that would make the classes inseparable may be switched off; other weights change nothing."""
    X, y = separable(6, 200, 4, 3)
    weights = np.where(np.arange(201) == 200, 0.0, 2.0)
    bad, wrong = np.vstack([X, X[:1]]), np.append(y, (y[0] + 1) % 3)
    on = KeslerMargin(ArraySource(bad, wrong, chunk_rows=40), 1e-3)
    off = KeslerMargin(ArraySource(bad, wrong, weights=weights, chunk_rows=40), 1e-3)
    assert solve(on).status == "not_separable"
    assert solve(off).lower == solve(KeslerMargin(ArraySource(X, y, chunk_rows=40), 1e-3)).lower


def test_inseparable_classes_end_with_a_proof() -> None:
    """Few rows whose vectors' hull holds the origin."""
    X, y = separable(7, 300, 4, 4)
    problem = KeslerMargin(ArraySource(np.vstack([X, X[:1]]), np.append(y, (y[0] + 1) % 4), chunk_rows=50), 1e-3)
    state = solve(problem)
    assert state.status == "not_separable"
    found = problem.result(state)
    assert found.kind == "not_separable"
    assert found.lower is None
    Z, y = table(problem)
    assert np.linalg.norm(kesler_vector(Z[state.proof.ids], y[state.proof.ids], state.duals)) <= 1e-12
    assert len(state.proof) <= 4 * 5 + 1


@pytest.mark.specimens(1)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("long", [1e8, 1e12, 1e16])
def test_one_very_long_row_hides_no_margin(long: float, sparse: bool) -> None:
    """Beside it in its chunk lie more rows than are evaluated exactly, and the constant is longer than all of them."""
    X, y = separable(9, 900, 4, 3, gap=0.5)
    X = np.vstack([X, X[:1] * np.float32(long)])
    source = ArraySource(csr_array(X) if sparse else X, np.append(y, y[0]), chunk_rows=1000)
    problem = KeslerMargin(source, 1e-4)
    state = solve(problem)
    assert state.status == "certified"
    assert state.best is not None
    scores = X[:-1].astype(float) @ state.best[:, :-1].T + problem.constant * state.best[:, -1]
    assert row_margins(scores, y, np.eye(3)).min() >= state.lower > 0.01
    ordinary = solve(KeslerMargin(ArraySource(X[:-1], y, chunk_rows=1000), 1e-4))
    assert state.lower > 0.9 * ordinary.lower


def test_what_the_driver_cannot_fill_in_is_not_called_inseparable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows too many to be measured apart from the constant: the job ends without a claim."""
    monkeypatch.setattr(kesler, "FILLED", 10)
    X, y = separable(9, 60, 4, 3, gap=0.5)
    X = np.vstack([X, X[:1] * np.float32(1e14)])
    state = solve(KeslerMargin(ArraySource(X, np.append(y, y[0]), chunk_rows=100), 1e-4))
    assert state.status == "stalled"
    assert state.best is None


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bound", [1.0 - 1e-6, 2.0])
def test_of_two_solutions_the_better_hypothesis_and_the_better_bound_count(
    monkeypatch: pytest.MonkeyPatch, bound: float, turned: bool
) -> None:
    """A hypothesis of negative margin that rows apart end with throws no optimal one away, nor a lower bound either."""
    X, y = separable(9, 60, 4, 3, gap=0.5)
    X, y = np.vstack([X, X[:1] * np.float32(1e6)]), np.append(y, y[0])
    problem = KeslerMargin(ArraySource(X, y, chunk_rows=100), 1e-6)
    known, uppers = [], []

    def together(*args: Any, **options: Any) -> KeslerSolution:
        known.append(solve_kesler(*args, **options))
        return known[-1]

    def apart(*args: Any, **options: Any) -> KeslerSolution:
        found = solve_apart(*args, **options)
        uppers.append(bound * found.upper)
        return replace(found, at=-found.at if turned else found.at, upper=uppers[-1], status="stalled")

    monkeypatch.setattr(kesler, "solve_kesler", together)
    monkeypatch.setattr(kesler, "solve_apart", apart)
    state = problem.start()
    assert known[0].status == "optimal"
    assert len(uppers) == 1
    assert row_margins(*table(problem), state.newest).min() >= (1 - 1e-4) * known[0].upper
    assert state.upper == pytest.approx(min(uppers[0], known[0].upper), rel=1e-7)


def test_repeated_rows_do_not_fill_the_pool() -> None:
    """Of equal rows one is sent."""
    X, y = separable(8, 60, 3, 3)
    problem = KeslerMargin(ArraySource(np.repeat(X, 50, axis=0), np.repeat(y, 50), chunk_rows=300), 1e-3,
                           sample_bytes=2000, sample_share=0.01)  # fmt: skip
    states = finish(problem, problem.start())
    assert states[-1].status == "certified"
    assert all(state.new_rows <= 60 for state in states[1:])


def test_what_cannot_be_trained_is_refused() -> None:
    """One class, no label, a class without rows, hypotheses beyond the memory: each with what is wrong."""
    X = np.eye(4, 300, dtype=np.float32)
    with pytest.raises(LabelError, match="expected at least two classes, found only 'a'"):
        KeslerMargin(ArraySource(X, ["a"] * 4), 1e-3).check()
    with pytest.raises(LabelError, match="found no labelled row"):
        KeslerMargin(ArraySource(X), 1e-3).check()
    with pytest.raises(LabelError, match="expected rows of every class, found none of 'c'; leave that class out"):
        KeslerMargin(ArraySource(X, ["a", "b", "a", "b"], classes=("a", "b", "c")), 1e-3).check()
    wide = ArraySource(np.ones((600, 600), np.float32), np.arange(600))
    with pytest.raises(UsageError, match=r"600 classes x 600 features make hypotheses of 2.\d MiB, and 16 of them"):
        KeslerMargin(wide, 1e-3, memory_bytes=1 << 20).check()


def test_classes_are_in_the_order_of_their_labels() -> None:
    """Classes, scores and confusion go by sorted labels, whatever the order of first appearance."""
    X, y = separable(9, 90, 3, 3)
    names = np.array(["b", "c", "a"])[y]
    problem = KeslerMargin(ArraySource(X, names, chunk_rows=30), 1e-3)
    assert [problem.source.classes[code] for code in problem.codes] == ["a", "b", "c"]
    state = solve(problem)
    scores = table(problem)[0] @ state.best.T  # type: ignore[union-attr]
    assert (np.array(["a", "b", "c"])[scores.argmax(axis=1)] == names).all()
    assert (np.diag(state.confusion) == [(names == name).sum() for name in "abc"]).all()
