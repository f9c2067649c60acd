"""Strategies compared: limits, refusals, numbers, and the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data.arrays import ArraySource
from coremargin.engine.executors import InProcess
from coremargin.errors import BadRow, DataError, LabelError, SpecError, UsageError
from coremargin.learn.compare import (
    STRATEGIES,
    compare,
    exponential_lesson,
    exponential_rows,
    names_of,
    rescaled_lesson,
)
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.problems.hard.comparison import Comparison, Run, render

Maker = Callable[..., tuple[np.ndarray, np.ndarray]]


def test_all_strategies_prove_bounds_that_hold_within_a_limit_of_reads(make_separable: Maker) -> None:
    """Each lower bound is below the best margin and each upper one above; fast reads the least; twice the same."""
    X, labels = make_separable(300, 4, margin=0.2)
    rows = ArraySource(X, labels, chunk_rows=50)
    y = np.where(labels == max(labels), 1, -1)
    best = solve_hard_margin(X, y, intercept=True).upper
    first, again = (compare(rows, InProcess(workers), reads=12, limit=None) for workers in (1, 3))
    assert [run.strategy for run in first.runs] == list(STRATEGIES)
    for run, other in zip(first.runs, again.runs, strict=True):
        assert not run.refused
        assert run.reads <= 13
        assert run.lower is None or run.lower <= best * (1 + 1e-9)
        assert run.upper is not None
        assert run.upper >= best * (1 - 1e-9)
        assert run.own is None or run.own <= best * (1 + 1e-9)
        numbers = [(one.reads, one.own, one.lower, one.upper, one.updates, one.rows) for one in (run, other)]
        assert numbers[0] == numbers[1]
        assert [point.own for point in run.points] == [point.own for point in other.points]
    fast = first.runs[0]
    assert all(run.bytes_read >= fast.bytes_read for run in first.runs)
    assert first.lower == max(run.lower for run in first.runs if run.lower is not None)
    json.dumps(first.to_json(), allow_nan=False)


def test_what_does_not_separate_is_proven_by_many_and_claimed_by_none(make_separable: Maker) -> None:
    """Strategies that meet the rows prove it; none has a lower bound above 0."""
    X, labels = make_separable(120, 2, margin=0.2)
    rows = ArraySource(np.concatenate([X, X[:12]]), [*labels, *labels[:12][::-1]])
    found = compare(rows, InProcess(1), reads=20, limit=None)
    assert found.lower is None
    assert {run.strategy for run in found.runs if run.status == "not_separable"} >= {
        "fast",
        "lp",
        "osuna",
        "smo",
        "paper",
    }
    assert all(run.lower is None or run.lower <= 0 for run in found.runs)


def test_a_strategy_that_rows_refuse_has_a_reason(make_separable: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of zeros without an intercept; a program that is too large. The others run."""
    X, labels = make_separable(100, 2)
    X[7] = 0
    rows = ArraySource(X, labels)
    monkeypatch.setattr("coremargin.problems.hard.strategies.quadratic_program.MOST_DUAL_ROWS", 99)
    found = compare(rows, InProcess(1), ["fast", "perceptron", "dual-qp", "paper"], intercept=False, reads=5)
    refused = {run.strategy: run.refused for run in found.runs}
    assert "row 7: a row of zeros has no direction" in refused["perceptron"]
    assert "a variable for each of 100 rows, at most 99" in refused["dual-qp"]
    assert refused["fast"] == refused["paper"] == ""


def test_reads_count_the_rows_that_a_strategy_begins_with(make_separable: Maker) -> None:
    """A program takes all rows into memory and proves the result by a second read: one read has proven nothing."""
    X, labels = make_separable(100, 2)
    one, two = (compare(ArraySource(X, labels), InProcess(1), ["primal-qp"], reads=n).runs[0] for n in (1, 2))
    assert (one.ended, one.reads, one.lower) == ("limit of reads", 1.0, None)
    assert (two.ended, two.reads, [point.reads for point in two.points]) == ("certified", 2.0, [1.0, 2.0])


