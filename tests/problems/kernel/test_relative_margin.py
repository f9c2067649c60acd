"""Kernel machines with a relative margin: bounds, agreement with daqp, interrupts, several columns, refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from kernel_kit import run_interrupted, step
from sklearn.datasets import load_iris

import coremargin
from coremargin.cli import main
from coremargin.data.arrays import ArraySource
from coremargin.errors import SpecError, UsageError
from coremargin.maths.kernel.functions import Kernel
from coremargin.problems.kernel.columns import Setting
from coremargin.problems.kernel.kernel_margin import KernelMargin
from coremargin.problems.kernel.reduce import reduce
from coremargin.problems.registry import new_job
from relative_margin_judge import noisy, value_by_daqp

ASKED: dict[str, Any] = {"kernel": "rbf", "gamma": 0.3, "loss": "hinge", "C": 2.0, "relative_margin": 1.3}


def least_value(K: np.ndarray, y: np.ndarray, costs: np.ndarray, bound: float, *, intercept: bool = True) -> float:
    """The least value of a kernel matrix, by daqp on the rows of a factor of it."""
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-12 * values[-1]
    return value_by_daqp(vectors[:, kept] * np.sqrt(values[kept]), y, costs, bound, intercept=intercept)


def rbf(X: np.ndarray, gamma: float) -> np.ndarray:
    """Kernel values (n, n)."""
    X = X.astype(np.float64)
    return np.asarray(np.exp(-gamma * ((X[:, None] - X) ** 2).sum(axis=2)))


@pytest.mark.parametrize("bound", [1.05, 1.5, 4.0])
@pytest.mark.parametrize("cost", [0.05, 5.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_both_bounds_hold_after_every_scan(bound: float, cost: float, *, intercept: bool) -> None:
    """The least value lies between the bounds of each state, and the last ones are close."""
    X, y = noisy(1, 120, 2)
    X = X.astype(np.float32)
    least = least_value(rbf(X, 0.3), y, np.full(120, cost), bound, intercept=intercept)
    problem = KernelMargin(
        ArraySource(X, y > 0, chunk_rows=10), (Kernel("rbf", gamma=0.3),), (Setting(0, cost, None),), 1e-7,
        loss="hinge", bound=bound, intercept=intercept, sample_bytes=300,
    )  # fmt: skip
    state = problem.start()
    while not problem.done(state):
        state = step(problem, state)
        if math.isfinite(state.best.upper[0]):
            assert state.best.lower[0] <= least * (1 + 1e-8)
            assert state.best.upper[0] >= least * (1 - 1e-8)
    assert state.status == "certified"
    (found,) = problem.results(state)
    assert found.upper == pytest.approx(least, rel=1e-6)
    signs = np.where(found.rows.classes == 1, 1.0, -1.0)
    apart = ((X[:, None].astype(float) - found.rows.rows.astype(float)) ** 2).sum(axis=2)
    assert np.abs(np.exp(-0.3 * apart) @ (signs * found.duals[:, 0]) + found.offsets[0]).max() <= bound


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weight", [None, "balanced", (0.5, 3.0)])
def test_weights_of_rows_and_classes_count(weight: Any, *, sparse: bool) -> None:
    """The value is the least one, with sample weights of which some are 0, class weights, and sparse rows."""
    X, signs = noisy(2, 90, 3)
    X, y = X.astype(np.float32), signs > 0
    if sparse:
        X[np.random.default_rng(2).random(X.shape) < 0.5] = 0.0
    weights = np.random.default_rng(3).choice([0.0, 0.3, 1.0, 2.5], len(y))
    totals = np.array([weights[~y].sum(), weights[y].sum()])
    factors = {None: (1.0, 1.0), "balanced": totals.sum() / (2 * totals)}.get(weight, weight)
    costs = 2.0 * weights * np.where(y, factors[1], factors[0])
    kept = costs > 0
    model: Any = coremargin.train(
        sp.csr_array(X) if sparse else X, y, weights=weights, class_weight=weight, epsilon=1e-8, **ASKED
    )
    assert model.status == "certified"
    best = least_value(rbf(X[kept], 0.3), signs[kept], costs[kept], 1.3)
    assert model.certificate.upper == pytest.approx(best, rel=1e-7)
    assert np.abs(model.decision_function(X[kept])).max() <= 1.3


def test_a_linear_kernel_is_the_hyperplane() -> None:
    """Of the kind without kernels, whose bounds overlap with these."""
    X, y = noisy(4, 400, 3)
    asked: dict[str, Any] = {"loss": "hinge", "C": 0.05, "relative_margin": 1.5, "epsilon": 1e-6}
    one: Any = coremargin.train(X, y, **asked)
    other: Any = coremargin.train(X, y, kernel="linear", **asked)
    assert one.status == other.status == "certified"
    assert one.certificate.lower <= other.certificate.upper
    assert other.certificate.lower <= one.certificate.upper


@pytest.mark.parametrize("classes", [2, 3])
def test_the_same_bits_after_every_interrupt(classes: int) -> None:
    """Of two classes, and of three columns."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, classes, 600)
    X = (rng.standard_normal((600, 2)) + 1.5 * y[:, None]).astype(np.float32)
    problems = [
        KernelMargin(
            ArraySource(X, y, chunk_rows=20), (Kernel("rbf", gamma=0.5),), (Setting(0, 1.0, None),), 1e-4,
            loss="hinge", bound=1.2,
        )
        for _ in range(2)
    ]  # fmt: skip
    state = run_interrupted(problems, 2000)
    assert state.status == "certified"
    assert (state.newest.duals < 0).any()


