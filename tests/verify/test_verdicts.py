"""What people are told at the end of ``coremargin verify``, for every kind of claim and every status."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from click.testing import Result

    from forge_specimens import Specimens

RunCli = Callable[..., "Result"]

MARGIN = r"the margin is at least \(1 - [\de.-]+\) of the best possible"
VALUE = r"no hypothesis has a value below \(1 - [\de.-]+\) of this one's"
NOTHING = r"no hyperplane separates the classes: none has a margin above [\d.]+ × 10⁻\w+, which is zero for such rows"

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


def test_members_are_listed_where_they_fail(specimens: Specimens, run_cli: RunCli) -> None:
    """A fleet on rows of another store: checks that fail are told with the member's name, the others are counted."""
    model, store = specimens["pair"].model, specimens["hinge-origin"].store
    lines = run_cli("verify", model, store, "--quiet", exit_code=4).stdout.splitlines()
    assert sum(line.startswith("  FALSE  C-0.1: ") for line in lines) >= 2
    assert [line for line in lines if line.startswith("  ok     C-")] == []
    assert "  all claims hold of 0 of 2 members" in lines
    assert re.fullmatch(r"refuted: \d+ of \d+ checks failed", lines[-1])
