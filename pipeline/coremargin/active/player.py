"""Brings the state of a campaign to where its log is: from a checkpoint if there is one, else from the start.

Whoever uses it holds the lock of the campaign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.active import transitions
from coremargin.active.growth import At, Ground, Grown
from coremargin.active.labels import codes_of
from coremargin.active.log import Log, entry_of, growth_of
from coremargin.active.queried_rows import name_of
from coremargin.active.state_folder import Kept, Mark
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import ScanCost
from coremargin.errors import CoremarginError, Interrupted, MachineLimit, OutputError, UsageError
from coremargin.formats.answers import Growth
from coremargin.formats.campaign import ANSWERS
from coremargin.formats.current_answers import effective
from coremargin.learn.record import RunCounters
from coremargin.models.executor import executor_of

if TYPE_CHECKING:
    from coremargin.active.answers import Given
    from coremargin.active.queried_rows import Asked
    from coremargin.engine.loop import Callbacks
    from coremargin.engine.protocols import Executor
    from coremargin.formats.answers import Entry, Line
    from coremargin.formats.campaign import Campaign
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.spec import ActiveJob
    from coremargin.problems.active.state import ActiveState

STATE = "state"


class Player:
    """The state, the log that it follows from, and what both have cost.

    labels: those that hold, by row, of the lines that the state knows. mark: how far it has come.
    """

    def __init__(
        self,
        path: Path,
        facts: Campaign,
        first: str,
        job: ActiveJob,
        watch: Callbacks,
        cluster: Any,
    ) -> None:
        self.path, self.facts, self.job, self.ground = path, facts, job, Ground(facts, job)
        self.log = Log(path / ANSWERS, first, facts.rows, facts.classes)
        self.kept = Kept(path / STATE, first)
        self.mark, self.meters, self.labels = Mark(0, first, first), RunCounters(), dict[int, Any]()
        self._first, self._watch, self._cluster = first, watch, cluster
        self._state: ActiveState | None = None
        self._stamp: tuple[int, int] | None = None
        self._saved: Any = None
        self._executor: Executor | None = None
        self._fetched: tuple[Any, int] = self.ground.store, 0

    @property
    def state(self) -> ActiveState:
        """As of the last ``refresh``, or what was done since."""
        if self._state is None:
            raise UsageError(f"{self.path}: the campaign was not read yet")
        return self._state

    @property
    def problem(self) -> ActiveMargin:
        """On the rows of the commit that the state is about: another one when the store has grown."""
        return self.ground.problem

    @property
    def classes(self) -> list[Any]:
        """All of them as far as they are known, of two (negative, positive)."""
        return self.log.classes(len(self.log.entries))

    @property
    def executor(self) -> Executor:
        """What runs scans; started when the first one is due."""
        if self._executor is None:
            self._executor = executor_of(self.problem.source, self._cluster).__enter__()
        return self._executor

    def close(self) -> None:
        """Stop what runs scans."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    @property
    def ran(self) -> Executor:
        """What ran scans, or would have run them in this process."""
        return self._executor or InProcess()

    # the log

    def refresh(self) -> None:
        """Read what others have written, and bring the state up to it."""
        self.log.refresh()
        if self._state is None or self.kept.stamp() != self._stamp:
            self._look()
        if self._state is None:
            self._begin()
        self.advance()

    def _look(self) -> None:
        """Take the state on disk where it has come as far as this one: blocks that lie there are of a scan of it."""
        marked = self.kept.found(self.log.entries[-1].scans if self.log.entries else 0)
        self._stamp = self.kept.stamp()
        if marked is None or not self._fits(marked.mark):
            return
        if self._state is None or (marked.mark.lines, marked.round) >= (self.mark.lines, self._state.round):
            self._state, self.mark, self._saved = marked.state, marked.mark, marked.state
            self.labels = effective(line for line in self.log.lines if line.number <= self.mark.lines)
            self.meters = RunCounters(**dict(self.kept.history))

    def _fits(self, mark: Mark) -> bool:
        """Whether a state is one of this log. Raises DataError where that has lost lines."""
        self.log.refuse_fewer(mark.lines)
        return (self._first, *self.log.answers.hashes)[mark.lines] == mark.last

    def _begin(self) -> None:
        self.ground.after(())
        self._state = self.problem.start()
        self.mark, self.labels, self.meters = Mark(0, self._first, self._first), {}, RunCounters()
        chunks = self.problem.source.chunks
        self.meters.sampled(self.problem.round_of(self.state), ScanCost(chunks, 0, self.state.sample_bytes, 0.0, 0.0))

    def take(self, given: Iterable[Given], asked: Mapping[int, Asked], who: str) -> None:
        """Write answers to the log, all of them at once, and go on from them."""
        entries, ahead = [], dict[int, tuple[Any, int | None]]()
        for one in given:
            why, attempt = ahead.get(one.row) or self._why(one, asked)
            ahead[one.row] = why, attempt
            name = who if one.who is None else name_of(one.who)
            entries.append(entry_of(one, name, why, attempt, self.state.round, self._tried(one.row, attempt)))
        self.log.append(entries)
        self.advance()

    def _why(self, given: Given, asked: Mapping[int, Asked]) -> tuple[Any, int | None]:
        """Why a row was asked about: of an answer that is changed what its line says, else what holds now."""
        before = next((line for line in reversed(self.log.lines) if line.row == given.row), None)
        if before is not None and given.row in self.labels:
            return before.why, before.attempt
        if given.row in self.state.draws.ids:
            return "draw", self.state.attempt
        found = asked.get(given.row, before)
        return ("example", None) if found is None else (found.why, found.attempt)

    def _tried(self, row: int, attempt: int | None) -> str | None:
        """The hypothesis that a row of an attempt tries; None: it is no draw, or of an attempt that is over."""
        now = transitions.current_draw(self.state, row)
        return now.tried if now is not None and now.attempt == attempt else None

    def advance(self) -> None:
        """Bring the state up to the log, line by line, but for the examples that it begins with."""
        self.ground.after(line for line in self.log.answers.growths if line.number <= self.mark.lines)
        self._advance_by_examples()
        for line in self.log.entries[self.mark.lines :]:
            self._scan_before(line)
            if isinstance(line, Growth):
                self._come_to(line.number, self._grown(At(line.rows, line.digest), line.attempt))
                continue
            labels = effective([line], self.labels)
            codes = codes_of(labels, self.log.classes(line.number))
            wrong = self._wrong(line, codes)
            after = transitions.apply_action(
                self.problem, self.state, line.row, line.action, transitions.draw_of_line(line), codes
            )
            self._come(line.number, after, labels, wrong=wrong)

    def _advance_by_examples(self) -> None:
        """Take examples that the log begins with together: one solve, however many there are.

        After k of them the state is what these k give by themselves, from no answer on: it does not matter in how many
        parts they came, nor where whoever read them before stopped.
        """
        examples = self.log.examples
        if not self.mark.lines < len(examples):
            return
        labels = effective(examples)
        begun = self._unanswered() if self.state.round == 0 else self.problem.start()
        after = self.problem.answered(begun, codes_of(labels, self.log.classes(len(examples))))
        self._come(len(examples), after, labels)

    def _unanswered(self) -> ActiveState:
        """As the campaign began, with the rows in memory that it has since."""
        state = self.state
        return self.problem.among(
            self.problem.learning.begun(state.resident, state.unsure, state.sample_bytes), state.resident
        )

    def _come(self, lines: int, after: ActiveState, labels: dict[int, Any], *, wrong: bool = False) -> None:
        """Know so many lines of the log; together, so that whatever is interrupted leaves them as they were."""
        last = self.log.answers.hashes[lines - 1]
        about = self.mark.about if after is self._state else last
        self._state, self.labels = after, labels
        self.mark = Mark(lines, last, about, self.mark.wrong + wrong)

    def grow(self, who: str) -> int:
        """Go on with the last commit of the store, where rows were appended; how many.

        Raises StoreError for a store that lost or changed rows, or whose last commit cannot be opened.
        """
        self.log.refresh()
        self.advance()  # by what an interrupted call has left
        new, before = self.ground.newest(), self.ground.at.rows
        if new is None:
            return 0
        attempt = self.problem.learning.voided(self.state).attempt
        grown = self._grown(new, attempt)  # before the line: no other takes it back, should this fail
        self.log.append([growth_of(*new, who, attempt, self.state.round)])
        self._come_to(len(self.log.entries), grown)
        return new.rows - before

    def _grown(self, at: At, attempt: int) -> Grown:
        return self.ground.grown(self.state, codes_of(self.labels, self.log.classes(self.mark.lines)), at, attempt)

    def _come_to(self, lines: int, grown: Grown) -> None:
        self.ground.come(grown)
        self._come(lines, grown.state, self.labels)

    def _scan_before(self, line: Entry) -> None:
        """Where the state was lost: scan as often as it was done before a line was written.

        Computed by another coremargin, or on another kind of processor, it may have come to draws, or to an end, by now
        that it had not come to then: the draws are void.
        """
        while self.state.round < line.scans and self.state.status == "running":
            if len(self.problem.gone_on(self.state).draws):
                codes = codes_of(self.labels, self.log.classes(self.mark.lines))
                self._state = transitions.recompute(self.problem, self.state, codes)
            self.scan()
        if self.state.round < line.scans:
            self._state = replace(self.state, round=line.scans)

    def _wrong(self, line: Line, codes: transitions.Codes) -> bool:
        """Whether a line is the answer to a draw that was foretold wrongly."""
        state = self.state
        if line.action != "label" or state.status != "running" or line.row not in state.draws.ids:
            return False
        known = transitions.fits(state, line.row, transitions.draw_of_line(line))
        return known and codes[line.row] != transitions.predicted_code(self.problem, state, line.row)

    # scans, and what is kept

    def count_fetched(self) -> None:
        """Add the rows that were read by their numbers since the last time to what was read."""
        store = self.ground.store
        self.meters.bytes_read += store.fetched - (self._fetched[1] if self._fetched[0] is store else 0)
        self._fetched = store, store.fetched

    def _costs(self) -> dict[str, Any]:
        self.count_fetched()
        return self.meters.as_now()

    def scan(self) -> None:
        """Look at all rows. Raises Interrupted; what was read is kept."""
        self.kept.mark, self.kept.history = self.mark, self._costs()
        steps = transitions.scan(self.problem, self.state, self.executor, self.kept, self._watch, self.job.block)
        try:
            for step in steps:
                self._state = step.state
                if step.cost is not None:
                    self.meters.scanned(step.round, step.cost)
        except KeyboardInterrupt:
            self._keep()
            raise Interrupted(f"{self.path}: interrupted; what was read is kept: go on with the same command") from None
        except (CoremarginError, MemoryError, OSError):
            self._keep()
            raise
        self.save()

    def return_to(self, state: ActiveState) -> None:
        """Go on from a state before, of the same log."""
        self._state = state
        self.save()

    def _keep(self) -> None:
        """Save blocks that were read; the error that ended the scan matters more than one here."""
        with suppress(OutputError, MachineLimit, MemoryError):
            self.kept.save()
            self._saved = self._state  # what is on disk is of this state: another save would drop the blocks

    def save(self) -> None:
        """Save the state, where it is not yet."""
        if self._saved is self._state:
            return
        self.kept.mark = self.mark
        self.kept.scan_begins(self.state, self._costs())
        self.kept.save()
        self._saved, self._stamp = self._state, self.kept.stamp()
