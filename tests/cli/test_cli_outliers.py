"""Outliers as people meet them: train, outliers, verify, info and the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store

Cli = Callable[..., "Result"]
WRONG = (5, 99, 250)


@pytest.fixture
def store(make_separable: Callable[..., Any], make_store: Callable[..., Store]) -> Store:
    """300 rows of 3 features that are separable but for three wrong labels."""
    X, y = make_separable(300, 3)
    y = np.array(y)
    values = np.unique(y)
    for row in WRONG:
        y[row] = values[0] if y[row] == values[1] else values[1]
    return make_store(X, y)


def test_from_a_path_to_a_report(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """The rows left out are listed, the margin against their number too, in words, as JSON and on the page."""
    model = tmp_path / "m"
    trained = run_cli("train", store.path, "--out", model, "--outliers", "2..4", "--epsilon", "1e-6")
    assert "certified: without 4 of 300 rows the margin is" in trained.stdout
    assert f"coremargin outliers {model}" in trained.stdout
    listed = run_cli("outliers", model).stdout
    assert "not separable" in listed
    found = json.loads(run_cli("outliers", model, "--json").stdout)
    assert {row["id"] for row in found["rows"]} >= set(WRONG)
    assert [step["k"] for step in found["steps"]] == [2, 3, 4]
    assert found["steps"][0]["lower"] is None
    assert all(f"{row['id']:,}" in listed for row in found["rows"])
    assert "verified: the margin is at least" in run_cli("verify", model, store.path).stdout
    page = (model / "report.html").read_text(encoding="utf-8")
    assert "The rows left out" in page
    assert "The margin against the number of rows left out" in page
    assert "The largest step is the one to 3" in page
    assert "no other row within" in page
    assert "no row within" not in page
    assert "outliers" in run_cli("show", model).stdout


def test_too_few_outliers_end_with_a_proof(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """Exit code 4, and words that say what is proven; with a share that comes to two rows."""
    model = tmp_path / "m"
    trained = run_cli("train", store.path, "--out", model, "--outliers", "0.7%", exit_code=4)
    assert "not separable: more than 2 rows stand in the way" in trained.stdout
    assert "Whichever 2 rows of these" in (model / "report.html").read_text(encoding="utf-8")
    assert "verified" in run_cli("verify", model, store.path).stdout
    sets = json.loads(run_cli("outliers", model, "--json").stdout)["contradictions"]
    assert len(sets) == 3
    assert len({row for ids in sets for row in ids}) == sum(map(len, sets))
    assert all(set(ids) & set(WRONG) for ids in sets)
    assert "no two of which have a row in common" in run_cli("outliers", model).stdout


def test_the_heuristic_is_called_by_its_name(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """A margin and a bound that do not meet are not said to be proven."""
    model = tmp_path / "m"
    asked = ("--outliers", "40", "--outlier-search", "heuristic", "--epsilon", "1e-7")
    trained = run_cli("train", store.path, "--out", model, *asked, exit_code=4)
    assert "heuristic: the heuristic's answer, with an upper bound" in trained.stdout
    run = json.loads((model / "run.json").read_text())
    assert (run["word"], run["resumable"]) == ("heuristic", False)
    assert "--resume" not in (model / "report.html").read_text()
    assert "verified: the bounds hold" in run_cli("verify", model, store.path).stdout


def test_small_units_are_no_proof_of_anything(tmp_path: Path, make_store: Callable[..., Store], run_cli: Cli) -> None:
    """In units of 1e-12 a bound far below 1e-9 is still a bound: what is zero goes by the size of the rows."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(200, 8)), rng.permutation(np.repeat([1, -1], 100))
    model, asked = tmp_path / "m", ("--outliers", "0,30", "--outlier-search", "heuristic")
    run_cli("train", make_store(x * 1e-12, y).path, "--out", model, *asked, exit_code=4)
    found = json.loads(run_cli("outliers", model, "--json").stdout)["steps"]
    assert [step["impossible"] for step in found] == [True, False]
    assert 0 < found[1]["upper"] < 1e-11
    assert run_cli("outliers", model).stdout.count("not separable") == 1
    assert (model / "report.html").read_text(encoding="utf-8").count(">not separable<") == 1


def test_mistakes_are_refused(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """Negative numbers, classes that may vanish, and models without outliers."""
    for asked in ("-3", "x%", "5..2"):
        refused = run_cli("train", store.path, "--out", tmp_path / "m", "--outliers", asked, exit_code=2)
        assert "outliers: expected" in refused.stderr
    refused = run_cli("train", store.path, "--out", tmp_path / "m", "--outliers", "200", exit_code=2)
    assert "the margin has no bound" in refused.stderr
    run_cli("train", store.path, "--out", tmp_path / "s", "--loss", "hinge", "--epsilon", "0.1")
    assert "train with --outliers" in run_cli("outliers", tmp_path / "s", exit_code=2).stderr
