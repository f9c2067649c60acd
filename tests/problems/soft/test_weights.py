"""Sample weights: c_i = C times class weight times sample weight, against scikit-learn and against rows repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.class_weight import compute_class_weight
from soft_kit import to_the_end

from coremargin.data.arrays import ArraySource
from coremargin.errors import LabelError
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin
from plain_loop import Run, proceed

if TYPE_CHECKING:
    from coremargin.problems.soft.state import SoftState


def noisy(seed: int, n: int = 400, d: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels of which a tenth are turned around, and weights of which a fifth are 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = np.where(X @ rng.standard_normal(d) + 0.3 > 0, 1, -1) * np.where(rng.random(n) < 0.1, -1, 1)
    weights = rng.choice([0.0, 0.1, 1.0, 2.5, 5.0], n)
    return X, y, weights


def solve(
    X: Any, y: np.ndarray, weights: np.ndarray | None, chunk_rows: int = 64, **options: Any
) -> tuple[SoftMargin, SoftState]:
    """A whole job in a plain loop."""
    given = {"epsilon": 1e-6, "loss": "hinge", "cost": 0.5} | options
    given["loss"] = LOSSES[given["loss"]]
    problem = SoftMargin(ArraySource(X, y, weights=weights, chunk_rows=chunk_rows), **given)
    state = to_the_end(problem, problem.start())
    assert state.status == "certified"
    return problem, state


def value(X: np.ndarray, y: np.ndarray, row_c: np.ndarray, w: np.ndarray, b: float, loss: str) -> float:
    """f by its definition."""
    xi = np.maximum(0, 1 - y * (X.astype(np.float64) @ w + b))
    return float(0.5 * w @ w + row_c @ (xi if loss == "hinge" else xi**2))


@pytest.mark.parametrize("weight", [None, (0.5, 3.0)])
@pytest.mark.parametrize("seed", range(2))
def test_hinge_agrees_with_libsvm(seed: int, weight: tuple[float, float] | None) -> None:
    """SVC(kernel="linear") with sample weights has the same objective; neither is better than the bounds allow."""
    X, y, weights = noisy(seed)
    _, state = solve(X, y, weights, class_weight=weight)
    per_class = {-1: weight[0], 1: weight[1]} if weight else None
    other = SVC(kernel="linear", C=0.5, class_weight=per_class, tol=1e-5)
    other.fit(X.astype(np.float64), y, sample_weight=weights)
    row_c = 0.5 * weights * (1.0 if weight is None else np.where(y > 0, weight[1], weight[0]))
    theirs = value(X, y, row_c, other.coef_[0], float(other.intercept_[0]), "hinge")
    assert state.best is not None
    ours = value(X, y, row_c, state.best[:-1], float(state.best[-1]), "hinge")
    assert ours <= state.upper * (1 + 1e-12)
    assert state.lower <= theirs * (1 + 1e-12)
    assert ours <= theirs * (1 + 1.1e-6)


@pytest.mark.parametrize("weight", [None, "balanced"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_without_an_intercept_it_agrees_with_liblinear(loss: str, weight: Any) -> None:
    """LinearSVC with sample weights, "balanced" included: it takes the sums of the weights for counts."""
    X, y, weights = noisy(2)
    _, state = solve(X, y, weights, loss=loss, intercept=False, class_weight=weight)
    other = LinearSVC(
        C=0.5, loss=loss, class_weight=weight, fit_intercept=False, dual=True, tol=1e-7, max_iter=1_000_000,
        random_state=0,
    ).fit(X.astype(np.float64), y, sample_weight=weights)  # fmt: skip
    factor = np.ones(2)
    if weight:
        factor = compute_class_weight(weight, classes=np.array([-1, 1]), y=y, sample_weight=weights)
    row_c = 0.5 * weights * np.where(y > 0, factor[1], factor[0])
    theirs = value(X, y, row_c, other.coef_[0], 0.0, loss)
    assert state.best is not None
    ours = value(X, y, row_c, state.best[:-1], 0.0, loss)
    assert ours <= state.upper * (1 + 1e-12)
    assert state.lower <= theirs * (1 + 1e-12)
    assert ours <= theirs * (1 + 1.1e-6)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_weight_is_as_many_copies(loss: str) -> None:
    """Whole weights and rows repeated so often have the same optimum, zero included."""
    X, y, _ = noisy(3)
    times = np.random.default_rng(3).integers(0, 4, len(y))
    _, weighted = solve(X, y, times.astype(np.float64), loss=loss, class_weight="balanced")
    _, repeated = solve(np.repeat(X, times, axis=0), np.repeat(y, times), None, loss=loss, class_weight="balanced")
    assert weighted.lower <= repeated.upper * (1 + 1e-12)
    assert repeated.lower <= weighted.upper * (1 + 1e-12)
    assert weighted.histogram.sum() == np.count_nonzero(times)


def test_weights_of_one_change_no_bit() -> None:
    """Weights that are all 1 give the very state that no weights give."""
    X, y, _ = noisy(4)
    plain, same = solve(X, y, None)[1].to_arrays(), solve(X, y, np.ones(len(y)))[1].to_arrays()
    assert all(plain[name].tobytes() == same[name].tobytes() for name in plain if name != "sample_bytes")


def test_a_class_that_weighs_nothing_is_refused() -> None:
    """Where all rows of a class weigh 0 there is nothing to separate: said with the class, before rows are read."""
    X, y, _ = noisy(5)
    for make in (lambda s: SoftMargin(s, 1e-3, LOSSES["hinge"], 1.0), lambda s: HardMargin(s, 1e-3)):
        problem = make(ArraySource(X, y, weights=(y > 0).astype(float)))
        with pytest.raises(LabelError, match="class -1 weigh 0"):
            problem.start()


@pytest.mark.parametrize("strategy", ["fast", "paper"])
def test_hard_margin_leaves_rows_of_weight_0_out(strategy: Any) -> None:
    """Rows of weight 0 do not count, other weights change nothing: also where the first chunks are left out whole."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((300, 3)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 1, -1)
    X[:, 0] += 0.2 * y
    weights = rng.choice([0.5, 7.0], 300)
    weights[:40] = 0
    y[:40] *= -1  # would not be separable
    every = [
        HardMargin(ArraySource(X, y, weights=weights, chunk_rows=20), 1e-6, strategy=strategy),
        HardMargin(ArraySource(X[40:], y[40:], chunk_rows=20), 1e-6, strategy=strategy),
    ]
    found, known = (proceed(Run(problem, [problem.start()])).last for problem in every)
    assert found.status == known.status == "certified"
    assert found.lower == pytest.approx(known.lower, rel=1e-9)
