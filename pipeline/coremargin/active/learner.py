"""The learner behind campaigns, arrays in memory and streams: a problem, and what the answers so far have taught it.

A learner never changes: every step returns another one. Answers are taken one at a time, whoever gave them and in
whatever batches, so that the learner follows from their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import UNSET

from coremargin.engine.loop import Engine, rounds
from coremargin.problems.active.model import evidence_of, model_of

if TYPE_CHECKING:
    from coremargin.engine.checkpoint import Checkpoint
    from coremargin.engine.loop import Callbacks, Step
    from coremargin.engine.protocols import Executor
    from coremargin.formats.answers import Action, Line
    from coremargin.models.model import Model
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.state import ActiveState
    from coremargin.problems.common.driver_rows import DriverRows

Codes = Mapping[int, int]  #: places of classes by row


class Draw(NamedTuple):
    """The attempt that a row was drawn for, and the hash of the hypothesis that it tries; None: unknown."""

    attempt: int
    tried: str | None

    @classmethod
    def of_line(cls, line: Line) -> Draw | None:
        """What the row of a line of the log was drawn for; None where it was not drawn."""
        return None if line.attempt is None else cls(line.attempt, None if line.tried is UNSET else line.tried)


@dataclass(frozen=True)
class Learner:
    """A problem and its state.

    Methods that take ``codes`` want all answers that hold after the step, as places of classes by row.
    """

    problem: ActiveMargin
    state: ActiveState

    @classmethod
    def start(cls, problem: ActiveMargin) -> Learner:
        """Before any answer."""
        return cls(problem, problem.start())

    # what is known

    @property
    def running(self) -> bool:
        """Whether it may still ask."""
        return self.state.status == "running"

    @property
    def lacks_classes(self) -> bool:
        """Whether draws have shown all that they can, and a class has no answer."""
        return self.state.status == "certified" and len(self.state.answered.seen_classes) < self.problem.classes

    def evidence(self, classes: Sequence[Any]) -> dict[str, Any] | None:
        """What the draws show, as a model's record has it; None before all are answered."""
        return evidence_of(self.problem, self.state, classes)

    def model(self, classes: Sequence[Any], parameters: Mapping[str, Any], log: str | None) -> Model:
        """The model of the answers, with what it claims. log: hash of the last line that it knows, if there is one."""
        return model_of(self.problem, self.state, classes, parameters, log)

    def predict(self, row: int) -> int:
        """The class of a row by the hypothesis; of a row that no class, or more than one, claims the nearest."""
        side = int(self.problem.sides_of(self.state, [row])[0])
        return side if side >= 0 else int(self.problem.decisions(self.state, np.array([row]))[0].argmax())

    def draw_of(self, row: int) -> Draw | None:
        """What a row is drawn for now; None where it is not drawn."""
        return Draw(self.state.attempt, self.state.hypothesis.hash) if row in self.state.draws.ids else None

    # questions

    def ask(self, most: int, excluded: Collection[int] = ()) -> list[int]:
        """The rows to ask about now, at most so many; none: a scan is next, or answers are.

        The first is the one that the problem wants most, the next the one that it would want if the first had the class
        that the hypothesis predicts, and so on. excluded: rows that are asked about already, or that were skipped.
        """
        learner = self.after_trial()
        if not learner.running:
            return []
        if len(learner.state.draws):
            return [int(row) for row in learner.state.wanted if int(row) not in excluded][:most]
        ahead, found = learner.as_predicted(excluded), list[int]()
        while len(found) < most and ahead.running:
            questions = self.problem.questions(ahead.state)
            if not questions:
                break
            found.append(questions[0])
            if len(found) < most:
                ahead = ahead.as_predicted(found[-1:])
        return found

    def as_predicted(self, rows: Iterable[int]) -> Learner:
        """As if these rows had the classes that the hypothesis predicts; one solve, however many they are."""
        codes = {row: self.predict(row) for row in rows}
        return self.add(codes) if codes and self.running else self

    def after_trial(self) -> Learner:
        """What follows a trial that has not shown what was asked for: its draws become ordinary answers."""
        return replace(self, state=self.problem.finish_trial(self.state))

    @property
    def is_scanned(self) -> bool:
        """Whether another scan would find nothing new: the hypothesis was scanned, or draws are to try it."""
        state = self.after_trial().state
        return len(state.draws) > 0 or (state.scanned.was_scanned and len(self.problem.questions(state)) > 0)

    def scan(
        self, executor: Executor, checkpoint: Checkpoint, callbacks: Callbacks, block: int
    ) -> Iterator[tuple[Learner, Step[ActiveState]]]:
        """Scan all rows once; yields the learner after each step of the loop.

        block: bytes that are read at a time, or more where the problem needs them. Rows that nobody has answered yet
        do not keep the scan waiting.
        """
        engine = Engine(
            self.problem.source, executor, checkpoint, callbacks, max(block, self.problem.least_block_bytes)
        )
        begin = replace(self.after_trial().state, wanted=np.zeros(0, np.int64))
        for step in rounds(engine, self.problem, begin, 1):
            yield replace(self, state=step.state), step

    # answers

    def answer(self, row: int, action: Action, draw: Draw | None, codes: Codes) -> Learner:
        """After an answer about a row, whatever its action. draw: what the row was drawn for when it was asked about.

        An answer about another row than those drawn ends an attempt: the draws were to try another hypothesis. Once
        certified, an answer that agrees changes nothing, nor with a loss one that does not, but for rows that nobody
        could label before.
        """
        learner, mismatched = self, not self.is_drawn_for(row, draw)
        if mismatched:
            learner = learner.recompute(codes, spent=0 if draw is None else draw.attempt)
        if action in ("unsure", "undo") and row not in codes:
            if not mismatched and (action == "undo" or self._leaves_population(row)):
                learner = learner.recompute(codes)
            return replace(learner, state=self.problem.exclude(learner.state, row))
        if mismatched or action in ("skip", "unsure"):
            return learner
        return self._label(row, codes) if action == "label" else self.recompute(codes)

    def _label(self, row: int, codes: Codes) -> Learner:
        state = self.state
        if self.running and row in state.draws.ids:
            return self.add({row: codes[row]})
        if row in state.unsure:
            return self.recompute(codes)
        if state.status == "certified" and (self.problem.loss is not None or self._agrees(row, codes[row])):
            return self
        return self.recompute(codes) if len(state.draws) else self.add({row: codes[row]})

    def add(self, codes: Codes) -> Learner:
        """With more answers, in one solve."""
        return replace(self, state=self.problem.answered(self.state, codes))

    def holding(self, rows: DriverRows) -> Learner:
        """With other rows in memory; what it wants is as before."""
        return replace(self, state=replace(self.state, resident=rows))

    def with_rows(self, rows: DriverRows) -> Learner:
        """With other rows in memory, of which it chooses its questions."""
        return replace(self, state=self.problem.with_resident(self.state, rows))

    def without_answers(self) -> Learner:
        """As it began, with the rows in memory that it has now."""
        state = self.state
        empty = self.problem.empty_state(state.resident, state.unsure, state.sample_bytes)
        return replace(self, state=empty).with_rows(state.resident)

    def recompute(self, codes: Codes, *, spent: int = 0) -> Learner:
        """As if the answers that hold now had been given from the start; an attempt that was on the way is void.

        What was drawn and answered is among the rows answered now, and the next attempt draws others. spent: number of
        an attempt that is over, and so are those before.
        """
        problem, state = self.problem, self.problem.end_attempt(self.state)
        state = replace(state, attempt=max(state.attempt, spent + 1))
        pool = state.answered
        unchanged = pool.take(
            np.flatnonzero([codes.get(int(row)) == code for row, code in zip(pool.ids, pool.codes, strict=True)])
        )
        again = {row: code for row, code in codes.items() if row not in unchanged.ids}
        if not again and len(unchanged):  # only an answer makes the problem solve: one of the rows is answered again
            again = {int(unchanged.ids[0]): int(unchanged.codes[0])}
            unchanged = unchanged.take(np.arange(1, len(unchanged)))
        if not again:
            fresh, read = problem.start(state.unsure), state.sample_bytes
            fresh = replace(fresh, round=state.round, attempt=state.attempt, sample_bytes=read + fresh.sample_bytes)
            return replace(self, state=fresh)
        return replace(self, state=problem.reset(state, unchanged)).add(again)

    def is_drawn_for(self, row: int, draw: Draw | None) -> bool:
        """Whether a row was drawn for that, as far as the state knows.

        Else the state was computed again, by another coremargin or on another kind of processor, and has come to other
        draws than people were shown, or another hypothesis: these attempts are spent, and those draws show nothing.
        """
        now = self.draw_of(row)
        return draw == now if now is not None or draw is None else draw.attempt < self.state.attempt

    def _agrees(self, row: int, code: int) -> bool:
        """Whether the hypothesis gives a row the class of its answer, outside of the margins proven so far."""
        state, values = self.state, self.problem.decisions(self.state, np.array([row]))
        if int(state.hypothesis.sides(values)[0]) != code:
            return False
        return not state.answered.both_classes or bool((np.abs(values[0]) >= self.problem.proven(state)).all())

    def _leaves_population(self, row: int) -> bool:
        """Whether draws say something of a row that is none of them: to exclude it now would be to choose by them."""
        state = self.state
        return len(state.draws) > 0 and row not in state.draws.ids and row not in state.unsure
