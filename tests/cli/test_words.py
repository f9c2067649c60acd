"""What the command line says while and after a soft margin is trained."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coremargin.report import numbers
from coremargin.report.text import WORKING_SET, explain_coreset
from coremargin.report.view import moment


@pytest.fixture
def store(make_store: Callable[..., Any], rng: np.random.Generator) -> Any:
    """A store of rows that no hyperplane separates."""
    X = rng.standard_normal((800, 4)).astype(np.float32)
    y = np.where(X[:, 0] + 0.8 * rng.standard_normal(800) > 0, 1, -1)
    return make_store(X, y)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_proof_is_about_the_objective(run_cli: Callable[..., Any], store: Any, tmp_path: Any, loss: str) -> None:
    """The verdict has the value, rounded up, and what none is below, rounded down; no word of a margin reached."""
    told = run_cli("train", store.path, "--out", tmp_path / "m", "--loss", loss)
    found = re.search(r"certified: the value ([\d.,]+) of the objective, over all 800 rows", told.stdout)
    bound = re.search(r"within \S+ .*of the best possible: no hyperplane has less than ([\d.,]+)\.", told.stdout)
    assert found is not None
    assert bound is not None
    value, dual = (float(match[1].replace(",", "")) for match in (found, bound))
    assert dual <= value <= dual * 1.0011
    assert "in memory one by one" in told.stdout
    assert ": 1 scan and a sample" in told.stdout
    for wrong in ("margin is proven", "reaches more", "carry the proof", "chosen"):
        assert wrong not in told.stdout
    assert re.search(r"^sample: read .* solved in", told.stderr, re.MULTILINE)
    assert "? to ?" not in told.stderr


def test_pool_and_coreset_are_explained(
    run_cli: Callable[..., Any], store: Any, tmp_path: Any, make_separable: Callable[..., Any],
    make_store: Callable[..., Any],
) -> None:  # fmt: skip
    """What pool and coreset are is said where they are counted, by training, show and the report, in the same words."""
    near, carry = explain_coreset(value=True), explain_coreset(value=False)
    parted = make_store(*make_separable(300, 4), name="parted.zarr")
    for name, rows, options, meaning in (
        ("soft", store, ("--loss", "hinge"), near), ("hard", parted, (), carry),
        ("fleet", store, ("--loss", "hinge", "--C", "0.1,1"), near), ("one", parted, ("--classes", "ovr"), carry),
        ("all", parted, ("--classes", "crammer-singer"), carry),
    ):  # fmt: skip
        told = run_cli("train", rows.path, "--out", tmp_path / name, *options, "--cluster", "threads")
        assert f"working set: {WORKING_SET}" in told.stderr
        assert ("the proof rests on the coreset, " in told.stdout) == (name not in ("fleet", "one"))
        assert re.search(rf"coreset:? .*{re.escape(meaning)}", run_cli("show", tmp_path / name).stdout)
        page = (tmp_path / name / "report.html").read_text(encoding="utf-8")
        assert name in ("soft", "fleet", "one") or f'title="{carry}"' in page
    squared = run_cli("train", store.path, "--out", tmp_path / "s", "--loss", "squared_hinge", "--cluster", "threads")
    assert "rests on" not in squared.stdout + run_cli("show", tmp_path / "s").stdout  # no row is kept


@pytest.mark.parametrize("folds", [(), ("--folds", "2")])
def test_a_fleet_that_cannot_decide_says_so(
    run_cli: Callable[..., Any], store: Any, tmp_path: Any, folds: tuple[str, ...]
) -> None:
    """Several C without folds: training, show, JSON and the report say that none is chosen, and how one is."""
    options = ("--out", tmp_path / "m", "--loss", "hinge", "--C", "0.1,1", "--cluster", "threads", *folds)
    text = "no C is chosen of 0.1, 1: say one when you predict, evaluate or export: --C 0.1"
    told = run_cli("train", store.path, *options).stdout
    found = json.loads(run_cli("train", store.path, *options, "--overwrite", "--json").stdout)
    page = (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    shown = run_cli("show", tmp_path / "m").stdout
    assert [text in one for one in (told, str(found["choice"]), page, shown)] == [not folds] * 4
    if not folds:
        assert "--folds 5" in told
        assert text in run_cli("evaluate", tmp_path / "m", store.path, exit_code=2).stderr
    assert (found["chosen"] is None, found["choice"] is None) == (not folds, bool(folds))
    run_cli("evaluate", tmp_path / "m", store.path, *(() if folds else ("--C", "0.1")))


def test_an_end_without_a_proof_names_what_is_known(run_cli: Callable[..., Any], store: Any, tmp_path: Any) -> None:
    """What is out of reach ends with exit code 4, the reason, the value and the bound so far."""
    told = run_cli("train", store.path, "--out", tmp_path / "m", "--loss", "hinge", "--epsilon", "1e-15", exit_code=4)
    assert "stopped before the proof was complete: more scans would not narrow the gap" in told.stdout
    assert re.search(
        r"value over all rows [\d.,]+, best possible at least [\d.,]+, epsilon asked for 1e-15", told.stdout
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2026-01-02T03:04:05+02:00", "2026-01-02 01:04 UTC"), ("2026-01-02T03:04", "2026-01-02 03:04"),
        ("yesterday", numbers.DASH), (None, numbers.DASH), ("0001-01-01T00:00:00+10:00", numbers.DASH),
        ("9999-12-31T23:00:00-10:00", numbers.DASH),
    ],
)  # fmt: skip
def test_when_a_run_began_is_told_or_a_dash(given: Any, shown: str) -> None:
    """A time stamp is shown in UTC where it has a zone; what is none, or has no date in UTC, is a dash."""
    assert moment(given) == shown
