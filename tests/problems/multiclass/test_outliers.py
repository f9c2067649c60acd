"""Crammer-Singer margins of all rows but k: certificates by written-out vectors, brute force, kills, refusals."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from classes_kit import kesler_vector, row_margins, separable, table

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.errors import SpecError, UsageError
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.outliers import row_search
from coremargin.maths.outliers.row_search import search_rows
from coremargin.maths.trimmed_kesler import KeslerFit
from coremargin.problems.multiclass.outliers import KeslerWithOutliers
from coremargin.problems.outliers.outlier_table import outlier_table
from kesler_vectors import kesler_vectors

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.problems.multiclass.classes_problem import ClassesState


def flipped(seed: int, n: int, d: int, K: int, wrong: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Separable rows, some of them with a wrong label, and which."""
    X, y = separable(seed, n, d, K, gap=0.3)
    bad = np.random.default_rng(seed).choice(len(y), wrong, replace=False)
    y = y.copy()
    y[bad] = (y[bad] + 1) % K
    return X, y, sorted(bad.tolist())


def finish(problem: KeslerWithOutliers, state: ClassesState, *, limit: int = 60) -> list[ClassesState]:
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
        assert states[-1].round < limit
    return states


def check(problem: KeslerWithOutliers, state: ClassesState) -> None:
    """The claims hold by plain float64 on all rows: all but k have the margin; every certificate is short enough."""
    found, (X, y) = problem.result(state), table(problem)
    assert found.proof is not None
    assert len(found.outliers) <= problem.left_out
    others = np.setdiff1d(np.arange(len(X)), found.outliers)
    if found.lower is not None:
        assert found.upper is not None
        assert row_margins(X, y, found.hypothesis)[others].min() >= found.lower >= (1 - problem.epsilon) * found.upper
    used = np.unique(found.proof.numbers.values)
    for number in used.tolist():
        places, weights = found.proof.rows[number], found.proof.weights[number]
        ids = found.rows.ids[places]
        assert weights.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.linalg.norm(kesler_vector(X[ids], y[ids], weights)) <= found.upper
        assert (X[ids, :-1] == found.rows.rows[places]).all()


