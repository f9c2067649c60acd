"""How a campaign goes on from a state: with an answer, with one that is changed, with rows to ask about next.

Pure functions of a problem and its state. Answers are taken one at a time, whoever gave them and in whatever batches,
so that the state follows from their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import take
from coremargin.problems.active.probe import decisions
from coremargin.problems.active.state import ActiveState, Scanned

if TYPE_CHECKING:
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.common.pool import Pool

Signs = Mapping[int, int]  #: 1 or -1 by row


def answered(problem: ActiveMargin, state: ActiveState, row: int, signs: Signs) -> ActiveState:
    """The state that knows the answer about a row; signs: all answers that hold, with this one.

    An answer about another row than those drawn ends an attempt: the draws were to try another hypothesis. Once the
    campaign is certified, an answer that agrees changes nothing.
    """
    if state.status == "running" and row in state.draws.ids:
        return problem.answered(state, {row: signs[row]})
    if state.status == "certified" and agrees(problem, state, row, signs[row]):
        return state
    if len(state.draws):
        return revised(problem, state, signs)
    return problem.answered(state, {row: signs[row]})


def agrees(problem: ActiveMargin, state: ActiveState, row: int, sign: int) -> bool:
    """Whether the hypothesis has a row on the side that its answer says, outside of the margin proven so far."""
    value = sign * _decision(problem, state, row)
    return value >= (min(state.lower, state.scanned.nearest) if state.answered.both_classes else 0.0)


def foretold(problem: ActiveMargin, state: ActiveState, row: int) -> int:
    """The sign that the hypothesis says a row has."""
    place = np.flatnonzero(state.draws.ids == row)
    if len(place):
        return int(state.draws.sides[place[0]])
    return 1 if _decision(problem, state, row) >= 0 else -1


def _decision(problem: ActiveMargin, state: ActiveState, row: int) -> float:
    place = np.flatnonzero(state.resident.ids == row)
    if len(place):
        return float(decisions(take(state.resident.rows, place), state.w, state.b)[0])
    return float(decisions(problem.source.rows_at(np.array([row]))[0], state.w, state.b)[0])


def fits(state: ActiveState, row: int, attempt: int | None) -> bool:
    """Whether a row was drawn for the attempt of that number, None: for none, as far as the state knows.

    Else the state was computed again, by another coremargin or on another kind of processor, and has come to other
    draws than people were shown: these attempts are spent, and those draws show nothing.
    """
    if row in state.draws.ids:
        return attempt == state.attempt
    return attempt is None or attempt < state.attempt


def revised(problem: ActiveMargin, state: ActiveState, signs: Signs, *, spent: int = 0) -> ActiveState:
    """As if the answers that hold now had been given from the start; an attempt that was on the way is void.

    What was drawn and answered is among the rows answered now, and the next attempt draws others. spent: number of an
    attempt that is over, and so are those before.
    """
    state = problem.voided(state)
    state = replace(state, attempt=max(state.attempt, spent + 1))
    pool = state.answered
    kept = pool.take(
        np.flatnonzero([signs.get(int(row)) == sign for row, sign in zip(pool.ids, pool.signs, strict=True)])
    )
    again = {row: sign for row, sign in signs.items() if row not in kept.ids}
    if not again and len(kept):  # the problem solves when it is told something: one of the rows is told once more
        again = {int(kept.ids[0]): int(kept.signs[0])}
        kept = kept.take(np.arange(1, len(kept)))
    if not again:
        begun, more = problem.start(), state.sample_bytes
        return replace(begun, round=state.round, attempt=state.attempt, sample_bytes=more + begun.sample_bytes)
    empty = replace(
        state, status="running", answered=_without_weights(kept), w=np.zeros(problem.source.features), b=0.0,
        lower=0.0, upper=np.inf, scanned=Scanned.nothing(), wanted=np.zeros(0, np.int64),
    )  # fmt: skip
    return problem.answered(empty, again)


def _without_weights(pool: Pool) -> Pool:
    return pool.weighted(np.zeros(len(pool)))


def chosen(problem: ActiveMargin, state: ActiveState, most: int, passed: Collection[int]) -> list[int]:
    """Rows to ask about now, at most so many and none of those passed over; none: a scan is next, or answers are.

    The first is the one that the problem wants most, the next the one that it would want if the first had the label
    that the hypothesis foretells, and so on. passed: rows that are asked about already, or that nobody could answer.
    """
    if state.status != "running":
        return []
    if len(state.draws):
        return [int(row) for row in state.wanted if int(row) not in passed][:most]
    ahead, found = _ahead(problem, state, passed), list[int]()
    while len(found) < most and ahead.status == "running":
        questions: Sequence[int] = problem.questions(ahead)
        if not questions:
            break
        found.append(questions[0])
        if len(found) < most:
            ahead = _ahead(problem, ahead, found[-1:])
    return found


def _ahead(problem: ActiveMargin, state: ActiveState, rows: Iterable[int]) -> ActiveState:
    """As if these rows had the labels that the hypothesis foretells, each as those before it have changed it."""
    for row in rows:
        if state.status != "running":
            break
        state = problem.answered(state, {row: foretold(problem, state, row)})
    return state


def seen_all(problem: ActiveMargin, state: ActiveState) -> bool:
    """Whether another scan would find nothing new: the hypothesis was looked at, or draws are to try it."""
    looked = state.scanned.nearest > 0 or bool(state.scanned.sides.any())
    return len(state.draws) > 0 or (looked and len(problem.questions(state)) > 0)


def one_class(state: ActiveState) -> bool:
    """Whether all is said that draws can say, and every answer is the same."""
    return state.status == "certified" and not state.answered.both_classes
