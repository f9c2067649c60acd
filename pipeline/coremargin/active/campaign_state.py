"""The state of a campaign: computed from its log, starting from a checkpoint if there is one.

Callers hold the lock of the campaign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.active.answers import codes_of, name_of
from coremargin.active.checkpoint import LogPosition, StateCheckpoint
from coremargin.active.learner import Draw, Learner
from coremargin.active.log import Log, entry_of, growth_of
from coremargin.active.snapshot import CampaignStore, Commit, Snapshot
from coremargin.data.scaled import scaling_of
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import ScanCost
from coremargin.errors import CoremarginError, Interrupted, MachineLimit, OutputError, UsageError
from coremargin.formats.answers import Growth
from coremargin.formats.campaign import ANSWERS
from coremargin.formats.current_answers import effective
from coremargin.learn.record import RunCounters
from coremargin.models.executor import executor_of

if TYPE_CHECKING:
    from coremargin.active.answers import Annotation
    from coremargin.active.queried_rows import AskedRow
    from coremargin.engine.loop import Callbacks
    from coremargin.engine.protocols import Executor
    from coremargin.formats.answers import Entry, Line
    from coremargin.formats.campaign import CampaignSettings
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.spec import ActiveJob
    from coremargin.problems.active.state import ActiveState

STATE = "state"


class CampaignState:
    """The learner, the log that it is computed from, and the cost so far.

    labels: current labels by row, after the lines of the log that the learner has processed. position: the last of
    these lines.
    """

    def __init__(
        self, path: Path, settings: CampaignSettings, first: str, job: ActiveJob, callbacks: Callbacks, cluster: Any
    ) -> None:
        self.path, self.settings, self.job = path, settings, job
        self.log = Log(path / ANSWERS, first, settings.rows, settings.classes)
        self.checkpoint = StateCheckpoint(path / STATE, first)
        self.store = CampaignStore(settings, job)
        self.snapshot = self.store.open(self.store.commit_after(()))
        self.position, self.meters, self.labels = LogPosition(0, first, first), RunCounters(), dict[int, Any]()
        self._first, self._callbacks, self._cluster = first, callbacks, cluster
        self._learner: Learner | None = None
        self._stamp: tuple[int, int] | None = None
        self._saved: ActiveState | None = None
        self._executor: Executor | None = None
        self._fetched: tuple[Any, int] = self.snapshot.store, 0

    @property
    def learner(self) -> Learner:
        """The learner after the last ``refresh`` or later step."""
        if self._learner is None:
            raise UsageError(f"{self.path}: the campaign was not read yet")
        return self._learner

    @property
    def problem(self) -> ActiveMargin:
        """The problem on the rows of the current commit; replaced when the store grows."""
        return self.learner.problem

    @property
    def state(self) -> ActiveState:
        """The learner's state."""
        return self.learner.state

    @property
    def classes(self) -> list[Any]:
        """The classes known so far; if there are two, (negative, positive)."""
        return self.log.classes(len(self.log.entries))

    @property
    def _codes(self) -> dict[int, int]:
        return codes_of(self.labels, self.log.classes(self.position.lines))

    @property
    def executor(self) -> Executor:
        """The executor of scans; started for the first scan."""
        if self._executor is None:
            self._executor = executor_of(self.problem.source, self._cluster).__enter__()
        return self._executor

    def close(self) -> None:
        """Stop the executor."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    @property
    def used_executor(self) -> Executor:
        """The executor that ran scans; without scans, one of this process."""
        return self._executor or InProcess()

    # the log

    def refresh(self) -> None:
        """Read new lines of the log, and update the state."""
        self.log.refresh()
        if self._learner is None or self.checkpoint.stamp() != self._stamp:
            self._load()
        if self._learner is None:
            self._begin()
        self.advance()

    def _load(self) -> None:
        """Load the state on disk if it is at least as far as this one: the saved blocks belong to its scan."""
        saved = self.checkpoint.load_state(self.log.entries[-1].scans if self.log.entries else 0)
        if saved is not None and self._is_of_log(saved.position):
            known = -1 if self._learner is None else self._learner.state.round
            if self._learner is None or (saved.position.lines, saved.round) >= (self.position.lines, known):
                self._open_at(saved.position.lines)
                self._learner, self.position, self._saved = self._at(saved.state), saved.position, saved.state
                self.labels = effective(line for line in self.log.lines if line.number <= self.position.lines)
                self.meters = RunCounters(**dict(self.checkpoint.history))
        self._stamp = self.checkpoint.stamp()

    def _open_at(self, lines: int) -> None:
        growths = [line for line in self.log.answers.growths if line.number <= lines]
        commit = self.store.commit_after(growths)
        if commit != self.snapshot.commit:
            self.snapshot = self.store.open(commit)

    def _at(self, state: ActiveState) -> Learner:
        return Learner(self.snapshot.problem, state)

    def _is_of_log(self, position: LogPosition) -> bool:
        """Whether a position is one of this log. Raises DataError if the log has lost lines."""
        self.log.refuse_fewer(position.lines)
        return (self._first, *self.log.answers.hashes)[position.lines] == position.last

    def _begin(self) -> None:
        self._open_at(0)
        problem = self.snapshot.problem
        self._learner = Learner.start(problem)
        self.position, self.labels = LogPosition(0, self._first, self._first), {}
        self.meters = RunCounters()
        cost = ScanCost(problem.source.chunks, 0, self.state.sample_bytes, 0.0, 0.0)
        self.meters.sampled(problem.round_of(self.state), cost)

    def record(self, given: Iterable[Annotation], asked: Mapping[int, AskedRow], who: str) -> None:
        """Write answers to the log, all of them at once, and learn from them."""
        entries, reasons = [], dict[int, tuple[Any, int | None]]()
        for one in given:
            why, attempt = reasons.get(one.row) or self._reason(one, asked)
            reasons[one.row] = why, attempt
            now, name = self.learner.draw_of(one.row), who if one.who is None else name_of(one.who)
            tried = now.tried if now is not None and now.attempt == attempt else None
            entries.append(entry_of(one, name, why, attempt, self.state.round, tried))
        self.log.append(entries)
        self.advance()

    def _reason(self, given: Annotation, asked: Mapping[int, AskedRow]) -> tuple[Any, int | None]:
        """Why a row was queried: for a changed answer as in its line of the log, else as of now."""
        before = next((line for line in reversed(self.log.lines) if line.row == given.row), None)
        if before is not None and given.row in self.labels:
            return before.why, before.attempt
        if given.row in self.state.draws.ids:
            return "draw", self.state.attempt
        found = asked.get(given.row, before)
        return ("example", None) if found is None else (found.why, found.attempt)

    def advance(self) -> None:
        """Process new lines of the log one by one, except the examples at its beginning."""
        self._advance_by_examples()
        for line in self.log.entries[self.position.lines :]:
            self._scan_before(line)
            if isinstance(line, Growth):
                snapshot, learner = self._grown(Commit.from_record(line), line.attempt)
                self._move_to(line.number, learner, self.labels, snapshot=snapshot)
                continue
            labels = effective([line], self.labels)
            codes = codes_of(labels, self.log.classes(line.number))
            wrong = self._was_predicted_wrongly(line, codes)
            after = self.learner.answer(line.row, line.action, Draw.of_line(line), codes)
            self._move_to(line.number, after, labels, wrong=wrong)

    def _advance_by_examples(self) -> None:
        """Learn the examples at the beginning of the log together, in one solve.

        The state after k examples is computed from these k alone, so it does not depend on the batches in which they
        were recorded or read.
        """
        examples = self.log.examples
        if not self.position.lines < len(examples):
            return
        labels = effective(examples)
        begin = self.learner.without_answers() if self.state.round == 0 else Learner.start(self.problem)
        after = begin.add(codes_of(labels, self.log.classes(len(examples))))
        self._move_to(len(examples), after, labels)

    def _move_to(
        self,
        lines: int,
        after: Learner,
        labels: dict[int, Any],
        *,
        snapshot: Snapshot | None = None,
        wrong: bool = False,
    ) -> None:
        """Replace all attributes by those after this many lines, at once, so that an interrupted step changes none."""
        last = self.log.answers.hashes[lines - 1]
        about = self.position.about if after.state is self.state else last
        self.snapshot = self.snapshot if snapshot is None else snapshot
        self._learner, self.labels = after, labels
        self.position = LogPosition(lines, last, about, self.position.wrong + wrong)

    def grow(self, who: str) -> int:
        """Switch to the last commit of the store if it has appended rows; returns their number.

        Raises StoreError if the store lost or changed rows, or if its last commit cannot be opened.
        """
        self.log.refresh()
        self.advance()  # process lines that an interrupted call left
        before = self.snapshot.commit
        new = self.store.newest_after(before)
        if new is None:
            return 0
        attempt = self.problem.end_attempt(self.state).attempt
        snapshot, learner = self._grown(new, attempt)  # before the line is written, as no other line can undo it
        self.log.append([growth_of(*new, who, attempt, self.state.round)])
        self._move_to(len(self.log.entries), learner, self.labels, snapshot=snapshot)
        return new.rows - before.rows

    def _grown(self, commit: Commit, attempt: int) -> tuple[Snapshot, Learner]:
        """A snapshot of a later commit, and the learner for it; changes no attribute.

        The old learner's bounds and draws are about the earlier rows: no scan has read the new ones, and none of them
        could be drawn. attempt: the first one with the new rows.
        """
        snapshot = self.store.open(commit)
        source, state = snapshot.problem.source, self.state
        source.scalars()  # reads statistics of all chunks and the places of labels now instead of later
        snapshot.store.readers()
        if scaling_of(source) is not None:  # rows in memory were scaled by the statistics of the earlier rows
            answered, resident = state.answered, state.resident
            state = replace(
                state,
                answered=replace(answered, rows=source.rows_at(answered.ids)[0]),
                resident=replace(resident, rows=source.rows_at(resident.ids)[0].astype(source.dtype)),
            )
        return snapshot, Learner(snapshot.problem, state).recompute(self._codes, spent=attempt - 1)

    def _scan_before(self, line: Entry) -> None:
        """Repeat the scans before a line of the log, if the state was lost.

        If another coremargin or another kind of processor computes it, it may reach draws or the end at another line:
        then the draws are void.
        """
        while self.state.round < line.scans and self.learner.running:
            if len(self.learner.after_trial().state.draws):
                self._learner = self.learner.recompute(self._codes)
            self.scan()
        if self.state.round < line.scans:
            self._learner = self._at(replace(self.state, round=line.scans))

    def _was_predicted_wrongly(self, line: Line, codes: Mapping[int, int]) -> bool:
        """Whether a line answers a draw that the hypothesis predicts wrongly."""
        if line.action != "label" or not self.learner.running or line.row not in self.state.draws.ids:
            return False
        drawn = self.learner.is_drawn_for(line.row, Draw.of_line(line))
        return drawn and codes[line.row] != self.learner.predict(line.row)

    # scans and checkpoints

    def count_fetched(self) -> None:
        """Add the bytes of single rows read since the last call to the cost."""
        store = self.snapshot.store
        self.meters.bytes_read += store.fetched - (self._fetched[1] if self._fetched[0] is store else 0)
        self._fetched = store, store.fetched

    def _costs(self) -> dict[str, Any]:
        self.count_fetched()
        return self.meters.as_now()

    def scan(self) -> None:
        """Scan all rows. Raises Interrupted; finished blocks are saved."""
        self.checkpoint.position, self.checkpoint.history = self.position, self._costs()
        steps = self.learner.scan(self.executor, self.checkpoint, self._callbacks, self.job.block)
        try:
            for learner, step in steps:
                self._learner = learner
                if step.cost is not None:
                    self.meters.scanned(step.round, step.cost)
        except KeyboardInterrupt:
            self._save_blocks()
            raise Interrupted(
                f"{self.path}: interrupted; what was read is stored: run the same command again to continue"
            ) from None
        except (CoremarginError, MemoryError, OSError):
            self._save_blocks()
            raise
        self.save()

    def return_to(self, learner: Learner) -> None:
        """Restore an earlier learner of the same log."""
        self._learner = learner
        self.save()

    def _save_blocks(self) -> None:
        """Save finished blocks; errors are suppressed in favour of the one that ended the scan."""
        with suppress(OutputError, MachineLimit, MemoryError):
            self.checkpoint.save()
            self._saved = self.state  # this state is on disk: saving it again would drop the blocks

    def save(self) -> None:
        """Save the state unless it is saved already."""
        if self._saved is self.state:
            return
        self.checkpoint.position = self.position
        self.checkpoint.scan_begins(self.state, self._costs())
        self.checkpoint.save()
        self._saved, self._stamp = self.state, self.checkpoint.stamp()