def test_several_classes_values_of_c_and_folds_are_each_proven(tmp_path: Path) -> None:
    """Columns and members are the machines that they are alone."""
    X, y = load_iris(return_X_y=True)
    coremargin.ingest(X, tmp_path / "s", labels=y)
    model: Any = coremargin.train(tmp_path / "s", out=tmp_path / "m", **ASKED, classes="ovr", epsilon=1e-6)
    assert model.status == "certified"
    assert (np.abs(model.decision_function(X.astype(np.float32))) <= 1.3).all()
    for k in range(3):
        costs, signs = np.full(len(y), 2.0), np.where(y == k, 1.0, -1.0)
        best = least_value(rbf(X.astype(np.float32), 0.3), signs, costs, 1.3)
        assert model.uppers[k] == pytest.approx(best, rel=1e-5)
    assert coremargin.verify(tmp_path / "m", tmp_path / "s").ok
    two = y < 2
    coremargin.ingest(X[two] + np.random.default_rng(0).standard_normal(X[two].shape), tmp_path / "t", labels=y[two])
    asked = ASKED | {"C": [0.5, 2.0], "epsilon": 1e-6}
    fleet: Any = coremargin.train(tmp_path / "t", out=tmp_path / "f", **asked, folds=2)
    assert coremargin.verify(tmp_path / "f", tmp_path / "t").ok
    page = (tmp_path / "f" / "report.html").read_text()
    assert page.count("with decision values from \u22121.3 to 1.3") == 2
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "f")]).output
    assert "decision values of the rows of each model from -1.3 to 1.3" in shown
    alone: Any = coremargin.train(tmp_path / "t", **ASKED, epsilon=1e-6)
    (member,) = fleet.at(C=2.0).deciders()
    assert member.certificate.upper == pytest.approx(alone.certificate.upper, rel=1e-5)


def test_a_working_set_that_is_too_small_ends_with_what_is_proven(tmp_path: Path) -> None:
    """The least value lies between the bounds, which `verify` confirms."""
    X, y = noisy(6, 400, 2)
    X = X.astype(np.float32)
    coremargin.ingest(X, tmp_path / "s", labels=y > 0, chunk_bytes=20 * 8)
    model: Any = coremargin.train(tmp_path / "s", out=tmp_path / "m", memory="60KiB", **ASKED)
    assert model.status == "stopped"
    assert coremargin.verify(tmp_path / "m", tmp_path / "s").ok
    best = least_value(rbf(X, 0.3), y, np.full(400, 2.0), 1.3)
    assert model.certificate.lower <= best <= model.certificate.upper


def test_models_are_saved_predicted_with_and_described(tmp_path: Path) -> None:
    """From a folder the decisions are the same; the bound is shown; a reduced model would not keep it."""
    X, y = noisy(7, 200, 2)
    coremargin.ingest(X, tmp_path / "s", labels=y > 0)
    model: Any = coremargin.train(tmp_path / "s", out=tmp_path / "m", **ASKED)
    again: Any = coremargin.load(tmp_path / "m")
    assert again.decision_function(X).tobytes() == model.decision_function(X).tobytes()
    assert again.parameters["relative_margin"] == 1.3
    assert "decision values within 1.3" in coremargin.verify(tmp_path / "m", tmp_path / "s").terms
    page = (tmp_path / "m" / "report.html").read_text()
    assert "with decision values from −1.3 to 1.3 on all of them" in page
    told = CliRunner().invoke(main, ["show", str(tmp_path / "m")]).output
    assert "decision values of all rows from -1.3 to 1.3" in told
    with pytest.raises(UsageError, match="a model with a relative margin cannot be reduced"):
        reduce(tmp_path / "m", tmp_path / "s", tmp_path / "r", rows=5)


def test_what_it_cannot_do_is_refused_by_name(tmp_path: Path) -> None:
    """Bounds that are none, hard margins, other losses, one class."""

    def job(**asked: Any) -> Any:
        return new_job(store=tmp_path, out=tmp_path / "m", kernel="rbf", **asked)

    for bound in (1.0, 0.5, -3.0, float("nan"), float("inf"), 1e7):
        with pytest.raises(SpecError, match="relative_margin: expected a number above 1"):
            job(loss="hinge", relative_margin=bound)
    with pytest.raises(SpecError, match="relative_margin: a hard margin has none; give loss 'hinge' too"):
        job(relative_margin=2.0)
    with pytest.raises(SpecError, match="loss: a relative margin has only 'hinge', found 'squared_hinge'"):
        job(loss="squared_hinge", relative_margin=2.0)
    with pytest.raises(SpecError, match="relative_margin"):
        job(one_class="ball", relative_margin=2.0)
