"""A background thread that solves, scans and writes the log, while answers are accepted immediately.

Annotators never wait for it: answers are written to the campaign's inbox, and the next questions are prepared in
advance. Only this thread works on the campaign; it publishes each new state as a whole.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from coremargin.active.answers import name_of
from coremargin.active.inbox import Inbox
from coremargin.errors import Busy, CoremarginError, DataError, Interrupted, LabelError, OutputError
from coremargin.page.queue import CampaignSnapshot, Card, Declined, Post, QuestionQueue
from coremargin.serve.background import BackgroundThread
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.queried_rows import Question
    from coremargin.engine.problem import NextScan
    from coremargin.engine.protocols import BlockResult
    from coremargin.page.row_view import RowView

logger = logging.getLogger(__name__)

AHEAD = 6  #: questions that are prepared for each annotator
IDLE_S = 5.0  #: between two checks for changes by other processes
SLOW_S = 1.0  #: scans that take longer start while answers are awaited
SLOW_BYTES = 1 << 29  #: before the first scan, stores above this size count as slow
KEPT = 100  #: answers that can be taken back


class ScanProgress:
    """The progress of the current scan, for the page, and the duration of the last one."""

    def __init__(self) -> None:
        self.queue: QuestionQueue | None = None
        self.seconds: float | None = None
        self._total, self._done, self._began, self._last_message_at = 0, 0, 0.0, 0.0

    def scan(self, which: NextScan, total: int) -> None:
        """A scan begins."""
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._show_progress()

    def block(self, result: BlockResult) -> None:
        """A block was read."""
        self._done += result.bytes_read
        self.seconds = time.monotonic() - self._began
        if time.monotonic() - self._last_message_at > 0.5:
            self._show_progress()

    def _show_progress(self) -> None:
        self._last_message_at = time.monotonic()
        if self.queue is not None:
            share = self._done / self._total if self._total else 0.0
            self.queue.set_message(busy=f"Looking at all rows: {share:.0%} of {format_size(self._total)}")


class CampaignWorker(BackgroundThread):
    """Works on a campaign. progress: of its scans; changed: called after every change."""

    def __init__(self, campaign: Campaign, shown: RowView, progress: ScanProgress, changed: Callable[[], None]) -> None:
        super().__init__("campaign")
        self._campaign, self._shown, self._progress = campaign, shown, progress
        self.queue = progress.queue = QuestionQueue(secrets.token_hex(8), changed)
        self.inbox = Inbox(campaign.path)
        self._putting = threading.Lock()
        self._cards: dict[int, Card] = {}

    def arrive(self, who: str) -> str:
        """Register an annotator who opened the page; returns the name in the form of the log."""
        name = name_of(who)
        if self.queue.register(name):
            self._wake.set()
        return name

    def take(self, post: Post) -> None:
        """Accept an answer: it is on disk when this returns. Raises Declined."""
        with self._putting:
            one = self.queue.book(post)
            if one is None:
                return
            try:
                self.inbox.put(one)
            except DataError as error:
                self.queue.unbook(one)
                raise Declined(422, "wrong", f"the answer was not taken: {error}") from error
            except (OutputError, OSError, CoremarginError) as error:
                self.queue.unbook(one)
                raise Declined(507, "unwritten", f"the answer was not taken: {error}") from error
            self.queue.mark_written(one)
        self.queue.notify()
        self._wake.set()

    # the thread

    def _turn(self) -> float:
        self.queue.set_message(busy="", trouble=self._work())
        return IDLE_S

    def _work(self) -> str:
        """Do all pending work; returns a message if something prevented it."""
        try:
            self._prepare()
        except Busy:
            return "Another program works on this campaign. Answers are kept, and taken when it has ended."
        except Interrupted as error:
            return str(error)
        except (CoremarginError, MemoryError, OSError) as error:
            logger.warning("%s", error)
            return str(error) or type(error).__name__
        return ""

    def _prepare(self) -> None:
        """Record answers, choose the next questions and, if scans are slow, scan ahead."""
        trouble = None
        with self._campaign.locked():
            self._publish()  # before a scan, which may follow
            try:
                for who in self.queue.active_people():
                    self._ask_ahead(who)
            except LabelError as error:  # all answers are the same: shown to people
                trouble = error
            self._publish()
            slow = self._progress.seconds
            ahead = self._campaign.store.scan_bytes > SLOW_BYTES if slow is None else slow > SLOW_S
            if ahead and self._campaign.look_ahead():
                self._publish()
        if trouble is not None:
            raise trouble

    def _ask_ahead(self, who: str) -> None:
        answered = {one.row for one in self.inbox.read()[0]}
        ready = [one for one in self._asked(who) if one.row not in answered]
        missing = max(AHEAD - len(ready), len(self._campaign.log.current.undone))
        if missing:
            self.queue.set_message(busy="Choosing what to ask next")
            self._campaign.ask(missing, who=who)

    def _asked(self, who: str | None = None) -> list[Question]:
        return self._campaign.ask(1, who=who, again=True)

    def _publish(self) -> None:
        """Publish the prepared questions, and the status."""
        stored, campaign = self.queue.ids_on_disk(), self._campaign
        self._shown.store = campaign.store
        waiting = {one.id for one in self.inbox.read()[0]}
        active = self.queue.active_people()
        log = campaign.log
        again = log.current.undone
        mine = {who: sorted(self._asked(who), key=lambda one: one.row not in again) for who in active}
        taken = {one.row for questions in mine.values() for one in questions}
        alone = campaign.settings.people is None  # with several people per row, all get the same questions
        absent = [one for one in self._asked() if one.row not in taken] if alone else []
        queues = {who: [self._card(one) for one in mine[who] or absent[:AHEAD]] for who in active}
        kept = {card.row for queue in queues.values() for card in queue}
        self._cards = {row: card for row, card in self._cards.items() if row in kept}
        snapshot = CampaignSnapshot(
            campaign.status,
            campaign.forecast,
            campaign.settings.classes is not None,
            frozenset(log.ids),
            frozenset(log.current.labels),
        )
        last = {who: campaign.answers_of(who)[-KEPT:] for who in active}
        for one, why in campaign.refused:
            self.queue.refuse(one.who, why)
        campaign.refused.clear()
        self.queue.publish(snapshot, queues, last, stored - waiting)

    def _card(self, question: Question) -> Card:
        found = self._cards.get(question.row)
        if found is None or found.why != question.why:
            near = self._campaign.distance_of(question.row) if question.why == "query" else None
            found = Card(question.row, question.why, near, self._shown.content(question.row))
            self._cards[question.row] = found
        return found
