"""Campaigns of all sorts as the engine asks and people answer: whatever is left, the verifier confirms it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.active import Campaign
from coremargin.verify.examine import examine
from coremargin.verify.outcome import Verification
from forge_asked import corners, mixed

if TYPE_CHECKING:
    from forge_specimens import Rows

SOFT = {"loss": "hinge", "C": 1.0, "trial": 25, "error": 0.35}
SORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "three": ("corners", {"error": 0.1}), "three by class": ("corners", {"error": 0.25, "by_class": True}),
    "two by class": ("two", {"error": 0.15, "by_class": True}),
    "no intercept": ("two", {"error": 0.1, "intercept": False}),
    "hinge": ("mixed", SOFT), "squared by class": ("mixed", SOFT | {"loss": "squared_hinge", "by_class": True}),
    "hinge of three": ("mixed three", SOFT), "of three by class": ("mixed three", SOFT | {"by_class": True}),
    "seldom certified": ("mixed", SOFT | {"error": 0.14, "by_class": True}),
}  # fmt: skip


def rows_of(kind: str, folder: Path, seed: int, **options: Any) -> tuple[Rows, np.ndarray, list[str]]:
    """A store, the classes of its rows by their places, and their names."""
    if kind == "corners":
        return *corners(folder, 220, seed, **options), ["a", "b", "c"]
    if kind == "two":
        rows, truth = corners(folder, 220, seed, shares=(0.5, 0.5, 0.0), **options)
        return rows, truth, ["no", "yes"]
    return (
        (*mixed(folder, 220, 3, seed, **options), ["a", "b", "c"])
        if "three" in kind
        else (*mixed(folder, 220, 2, seed, **options), ["no", "yes"])
    )


class Person:
    """Answers what is asked, in any order, sometimes later, sometimes wrongly at first, sometimes not at all."""

    def __init__(self, campaign: Campaign, truth: np.ndarray, classes: list[str], seed: int) -> None:
        self.campaign, self.truth, self.classes = campaign, truth, classes
        self.rng = np.random.default_rng([seed, 11])
        self.nobody = set(self.rng.choice(len(truth), len(truth) // 15, replace=False).tolist())
        self.waiting, self.known, self.unsure = list[int](), set[int](), set[int]()

    def next(self) -> int | None:
        """A row that is waiting for an answer."""
        if not self.waiting or self.rng.random() < 0.2:
            asked = [one.row for one in self.campaign.ask(int(self.rng.integers(1, 7)))]
            self.waiting += [row for row in asked if row not in self.waiting]
        self.waiting = self.waiting or [one.row for one in self.campaign.ask(again=True)]
        return self.waiting.pop(int(self.rng.integers(len(self.waiting)))) if self.waiting else None

    def answer(self, row: int) -> None:
        """About a row, and now and then about another one."""
        rng, name = self.rng, self.classes[int(self.truth[row])]
        if row in self.nobody:
            self.campaign.skip(row, unsure=True)
            self.unsure.add(row)
        elif rng.random() < 0.03:
            self.campaign.skip(row)
        else:
            self.campaign.tell([row], [name])
            self.known.add(row)
        if len(self.known) > 8 and rng.random() < 0.02:
            self.change(int(rng.choice(sorted(self.known))))
        if self.unsure and rng.random() < 0.01:
            self.campaign.tell([row := min(self.unsure)], [self.classes[int(self.truth[row])]])
            self.unsure.discard(row)
            self.nobody.discard(row)
            self.known.add(row)

    def change(self, row: int) -> None:
        """An answer is taken back, or changed and changed back."""
        if self.rng.random() < 0.5:
            self.campaign.undo(row)
            self.known.discard(row)
            return
        other = (int(self.truth[row]) + 1) % len(self.classes)
        for code in (other, int(self.truth[row])):
            self.campaign.correct(row, self.classes[code])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(k, marks=pytest.mark.slow if k > 1 else ()) for k in range(12)])
@pytest.mark.parametrize("sort", list(SORTS))
def test_what_people_leave_is_confirmed(tmp_path: Path, sort: str, seed: int) -> None:
    """Rows that no annotator can label, skipped ones, late, corrected and taken back answers, of dense and sparse rows
    and of rows without weight; stopped anywhere, or at the end.
    """
    kind, asked = SORTS[sort]
    rng = np.random.default_rng([seed, 12])
    options: dict[str, Any] = {"sparse": bool(seed % 3 == 2), "dtype": "float64" if seed % 2 else "float32"}
    if seed % 4 == 1:
        options["weights"] = rng.choice([0.0, 0.5, 2.0], 220, p=[0.2, 0.4, 0.4])
    rows, truth, classes = rows_of(kind, tmp_path, seed, **options)
    campaign = Campaign.create(tmp_path / "c", rows.path, **asked, confidence=0.7, classes=classes, seed=seed)
    person, most = Person(campaign, truth, classes, seed), int(rng.integers(30, 260))
    for _ in range(most):
        if campaign.status["status"] != "running" or (row := person.next()) is None:
            break
        person.answer(row)
    campaign.stop()
    campaign.close()
    for place in (tmp_path / "c", tmp_path / "c" / "model"):
        found = examine(place, rows.path, threads=1)
        assert found.ok, (found.status, found.failures)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("kind", ["mixed", "mixed three"])
@pytest.mark.parametrize("by_class", [False, True])
def test_a_trial_that_does_not_certify_is_evidence_of_what_it_shows(tmp_path: Path, kind: str, by_class: bool) -> None:
    """Who stops when all draws of a trial are answered, and more than was asked for are wrong, has a model with both
    bounds, that verify confirms; after the next answer it has none.
    """
    rows, truth, classes = rows_of(kind, tmp_path, 3)
    other = np.random.default_rng(3).random(len(truth)) < 0.35
    truth = np.where(other, (truth + 1) % len(classes), truth)
    asked = SOFT | {"error": 0.14, "by_class": by_class}
    campaign = Campaign.create(tmp_path / "c", rows.path, **asked, confidence=0.7, classes=classes)
    while campaign.status["evidence"] is None:
        for one in campaign.ask(1):
            campaign.tell([one.row], [classes[int(truth[one.row])]])
    campaign.stop()
    found = examine(tmp_path / "c", rows.path)
    assert found.ok, found.failures
    assert found.status == "stopped"
    assert isinstance(found, Verification)
    verdict = found.verdict(str)
    assert "of the rows answered, no hypothesis has a value below" in verdict
    assert "margin" not in verdict
    [text] = [check.text for check in found.checks if check.name == "evidence"]
    assert "of them wrong: with confidence 0.7 at most" in text
    [one] = campaign.ask(1)
    campaign.tell([one.row], [classes[int(truth[one.row])]])
    campaign.stop()
    campaign.close()
    found = examine(tmp_path / "c", rows.path)
    assert found.ok, found.failures
    assert "no draws: nothing is claimed" in next(check.text for check in found.checks if check.name == "evidence")
