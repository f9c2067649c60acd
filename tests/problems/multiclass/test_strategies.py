"""Figure 1 and Corollary 3.2 of Har-Peled, Roth, Zimak (2006) for several classes: against a direct transcription."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from classes_kit import row_margins, separable, table

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.errors import SpecError
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.published_bounds import any_row, coreset_rows
from coremargin.problems.multiclass.kesler import KeslerMargin
from kesler_vectors import kesler_vectors

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.problems.multiclass.classes_problem import ClassesState

EPSILON = 0.05
#: Bytes of a block of the scans here: a chunk.
BLOCK = 60 * 5 * 4


def finish(problem: KeslerMargin, state: ClassesState, *, most: int = 10_000) -> list[ClassesState]:
    """The states of a job whose scans may end early, each restored from its arrays; ``most``: updates."""
    states = [state]
    while not problem.done(states[-1]) and len(states) <= most:
        probe = problem.probe(states[-1])
        summary = probe.empty()
        for block in plan_blocks(problem.source, BLOCK):
            part = probe.narrow(block)(problem.source, block)
            summary = summary.merge(probe.from_arrays(part.to_arrays()))
            if problem.enough(summary):
                break
        states.append(problem.update(problem.restore(states[-1].to_arrays()), summary))
    return states


def transcribe(X: np.ndarray, y: np.ndarray, classes: int, epsilon: float, *, any_violator: bool) -> list[int]:
    """Figure 1: the rows in the order in which they are added, with the solver of two classes as the black box."""
    rows = [0]
    while True:
        Z, _ = kesler_vectors(X[rows], y[rows], classes)
        found = solve_hard_margin(Z, np.ones(len(Z)), intercept=False, tolerance=1e-12)
        margins = row_margins(X, y, found.w.reshape(classes, -1))
        low = np.flatnonzero(margins < (1 - epsilon) * found.upper)
        if not len(low):
            return rows
        rows.append(int(low[0] if any_violator else np.argmin(margins)))


@pytest.mark.parametrize("strategy", ["paper", "any-violator"])
@pytest.mark.parametrize("intercept", [True, False])
def test_rows_are_added_as_in_the_paper(strategy: Any, intercept: bool) -> None:
    """The certificate holds, the rows are those of the transcription, and no more than the theorem's."""
    X, y = separable(0, 400, 4, 3, gap=0.3)
    problem = KeslerMargin(ArraySource(X, y, chunk_rows=60), EPSILON, intercept=intercept, strategy=strategy)
    states = finish(problem, problem.start())
    last = states[-1]
    Z, y = table(problem)
    assert last.status == "certified"
    assert last.best is not None
    assert row_margins(Z, y, last.best).min() >= last.lower >= (1 - EPSILON) * last.upper
    added = [np.setdiff1d(after.working_set.ids, before.working_set.ids) for before, after in pairwise(states[:-1])]
    assert [0, *np.concatenate(added).tolist()] == transcribe(
        Z, y, problem.shape[0], EPSILON, any_violator=strategy == "any-violator"
    )
    longest = np.sqrt(2) * np.linalg.norm(Z, axis=1).max()
    bound = any_row if strategy == "any-violator" else coreset_rows
    assert len(last.working_set) <= bound(longest, last.upper, EPSILON)


@pytest.mark.parametrize("strategy", ["paper", "any-violator"])
def test_an_interrupted_job_ends_with_the_same_bits(strategy: Any) -> None:
    """At every tenth state, and with the rows of the first chunk unlabelled."""
    X, y = separable(1, 300, 4, 3, gap=0.3)
    labels = y.astype(object)
    labels[:60] = None
    problem = KeslerMargin(ArraySource(X, labels, chunk_rows=60), EPSILON, strategy=strategy)
    states = finish(problem, problem.start())
    assert states[0].working_set.ids.tolist() == [60]
    for state in states[:-1:10]:
        again = finish(problem, problem.restore(state.to_arrays()))[-1]
        assert {k: v.tobytes() for k, v in again.to_arrays().items()} == {
            k: v.tobytes() for k, v in states[-1].to_arrays().items()
        }


@pytest.mark.parametrize("strategy", ["paper", "any-violator"])
def test_inseparable_classes_are_proven(strategy: Any) -> None:
    """A row with two labels."""
    X, y = separable(2, 200, 4, 3, gap=0.3)
    source = ArraySource(np.vstack([X, X[:1]]), np.append(y, (y[0] + 1) % 3), chunk_rows=60)
    problem = KeslerMargin(source, EPSILON, strategy=strategy)
    assert finish(problem, problem.start())[-1].status == "not_separable"


def test_a_scan_that_ended_early_proves_nothing() -> None:
    """No lower bound before all rows were read at one hypothesis."""
    X, y = separable(0, 400, 4, 3, gap=0.3)
    problem = KeslerMargin(ArraySource(X, y, chunk_rows=60), EPSILON, strategy="any-violator")
    states = finish(problem, problem.start())
    assert len(states) > 10
    assert all(state.lower == -np.inf for state in states[:-1])
    probe = problem.probe(replace(states[3], upper=-1.0))
    assert not len(probe(problem.source, plan_blocks(problem.source)[0]).near)


def test_the_model_is_verified_and_a_loss_refused(tmp_path: Path) -> None:
    """From Python, with the strategy in the record."""
    X, y = separable(3, 300, 4, 3, gap=0.3)
    coremargin.ingest(X, tmp_path / "rows.zarr", labels=y)
    options: dict[str, Any] = {"classes": "crammer-singer", "strategy": "paper", "epsilon": EPSILON}
    model = coremargin.train(tmp_path / "rows.zarr", out=tmp_path / "a.model", **options)
    assert model.parameters["strategy"] == "paper"
    assert coremargin.verify(tmp_path / "a.model", tmp_path / "rows.zarr").ok
    with pytest.raises(SpecError, match="strategy: 'paper' is for hard margins, found loss 'hinge'"):
        coremargin.train(X, y, classes="crammer-singer", strategy="paper", loss="hinge")
    with pytest.raises(SpecError, match="has only 'any-violator' or 'fast' or 'paper', found 'romma'"):
        coremargin.train(X, y, classes="crammer-singer", strategy="romma")
