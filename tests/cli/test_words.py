"""What the command line says while and after a soft margin is trained."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coremargin.report import numbers
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
    for wrong in ("margin is proven", "reaches more", "carry the proof"):
        assert wrong not in told.stdout
    assert re.search(r"^sample: read .* solved in", told.stderr, re.MULTILINE)
    assert "? to ?" not in told.stderr


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
