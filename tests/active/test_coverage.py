"""How often what draws show is false, in many small plays of the whole learner: no more often than it says.

The plays are the same in every run: labels and draws follow from their number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coremargin.active import ActiveLearner

CONFIDENCE, ROWS = 0.5, 300


def rows_of_two() -> tuple[np.ndarray, np.ndarray]:
    """Two clouds apart, and which of them each row is of."""
    rng = np.random.default_rng(1)
    codes = (rng.random(ROWS) < 0.5).astype(int)
    return rng.uniform(-0.9, 0.9, (ROWS, 2)) + 3 * np.eye(2)[codes], codes


def played(X: np.ndarray, labels: np.ndarray, **asked: Any) -> ActiveLearner:
    """A learner to its end."""
    learner = ActiveLearner(X, classes=[0, 1], confidence=CONFIDENCE, loss="hinge", C=0.1, **asked)
    while len(ids := learner.query()[0]):
        learner.teach(ids, labels[ids])
    return learner


def false_sides(learner: ActiveLearner, X: np.ndarray, labels: np.ndarray) -> tuple[bool, bool]:
    """Whether some bound from below is false, and some bound from above."""
    model, shown = learner.model, learner.evidence
    if shown is None:
        assert (learner.status, model.answers) == ("certified", len(X)), "nothing is left to claim anything of"
        return False, False
    given, inside = model.predict(X), np.ones(len(X), bool)
    inside[model.numbers["answered_ids"]] = False
    below = above = False
    for part in shown.get("strata") or [shown]:
        mine = inside & (given == part["label"]) if "label" in part else inside
        bad = int((given != labels)[mine].sum())
        assert part["population"] == mine.sum()
        below, above = below or bad < part["error_least"], above or bad > part["error_bound"]
    return below, above


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "plays", "spent"),
    [
        ({"error": 0.9}, 150, 0.25),  # one attempt, which may spend half
        ({"error": 0.9, "by_class": True}, 100, 0.25),
        ({"error": 0.33, "trial": 20}, 50, 0.5),  # many, of which the one that looks good is the last
    ],
)
def test_intervals_are_false_no_more_often_than_they_say(asked: dict[str, Any], plays: int, spent: float) -> None:
    """With every fifth label turned, of all plays no larger share than the confidence leaves has a false bound, and
    each side has no more than its half; but some have: it is no accident that the others are true. Who goes on until
    it looks good has no bound from below that is false.
    """
    X, codes = rows_of_two()
    found, attempts = np.zeros(3, int), list[int]()
    for number in range(plays):
        labels = np.where(np.random.default_rng(number).random(ROWS) < 0.2, 1 - codes, codes)
        learner = played(X, labels, seed=number, **{"trial": 23} | asked)
        below, above = false_sides(learner, X, labels)
        found += [below, above, below or above]
        attempts.append(learner.evidence["attempt"] if learner.evidence else 0)
    allowed = np.array([spent / 2, spent / 2, spent]) * plays
    assert (found <= allowed).all(), found
    often = asked["error"] < 0.5
    assert (found[often:] > 0).all()
    assert (np.median(attempts) > 1) == often  # the first tells too little here and there
