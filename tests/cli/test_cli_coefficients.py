"""What ``coremargin coefficients`` prints: features by their names, for people and for machines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin

if TYPE_CHECKING:
    from click.testing import Result

RunCli = Callable[..., "Result"]
ROWS = [(30, "nurse"), (40, "baker"), (50, "nurse"), (60, "baker"), (35, "nurse"), (45, 'ba"k,er')]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two classes from a table, columns scaled: nurses are the ones."""
    folder = tmp_path_factory.mktemp("jobs")
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("age", "job", "label"), *((*row, int(row[1] == "nurse")) for row in ROWS)])
    coremargin.ingest(folder / "rows.csv", folder / "rows.zarr", categorical="job")
    coremargin.train(folder / "rows.zarr", out=folder / "rows.model", loss="hinge", scaling="standard")
    return folder / "rows.model"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes against the rest, two values of C, none of them chosen."""
    folder = tmp_path_factory.mktemp("fleet")
    X, y = np.repeat(6 * np.eye(3, 30), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    X += np.random.default_rng(1).normal(size=X.shape)
    coremargin.train(X, y, out=folder / "m", classes="ovr", loss="hinge", C=[0.1, 1.0])
    return folder / "m"


def test_features_are_listed_by_influence(run_cli: RunCli, model: Path) -> None:
    """The text says what the numbers mean, names both sides, and has the sign of every number."""
    lines = run_cli("coefficients", model).stdout.splitlines()
    assert lines[0].startswith(f"{model}: 4 features, scaled: each column minus its mean")
    assert lines[1].endswith("effect: per one standard deviation")
    assert lines[3] == "1 (+) against 0 (-)"
    assert lines[4].split() == ["feature", "weight", "effect"]
    assert lines[5].split()[0] == "job=nurse"
    assert lines[5].count("+") == 2
    assert any(line.strip().startswith('job=ba"k,er') for line in lines)
    assert lines[-1].split()[0] == "intercept"


def test_a_class_is_chosen_and_the_rest_counted(run_cli: RunCli, model: Path, fleet: Path) -> None:
    """--class shows one side, of two classes either; --top says how many; what is left out is counted."""
    there = run_cli("coefficients", model, "--class", "1", "--top", "1").stdout.splitlines()
    turned = run_cli("coefficients", model, "--class", "0", "--top", "1").stdout.splitlines()
    assert (there[3], turned[3]) == ("1 (+) against 0 (-)", "0 (+) against 1 (-)")
    assert there[5].replace("+", "-") == turned[5]
    assert there[-1] == "3 more features; --top 4 shows all"
    lines = run_cli("coefficients", fleet, "--C", "1", "--class", "b").stdout.splitlines()
    assert lines[1] == "weight: change of the decision value per unit of a feature"
    assert lines[3] == "'b' (+) against all others (-)"
    assert [line.split()[:2] for line in lines[4:6]] == [["feature", "weight"], ["feature", "1"]]
    assert lines[-1] == "10 more features; --top 30 shows all"


def test_machines_get_all_of_it(run_cli: RunCli, model: Path, fleet: Path) -> None:
    """--json and --csv have every feature with its column, and numbers that read back to the bit."""
    expected = coremargin.Model.load(model).coefficients()[0]
    found = json.loads(run_cli("coefficients", model, "--json").stdout)
    assert (found["features"], found["scaling"]) == (4, "standard")
    assert [tuple(one.values()) for one in found["classes"][0]["coefficients"]] == [*expected.coefficients]
    head, intercept, *rows = csv.reader(run_cli("coefficients", model, "--csv").stdout.splitlines())
    assert head == ["class", "feature", "column", "weight", "effect"]
    assert (intercept[1], float(intercept[3])) == ("(intercept)", expected.intercept)
    assert [(name, column, float(w), float(e)) for _, name, column, w, e in rows] == [*expected.coefficients]
    three: dict[str, Any] = json.loads(run_cli("coefficients", fleet, "--C", "1", "--json", "--top", "2").stdout)
    assert [(one["class"], len(one["coefficients"])) for one in three["classes"]] == [("a", 2), ("b", 2), ("c", 2)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--class", "d"), "--class d: expected one of the model's classes: 0, 1"),
        (("--json", "--csv"), "--csv and --json cannot be combined"),
        (("--top", "0"), "top: expected at least 1, got 0"),
        (("--C", "3"), "this model is one alone"),
    ],
)
def test_what_is_not_there_is_refused(run_cli: RunCli, model: Path, words: tuple[str, ...], said: str) -> None:
    """Classes that are none, both forms at once, no feature, and a C of a model alone are wrong usage."""
    assert said in run_cli("coefficients", model, *words, exit_code=2).stderr


def test_a_fleet_asks_which_models(run_cli: RunCli, fleet: Path) -> None:
    """Without a C that was chosen the values there are are named."""
    assert "no C is chosen of 0.1, 1" in run_cli("coefficients", fleet, exit_code=2).stderr