def test_a_search_ends_when_the_working_set_is_full(make_separable: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Core vector machines and cutting planes need all rows that they have used; the slab needs two points."""
    X, labels = make_separable(400, 8, margin=0.001)
    monkeypatch.setattr("coremargin.problems.hard.hard_margin.HardMargin.working_set_rows", 6)
    names = ["cvm", "cutting-planes", "slab"]
    runs = compare(ArraySource(X, labels), InProcess(1), names, epsilon=1e-9, reads=20, limit=None).runs
    assert [run.ended for run in runs] == ["memory is full", "memory is full", "limit of reads"]
    assert [run.rows for run in runs] == [6, 6, 6]
    assert runs[0].updates == 6


def test_bad_input_is_refused(make_separable: Maker) -> None:
    """Limits of zero, unknown names, rows of one class or of three."""
    X, labels = make_separable(30, 2)
    rows = ArraySource(X, labels)
    for limit in ({"reads": 0}, {"limit": 0.0}, {"reads": float("nan")}, {"reads": float("inf")}, {"limit": np.inf}):
        with pytest.raises(UsageError, match="expected a number above 0"):
            compare(rows, InProcess(1), ["fast"], **limit)
    with pytest.raises(SpecError, match="did you mean 'perceptron'"):
        names_of("fast,perceptrn")
    assert names_of(" fast, paper,fast") == ["fast", "paper"]
    assert names_of("slab,all") == ["slab", *(name for name in STRATEGIES if name != "slab")]
    with pytest.raises(SpecError, match="strategies = '' is not known"):
        names_of("")
    with pytest.raises(SpecError, match="did you mean 'perceptron'"):
        compare(rows, InProcess(1), ["perceptrn"])
    with pytest.raises(UsageError, match="expected at least one, found none"):
        compare(rows, InProcess(1), [])
    for other in (["a"] * 30, ["a", "b", "c"] * 10):
        with pytest.raises(LabelError):
            compare(ArraySource(X, other), InProcess(1), ["fast"])
    assert issubclass(BadRow, DataError)


def test_the_perceptron_needs_exponentially_many_updates() -> None:
    """On the rows of the lesson: at least 2^(d-1), each time more than twice as many."""
    X, y = exponential_rows(5)
    assert ((X * y[:, None]) @ (2.0 ** np.arange(5)) > 0).all()
    lesson = exponential_lesson((2, 3, 4, 5))
    raw = lesson.updates["raw-perceptron"]
    assert all(count >= least for count, least in zip(raw, lesson.at_least, strict=True))
    assert all(later > 2 * count for count, later in pairwise(raw))
    assert lesson.updates["fast"] == [2, 3, 4, 5]
    rescaled = rescaled_lesson((1, 10))
    assert rescaled.updates["perceptron"][1] > 10 * rescaled.updates["perceptron"][0]
    assert rescaled.updates["fast"] == [3, 3]


def test_the_command_prints_a_table_json_and_a_page(tmp_path: Path, make_separable: Maker, run_cli: Any) -> None:
    """An existing page is not replaced unasked; the page shows every strategy and loads nothing."""
    X, labels = make_separable(120, 3, margin=0.3)
    np.savez(tmp_path / "rows.npz", X=X, y=labels)
    run_cli("ingest", tmp_path / "rows.npz", tmp_path / "s.zarr")
    words = ("compare", tmp_path / "s.zarr", "--strategies", "fast,perceptron,slab,dual-qp", "--reads", 30)
    shown = run_cli(*words, "--limit", "none", "--out", tmp_path / "page.html")
    assert "the largest margin lies between" in shown.stdout
    page = (tmp_path / "page.html").read_text()
    assert all(f">{name}<" in page for name in ("fast", "perceptron", "slab", "dual-qp"))
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "--overwrite" in run_cli(*words, "--out", tmp_path / "page.html", exit_code=2).stderr
    found = json.loads(run_cli(*words, "--json").stdout)
    assert [run["strategy"] for run in found["runs"]] == ["fast", "perceptron", "slab", "dual-qp"]
    assert found["lower"] <= found["upper"]


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ({}, "times the store.</p>"),
        ({"lp": 200}, "times the store. All others that prove a margin read more.</p>"),
        ({"lp": 100}, "times the store. <i>lp</i> read as much.</p>"),
        ({"lp": 100, "smo": 300}, "times the store. <i>lp</i> read as much, all others that prove a margin more.</p>"),
        ({"lp": 50, "smo": 60, "cvm": 100}, "times the store. Less was read by <i>lp</i>, <i>smo</i>.</p>"),
    ],
)
def test_the_page_says_who_read_less_than_fast(others: dict[str, int], sentence: str) -> None:
    """Also where others read as much, or where fast ran alone."""
    idle = Run("alma", status="stopped", reads=0.0, bytes_read=0)  # which its limit stopped before it proved anything
    runs = [
        Run(name, status="certified", reads=size / 100, bytes_read=size, lower=0.9, upper=1.0)
        for name, size in {"fast": 100, **others}.items()
    ]
    found = Comparison("rows.zarr", 10, 2, 100, 1e-2, intercept=True, reads=None, limit=None, runs=[*runs, idle])
    assert sentence in render(found, exponential_lesson((2,)), rescaled_lesson((1, 10)), "coremargin compare rows.zarr")


def test_rows_may_be_scaled_by_their_ellipsoid(make_separable: Maker) -> None:
    """Fitted once for all strategies; the margin does not depend on the units of columns; sparse rows are refused."""
    X, labels = make_separable(200, 3, margin=0.3)
    units = np.array([1e3, 1.0, 1e-2], np.float32)
    uppers = [
        compare(ArraySource(rows, labels), InProcess(1), ["fast", "paper"], epsilon=1e-4, scaling="ellipsoid").upper
        for rows in (X, X * units)
    ]
    assert uppers[0] == pytest.approx(uppers[1], rel=1e-3)
    with pytest.raises(UsageError, match="sparse"):
        compare(ArraySource(csr_array(X), labels), InProcess(1), ["fast"], scaling="ellipsoid")
