"""Classes that overlap by more rows than may be excluded: reported and proven before any search."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.optimize import linprog

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.maths.outliers.tasks import run_serially
from coremargin.problems.outliers import overlap
from coremargin.problems.outliers.messages import describe_overlap
from coremargin.problems.outliers.outlier_margin import OutlierMargin
from coremargin.problems.outliers.outlier_table import outlier_table
from coremargin.problems.outliers.state import OutlierState
from coremargin.verify import verify
from outlier_loop import bits, noisy, proceed

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.maths.outliers.certificates import SearchRows
    from coremargin.maths.outliers.tasks import TaskRunner


def clouds(rows: int, features: int, apart: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """Two clouds of normal rows that overlap, float32, and which one each row is of."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, rows)
    return (rng.normal(size=(rows, features)) + apart * y[:, None]).astype(np.float32), y


def separable(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a hyperplane has all rows of one class strictly on one side, by linear programming."""
    signed = np.column_stack([x, np.ones(len(x))]) * np.where(y > 0, 1.0, -1.0)[:, None]
    free = [(None, None)] * signed.shape[1]
    return bool(linprog(np.zeros(signed.shape[1]), A_ub=-signed, b_ub=-np.ones(len(x)), bounds=free).status == 0)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows that contradictions were packed of, and how many are known after that, try by try."""
    made: list[tuple[int, int]] = []
    packed = overlap.pack_working_set

    def counted(state: OutlierState, search_rows: SearchRows, run: TaskRunner) -> OutlierState:
        state = packed(state, search_rows, run)
        made.append((len(search_rows), state.least))
        return state

    monkeypatch.setattr(overlap, "pack_working_set", counted)
    return made


@pytest.mark.specimens(1)
@pytest.mark.parametrize("search", ["exact", "heuristic"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_hopeless_number_of_outliers_ends_without_a_search(tmp_path: Path, intercept: bool, search: Any) -> None:
    """One node, with sets of rows none of which is separable and no two of which share a row; verified, and counted."""
    x, y = clouds(600, 3)
    store, out = tmp_path / "s.zarr", tmp_path / "m"
    coremargin.ingest(x, store, labels=y)
    model = coremargin.train(store, out=out, outliers=7, outlier_search=search, intercept=intercept, cluster="threads")
    assert model.status == "not_separable"
    found = outlier_table(model)
    assert found.steps[-1].nodes == 1
    assert found.least == len(found.contradictions) > 30
    rows = [row for ids in found.contradictions for row in ids]
    assert len(set(rows)) == len(rows)
    if intercept:
        assert not any(separable(x[list(ids)], y[list(ids)]) for ids in found.contradictions)
    assert json.loads((out / "run.json").read_text())["least"] == found.least
    assert f"at least <b>{found.least}</b> must be excluded" in (out / "report.html").read_text(encoding="utf-8")
    assert verify(out, store).ok


def test_all_numbers_of_outliers_are_answered_at_once(tmp_path: Path) -> None:
    """What is too few for the largest number is too few for all, and takes no search of their own."""
    x, y = clouds(400, 2)
    store = tmp_path / "s.zarr"
    coremargin.ingest(x, store, labels=y)
    model = coremargin.train(store, out=tmp_path / "m", outliers="0..9", cluster="threads")
    found = outlier_table(model)
    assert all(step.impossible for step in found.steps)
    assert max(step.nodes for step in found.steps) == 1
    assert verify(tmp_path / "m", store).ok


def test_cached_rows_are_used_when_the_working_set_is_too_small(
    tries: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are tried when the working set has too few contradictions, and are then part of the proof."""
    monkeypatch.setattr("coremargin.problems.outliers.outlier_margin.WORKING_SET_ROWS", 100)
    monkeypatch.setattr(OutlierMargin, "ordinary", 50)
    x, y = clouds(600, 3)
    problem = OutlierMargin(ArraySource(x, y), (30,), 1e-3)
    state, _ = proceed(problem, problem.start())
    (first, few), (wider, enough) = tries
    assert few <= 30 < enough == state.least
    assert first < wider == len(state.working_set) == 600
    assert problem.result(state).status == "not_separable"


@pytest.mark.parametrize("wrong", [0, 3])
def test_rows_that_may_be_separable_are_left_to_the_search(wrong: int, tries: list[tuple[int, int]]) -> None:
    """Where an incumbent separates the rows nothing is packed, and as much is found as ever."""
    x, y = noisy(300, 4, wrong, seed=3)
    problem = OutlierMargin(ArraySource(x, y), (3,), 1e-3)
    state, _ = proceed(problem, problem.start())
    assert (state.status, state.least, tries) == ("certified", 0, [])


def test_what_would_take_long_is_left_to_the_search(
    tries: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without time for as many solves as rows may go nothing is packed; the answer is the search's, the same."""
    monkeypatch.setattr(overlap, "EFFORT", 0)
    x, y = clouds(300, 2)
    problem = OutlierMargin(ArraySource(x, y), (2,), 1e-3)
    state, _ = proceed(problem, problem.start())
    assert (state.status, state.least, tries) == ("certified", 0, [])
    assert problem.result(state).status == "not_separable"


def test_contradictions_come_back_from_a_checkpoint_and_do_not_mind_the_order_of_tasks() -> None:
    """The same bits, whatever the workers; a state is what it was."""
    x, y = clouds(600, 3)
    problem = OutlierMargin(ArraySource(x, y), (40,), 1e-3)
    state, _ = proceed(problem, problem.start())
    other, _ = proceed(problem, problem.start(), run=lambda f, tasks: run_serially(f, tasks[::-1])[::-1])
    assert state.least > 40
    assert bits(other) == bits(state) == bits(OutlierState.from_arrays(state.to_arrays(), 1))


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (
            {"outliers": 10, "wrong": 81, "least": 37},
            "excluding 10 rows cannot make .* at least 37 must be excluded",
        ),
        (
            {"outliers": 10, "wrong": 81, "least": 9},
            "excluding 10 rows may not make .*: 81 labels look wrong and at least 9",
        ),
        ({"outliers": 10, "wrong": 81, "least": 0}, "excluding 10 rows may not make .*: 81 labels look wrong; --loss"),
        ({"outliers": 10, "wrong": 10, "least": 0}, "$"),
        ({"nodes": 7}, "$"),
    ],
)
def test_the_words(figures: dict[str, int], said: str) -> None:
    """What is proven, what is likely, and what can help; nothing where all may be well."""
    assert re.match(said, describe_overlap(figures))


def test_it_is_said_at_once(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    """In a line of its own while the job runs, and in the end, with the loss that handles it."""
    x, y = clouds(600, 3)
    store = tmp_path / "s.zarr"
    coremargin.ingest(x, store, labels=y)
    done = run_cli("train", store, "--out", tmp_path / "m", "--outliers", "7", exit_code=4)
    wanted = r"excluding 7 rows cannot make the classes separable: at least (\d+) must be excluded \(proven\)"
    assert len(re.findall(rf"^{wanted}; --loss squared_hinge handles overlap$", done.stderr, re.MULTILINE)) == 1
    assert re.search(rf"^not separable: {wanted}\.$", done.stdout, re.MULTILINE)
    assert "--loss squared_hinge --overwrite instead of --outliers" in done.stdout
