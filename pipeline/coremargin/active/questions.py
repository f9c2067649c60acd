"""What a campaign asks: which questions are open, and which rows come next."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.active import transitions
from coremargin.active.answers import Known, taken
from coremargin.active.facts import refuse_weightless
from coremargin.active.queried_rows import Asked, passed_of, read_asked, still_open, write_asked
from coremargin.active.summary import all_the_same
from coremargin.errors import LabelError
from coremargin.formats.current_answers import taken_back

if TYPE_CHECKING:
    from coremargin.active.answers import Given
    from coremargin.active.player import Player
    from coremargin.active.votes import Votes

FILE = "asked.json"


class Questions:
    """The questions of a campaign at ``path``; whoever uses it holds the lock of the campaign.

    expires: seconds after which a question without an answer may be asked again; None: never.
    """

    def __init__(self, path: Path, player: Player, expires: float | None, votes: Votes) -> None:
        self._path, self._player, self._expires = path / FILE, player, expires
        self.asked: dict[int, Asked] = {}
        self.votes = votes
        self._looked_at: int | None = None  # lines of the log at the last look ahead

    def refresh(self) -> None:
        """Read what others have asked, and said. Raises DataError."""
        self.asked = read_asked(self._path)
        self.votes.refresh()

    def open(self) -> list[Asked]:
        """Questions that answers are awaited for; draws of an attempt that is over are no longer."""
        drawn = set(self._player.state.draws.ids.tolist())
        return still_open(self.asked, self._player.log, drawn, self._expires, time.time())

    def open_for(self, who: str) -> list[Asked]:
        """Of these, those that somebody is to answer: what they were asked or, of several people, have not answered."""
        if self.votes.asked_for:
            return [one for one in self.open() if self.votes.wants(one.row, who)]
        return [one for one in self.open() if one.who == who]

    def ask(self, n: int, who: str) -> list[Asked]:
        """At most ``n`` questions more, on disk before anybody sees them; scans where no row in memory is worth one.

        Raises LabelError where all answers are the same and draws have found no other, and what ``Player.scan`` raises.
        """
        rows = [] if who == self.votes.judge else self._choose(n, who)
        if rows:
            now, lines = time.time(), len(self._player.log.entries)
            known = [one for one in self.asked.values() if one.row not in self._player.labels and one.row not in rows]
            fresh = [self._asked(row, who, now, lines) for row in rows]
            write_asked(self._path, [*known, *fresh])
            self.asked = {one.row: one for one in [*known, *fresh]}
        return [self.asked[row] for row in rows]

    def _choose(self, n: int, who: str) -> list[int]:
        player = self._player
        while True:
            waiting, passed = [one.row for one in self.open()], passed_of(player.log.lines)
            again = [row for row in taken_back(player.log.lines) if row not in waiting]
            if (fresh := [row for row in again if row not in passed]) and player.state.status == "running":
                return fresh[:n]
            rows = transitions.rows_to_ask(player.problem, player.state, n, [*waiting, *passed])
            if rows or waiting or player.state.status != "running":
                break
            if transitions.seen_all(player.problem, player.state):  # what was put off is asked again
                return again[:n] or transitions.rows_to_ask(player.problem, player.state, n, ())
            if not player.grow(who):
                player.scan()
        self.refuse_one_class()
        return rows

    def look_ahead(self) -> bool:
        """Scan where no row in memory is worth a question while answers are awaited; whether that was so.

        Once for each answer at most: what such a scan does not find, another one would not find either. It begins no
        trial: the answers will change the hypothesis, and one that nobody asks about any more would have spent an
        attempt. Nobody has seen its draws.
        """
        player = self._player
        lines, state, waiting = len(player.log.entries), player.state, [one.row for one in self.open()]
        passed = [*waiting, *passed_of(player.log.lines)]
        due = lines != self._looked_at and waiting and state.status == "running" and not len(state.draws)
        if not due or not state.answered.both_classes or transitions.rows_to_ask(player.problem, state, 1, passed):
            return False
        self._looked_at = lines
        player.scan()
        if player.state.status != "running" or len(player.state.draws):
            player.return_to(state)
        return True

    def checked(self, given: Iterable[Given], *, examples: bool = False) -> list[Given]:
        """Those answers that say something new, with the labels that are meant.

        examples: those of rows that were not asked about, too. Raises what ``taken`` does, and DataError for examples
        of weight 0.
        """
        player, given = self._player, list(given)
        last = {line.row: line.action for line in player.log.lines}
        if examples:
            refuse_weightless(player.problem.source, (one.row for one in given), player.path)
        asked = frozenset(self.asked) | frozenset(last)
        return taken(given, Known(player.log.held, asked, player.ground.store.rows, examples, last))

    def refuse_one_class(self) -> None:
        """Raises LabelError where all is said that draws can say, and every answer is the same."""
        if transitions.lacks_classes(self._player.problem, self._player.state):
            raise LabelError(all_the_same(self._player))

    def _asked(self, row: int, who: str, now: float, lines: int) -> Asked:
        """A row with why it is asked about now."""
        state = self._player.state
        why: Any = "query" if state.answered.both_classes else "start"
        attempt = None
        if row in state.draws.ids:
            why, attempt = "draw", state.attempt
        return Asked(row=row, why=why, attempt=attempt, who=who, at=now, lines=lines)
