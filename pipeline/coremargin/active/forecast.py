"""What is left to do in a campaign: draws as they are known, rows near the hyperplanes by experience."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.problems.active.problem import open_rows, rows_of

if TYPE_CHECKING:
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.state import ActiveState

#: Answers about rows near a hyperplane that a proof took, for each of its coordinates: between one and three.
EACH = 2


@dataclass(frozen=True)
class Outlook:
    """draws: of the attempt on the way, or of the next one, that are to be answered yet, should none of them be wrong.

    near: about so many answers about rows near the hyperplanes come before, and perhaps far fewer.
    """

    draws: int
    near: int

    @property
    def all(self) -> int:
        """Both."""
        return self.draws + self.near


def outlook(problem: ActiveMargin, state: ActiveState) -> Outlook:
    """What is left from a state on; nothing where a campaign has ended."""
    state = problem.gone_on(state)
    if state.status != "running":
        return Outlook(0, 0)
    if len(state.draws):
        return Outlook(int((~state.draws.seen).sum()), 0)
    left = problem.source.rows - len(state.known)
    rows = state.scanned.population or left
    parts = problem.trials.populations(state.scanned.sides) if state.scanned.looked else [rows]
    needed = sum(problem.trials.needed(part, state.attempt) for part in parts)
    if problem.by_class and not state.scanned.looked:
        needed = min(rows, needed * problem.classes)
    return Outlook(min(needed, left), min(_near(problem, state), left))


def _near(problem: ActiveMargin, state: ActiveState) -> int:
    """By the rows in memory that lie within a slab, of which most lie outside once the nearest are answered."""
    known = len(state.answered)
    usual = EACH * (problem.source.features + 1) * problem.planes
    if not state.answered.both_classes:
        return usual
    rows, hypothesis = open_rows(state), state.hypothesis
    if not len(rows):
        return 0
    sides = hypothesis.sides(hypothesis.decisions(rows.rows)) if problem.planes > 1 else np.zeros(len(rows), np.int32)
    within = int((hypothesis.nearness(hypothesis.distances(rows.rows), sides) < hypothesis.limit).sum())
    if problem.trial is not None:  # as many new answers as a trial has draws, and then it comes
        return min(within, max(problem.trial, state.tried) - (known - state.tried))
    return min(within, max(usual - known, within // 10))


def distance_of(problem: ActiveMargin, state: ActiveState, row: int) -> tuple[float, float] | None:
    """How far a row lies from the nearest of the hyperplanes, and how far their slab reaches; None where there is none.

    Of several classes that hyperplane whose slab it is furthest within.
    """
    if not state.answered.both_classes:
        return None
    ids = np.array([row], np.int64)
    values = np.abs(state.hypothesis.decisions(rows_of(problem.source, state, ids)))[0]
    plane = int(state.hypothesis.in_slabs(values[None, :])[0].argmin())
    return float(values[plane]), float(state.hypothesis.slab[plane])
