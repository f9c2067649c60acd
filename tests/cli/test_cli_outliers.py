"""Outliers as people meet them: train, outliers, verify, info and the report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.maths.outliers import published
from coremargin.problems.outliers import outlier_margin
from coremargin.problems.outliers.enumeration import with_next_wave

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
    """The excluded rows are listed, and the margin against their number, as text, as JSON and on the page."""
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
    assert "The excluded rows" in page
    assert "The margin against the number of excluded rows" in page
    assert "The largest gain is the one at 3" in page
    assert "no other row within" in page
    assert "no row within" not in page
    assert "outliers" in run_cli("show", model).stdout
    work = json.loads((model / "run.json").read_text())["work"]
    assert work["log10_leaves"] == pytest.approx(4 * math.log10(5))
    assert work["log10_subsets"] == pytest.approx((work["coreset"] + 1) * math.log10(300))
    for text in (trained.stdout, page):
        assert "nodes of the search; a tree with d + 2 branches has (d + 2)^k = 625 leaves" in text
        assert "Lemma 5.2 allows M^(c + 1) = 10^" in text


def test_too_few_outliers_end_with_a_proof(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """Exit code 4, and words that say what is proven; with a share that comes to two rows."""
    model = tmp_path / "m"
    trained = run_cli("train", store.path, "--out", model, "--outliers", "0.7%", exit_code=4)
    assert (
        "not separable: excluding 2 rows cannot make the classes separable: at least 3 must be excluded (proven)"
        in trained.stdout
    )
    assert "Excluding 2 rows of these" in (model / "report.html").read_text(encoding="utf-8")
    assert "verified" in run_cli("verify", model, store.path).stdout
    sets = json.loads(run_cli("outliers", model, "--json").stdout)["contradictions"]
    assert len(sets) == 3
    assert len({row for ids in sets for row in ids}) == sum(map(len, sets))
    assert all(set(ids) & set(WRONG) for ids in sets)
    assert "no hyperplane separates any of these disjoint sets of rows" in run_cli("outliers", model).stdout


@pytest.mark.slow
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


@pytest.fixture
def few(make_store: Callable[..., Store]) -> Store:
    """30 rows in the plane that overlap, three of them with a wrong label."""
    rng = np.random.default_rng(3)
    y = np.where(np.arange(30) % 2, 1, -1)
    X = rng.normal(size=(30, 2))
    X[:, 0] += 2.5 * y
    y[:3] *= -1
    return make_store(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("search", ["published", "published-simple"])
def test_the_published_algorithms_end_with_a_theorem_and_a_bound(
    search: str, tmp_path: Path, few: Store, run_cli: Cli
) -> None:
    """What the algorithm's theorem says and what is proven are told apart, on the terminal, in the record and on the
    page; verify finds the bounds true; the margin is that of the exact search.
    """
    model, asked = tmp_path / "m", ("--outliers", "3,4", "--outlier-search", search)
    trained = run_cli("train", few.path, "--out", model, *asked, exit_code=4)
    assert "published: the algorithm has finished after" in trained.stdout
    assert "by its theorem, which verify cannot check, the margin is at least 1 - 0.001 of the best" in trained.stdout
    assert "best possible by proof at most" in trained.stdout
    assert "--resume" not in trained.stdout
    run = json.loads((model / "run.json").read_text())
    assert (run["word"], run["resumable"]) == ("published", False)
    assert [(one["k"], one["ended"], one["subset_rows"]) for one in run["published"]] == [(3, True, 3), (4, True, 3)]
    assert "by its theorem, which verify cannot check" in (model / "report.html").read_text(encoding="utf-8")
    assert "verified: the bounds hold" in run_cli("verify", model, few.path).stdout
    run_cli("train", few.path, "--out", tmp_path / "exact", "--outliers", "3,4", "--epsilon", "0")
    found, exact = (
        json.loads(run_cli("outliers", one, "--json").stdout)["steps"] for one in (model, tmp_path / "exact")
    )
    for mine, best, own in zip(found, exact, run["published"], strict=True):
        assert 0.999 * best["lower"] <= own["margin"] <= best["upper"]
        assert 0.999 * best["lower"] <= mine["lower"] <= best["upper"] <= mine["upper"]
    assert "stopped" in run_cli("show", model).stdout
    again = run_cli("train", few.path, "--out", model, *asked, "--resume", exit_code=4)
    assert "published: the algorithm has finished after" in again.stdout  # it is over: there is nothing to go on with


def test_an_interrupted_enumeration_is_gone_on_with(
    tmp_path: Path, few: Store, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C among the subsets leaves a model that says how far it came; with --resume no subset is tried twice, and
    the model is that of a job without a break, on more threads.
    """
    asked = ("--outliers", "4", "--outlier-search", "published")
    run_cli("train", few.path, "--out", tmp_path / "whole", *asked, "--cluster", "threads", exit_code=4)
    monkeypatch.setattr(published, "RANGE", 100)
    starts: list[int] = []

    def interrupted(state: Any, *rest: Any) -> Any:
        starts.append(state.enumerations[0].number)
        if len(starts) == 4:
            raise KeyboardInterrupt
        return with_next_wave(state, *rest)

    monkeypatch.setattr(outlier_margin, "with_next_wave", interrupted)
    stopped = run_cli("train", few.path, "--out", tmp_path / "m", *asked, exit_code=4)
    assert "the published algorithm has tried 1,584 of at most 4,060 subsets" in stopped.stdout
    (one,) = json.loads((tmp_path / "m" / "run.json").read_text())["published"]
    assert (one["subsets"], one["ended"]) == (1_584, False)  # three waves of 16 tasks of 33 subsets
    assert "verified" in run_cli("verify", tmp_path / "m", few.path).stdout
    run_cli("train", few.path, "--out", tmp_path / "m", *asked, "--resume", exit_code=4)
    assert starts == [0, 528, 1056, 1584, 1584, 2112, 2640, 3168, 3696]
    for name in ("model.json", "arrays.npz"):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


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
    asked = ("--outliers", "3", "--outlier-search", "published")
    refused = run_cli("train", store.path, "--out", tmp_path / "m", *asked, exit_code=2)
    assert "may have to try 330,791,175 subsets of 300 rows" in refused.stderr
    assert "--outlier-search exact answers the same question" in refused.stderr
    assert (
        "above 0" in run_cli("train", store.path, "--out", tmp_path / "m", *asked, "--epsilon", "0", exit_code=2).stderr
    )
    refused = run_cli("train", store.path, "--out", tmp_path / "m", "--outliers", "200", exit_code=2)
    assert "the margin has no bound" in refused.stderr
    run_cli("train", store.path, "--out", tmp_path / "s", "--loss", "hinge", "--epsilon", "0.1")
    assert "train with --outliers" in run_cli("outliers", tmp_path / "s", exit_code=2).stderr
