"""The soft margin of several classes out of core: written-out objectives and duals, other solvers, weights."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest
from classes_kit import finish, kesler_vector, noisy, row_margins, solve, table
from scipy.sparse import csr_array
from sklearn.datasets import load_iris, load_wine
from sklearn.svm import LinearSVC

from coremargin.data.arrays import ArraySource
from coremargin.engine.protocols import Block
from coremargin.problems.multiclass.crammer_singer import CrammerSinger

if TYPE_CHECKING:
    from coremargin.problems.multiclass.classes_problem import ClassesState


def value(problem: CrammerSinger, V: np.ndarray, weights: np.ndarray | float = 1.0) -> float:
    """The objective on all rows, written out."""
    X, y = table(problem)
    row_c = problem.class_c[y] * weights
    return float(0.5 * (V * V).sum() + (row_c * np.maximum(0, 1 - row_margins(X, y, V))).sum())


def dual(problem: CrammerSinger, state: ClassesState, weights: np.ndarray | float = 1.0) -> float:
    """The value of the dual point that the state describes, written out over all rows."""
    X, y = table(problem)
    row_c = problem.class_c[y] * weights
    scores = X @ state.reference.T
    t = 1 + scores - scores[np.arange(len(y)), y][:, None]
    t[np.arange(len(y)), y] = 0
    duals = np.zeros(t.shape)
    duals[np.arange(len(y)), t.argmax(axis=1)] = row_c
    duals[np.arange(len(y)), y] = 0
    duals[state.proof.ids] = state.duals
    assert (duals.sum(axis=1) <= row_c * (1 + 1e-12)).all()
    return float(duals.sum() - 0.5 * (kesler_vector(X, y, duals) ** 2).sum())


def check(problem: CrammerSinger, state: ClassesState, weights: np.ndarray | float = 1.0) -> None:
    """The claims hold by plain float64 on all rows."""
    assert state.status == "certified"
    assert state.best is not None
    found = value(problem, state.best, weights)
    assert state.upper * (1 - 1e-9) <= found <= state.upper
    proven = dual(problem, state, weights)
    assert state.lower <= proven * (1 + 1e-12)
    assert state.upper - state.lower <= problem.epsilon * state.upper


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_gap_is_proven_on_all_rows(seed: int, intercept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a small sample, with rows that are summed up and rows that are sent."""
    monkeypatch.setattr("coremargin.problems.multiclass.crammer_singer.NEAR_BYTES_LEAST", 1000)
    X, y = noisy(seed, 1500, 4, 4)
    source = ArraySource(X, y, chunk_rows=100)
    problem = CrammerSinger(
        source, 1e-4, intercept=intercept, cost=0.1, sample_bytes=4000, sample_share=0.05
    )  # fmt: skip
    states = finish(problem, problem.start())
    check(problem, states[-1])
    assert states[0].sample_bytes < source.nbytes / 4
    assert states[1].rows_held <= 0.2 * source.rows
    assert [s.upper for s in states] == sorted((s.upper for s in states), reverse=True)
    assert [s.lower for s in states] == sorted(s.lower for s in states)


