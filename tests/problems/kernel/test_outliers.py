"""Kernel margins of all rows but k: certificates by kernel values, brute force, kills, refusals."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.errors import SpecError, UsageError
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.outliers import row_search
from coremargin.maths.trimmed_hulls import coordinates
from coremargin.problems.kernel.kernel_margin import kernel_problem
from coremargin.problems.kernel.outliers import KernelWithOutliers, with_outliers
from coremargin.problems.kernel.spec import KernelJob

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.problems.kernel.kernel_margin import KernelState

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 1.0}
POLY: dict[str, Any] = {"kernel": "poly", "gamma": 1.0, "degree": 2, "coef0": 1.0}


def rings(seed: int, n: int, wrong: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Rows within a circle and outside of it, some of them with a wrong label, and which."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3 * n, 2))
    length = np.linalg.norm(X, axis=1)
    X = X[np.abs(length - 1.1) > 0.15][:n]
    y = (np.linalg.norm(X, axis=1) > 1.1).astype(np.int64)
    bad = rng.choice(n, wrong, replace=False)
    y[bad] = 1 - y[bad]
    return X, y, sorted(bad.tolist())


def problem_of(X: Any, y: Any, left_out: int, **options: Any) -> KernelWithOutliers:
    """The problem of a job on arrays."""
    source = ArraySource(X, y, chunk_rows=options.pop("chunk_rows", 50))
    job = KernelJob(store="rows", out="model", **({"epsilon": 1e-3} | options))
    return with_outliers(kernel_problem(job, source), left_out)


def finish(problem: KernelWithOutliers, state: KernelState) -> list[KernelState]:
    """All states from this one to the end, each restored from its arrays."""
    states = [state]
    while not problem.done(states[-1]):
        states.extend(problem.restore(step.to_arrays()) for step in problem.work(states[-1], None))
        if problem.done(states[-1]):
            break
        probe = problem.probe(states[-1])
        summary = probe.empty()
        for block in plan_blocks(problem.source, skip=problem.skip(states[-1])):
            part = probe.narrow(block)(problem.source, block)
            summary = summary.merge(probe.from_arrays(part.to_arrays()))
        states.append(problem.update(problem.restore(states[-1].to_arrays()), summary))
        assert states[-1].round < 60
    return states


def check(problem: KernelWithOutliers, state: KernelState, **options: Any) -> None:
    """All rows but k have the margin, no certificate allows more than the bound, by scikit-learn's kernels."""
    (found,) = problem.results(state)
    assert found.proof is not None
    rows, codes = problem.source.rows_at(np.arange(problem.source.rows))
    named = {key: value for key, value in options.items() if key != "kernel"}
    matrix = pairwise_kernels(np.asarray(rows, float), metric=options["kernel"], **named)
    side = np.where(codes == problem.codes[1], 1.0, -1.0)
    ids = found.rows.ids
    weights = side[ids] * found.duals[:, 0]
    length = np.sqrt(weights @ matrix[np.ix_(ids, ids)] @ weights)
    margins = side * (matrix[:, ids] @ weights + found.offsets[0]) / length
    others = np.setdiff1d(np.arange(len(side)), found.outliers)
    assert len(found.outliers) <= problem.left_out
    assert margins[others].min() >= found.lowers[0] * (1 - 1e-12)
    assert found.lowers[0] >= (1 - problem.epsilon) * found.uppers[0]
    for number in np.unique(found.proof.numbers.values).tolist():
        places = ids[found.proof.rows[number]]
        mix = side[places] * found.proof.weights[number]
        assert [mix[side[places] == one].sum() * one for one in (1.0, -1.0)] == pytest.approx([1.0, 1.0], abs=1e-12)
        assert mix @ matrix[np.ix_(places, places)] @ mix <= (2 * found.uppers[0]) ** 2


