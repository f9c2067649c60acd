"""The learner of campaigns, arrays in memory and streams: a problem, and its state after the answers so far.

A learner is immutable: every step returns a new one. It learns answers one at a time, so that it depends on their order
only, and not on batches or annotators.
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

Codes = Mapping[int, int]  #: class codes by row


class Draw(NamedTuple):
    """The attempt that a row was drawn for, and the hash of the hypothesis that it tests; None: unknown."""

    attempt: int
    tried: str | None

    @classmethod
    def of_line(cls, line: Line) -> Draw | None:
        """The attempt of a line of the log; None if its row was not drawn."""
        return None if line.attempt is None else cls(line.attempt, None if line.tried is UNSET else line.tried)


@dataclass(frozen=True)
class Learner:
    """A problem and its state.

    ``codes`` are always all current answers after the step, as class codes by row.
    """

    problem: ActiveMargin
    state: ActiveState

    @classmethod
    def start(cls, problem: ActiveMargin) -> Learner:
        """The learner without answers."""
        return cls(problem, problem.start())

    # status

    @property
    def running(self) -> bool:
        """Whether it may query further rows."""
        return self.state.status == "running"

    @property
    def lacks_classes(self) -> bool:
        """Whether a class has no answer and further draws cannot find one."""
        return self.state.status == "certified" and len(self.state.answered.seen_classes) < self.problem.classes

    def evidence(self, classes: Sequence[Any]) -> dict[str, Any] | None:
        """The evidence of the draws, as in a model's record; None before all are answered."""
        return evidence_of(self.problem, self.state, classes)

    def model(self, classes: Sequence[Any], parameters: Mapping[str, Any], log: str | None) -> Model:
        """The model of the answers, with its claims. log: hash of the last processed line of the log, if any."""
        return model_of(self.problem, self.state, classes, parameters, log)

    def predict(self, row: int) -> int:
        """The predicted class of a row; if no hyperplane or several claim the row, the nearest class."""
        side = int(self.problem.sides_of(self.state, [row])[0])
        return side if side >= 0 else int(self.problem.decisions(self.state, np.array([row]))[0].argmax())

    def draw_of(self, row: int) -> Draw | None:
        """The attempt that a row is drawn for now; None if it is not drawn."""
        return Draw(self.state.attempt, self.state.hypothesis.hash) if row in self.state.draws.ids else None

    # questions

    def ask(self, most: int, excluded: Collection[int] = ()) -> list[int]:
        """At most ``most`` rows to query now; empty if a scan or an answer has to come first.

        The first is the most informative one. Each further one is the most informative if the rows before it have the
        predicted classes. excluded: rows that are queried already, or were skipped.
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
        """The learner if these rows had their predicted classes; one solve."""
        codes = {row: self.predict(row) for row in rows}
        return self.add(codes) if codes and self.running else self

    def after_trial(self) -> Learner:
        """The learner after a trial that failed to prove the claim: its draws become ordinary answers."""
        return replace(self, state=self.problem.finish_trial(self.state))

    @property
    def is_scanned(self) -> bool:
        """Whether a scan would find nothing new: the hypothesis was scanned, or draws test it next."""
        state = self.after_trial().state
        return len(state.draws) > 0 or (state.scanned.was_scanned and len(self.problem.questions(state)) > 0)

    def scan(
        self, executor: Executor, checkpoint: Checkpoint, callbacks: Callbacks, block: int
    ) -> Iterator[tuple[Learner, Step[ActiveState]]]:
        """Scan all rows once; yields the learner after each step of the loop.

        block: bytes per task, or more if the problem needs it. The scan does not wait for open questions.
        """
        engine = Engine(
            self.problem.source, executor, checkpoint, callbacks, max(block, self.problem.least_block_bytes)
        )
        begin = replace(self.after_trial().state, wanted=np.zeros(0, np.int64))
        for step in rounds(engine, self.problem, begin, 1):
            yield replace(self, state=step.state), step

    # answers

    def answer(self, row: int, action: Action, draw: Draw | None, codes: Codes) -> Learner:
        """The learner after an answer of any action. draw: the attempt that the row was drawn for when it was queried.

        An answer about a row that was not drawn ends the attempt, as it changes the hypothesis that the draws test.
        Once certified, an answer that agrees with the prediction changes nothing; with a loss, no answer does, except
        about rows that were unsure before.
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
        """The learner with more answers, in one solve."""
        return replace(self, state=self.problem.answered(self.state, codes))

    def holding(self, rows: DriverRows) -> Learner:
        """The learner with other rows in memory; the rows to query do not change."""
        return replace(self, state=replace(self.state, resident=rows))

    def with_rows(self, rows: DriverRows) -> Learner:
        """The learner with other rows in memory, from which it chooses the rows to query."""
        return replace(self, state=self.problem.with_resident(self.state, rows))

    def without_answers(self) -> Learner:
        """The learner without answers, with the present rows in memory."""
        state = self.state
        empty = self.problem.empty_state(state.resident, state.unsure, state.sample_bytes)
        return replace(self, state=empty).with_rows(state.resident)

    def recompute(self, codes: Codes, *, spent: int = 0) -> Learner:
        """The learner as if all current answers had been given at the start; a running attempt is void.

        Its answered draws become ordinary answers, and the next attempt draws other rows. spent: number of the last
        attempt that is used up.
        """
        problem, state = self.problem, self.problem.end_attempt(self.state)
        state = replace(state, attempt=max(state.attempt, spent + 1))
        answered = state.answered
        unchanged = answered.take(
            np.flatnonzero(
                [codes.get(int(row)) == code for row, code in zip(answered.ids, answered.codes, strict=True)]
            )
        )
        again = {row: code for row, code in codes.items() if row not in unchanged.ids}
        if not again and len(unchanged):  # the problem solves only after an answer: repeat that of one row
            again = {int(unchanged.ids[0]): int(unchanged.codes[0])}
            unchanged = unchanged.take(np.arange(1, len(unchanged)))
        if not again:
            fresh, read = problem.start(state.unsure), state.sample_bytes
            fresh = replace(fresh, round=state.round, attempt=state.attempt, sample_bytes=read + fresh.sample_bytes)
            return replace(self, state=fresh)
        return replace(self, state=problem.reset(state, unchanged)).add(again)

    def is_drawn_for(self, row: int, draw: Draw | None) -> bool:
        """Whether the present attempt and hypothesis are those that a row was drawn for.

        They differ after the state was computed again by another coremargin or on another kind of processor: then the
        attempt is used up, and its draws are no evidence.
        """
        now = self.draw_of(row)
        return draw == now if now is not None or draw is None else draw.attempt < self.state.attempt

    def _agrees(self, row: int, code: int) -> bool:
        """Whether a row is predicted to have the class of its answer, outside of the margin proven so far."""
        state, values = self.state, self.problem.decisions(self.state, np.array([row]))
        if int(state.hypothesis.sides(values)[0]) != code:
            return False
        return not state.answered.both_classes or bool(
            (state.hypothesis.sizes(values)[0] >= self.problem.proven(state)).all()
        )

    def _leaves_population(self, row: int) -> bool:
        """Whether excluding a row now would bias the draws: it is in the population and was not drawn."""
        state = self.state
        return len(state.draws) > 0 and row not in state.draws.ids and row not in state.unsure
