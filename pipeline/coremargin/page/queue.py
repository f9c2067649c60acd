"""What lies ready for those who answer: questions in their order, answers on their way to the log, where all stands.

Nothing here waits, reads a file or knows of a campaign: threads meet here, one at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from coremargin.active.answers import meant
from coremargin.active.inbox import Received, received
from coremargin.active.status import Forecast
from coremargin.errors import LabelError
from coremargin.formats.current_answers import same
from coremargin.page import texts
from coremargin.page.messages import CampaignStatus, Card, Declined, Person, Post

ACTIVE_S = 45.0  #: after so long without a word somebody has gone, and others are asked what they were
MOST_PEOPLE = 200


class QuestionQueue:
    """Of one process, whose ``run`` tells it from those before. changed: called whenever there is something new."""

    def __init__(self, run: str, changed: Callable[[], None]) -> None:
        self.run, self._changed = run, changed
        self._lock = threading.Lock()
        self._people: dict[str, Person] = {}
        self._given: dict[str, Received] = {}  # not in the log as far as is known, by their ids
        self._stored = set[str]()  # of these, those on disk
        self._ids = set[str]()  # of all answers that were taken, here or by processes before
        self._cards: dict[int, Card] = {}  # that lay ready here: answers to them are taken, and may be taken back
        self._answered = frozenset[int]()  # rows with an answer in the log
        self._news: dict[str, list[str]] = {}
        self._standing: CampaignStatus | None = None
        self._version, self.busy, self.trouble = 0, "", ""

    # people

    def arrive(self, who: str) -> bool:
        """Somebody is there; whether that is news. Raises Declined for too many."""
        with self._lock:
            known = self._people.get(who)
            if known is None and len(self._people) >= MOST_PEOPLE:
                raise Declined(429, "many", f"expected at most {MOST_PEOPLE} people, found more")
            person = self._people.setdefault(who, Person(who, 0.0))
            fresh = time.monotonic() - person.seen > ACTIVE_S or known is None
            person.seen = time.monotonic()
            return fresh

    def active(self) -> list[str]:
        """Who has been there lately."""
        with self._lock:
            since = time.monotonic() - ACTIVE_S
            return [person.name for person in self._people.values() if person.seen >= since]

    # what the thread aside says

    def stored(self) -> frozenset[str]:
        """Answers that are on disk by now, and were not known to be in the log."""
        with self._lock:
            return frozenset(self._stored)

    def publish(
        self,
        standing: CampaignStatus,
        queues: dict[str, list[Card]],
        last: dict[str, list[tuple[int, Any]]],
        done: Iterable[str],
    ) -> None:
        """All that is new, at once. done: ids of answers that the log has, or will never have."""
        with self._lock:
            self._standing = standing
            self._ids |= standing.ids
            self._answered = standing.answered - {one.row for one in self._given.values() if one.action == "undo"}
            self._cards |= {card.row: card for queue in queues.values() for card in queue}
            for one in done:
                self._given.pop(one, None)
                self._stored.discard(one)
            for who, queue in queues.items():
                person = self._people[who]
                person.queue = queue
                person.last = last[who]
        self.tell()

    def refuse(self, who: str, message: str) -> None:
        """Tell somebody that an answer was not taken."""
        with self._lock:
            self._news.setdefault(who, []).append(message)

    def say(self, *, busy: str | None = None, trouble: str | None = None) -> None:
        """What the thread aside does, or what keeps it from that."""
        before = self.busy, self.trouble
        self.busy = self.busy if busy is None else busy
        self.trouble = self.trouble if trouble is None else trouble
        if before != (self.busy, self.trouble):
            self.tell()

    def tell(self) -> None:
        """There is something new."""
        with self._lock:
            self._version += 1
        self._changed()

    @property
    def version(self) -> int:
        """Grows with all that is new."""
        return self._version

    # answers

    def check(self, post: Post) -> Received | None:
        """The answer that a browser has sent, booked; None for one that was taken before. Raises Declined.

        Who calls it stores the answer, and says so by ``keep`` or ``forget``.
        """
        with self._lock:
            if post.id in self._ids:
                return None
            if post.run != self.run:
                raise Declined(409, "stale", "expected a page of this program, found one from before a restart")
            person = self._people.get(post.who)
            if person is None or self._standing is None:
                raise Declined(409, "stale", "expected somebody who is here, found nobody of that name")
            one = self._undone(post, person) if post.action == "undo" else self._said(post, person)
            self._given[one.id] = one
            self._ids.add(one.id)
            return one

    def _said(self, post: Post, person: Person) -> Received:
        card = next((card for card in self._open(person) if card.row == post.row), self._cards.get(post.row))
        pending = self._latest(person).get(post.row, "undo") != "undo"
        if card is None or pending or post.row in self._answered:
            raise Declined(409, "gone", f"row {post.row:,} is not asked about any more: see the next one")
        if (post.label is None) == (post.action == "label"):
            raise Declined(400, "wrong", "expected a label with an answer, and none with anything else")
        label = None if post.label is None else self._meant(post.label, new=post.new)
        person.back = [other for other in person.back if other.row != post.row]
        return received(post.row, label, post.action, post.who, post.id)

    def _meant(self, text: str, *, new: bool) -> Any:
        classes = self._classes()
        named = self._standing is not None and self._standing.named
        try:
            label = meant(text, classes, "label", named=named)
        except LabelError as error:
            raise Declined(422, "wrong", str(error)) from None
        if not new and classes and not any(same(label, known) for known in classes):
            raise Declined(200, "new", f"{label!r} is new: is it the other label?")
        return label

    def _undone(self, post: Post, person: Person) -> Received:
        mine = self._mine(person)
        if not mine or mine[-1][0] != post.row:
            raise Declined(409, "gone", "expected your last answer to take back, found that it has changed: look again")
        if self._trial() and not post.ends:
            raise Declined(200, "ends", self._trial())
        self._answered -= {post.row}
        card = self._cards.get(post.row)
        if card is not None:
            person.back.append(card)
        return received(post.row, None, "undo", post.who, post.id)

    def keep(self, one: Received) -> None:
        """An answer is on disk."""
        with self._lock:
            self._stored.add(one.id)

    def forget(self, one: Received) -> None:
        """An answer could not be written: it was not given."""
        with self._lock:
            self._given.pop(one.id, None)
            self._ids.discard(one.id)
            person = self._people[one.who]
            person.back = [card for card in person.back if card.row != one.row]
            if one.action == "undo":
                self._answered |= {one.row}
            else:
                person.back.append(self._cards[one.row])

    # what somebody sees

    def view(self, who: str) -> dict[str, Any]:
        """All that a browser shows, for somebody who has arrived."""
        with self._lock:
            person, standing = self._people[who], self._standing
            found: dict[str, Any] = {
                "run": self.run,
                "version": self._version,
                "who": who,
                "busy": self.busy,
                "trouble": self.trouble,
                "news": self._news.pop(who, []),
                "ready": standing is not None,
            }
            if standing is None:
                return found
            cards, mine, waiting = self._open(person), self._mine(person), self._waiting()
            found["classes"] = [str(label) for label in self._classes()]
            found["facts"] = texts.facts(standing.status, self._left(standing), waiting)
            found["question"] = self._shown(cards[0], standing) if cards else None
            found["next_image"] = cards[1].content.get("image") if len(cards) > 1 else None
            found["ended"] = None if self._given else texts.ended(standing.status)
            found["others"] = standing.status["awaited"] if not cards else 0
            found["last"] = {"row": mine[-1][0], "label": str(mine[-1][1])} if mine else None
            done, left = standing.status["labels"] + waiting, self._left(standing).total
            found["done"], found["left"] = done, left
            return found

    def _shown(self, card: Card, standing: CampaignStatus) -> dict[str, Any]:
        status = standing.status
        if card.why == "draw":  # those answered since are on their way
            more = sum(one.action == "label" and self._why(one.row) == "draw" for one in self._given.values())
            more = min(more, max(0, status["draws_open"] - 1))
            status = {**status, "draws_done": status["draws_done"] + more, "draws_open": status["draws_open"] - more}
        told = texts.reason(card.why, card.near, status)
        return {**card.content, "why": texts.WHAT[card.why], "reason": told}

    def _why(self, row: int) -> str | None:
        card = self._cards.get(row)
        return None if card is None else card.why

    def _open(self, person: Person) -> list[Card]:
        """What somebody is asked, the next one first."""
        latest = self._latest(person)
        back = [card for card in reversed(person.back) if latest.get(card.row, "undo") == "undo"]
        rows = {card.row for card in back} | set(latest)
        return back + [card for card in person.queue if card.row not in rows]

    def _latest(self, person: Person) -> dict[int, str]:
        """What was said last of rows whose answers are on their way; of several people about a row, by this one."""
        people = 1 if self._standing is None else self._standing.status["people"]
        return {one.row: one.action for one in self._given.values() if people == 1 or one.who == person.name}

    def _mine(self, person: Person) -> Sequence[tuple[int, Any]]:
        """The answers of somebody that hold, those on their way too, the last one at the end."""
        mine = list(person.last)
        for one in self._given.values():
            if one.who == person.name and one.action in ("label", "undo"):
                mine = [pair for pair in mine if pair[0] != one.row]
                if one.action == "label":
                    mine.append((one.row, one.label))
        return mine

    def _waiting(self) -> int:
        """How many rows have a label that is on its way, less those whose label goes."""
        latest = {one.row: one.action for one in self._given.values() if one.action in ("label", "undo")}
        return sum(1 if action == "label" else 0 for action in latest.values())

    def _left(self, standing: CampaignStatus) -> Forecast:
        left, waiting = standing.left, self._waiting()
        if left.near:
            return Forecast(left.draws, max(1, left.near - waiting))
        return Forecast(max(0, left.draws - waiting), 0)

    def _classes(self) -> list[Any]:
        """The labels as far as they are known, those on their way too."""
        found = [] if self._standing is None else list(self._standing.status["classes"])
        for one in self._given.values():
            if one.action == "label" and len(found) < 2 and not any(same(one.label, known) for known in found):
                found.append(one.label)
        return found

    def _trial(self) -> str:
        """What taking an answer back would end; nothing where no trial is on."""
        status = {} if self._standing is None else self._standing.status
        if not (status.get("draws_open") or status.get("draws_done")):
            return ""
        done = status["draws_done"] + sum(self._why(one.row) == "draw" for one in self._given.values())
        return f"This ends attempt {status['attempt']}, with its {done:,} answers to rows drawn by lot. Take back?"