@pytest.mark.parametrize("options", [RBF, POLY], ids=["rbf", "poly"])
@pytest.mark.parametrize("seed", range(3))
def test_no_other_rows_are_better_to_leave_out(seed: int, options: dict[str, Any]) -> None:
    """Tiny cases, with equal rows of different classes: what brute force finds on the rows' images."""
    X, y, _ = rings(seed, 14, 1)
    k = 1 + seed % 2
    if seed == 2:
        X[5] = X[4]
        y[4], y[5] = 0, 1
    problem = problem_of(X, y, k, chunk_rows=5, epsilon=1e-6, **options)
    last = finish(problem, problem.start())[-1]
    (found,) = problem.results(last)
    named = {key: value for key, value in options.items() if key != "kernel"}
    images, side, best = coordinates(pairwise_kernels(X, metric=options["kernel"], **named)), 2 * y - 1, 0.0
    for away in itertools.combinations(range(len(X)), k):
        one = solve_hard_margin(np.delete(images, away, 0), np.delete(side, away), intercept=True)
        best = max(best, 0.0 if one.status == "zero" else one.upper)
    if best < 1e-6:
        assert last.status == "inseparable"
        assert found.status == "stopped"
        assert "no rows were found" in found.reason
        return
    assert last.status == "certified"
    check(problem, last, **options)
    assert found.lowers[0] == pytest.approx(best, rel=1e-5)
    assert found.lowers[0] <= best * (1 + 1e-6)
    assert found.uppers[0] >= best * (1 - 1e-6)


@pytest.mark.parametrize("options", [RBF, POLY], ids=["rbf", "poly"])
def test_wrong_labels_are_found(options: dict[str, Any]) -> None:
    """In stages, and by scans."""
    X, y, bad = rings(7, 600, 3)
    problem = problem_of(X, y, 3, sample=0.05, **options)
    states = finish(problem, problem.start())
    check(problem, states[-1], **options)
    assert states[-1].status == "certified"
    assert problem.results(states[-1])[0].outliers.tolist() == bad


def test_every_state_leads_to_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any of them, before, during and after the search."""
    monkeypatch.setattr(row_search, "STEP", 1)
    X, y, _ = rings(5, 120, 2)
    problem = problem_of(X, y, 3, **RBF)
    states = finish(problem, problem.start())
    assert sum(len(state.removed.trace) > 0 for state in states) > 3

    def bits(state: KernelState) -> dict[str, bytes]:
        arrays = state.to_arrays()
        return {name: np.asarray(values).tobytes() for name, values in arrays.items() if "trace" not in name}

    for state in states[:-1:2]:
        assert bits(finish(problem, problem.restore(state.to_arrays()))[-1]) == bits(states[-1])


def test_models_are_verified_and_say_which_rows_they_leave_out(tmp_path: Path) -> None:
    """From a store."""
    X, y, bad = rings(6, 150, 2)
    store = tmp_path / "rows.zarr"
    coremargin.ingest(X, store, labels=y)
    model = coremargin.train(store, out=tmp_path / "a.model", outliers=2, **RBF)
    assert model.status == "certified"
    assert model.outlier_ids is not None
    assert model.outlier_ids.tolist() == bad
    assert coremargin.verify(tmp_path / "a.model", store).ok
    assert (model.predict(X) == y).sum() == len(y) - 2
    assert coremargin.train(X, y, outliers="0.1%", **RBF).outlier_ids.tolist() == []  # type: ignore[union-attr]


def test_what_cannot_be_left_out_is_refused() -> None:
    """Several numbers, a loss, several classes, a strategy, a function, all of a class."""
    X, y, _ = rings(6, 60, 0)
    for options, text in (
        ({"outliers": "1..2"}, "expected one number"),
        ({"outliers": 2, "loss": "hinge"}, "found loss 'hinge'"),
        ({"outliers": 2, "classes": "ovr"}, "found classes 'ovr'"),
        ({"outliers": 2, "strategy": "smo"}, "found strategy 'smo'"),
    ):
        with pytest.raises(SpecError, match=text):
            coremargin.train(X, y, **(RBF | options))
    with pytest.raises(SpecError, match="found a function"):
        coremargin.train(X, y, kernel=lambda a, b: a @ b.T, outliers=2)
    with pytest.raises(UsageError, match="so that a row of each class stays"):
        coremargin.train(X, y, outliers=int(np.bincount(y).min()), **RBF)
