"""What people are told at the end of ``coremargin verify``, for every kind of claim and every status."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from forge_active import Played, played, two_sides

if TYPE_CHECKING:
    from click.testing import Result

    from forge_specimens import Specimens

RunCli = Callable[..., "Result"]

MARGIN = r"the margin is at least \(1 - [\de.-]+\) of the best possible"
VALUE = r"no hypothesis has a value below \(1 - [\de.-]+\) of this one's"
NOTHING = (
    r"no hyperplane separates the classes: none has a margin above [\d.]+ × 10⁻\w+, "
    "which is zero for such rows, to within float64"
)

#: By specimen, and a member of it: the last line.
VERDICTS = {
    ("hard", ""): MARGIN,
    ("hard-overlap", ""): NOTHING,
    ("hard-stopped", ""): "the bounds hold; they do not prove epsilon 0.001",
    ("hinge", ""): VALUE,
    ("squared", ""): VALUE,
    ("outliers", ""): MARGIN,
    ("outliers-none", ""): NOTHING,
    ("classes", ""): MARGIN,
    ("classes-hinge", ""): VALUE,
    ("fleet", ""): f"{VALUE}, for each member",
    ("fleet-hard", ""): f"{MARGIN}, for each member",
    ("pair-folds", "C-0.5_fold-1"): f"{VALUE}, on the rows outside of fold 1 of 2",
}


@pytest.mark.parametrize(("name", "member"), VERDICTS)
def test_the_last_line_says_what_holds(specimens: Specimens, run_cli: RunCli, name: str, member: str) -> None:
    """It names what is proven, of which rows; and, of a fleet, how many members it holds of."""
    specimen = specimens[name]
    model = specimen.model / "members" / member if member else specimen.model
    *_, last = lines = run_cli("verify", model, specimen.store, "--quiet").stdout.splitlines()
    assert re.fullmatch(f"verified: {VERDICTS[name, member]}", last)
    every = len(specimen.record["members"]) if specimen.fleet and not member else 0
    assert (f"  all claims hold of {every} of {every} members" in lines) == bool(every)


def few(found: Played) -> None:
    """So few draws as were answered are the evidence, of a larger bound."""
    found.record["status"] = "stopped"
    found.record["evidence"]["error_bound"] += 20


def unproven(found: Played) -> None:
    """It was stopped before anything was drawn."""
    draws = found.record["evidence"]["draws"]
    found.record.update(status="stopped", evidence=None, answers=found.record["answers"] - draws)
    found.record["certificate"].update(lower=None, ratio=None)
    found.arrays.update(draws_ids=np.zeros(0, np.int64), draws_signs=np.zeros(0, np.int8))
    near = int(np.argmax(np.isin(np.arange(300), found.arrays["answered_ids"], invert=True)))
    found.arrays["b"] = -found.rows.X[near : near + 1] @ found.arrays["w"]  # through a row without answer


FEW = "how many can be is what the evidence says, and not as few as was asked for"
#: Models whose labels were asked for: (what is changed, how many rows are answered otherwise, the last line).
ACTIVE: dict[str, tuple[Callable[[Played], None], int, str]] = {
    "certified": (
        lambda _: None, 0, f"if no row is labelled wrongly, {MARGIN}; how many can be is what the evidence says"
    ),
    "few draws": (few, 0, f"the bounds hold; if no row is labelled wrongly, {MARGIN}; {FEW}"),
    "stopped": (unproven, 0, "the bounds hold; they do not prove epsilon 0.1"),
    "not separable": (lambda _: None, 7, NOTHING.replace("the classes", "the rows as they were answered")),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVE)
def test_the_last_line_says_what_holds_of_answers(run_cli: RunCli, tmp_path: Path, name: str) -> None:
    """Of models whose labels were asked for: of what, and on what condition; and that no label was compared."""
    change, others, words = ACTIVE[name]
    rows, truth = two_sides(tmp_path, 300)
    if others:
        truth[np.argsort(-np.abs(rows.X @ rows.X[0]))[::others]] *= -1
    found = played(rows, truth, error=0.05, confidence=0.9)
    change(found)
    lines = run_cli("verify", found.write_model(tmp_path / "m"), rows.path, "--quiet").stdout.splitlines()
    assert re.fullmatch(f"verified: {words}", lines[-1])
    assert any("as the model says; nothing was compared" in line for line in lines)


def test_members_are_listed_where_they_fail(specimens: Specimens, run_cli: RunCli) -> None:
    """A fleet on rows of another store: checks that fail are told with the member's name, the others are counted."""
    model, store = specimens["pair"].model, specimens["hinge-origin"].store
    lines = run_cli("verify", model, store, "--quiet", exit_code=4).stdout.splitlines()
    assert sum(line.startswith("  FALSE  C-0.1: ") for line in lines) >= 2
    assert [line for line in lines if line.startswith("  ok     C-")] == []
    assert "  all claims hold of 0 of 2 members" in lines
    assert re.fullmatch(r"refuted: \d+ of \d+ checks failed", lines[-1])
