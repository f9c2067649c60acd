"""Soft margins whose models are kept as rows, all of them in memory: sparse rows, or many features."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array, load_npz
from sklearn.datasets import load_svmlight_file
from sklearn.svm import SVC, LinearSVC
from soft_kit import NAMES, assert_same_bits, scan, to_the_end
from wide_kit import assert_true, bounds, texts

from coremargin.data.arrays import ArraySource
from coremargin.maths.margin import is_certified
from coremargin.problems.soft import problem as soft_problem
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin

if TYPE_CHECKING:
    from coremargin.problems.soft.state import SoftState


def start(X: Any, y: np.ndarray, weights: np.ndarray | None = None, **options: Any) -> tuple[SoftMargin, SoftState]:
    """A problem in chunks of a hundred rows and its first state."""
    given = {"epsilon": 1e-3, "loss": "hinge", "cost": 1.0} | options
    given["loss"] = LOSSES[given["loss"]]
    problem = SoftMargin(ArraySource(X, y, weights=weights, chunk_rows=100), **given)
    return problem, problem.start()


def solve(X: Any, y: np.ndarray, weights: np.ndarray | None = None, **options: Any) -> tuple[SoftMargin, SoftState]:
    """A whole job."""
    problem, state = start(X, y, weights, **options)
    return problem, to_the_end(problem, state, limit=60)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_where_all_rows_fit_the_first_scan_is_the_proof(loss: str, intercept: bool, kind: str) -> None:
    """One scan, and no row is sent; of dense rows those that are fewer than their features."""
    X, y = texts(0, n=100 if kind == "dense" else 600)
    rows = X.toarray() if kind == "dense" else X
    problem, state = solve(rows, y, loss=loss, intercept=intercept, epsilon=1e-5)
    assert problem.by_rows
    assert problem.all_cached
    assert (state.status, state.round, state.last_scan.near_rows) == ("certified", 1, 0)
    assert_true(X, y, np.ones(len(y)), problem, state)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_it_agrees_with_the_band_of_dense_sums(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse rows and the same rows made dense have the same value within both gaps, class and sample weights too."""
    monkeypatch.setattr(soft_problem, "FEW_ROWS", 1)
    X, y = texts(1)
    weights = np.random.default_rng(1).choice([0.0, 0.5, 3.0], len(y))
    options: dict[str, Any] = {"loss": loss, "epsilon": 1e-6, "class_weight": "balanced"}
    sparse, one = solve(X, y, weights, **options)
    dense, other = solve(X.toarray(), y, weights, **options)
    assert (sparse.by_rows, dense.by_rows) == (True, False)
    assert one.status == other.status == "certified"
    assert one.lower <= other.upper * (1 + 1e-12)
    assert other.lower <= one.upper * (1 + 1e-12)
    row_c = np.where(y > 0, sparse.class_c[0], sparse.class_c[1]) * weights
    assert_true(X, y, row_c, sparse, one)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_state_goes_on_from_its_arrays_with_the_same_bits(loss: str) -> None:
    """A state and a summary that were written to arrays and read back lead to the same bits."""
    X, y = texts(3)
    problem, state = start(X, y, loss=loss)
    other = problem.restore(state.to_arrays())
    for _ in range(3):
        if problem.done(state):
            break
        answer = scan(problem, state)
        again = problem.probe(other).from_arrays(scan(problem, other).to_arrays())
        state, other = problem.update(state, answer), problem.restore(problem.update(other, again).to_arrays())
        assert_same_bits(state, other)
    assert state.to_arrays().keys() >= NAMES


def known(folder: Path, name: str) -> tuple[csr_array, np.ndarray]:
    """Real texts, rows of unit length."""
    path = folder / {"rcv1": "libsvm/rcv1_small.train.gz", "news": "20newsgroups/bydate_tf.npz"}[name]
    if name == "rcv1":
        with gzip.open(path) as file:
            X, y = load_svmlight_file(file, n_features=47237)
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return csr_array(X), y
    labels = np.load(folder / "20newsgroups/bydate_meta.npz")["label"][:11314]
    X = csr_array(load_npz(path))[:11314].astype(np.float64)
    X.data /= np.repeat(np.sqrt((X * X).sum(axis=1)), np.diff(X.indptr))
    return X, np.where(labels == 1, 1, -1)


@pytest.mark.parametrize(("loss", "intercept"), [("hinge", True), ("squared_hinge", False)])
@pytest.mark.parametrize("name", ["rcv1", "news"])
@pytest.mark.slow
def test_real_texts_agree_with_scikit_learn(real_data: Path, name: str, loss: str, intercept: bool) -> None:
    """SVC(kernel="linear") with an intercept and LinearSVC without one: no better than the dual bound, no worse."""
    X, y = known(real_data, name)
    X = X.astype(np.float32)
    problem, state = solve(X, y, loss=loss, intercept=intercept, epsilon=1e-4)
    assert (state.status, state.round) == ("certified", 1)
    assert_true(X, y, np.ones(len(y)), problem, state)
    rows = X.astype(np.float64)
    if intercept:
        other: Any = SVC(kernel="linear", tol=1e-4).fit(rows, y)
        w, b = other.coef_.toarray()[0], float(other.intercept_[0])
    else:
        other = LinearSVC(loss=loss, fit_intercept=False, tol=1e-5, max_iter=10_000, random_state=0).fit(rows, y)
        w, b = other.coef_[0], 0.0
    xi = np.maximum(0, 1 - np.where(y > 0, 1, -1) * (rows @ w + b))
    theirs = 0.5 * w @ w + (xi if loss == "hinge" else xi**2).sum()
    assert state.lower <= theirs * (1 + 1e-12)
    assert state.upper <= theirs * (1 + 1.1e-4)


def test_rows_with_the_dual_of_their_side_are_not_named() -> None:
    """Where all rows are cached the coreset of the hinge is those at the margin, as where they are summed up."""
    X, y = texts(11)
    problem, state = solve(X, y, memory_bytes=1 << 20)
    assert problem.all_cached
    assert state.status == "certified"
    named = len(state.bounds.near_ids)
    assert 0 < named < 0.5 * len(y)
    free = (state.bounds.near_duals > 1e-6) & (state.bounds.near_duals < 1 - 1e-6)
    assert np.count_nonzero(free) > 0.9 * named
    lower, upper = bounds(X, y, np.ones(len(y)), problem, state)
    assert is_certified(lower, upper, 1e-3)
    assert state.lower <= lower * (1 + 1e-12)
