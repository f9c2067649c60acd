"""A thread aside that solves, scans and writes the log, while answers are taken at once.

Nobody who answers waits for that thread: an answer goes to the inbox of the campaign, on disk, and the next question
was prepared before. The thread alone works on the campaign; what it finds it puts up as a whole.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from coremargin.active.inbox import Inbox
from coremargin.active.queried_rows import name_of
from coremargin.errors import Busy, CoremarginError, DataError, Interrupted, LabelError, OutputError
from coremargin.page.messages import CampaignStatus, Card, Declined, Post
from coremargin.page.queue import QuestionQueue
from coremargin.serve.background import BackgroundThread
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.queried_rows import Question
    from coremargin.engine.problem import NextScan
    from coremargin.engine.protocols import BlockResult
    from coremargin.page.row_view import Shown

log = logging.getLogger(__name__)

AHEAD = 6  #: questions that lie ready for somebody
IDLE_S = 5.0  #: between two looks at what other processes have done
SLOW_S = 1.0  #: a scan that takes longer is begun while answers are awaited
SLOW_BYTES = 1 << 29  #: so much of a store is taken to need longer, before one was seen
KEPT = 100  #: answers that can be taken back


class Reading:
    """What is known of scans, for the page: how far one has come, and how long the last one took."""

    def __init__(self) -> None:
        self.board: QuestionQueue | None = None
        self.seconds: float | None = None
        self._total, self._done, self._began, self._told = 0, 0, 0.0, 0.0

    def scan(self, which: NextScan, total: int) -> None:
        """A scan begins."""
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._say()

    def block(self, result: BlockResult) -> None:
        """A block was read."""
        self._done += result.bytes_read
        self.seconds = time.monotonic() - self._began
        if time.monotonic() - self._told > 0.5:
            self._say()

    def _say(self) -> None:
        self._told = time.monotonic()
        if self.board is not None:
            share = self._done / self._total if self._total else 0.0
            self.board.say(busy=f"Looking at all rows: {share:.0%} of {format_size(self._total)}")


class CampaignWorker(BackgroundThread):
    """Of a campaign that is open here alone. reading: told of its scans; changed: called when there is news."""

    def __init__(self, campaign: Campaign, shown: Shown, reading: Reading, changed: Callable[[], None]) -> None:
        super().__init__("campaign")
        self._campaign, self._shown, self._reading = campaign, shown, reading
        self.board = reading.board = QuestionQueue(secrets.token_hex(8), changed)
        self.inbox = Inbox(campaign.path)
        self._putting = threading.Lock()
        self._cards: dict[int, Card] = {}

    def arrive(self, who: str) -> str:
        """Somebody is there; their name as the log has it."""
        name = name_of(who)
        if self.board.arrive(name):
            self._wake.set()
        return name

    def take(self, post: Post) -> None:
        """Take an answer: it is on disk when this returns. Raises Declined."""
        with self._putting:
            one = self.board.check(post)
            if one is None:
                return
            try:
                self.inbox.put(one)
            except DataError as error:
                self.board.forget(one)
                raise Declined(422, "wrong", f"the answer was not taken: {error}") from error
            except (OutputError, OSError, CoremarginError) as error:
                self.board.forget(one)
                raise Declined(507, "unwritten", f"the answer was not taken: {error}") from error
            self.board.keep(one)
        self.board.tell()
        self._wake.set()

    # the thread

    def _work(self) -> float:
        self.board.say(busy="", trouble=self._tried())
        return IDLE_S

    def _tried(self) -> str:
        """Do what there is to do; what kept it from that, for people."""
        try:
            self._prepare()
        except Busy:
            return "Another program works on this campaign. Answers are kept, and taken when it has ended."
        except Interrupted as error:
            return str(error)
        except (CoremarginError, MemoryError, OSError) as error:
            log.warning("%s", error)
            return str(error) or type(error).__name__
        return ""

    def _prepare(self) -> None:
        """Take what was answered, choose what is asked next and, where that may take long, look ahead."""
        trouble = None
        with self._campaign.held():
            self._publish()  # before a scan, which may be next
            try:
                for who in self.board.active():
                    self._top_up(who)
            except LabelError as error:  # all answers are the same: people have to know
                trouble = error
            self._publish()
            slow = self._reading.seconds
            ahead = self._campaign.store.nbytes > SLOW_BYTES if slow is None else slow > SLOW_S
            if ahead and self._campaign.look_ahead():
                self._publish()
        if trouble is not None:
            raise trouble

    def _top_up(self, who: str) -> None:
        answered = {one.row for one in self.inbox.read()[0]}
        ready = [one for one in self._asked(who) if one.row not in answered]
        missing = max(AHEAD - len(ready), len(self._campaign.taken_back))
        if missing:
            self.board.say(busy="Choosing what to ask next")
            self._campaign.ask(missing, who=who)

    def _asked(self, who: str | None = None) -> list[Question]:
        return self._campaign.ask(1, who=who, again=True)

    def _publish(self) -> None:
        """Put up what lies ready, and where all stands."""
        stored, campaign = self.board.stored(), self._campaign
        self._shown.store = campaign.store
        waiting = {one.id for one in self.inbox.read()[0]}
        active = self.board.active()
        again = campaign.taken_back
        mine = {who: sorted(self._asked(who), key=lambda one: one.row not in again) for who in active}
        taken = {one.row for questions in mine.values() for one in questions}
        alone = campaign.facts.people is None  # else each is asked what others were, too
        absent = [one for one in self._asked() if one.row not in taken] if alone else []
        queues = {who: [self._card(one) for one in mine[who] or absent[:AHEAD]] for who in active}
        kept = {card.row for queue in queues.values() for card in queue}
        self._cards = {row: card for row, card in self._cards.items() if row in kept}
        standing = CampaignStatus(
            campaign.status, campaign.outlook, campaign.named, campaign.answer_ids, campaign.answered_rows
        )
        last = {who: campaign.answers_of(who)[-KEPT:] for who in active}
        for one, why in campaign.refused:
            self.board.refuse(one.who, why)
        campaign.refused.clear()
        self.board.publish(standing, queues, last, stored - waiting)

    def _card(self, question: Question) -> Card:
        found = self._cards.get(question.row)
        if found is None or found.why != question.why:
            near = self._campaign.distance_of(question.row) if question.why == "query" else None
            found = Card(question.row, question.why, near, self._shown.content(question.row))
            self._cards[question.row] = found
        return found
