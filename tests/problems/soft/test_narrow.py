"""Soft margins on sparse rows of few features, with memory for a part of the rows."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file
from sklearn.svm import LinearSVC
from soft_kit import to_the_end

from coremargin.data.arrays import ArraySource
from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import is_certified
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.make import by_memory
from coremargin.problems.soft.near_margin import SoftMargin

if TYPE_CHECKING:
    from coremargin.problems.soft.block_minimisation import BlockMinimisation
    from coremargin.problems.soft.state import SoftState

    Margin = SoftMargin | BlockMinimisation


#: The best values for C = 0.1, by solvers that had all rows in memory, and scans that are enough for 1e-3.
KNOWN = {
    ("a9a", "hinge"): 1149.5415, ("a9a", "squared_hinge"): 1376.2357,
    ("w8a", "hinge"): 179.9483, ("w8a", "squared_hinge"): 242.7731,
}  # fmt: skip
MOST = {("a9a", "hinge"): 4, ("w8a", "hinge"): 4, ("a9a", "squared_hinge"): 3, ("w8a", "squared_hinge"): 6}


def real(folder: Path, name: str, features: int) -> tuple[csr_array, np.ndarray]:
    """Rows and labels as LIBLINEAR's users know them."""
    with gzip.open(folder / "libsvm" / f"{name}.gz") as file:
        X, y = load_svmlight_file(file, n_features=features, dtype=np.float32)
    return csr_array((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape), y


def start(X: csr_array, y: np.ndarray, **options: Any) -> tuple[Margin, SoftState]:
    """A problem with memory for about a quarter of the rows, in some twenty chunks, and its first state."""
    source = ArraySource(X, y, chunk_rows=len(y) // 20 + 1)
    size = int(source.nbytes // 2)  # in float64, with their indices, rows take twice their bytes
    problem = by_memory(SoftMargin(source, memory_bytes=size, **options | {"loss": LOSSES[options["loss"]]}))
    return problem, problem.start()


def solve(X: csr_array, y: np.ndarray, **options: Any) -> tuple[Margin, SoftState]:
    """A whole job."""
    problem, state = start(X, y, **options)
    return problem, to_the_end(problem, state, limit=400)


def value(X: csr_array, y: np.ndarray, w: np.ndarray, b: float, loss: str, cost: float) -> float:
    """The objective, from scratch."""
    xi = np.maximum(0, 1 - np.where(y > 0, 1, -1) * (X.astype(np.float64) @ w + b))
    return float(0.5 * w @ w + cost * (xi.sum() if loss == "hinge" else xi @ xi))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_little_memory_takes_few_scans(loss: str) -> None:
    """Squared hinge by sums over the rows far from the margin, hinge by row partitions; both bounds hold."""
    rng = np.random.default_rng(0)
    dense = (rng.random((20_000, 60)) < 0.06).astype(np.float32) * rng.choice([0.5, 1.0], (20_000, 60)).astype("f4")
    y = np.where(dense @ rng.standard_normal(60) + 0.3 * rng.standard_normal(20_000) > 0, 1, -1)
    X = csr_array(dense)
    problem, state = solve(X, y, loss=loss, cost=0.3, epsilon=1e-3, sample_bytes=X.data.nbytes // 5, sample_share=0.1)
    assert (state.block_pass is not None) == (loss == "hinge")
    assert state.status == "certified"
    assert problem.round_of(state).number <= (4 if loss == "squared_hinge" else 12)
    assert state.best is not None
    found = value(X, y, state.best[:-1], float(state.best[-1]), loss, 0.3)
    assert found <= state.upper <= found * (1 + 1e-6)
    assert is_certified(state.lower, found, 1e-3)
    _, exact = solve(X, y, loss=loss, cost=0.3, epsilon=1e-7, sample_bytes=1 << 30)
    assert state.lower <= exact.upper
    assert exact.lower <= state.upper


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("name", ["a9a", "w8a"])
@pytest.mark.slow
def test_real_rows_take_few_scans(real_data: Path, name: str, loss: str) -> None:
    """With memory for a quarter of the rows; LIBLINEAR's value is no better than the bound, and ours no worse."""
    X, y = real(real_data, name, {"a9a": 123, "w8a": 300}[name])
    options: dict[str, Any] = {"loss": loss, "cost": 0.1, "epsilon": 1e-3}
    problem, state = solve(X, y, sample_bytes=X.data.nbytes // 2, sample_share=0.2, **options)
    assert state.status == "certified"
    assert problem.round_of(state).number <= MOST[name, loss]
    assert soft.relative_gap(KNOWN[name, loss], state.lower) <= 1e-3
    assert state.lower <= KNOWN[name, loss] * (1 + 1e-6)
    assert state.upper >= KNOWN[name, loss] * (1 - 1e-6)
    if loss == "squared_hinge":  # LIBLINEAR's coordinates take minutes for the hinge
        other = LinearSVC(loss=loss, C=0.1, tol=1e-5, intercept_scaling=30.0, max_iter=3000, random_state=0)
        other.fit(X.astype(np.float64), y)
        theirs = value(X, y, other.coef_[0], float(other.intercept_[0]), loss, 0.1)
        assert state.lower <= theirs
        assert state.upper <= theirs * 1.001
