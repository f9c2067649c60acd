"""The questions of a campaign: which are open, and which rows are queried next."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.active.answers import AnswerContext, check_answers, describe_missing_classes
from coremargin.active.create import parameters_of, refuse_weightless
from coremargin.active.queried_rows import FILE, AskedRow, read_asked, still_open, write_asked
from coremargin.errors import LabelError
from coremargin.problems.active.describe import options_of, restart_command

if TYPE_CHECKING:
    from coremargin.active.answers import Annotation
    from coremargin.active.campaign_state import CampaignState
    from coremargin.active.votes import Votes


class Questions:
    """The questions of a campaign at ``path``; callers hold the lock of the campaign.

    expires: seconds after which a question without an answer may be asked again; None: never.
    """

    def __init__(self, path: Path, campaign: CampaignState, expires: float | None, votes: Votes) -> None:
        self._path, self._campaign, self._expires = path / FILE, campaign, expires
        self.asked: dict[int, AskedRow] = {}
        self.votes = votes
        self._looked_at: int | None = None  # number of lines of the log at the last ``look_ahead``

    def refresh(self) -> None:
        """Read questions and answers of other processes. Raises DataError."""
        self.asked = read_asked(self._path)
        self.votes.refresh()

    def open(self) -> list[AskedRow]:
        """Open questions; draws of a finished attempt are not open."""
        drawn = set(self._campaign.state.draws.ids.tolist())
        return still_open(self.asked, self._campaign.log, drawn, self._expires, time.time())

    def open_for(self, who: str) -> list[AskedRow]:
        """The open questions of one person; with several people per row, those that this one has not answered."""
        if self.votes.several:
            return [one for one in self.open() if self.votes.needs_answer_of(one.row, who)]
        return [one for one in self.open() if one.who == who]

    def ask(self, n: int, who: str) -> list[AskedRow]:
        """At most ``n`` further questions, saved before they are returned; scans if no row in memory is informative.

        Raises LabelError if all answers are the same and draws have found no other, and what a scan raises.
        """
        rows = [] if who == self.votes.judge else self._choose(n, who)
        if rows:
            now, lines = time.time(), len(self._campaign.log.entries)
            known = [one for one in self.asked.values() if one.row not in self._campaign.labels and one.row not in rows]
            fresh = [self._question(row, who, now, lines) for row in rows]
            write_asked(self._path, [*known, *fresh])
            self.asked = {one.row: one for one in [*known, *fresh]}
        return [self.asked[row] for row in rows]

    def _choose(self, n: int, who: str) -> list[int]:
        campaign = self._campaign
        while True:
            learner, current = campaign.learner, campaign.log.current
            waiting, skipped = [one.row for one in self.open()], current.skipped
            again = [row for row in current.undone if row not in waiting]
            if (fresh := [row for row in again if row not in skipped]) and learner.running:
                return fresh[:n]
            rows = learner.ask(n, [*waiting, *skipped])
            if rows or waiting or not learner.running:
                break
            if learner.is_scanned:  # repeat skipped questions
                return again[:n] or learner.ask(n)
            if not campaign.grow(who):
                campaign.scan()
        self.refuse_one_class()
        return rows

    def look_ahead(self) -> bool:
        """Scan while answers are awaited, if no row in memory is informative; returns whether it scanned.

        At most once per answer: a second scan would find nothing new. It begins no trial, as the awaited answers will
        change the hypothesis, and a trial of the old one would use up an attempt.
        """
        campaign, learner = self._campaign, self._campaign.learner
        lines, waiting = len(campaign.log.entries), [one.row for one in self.open()]
        excluded = [*waiting, *campaign.log.current.skipped]
        due = lines != self._looked_at and waiting and learner.running and not len(learner.state.draws)
        if not due or not learner.state.answered.both_classes or learner.ask(1, excluded):
            return False
        self._looked_at = lines
        campaign.scan()
        if not campaign.learner.running or len(campaign.state.draws):
            campaign.return_to(learner)
        return True

    def checked(self, given: Iterable[Annotation], *, examples: bool = False) -> list[Annotation]:
        """The new answers, with labels of the campaign's classes.

        examples: accept rows that were not queried. Raises what ``check_answers`` does, and DataError for examples of
        weight 0.
        """
        campaign, given = self._campaign, list(given)
        last = {line.row: line.action for line in campaign.log.lines}
        if examples:
            refuse_weightless(campaign.problem.source, (one.row for one in given), campaign.path)
        asked = frozenset(self.asked) | frozenset(last)
        return check_answers(
            given, AnswerContext(campaign.log.current, asked, campaign.snapshot.store.rows, examples, last)
        )

    def refuse_one_class(self) -> None:
        """Raises LabelError if a class has no answer and further draws cannot find one."""
        if self._campaign.learner.lacks_classes:
            raise LabelError(_describe_missing_class(self._campaign))

    def _question(self, row: int, who: str, now: float, lines: int) -> AskedRow:
        state = self._campaign.state
        begins = not state.answered.both_classes or row in self._campaign.problem.like
        why: Any = "start" if begins else "query"
        attempt = None
        if row in state.draws.ids:
            why, attempt = "draw", state.attempt
        return AskedRow(row=row, why=why, attempt=attempt, who=who, at=now, lines=lines)


def _describe_missing_class(campaign: CampaignState) -> str:
    """The message for a class that further queries cannot find: what is known, and what to do."""
    problem, state, classes = campaign.problem, campaign.state, campaign.classes
    places, left, most = state.answered.seen_classes, state.scanned.population - len(state.draws), ""
    if left:
        parts = problem.trials.parts(state.scanned.sides, state.draws, state.attempt)
        wrong = sum(part["error_bound"] - part["wrong"] for part in parts)
        most = f"with confidence {problem.confidence} at most {wrong:,} of the other {left:,} rows"
    head = f"{campaign.path}: {describe_missing_classes(classes, places, problem.classes, len(campaign.labels), most)}"
    if left:
        tell = f"give it with `coremargin active tell {campaign.path} FILE --examples`"
        return f"{head}; if you know one of them, {tell}"
    unsure = len(state.unsure)
    some = " that count" if len(campaign.labels) + unsure < problem.source.rows else ""  # the others have weight 0
    which = f"{some} but those that no annotator could label" if unsure else some
    seen = [classes[code] for code in places]
    options = ["--classes", ",".join(map(str, seen)), *options_of(parameters_of(campaign.job))]
    again = restart_command(campaign.settings.location, str(campaign.path), options)
    begin = f"begin another campaign without such classes: `{again}`"
    return f"{head}; all rows{which} are answered; {begin if len(seen) > 1 else 'there is one class only'}"
