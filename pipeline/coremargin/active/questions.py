"""What a campaign asks: which questions are open, and which rows come next."""

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
    from coremargin.active.answers import Given
    from coremargin.active.campaign_state import CampaignState
    from coremargin.active.votes import Votes


class Questions:
    """The questions of a campaign at ``path``; whoever uses it holds the lock of the campaign.

    expires: seconds after which a question without an answer may be asked again; None: never.
    """

    def __init__(self, path: Path, campaign: CampaignState, expires: float | None, votes: Votes) -> None:
        self._path, self._campaign, self._expires = path / FILE, campaign, expires
        self.asked: dict[int, AskedRow] = {}
        self.votes = votes
        self._looked_at: int | None = None  # lines of the log at the last look ahead

    def refresh(self) -> None:
        """Read what others have asked and answered. Raises DataError."""
        self.asked = read_asked(self._path)
        self.votes.refresh()

    def open(self) -> list[AskedRow]:
        """Questions that answers are awaited for; draws of an attempt that is over are no longer."""
        drawn = set(self._campaign.state.draws.ids.tolist())
        return still_open(self.asked, self._campaign.log, drawn, self._expires, time.time())

    def open_for(self, who: str) -> list[AskedRow]:
        """Of these, those that somebody is to answer: what they were asked or, of several people, have not answered."""
        if self.votes.several:
            return [one for one in self.open() if self.votes.needs_answer_of(one.row, who)]
        return [one for one in self.open() if one.who == who]

    def ask(self, n: int, who: str) -> list[AskedRow]:
        """At most ``n`` questions more, on disk before anybody sees them; scans where no row in memory is worth one.

        Raises LabelError where all answers are the same and draws have found no other, and what a scan raises.
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
            if learner.is_scanned:  # what was skipped is asked again
                return again[:n] or learner.ask(n)
            if not campaign.grow(who):
                campaign.scan()
        self.refuse_one_class()
        return rows

    def look_ahead(self) -> bool:
        """Scan where no row in memory is worth a question while answers are awaited; whether that was so.

        Once for each answer at most: what such a scan does not find, another one would not find either. It begins no
        trial: the answers will change the hypothesis, and one that nobody asks about any more would have spent an
        attempt. Nobody has seen its draws.
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

    def checked(self, given: Iterable[Given], *, examples: bool = False) -> list[Given]:
        """Those answers that say something new, with the labels that are meant.

        examples: those of rows that were not asked about, too. Raises what ``check_answers`` does, and DataError for
        examples of weight 0.
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
        """Raises LabelError where draws have shown all that they can, and a class has no answer."""
        if self._campaign.learner.lacks_classes:
            raise LabelError(_describe_missing_class(self._campaign))

    def _question(self, row: int, who: str, now: float, lines: int) -> AskedRow:
        state = self._campaign.state
        why: Any = "query" if state.answered.both_classes else "start"
        attempt = None
        if row in state.draws.ids:
            why, attempt = "draw", state.attempt
        return AskedRow(row=row, why=why, attempt=attempt, who=who, at=now, lines=lines)


def _describe_missing_class(campaign: CampaignState) -> str:
    """What is known where a class has no answer, however long people are asked, and what to do."""
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
    some = " that count" if len(campaign.labels) + unsure < problem.source.rows else ""  # others are of weight 0
    nobody = f"{some} but those that nobody could label" if unsure else some
    seen = [classes[code] for code in places]
    options = ["--classes", ",".join(map(str, seen)), *options_of(parameters_of(campaign.job))]
    again = restart_command(campaign.settings.store, str(campaign.path), options)
    begin = f"begin another campaign without such classes: `{again}`"
    return f"{head}; all rows{nobody} are answered; {begin if len(seen) > 1 else 'there is nothing to tell apart'}"
