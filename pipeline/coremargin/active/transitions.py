"""How a campaign goes on from a state: with an answer, with one that is changed, with rows to ask about next.

Pure functions of a problem and its state. Answers are taken one at a time, whoever gave them and in whatever batches,
so that the state follows from their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import UNSET

from coremargin.engine.loop import Engine, rounds

if TYPE_CHECKING:
    from coremargin.engine.checkpoint import Checkpoint
    from coremargin.engine.loop import Callbacks, Step
    from coremargin.engine.protocols import Executor
    from coremargin.formats.answers import Action, Line
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.state import ActiveState

Codes = Mapping[int, int]  #: places of classes by row


class Draw(NamedTuple):
    """What a row was drawn for: the number of an attempt, and the hash of what that tries, None: unknown."""

    attempt: int
    tried: str | None


def scan(
    problem: ActiveMargin, state: ActiveState, executor: Executor, kept: Checkpoint, watch: Callbacks, block: int
) -> Iterator[Step[ActiveState]]:
    """Look at all rows once; block: bytes that are read at a time, or more where the problem needs them."""
    engine = Engine(problem.source, executor, kept, watch, max(block, problem.least_block_bytes))
    return rounds(engine, problem, waiting(problem, state), 1)


def apply_action(
    problem: ActiveMargin, state: ActiveState, row: int, action: Action, draw: Draw | None, codes: Codes
) -> ActiveState:
    """The state that knows what was said of a row; codes: all answers that hold, with this one.

    draw: what the row was drawn for when it was asked about, None: for nothing.
    """
    other = not fits(state, row, draw)
    if other:
        state = recompute(problem, state, codes, spent=0 if draw is None else draw.attempt)
    if action in ("unsure", "undo") and row not in codes:
        if not other and (action == "undo" or leaves_population(state, row)):
            state = recompute(problem, state, codes)
        return problem.set_aside(state, row)
    if other or action in ("skip", "unsure"):
        return state
    return apply_answer(problem, state, row, codes) if action == "label" else recompute(problem, state, codes)


def apply_answer(problem: ActiveMargin, state: ActiveState, row: int, codes: Codes) -> ActiveState:
    """The state that knows the answer about a row; codes: all answers that hold, with this one.

    An answer about another row than those drawn ends an attempt: the draws were to try another hypothesis. Once the
    campaign is certified, an answer that agrees changes nothing, nor with a loss one that does not, but for rows that
    nobody could label before.
    """
    if state.status == "running" and row in state.draws.ids:
        return problem.answered(state, {row: codes[row]})
    if row in state.unsure:
        return recompute(problem, state, codes)
    if state.status == "certified" and (problem.loss is not None or agrees(problem, state, row, codes[row])):
        return state
    if len(state.draws):
        return recompute(problem, state, codes)
    return problem.answered(state, {row: codes[row]})


def agrees(problem: ActiveMargin, state: ActiveState, row: int, code: int) -> bool:
    """Whether the hypothesis gives a row the class of its answer, outside of the margins proven so far."""
    values = problem.decisions(state, np.array([row]))
    if int(state.hypothesis.sides(values)[0]) != code:
        return False
    return not state.answered.both_classes or bool((np.abs(values[0]) >= problem.proven(state)).all())


def leaves_population(state: ActiveState, row: int) -> bool:
    """Whether draws say something of a row that is none of them: to set it aside now would be to choose by them."""
    return len(state.draws) > 0 and row not in state.draws.ids and row not in state.unsure


def predicted_code(problem: ActiveMargin, state: ActiveState, row: int) -> int:
    """The class that a row is taken to have: that of the hypothesis, or where there is none the one that is nearest."""
    side = int(problem.sides_of(state, [row])[0])
    return side if side >= 0 else int(problem.decisions(state, np.array([row]))[0].argmax())


def current_draw(state: ActiveState, row: int) -> Draw | None:
    """What a row is drawn for now, None: for nothing."""
    return Draw(state.attempt, state.hypothesis.hash) if row in state.draws.ids else None


def draw_of_line(line: Line) -> Draw | None:
    """What the row of a line of the log was drawn for, None: for nothing."""
    return None if line.attempt is None else Draw(line.attempt, None if line.tried is UNSET else line.tried)


def fits(state: ActiveState, row: int, draw: Draw | None) -> bool:
    """Whether a row was drawn for that, None: for nothing, as far as the state knows.

    Else the state was computed again, by another coremargin or on another kind of processor, and has come to other
    draws than people were shown, or another hypothesis: these attempts are spent, and those draws show nothing.
    """
    now = current_draw(state, row)
    return draw == now if now is not None or draw is None else draw.attempt < state.attempt


def recompute(problem: ActiveMargin, state: ActiveState, codes: Codes, *, spent: int = 0) -> ActiveState:
    """As if the answers that hold now had been given from the start; an attempt that was on the way is void.

    What was drawn and answered is among the rows answered now, and the next attempt draws others. spent: number of an
    attempt that is over, and so are those before.
    """
    state = problem.learning.voided(state)
    state = replace(state, attempt=max(state.attempt, spent + 1))
    pool = state.answered
    kept = pool.take(
        np.flatnonzero([codes.get(int(row)) == code for row, code in zip(pool.ids, pool.codes, strict=True)])
    )
    again = {row: code for row, code in codes.items() if row not in kept.ids}
    if not again and len(kept):  # the problem solves when it is told something: one of the rows is told once more
        again = {int(kept.ids[0]): int(kept.codes[0])}
        kept = kept.take(np.arange(1, len(kept)))
    if not again:
        begun, more = problem.start(state.unsure), state.sample_bytes
        return replace(begun, round=state.round, attempt=state.attempt, sample_bytes=more + begun.sample_bytes)
    return problem.answered(problem.learning.unsolved(state, kept), again)


def rows_to_ask(problem: ActiveMargin, state: ActiveState, most: int, passed: Collection[int]) -> list[int]:
    """Rows to ask about now, at most so many and none of those passed over; none: a scan is next, or answers are.

    The first is the one that the problem wants most, the next the one that it would want if the first had the class
    that the hypothesis foretells, and so on. passed: rows that are asked about already, or that were put off.
    """
    state = problem.gone_on(state)
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
    """As if these rows had the classes that the hypothesis foretells: solved once, however many they are."""
    codes = {row: predicted_code(problem, state, row) for row in rows}
    return problem.answered(state, codes) if codes and state.status == "running" else state


def waiting(problem: ActiveMargin, state: ActiveState) -> ActiveState:
    """The state whose scan is next: rows that nobody could answer yet are in nobody's way."""
    return replace(problem.gone_on(state), wanted=np.zeros(0, np.int64))


def seen_all(problem: ActiveMargin, state: ActiveState) -> bool:
    """Whether another scan would find nothing new: the hypothesis was looked at, or draws are to try it."""
    state = problem.gone_on(state)
    return len(state.draws) > 0 or (state.scanned.looked and len(problem.questions(state)) > 0)


def lacks_classes(problem: ActiveMargin, state: ActiveState) -> bool:
    """Whether all is said that draws can say, and of some class there is no answer."""
    return state.status == "certified" and len(state.answered.seen) < problem.classes