@pytest.mark.parametrize("sparse", [False, True])
def test_few_rows_are_solved_in_memory_and_proven_by_the_read_that_brings_them(
    sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory holds them all, in stages; where it does not, or rows are many, the sample is a part of them."""
    monkeypatch.setattr("coremargin.problems.multiclass.crammer_singer.STAGE_LEAST", 50)
    X, y = noisy(10, 1300, 12, 6)
    X = np.where(np.abs(X) < 0.5, 0.0, X).astype(np.float32)
    source = ArraySource(csr_array(X) if sparse else X, y, chunk_rows=50)
    problem = CrammerSinger(source, 1e-3, cost=0.01, sample_bytes=source.nbytes // 4)
    states = finish(problem, problem.start())
    check(problem, states[-1])
    assert problem.all_cached
    assert (len(states), states[0].sample_bytes) == (1, source.nbytes)
    tight = CrammerSinger(source, 1e-3, cost=0.01, memory_bytes=source.nbytes, sample_bytes=source.nbytes // 4)
    assert not tight.all_cached
    assert len(tight.sample_chunks) < source.chunks
    check(tight, finish(tight, tight.start())[-1])
    many = CrammerSinger(ArraySource(X[:, :3], y, chunk_rows=50), 1e-3, sample_bytes=source.nbytes // 40)
    assert not many.few
    assert len(many.sample_chunks) < many.source.chunks


@pytest.mark.parametrize("kind", ["dense", "sparse", "weights"])
def test_the_sample_answers_in_memory_what_it_would_answer_in_a_scan(kind: str) -> None:
    """All but the bits of sums; so the rest is read, and no row twice: the next scan is the first one after that."""
    X, y = noisy(21, 3000, 5, 3)
    weights = np.random.default_rng(1).integers(0, 3, 3000) / 2 if kind == "weights" else None
    source = ArraySource(csr_array(X) if kind == "sparse" else X, y, weights=weights, chunk_rows=100)
    problem = CrammerSinger(source, 2e-2, cost=0.1, sample_bytes=source.nbytes // 3)
    state = problem.start()
    assert state.partial is not None
    sampled = problem.sample_chunks
    assert problem.stage_chunks == (len(sampled), 30 - len(sampled))
    assert np.flatnonzero(problem.skip(state)).tolist() == sampled
    probe = problem.probe(state)
    scanned = probe(source, Block(0, tuple(sampled)))
    for name, value in scanned.to_arrays().items():
        np.testing.assert_allclose(state.partial.to_arrays()[name], value, rtol=1e-12, atol=1e-12, err_msg=name)
    states = finish(problem, state)
    check(problem, states[-1], 1.0 if weights is None else weights)
    assert not problem.skip(states[1]).any()
    assert (states[1].confusion.sum(), len(states)) == (np.count_nonzero(weights) if kind == "weights" else 3000, 2)
    assert [(r.number, r.stage, r.stages) for r in map(problem.round_of, states)] == [(1, 1, 2), (1, 2, 2)]


def test_what_a_read_leaves_open_is_a_scan() -> None:
    """A sample of a few rows is far from the minimum: scans of all rows follow the read, with numbers of their own."""
    X, y = noisy(22, 3000, 5, 3)
    problem = CrammerSinger(ArraySource(X, y, chunk_rows=100), 1e-6, cost=0.1, sample_bytes=3000)
    states = finish(problem, problem.start())
    check(problem, states[-1])
    rounds = [problem.round_of(state) for state in states]
    assert [r.number for r in rounds] == [1, *range(1, len(states))]
    assert [r.stage for r in rounds] == [1, 2, *[None] * (len(states) - 2)]
    assert len(states) > 2


@pytest.mark.parametrize("epsilon", [1e-1, 1e-2, 1e-3])
def test_a_sample_has_as_many_rows_as_epsilon_wants(epsilon: float) -> None:
    """Up to what the memory holds, and what takes long to solve."""
    X, y = noisy(23, 20_000, 2, 3)
    source = ArraySource(X, y, chunk_rows=100)
    rows = 100 * len(CrammerSinger(source, epsilon, sample_share=0.01).sample_chunks)
    assert rows == {1e-1: 1000, 1e-2: 1300, 1e-3: 13500}[epsilon]
    tight = CrammerSinger(source, epsilon, sample_share=0.01, memory_bytes=400_000)
    assert 100 * len(tight.sample_chunks) <= 1000


@pytest.mark.parametrize("cost", [0.01, 1.0])
@pytest.mark.parametrize("data", [load_iris, load_wine])
def test_it_agrees_with_liblinear(data: object, cost: float) -> None:
    """LinearSVC(multi_class="crammer_singer") without intercept lies within the claimed gap."""
    X, y = data(return_X_y=True)  # type: ignore[operator]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = LinearSVC(multi_class="crammer_singer", fit_intercept=False, C=cost, tol=1e-8, random_state=0)
        other.fit(X, y)
    problem = CrammerSinger(ArraySource(X, y, chunk_rows=30), 1e-6, intercept=False, cost=cost)
    state = solve(problem)
    check(problem, state)
    theirs = value(problem, np.column_stack([other.coef_, np.zeros(len(other.coef_))]))
    assert state.lower <= theirs
    assert state.upper <= theirs * (1 + 1e-6)


def test_the_intercept_is_liblinears() -> None:
    """With ``intercept_scaling`` at the constant, the same objective."""
    X, y = load_iris(return_X_y=True)
    problem = CrammerSinger(ArraySource(X, y, chunk_rows=30), 1e-6, cost=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = LinearSVC(
            multi_class="crammer_singer", C=0.1, tol=1e-8, random_state=0, intercept_scaling=problem.constant,
            max_iter=100_000,
        ).fit(X, y)  # fmt: skip
    state = solve(problem)
    theirs = value(problem, np.column_stack([other.coef_, other.intercept_ / problem.constant]))
    assert state.lower <= theirs <= state.upper * (1 + 1e-4)


def test_weights_are_prices() -> None:
    """Weights 1 to 3 are rows that often; weight 0 is no row."""
    X, y = noisy(5, 300, 4, 3)
    weights = np.arange(300) % 4
    heavy = CrammerSinger(ArraySource(X, y, weights=weights.astype(float), chunk_rows=50), 1e-5, cost=0.2)
    many = CrammerSinger(
        ArraySource(np.repeat(X, weights, axis=0), np.repeat(y, weights), chunk_rows=50), 1e-5, cost=0.2
    )
    state = solve(heavy)
    check(heavy, state, weights.astype(float))
    if heavy.constant == many.constant:
        assert state.upper == pytest.approx(solve(many).upper, rel=2e-5)


def test_balanced_classes_pay_the_same() -> None:
    """C n / (K n_class) for each row."""
    X, y = noisy(6, 200, 3, 3)
    problem = CrammerSinger(ArraySource(X, y, chunk_rows=50), 1e-4, cost=2.0, class_weight="balanced")
    state = solve(problem)
    check(problem, state)
    counts = np.bincount(y)
    np.testing.assert_allclose(problem.class_c * counts, 2.0 * len(y) / 3)


def test_sparse_rows_are_rows() -> None:
    """CSR rows have the gap of the same rows written out."""
    X, y = noisy(7, 400, 30, 3)
    X[np.abs(X) < 0.8] = 0.0
    problem = CrammerSinger(ArraySource(csr_array(X), y, chunk_rows=50), 1e-4, cost=0.1)
    state = solve(problem)
    check(problem, state)
    dense = solve(CrammerSinger(ArraySource(X, y, chunk_rows=50), 1e-4, cost=0.1))
    assert state.upper == pytest.approx(dense.upper, rel=2e-4)


def test_a_tight_memory_takes_more_scans() -> None:
    """A band of few rows, whose bound is worth nothing at first, leads to the proof all the same."""
    X, y = noisy(11, 6000, 8, 4)
    source = ArraySource(X, y, chunk_rows=300)
    problem = CrammerSinger(source, 1e-3, cost=0.1, memory_bytes=100_000, sample_bytes=9000)
    states = finish(problem, problem.start())
    check(problem, states[-1])
    assert states[1].rows_held < 0.1 * len(X)
    assert len(states) > 3


def test_ties_far_from_home_are_settled() -> None:
    """Rows repeated so often that most of those at a change of sides are summed up: sides are found again."""
    X, y = noisy(8, 12, 2, 3)
    source = ArraySource(np.repeat(X, 80, axis=0), np.repeat(y, 80), chunk_rows=120)
    problem = CrammerSinger(source, 1e-2, cost=1e-3)
    states = finish(problem, problem.start())
    assert states[-1].status == "certified"
    check(problem, states[-1])


def test_a_better_price_never_lowers_the_value() -> None:
    """The value rises with C, and at most in proportion."""
    X, y = noisy(9, 200, 3, 3)
    found = [solve(CrammerSinger(ArraySource(X, y, chunk_rows=50), 1e-5, cost=c)).upper for c in (0.01, 0.1, 1.0)]
    assert found[0] < found[1] < 10.01 * found[0]
    assert found[1] < found[2] < 10.01 * found[1]