def largest_without(X: np.ndarray, y: np.ndarray, classes: int, k: int) -> float:
    """By the hard margin of two classes on all vectors of every choice of rows; 0 if none is separable."""
    best = 0.0
    for away in itertools.combinations(range(len(X)), k):
        Z, _ = kesler_vectors(np.delete(X, away, 0), np.delete(y, away), classes)
        found = solve_hard_margin(Z, np.ones(len(Z)), intercept=False)
        best = max(best, 0.0 if found.status == "zero" else found.upper)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_no_other_rows_are_better_to_leave_out(seed: int) -> None:
    """Tiny cases, with rows that are there twice: what brute force finds, in any number of scans."""
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(9, 12)), int(rng.integers(1, 4)), 1 + seed % 2
    X = rng.standard_normal((n, d))
    X, y = (np.round(2 * X) if seed % 4 == 0 else X), (X @ rng.standard_normal((d, 3))).argmax(axis=1)
    y[:9] = np.arange(9) % 3 if seed % 3 == 0 else y[:9]
    y[rng.permutation(n)[:9]] = np.arange(9) % 3 if len(np.unique(y)) < 3 or np.bincount(y).min() <= k else y[:9]
    X[3] = X[4] if seed % 4 == 1 else X[3]
    source = ArraySource(X, y, chunk_rows=3)
    problem = KeslerWithOutliers(source, 1e-6, intercept=seed % 5 > 0, left_out=k, sample_bytes=60, sample_share=0.01)
    rows, codes = table(problem)
    best, last = largest_without(rows, codes, 3, k), finish(problem, problem.start())[-1]
    check(problem, last)
    found = problem.result(last)
    if best < 1e-9:
        assert last.status == "not_separable"
        assert found.kind == "not_separable"
        assert found.lower is None
    else:
        assert last.status == "certified"
        assert found.lower == pytest.approx(best, rel=1e-6)
        assert found.lower <= best * (1 + 1e-9)
        assert found.upper is not None
        assert found.upper >= best * (1 - 1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_wrong_labels_are_found(intercept: bool) -> None:
    """From a small sample, by rows that scans send."""
    X, y, bad = flipped(3, 1200, 5, 4, 3)
    source = ArraySource(X, y, chunk_rows=60)
    problem = KeslerWithOutliers(
        source, 1e-3, intercept=intercept, left_out=3, sample_bytes=2000, sample_share=0.01, blocks=40
    )
    states = finish(problem, problem.start())
    check(problem, states[-1])
    assert states[-1].status == "certified"
    assert problem.result(states[-1]).outliers.tolist() == bad
    assert len(states[0].working_set) < 200


def test_every_state_leads_to_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any of them, before, during and after the search."""
    monkeypatch.setattr(row_search, "STEP", 1)
    X, y, _ = flipped(5, 150, 3, 3, 2)
    problem = KeslerWithOutliers(
        ArraySource(X, y, chunk_rows=30), 1e-4, left_out=3, sample_bytes=700, sample_share=0.01
    )
    states = finish(problem, problem.start())
    assert sum(len(state.removed.trace) > 0 for state in states) > 4

    def bits(state: ClassesState) -> dict[str, bytes]:
        arrays = state.to_arrays()
        return {name: np.asarray(values).tobytes() for name, values in arrays.items() if "trace" not in name}

    for state in states[:-1:3]:
        assert bits(finish(problem, problem.restore(state.to_arrays()))[-1]) == bits(states[-1])


def test_a_search_that_gives_up_has_a_bound() -> None:
    """Of certificates without a common row."""
    X, y, _ = flipped(4, 200, 3, 3, 0)
    fit = KeslerFit(X, y, 3, 4.0)
    *_, found = search_rows(fit, 5, 1e-6, fit.start(5), most_nodes=1)
    assert not found.complete
    assert found.proof is not None
    assert 0 < -found.reached <= -found.bound < np.inf
    assert fit.gap(found.reached, -np.inf) == 1.0


def test_the_job_says_when_the_search_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With both bounds, and a reason."""
    X, y, _ = flipped(4, 200, 3, 3, 0)
    problem = KeslerWithOutliers(ArraySource(X, y, chunk_rows=50), 1e-6, left_out=5)
    monkeypatch.setattr(row_search, "QUICK", 1)
    monkeypatch.setattr(row_search.search_rows, "__defaults__", (1,))
    found = problem.result(finish(problem, problem.start())[-1])
    assert found.status == "stopped"
    assert "too many nodes" in found.reason
    assert found.lower is not None
    assert found.upper is not None
    assert 0 < found.lower < found.upper


def test_models_are_verified_and_say_which_rows_they_leave_out(tmp_path: Path) -> None:
    """From a store; a share of no rows is the plain margin."""
    X, y, bad = flipped(6, 120, 3, 3, 2)
    store = tmp_path / "rows.zarr"
    coremargin.ingest(X, store, labels=y)
    options: dict[str, Any] = {"classes": "crammer-singer"}
    model = coremargin.train(store, out=tmp_path / "a.model", outliers="2%", **options)
    assert model.status == "certified"
    assert model.outlier_ids is not None
    assert model.outlier_ids.tolist() == bad
    assert coremargin.verify(tmp_path / "a.model", store).ok
    plain = coremargin.train(X[y >= 0], y, outliers="0.5%", **options)
    assert plain.status == "not_separable"
    assert plain.outlier_ids is not None
    assert len(plain.outlier_ids) == 0
    with pytest.raises(UsageError, match="show MODEL` names them"):
        outlier_table(model)
    again = coremargin.retrain(tmp_path / "a.model", store, out=tmp_path / "b.model")
    assert again.certificate.lower == model.certificate.lower


def test_what_cannot_be_left_out_is_refused() -> None:
    """Several numbers, a loss, a strategy, all of a class; other kinds of several classes."""
    X, y, _ = flipped(6, 60, 3, 3, 0)
    options: dict[str, Any] = {"classes": "crammer-singer", "outliers": 2}
    with pytest.raises(SpecError, match="expected one number"):
        coremargin.train(X, y, **(options | {"outliers": "1..2"}))
    with pytest.raises(SpecError, match="found loss 'hinge'"):
        coremargin.train(X, y, loss="hinge", **options)
    with pytest.raises(SpecError, match="found strategy 'paper'"):
        coremargin.train(X, y, strategy="paper", **options)
    with pytest.raises(UsageError, match="so that a row of each class stays"):
        coremargin.train(X, y, **(options | {"outliers": int(np.bincount(y).min())}))
    with pytest.raises(SpecError, match="outliers: a fleet of models has none"):
        coremargin.train(X, y, classes="ovr", outliers=2)
