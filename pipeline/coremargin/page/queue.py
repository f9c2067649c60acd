"""The queue between browsers and a campaign: open questions, answers that are not in the log yet, the status.

It is shared by the server's thread and the background thread, under a lock. No method waits, reads a file or calls the
campaign.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from coremargin.active.answers import match_label
from coremargin.active.inbox import ReceivedAnswer, received_answer
from coremargin.active.status import Forecast
from coremargin.errors import LabelError
from coremargin.formats.answers import AnswerId
from coremargin.formats.current_answers import same
from coremargin.formats.model_record import Count, Strict
from coremargin.page import texts

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Post(Strict, frozen=True, kw_only=True):
    """A request of a browser after a key press.

    run: identifies the server process of its page. id: the same if an answer is sent again. new: the label may be a new
    one. ends: take an answer back even if that ends a trial.
    """

    run: str
    id: AnswerId
    who: Name
    row: Count
    action: Literal["label", "skip", "unsure", "undo"]
    label: Annotated[str, Meta(max_length=1000)] | None = None
    new: bool = False
    ends: bool = False


class Declined(Exception):
    """An answer that is rejected. code: the HTTP status, 200 for a confirmation; kind: tells the browser what to do."""

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code, self.kind = code, kind


class Card(NamedTuple):
    """A question as shown. near: distance of its row, and width of the slab; content: of ``RowView``."""

    row: int
    why: str
    near: tuple[float, float] | None
    content: dict[str, Any]


@dataclass
class Person:
    """An annotator. queue: prepared questions; last: answered rows with labels, in the order of the log. back:
    questions

    whose answer was taken back, which are shown first.
    """

    name: str
    seen: float
    queue: list[Card] = field(default_factory=list)
    last: list[tuple[int, Any]] = field(default_factory=list)
    back: list[Card] = field(default_factory=list)


@dataclass(frozen=True)
class CampaignSnapshot:
    """The last state of the campaign that the background thread has read.

    left: answers that are still needed. named: whether the campaign names its classes. ids: of the answers in the log.
    answered: rows with an answer.
    """

    status: dict[str, Any]
    left: Forecast
    named: bool
    ids: frozenset[str]
    answered: frozenset[int]


ACTIVE_S = 45.0  #: after this time without a request, an annotator's questions go to others
MOST_PEOPLE = 200


class QuestionQueue:
    """The queue of one process. run: its identifier; changed: called after every change."""

    def __init__(self, run: str, changed: Callable[[], None]) -> None:
        self.run, self._changed = run, changed
        self._lock = threading.Lock()
        self._people: dict[str, Person] = {}
        self._pending: dict[str, ReceivedAnswer] = {}  # answers that are not in the log yet, by id
        self._ids_on_disk = set[str]()  # of these, those on disk
        self._ids = set[str]()  # of all answers that were accepted, by this process or earlier ones
        self._cards: dict[int, Card] = {}  # all questions that this process prepared
        self._answered = frozenset[int]()  # rows with an answer in the log
        self._messages: dict[str, list[str]] = {}
        self._snapshot: CampaignSnapshot | None = None
        self._version, self.busy, self.trouble = 0, "", ""

    # annotators

    def register(self, who: str) -> bool:
        """Record that an annotator opened the page; returns whether they were inactive. Raises Declined if full."""
        with self._lock:
            known = self._people.get(who)
            if known is None and len(self._people) >= MOST_PEOPLE:
                raise Declined(429, "many", f"expected at most {MOST_PEOPLE} people, found more")
            person = self._people.setdefault(who, Person(who, 0.0))
            fresh = time.monotonic() - person.seen > ACTIVE_S or known is None
            person.seen = time.monotonic()
            return fresh

    def active_people(self) -> list[str]:
        """Annotators with a request in the last ``ACTIVE_S`` seconds."""
        with self._lock:
            since = time.monotonic() - ACTIVE_S
            return [person.name for person in self._people.values() if person.seen >= since]

    # from the background thread

    def ids_on_disk(self) -> frozenset[str]:
        """Ids of pending answers that are on disk."""
        with self._lock:
            return frozenset(self._ids_on_disk)

    def publish(
        self,
        snapshot: CampaignSnapshot,
        queues: dict[str, list[Card]],
        last: dict[str, list[tuple[int, Any]]],
        done: Iterable[str],
    ) -> None:
        """Replace the state that browsers see. done: ids of answers that are in the log, or were rejected."""
        with self._lock:
            self._snapshot = snapshot
            self._ids |= snapshot.ids
            self._answered = snapshot.answered - {one.row for one in self._pending.values() if one.action == "undo"}
            self._cards |= {card.row: card for queue in queues.values() for card in queue}
            for one in done:
                self._pending.pop(one, None)
                self._ids_on_disk.discard(one)
            for who, queue in queues.items():
                person = self._people[who]
                person.queue = queue
                person.last = last[who]
        self.notify()

    def refuse(self, who: str, message: str) -> None:
        """Store a message for an annotator whose answer was rejected."""
        with self._lock:
            self._messages.setdefault(who, []).append(message)

    def set_message(self, *, busy: str | None = None, trouble: str | None = None) -> None:
        """Show what the background thread is doing, or what prevents it."""
        before = self.busy, self.trouble
        self.busy = self.busy if busy is None else busy
        self.trouble = self.trouble if trouble is None else trouble
        if before != (self.busy, self.trouble):
            self.notify()

    def notify(self) -> None:
        """Publish a new version."""
        with self._lock:
            self._version += 1
        self._changed()

    @property
    def version(self) -> int:
        """Increases with every change."""
        return self._version

    # answers

    def book(self, post: Post) -> ReceivedAnswer | None:
        """Accept the answer of a browser as pending; None if it was accepted before. Raises Declined.

        The caller writes the answer to disk, then calls ``mark_written``, or ``unbook`` if that fails.
        """
        with self._lock:
            if post.id in self._ids:
                return None
            if post.run != self.run:
                raise Declined(409, "stale", "expected a page of this program, found one from before a restart")
            person = self._people.get(post.who)
            if person is None or self._snapshot is None:
                raise Declined(409, "stale", "expected an annotator of this page, found no one of that name")
            one = self._undo_of(post, person) if post.action == "undo" else self._answer_of(post, person)
            self._pending[one.id] = one
            self._ids.add(one.id)
            return one

    def _answer_of(self, post: Post, person: Person) -> ReceivedAnswer:
        card = next((card for card in self._open_cards(person) if card.row == post.row), self._cards.get(post.row))
        pending = self._pending_actions(person).get(post.row, "undo") != "undo"
        if card is None or pending or post.row in self._answered:
            raise Declined(409, "gone", f"row {post.row:,} is not asked about any more: see the next one")
        if (post.label is None) == (post.action == "label"):
            raise Declined(400, "wrong", "expected a label with an answer, and none with anything else")
        label = None if post.label is None else self._label_of(post.label, new=post.new)
        person.back = [other for other in person.back if other.row != post.row]
        return received_answer(post.row, label, post.action, post.who, post.id)

    def _label_of(self, text: str, *, new: bool) -> Any:
        classes = self._classes()
        named = self._snapshot is not None and self._snapshot.named
        try:
            label = match_label(text, classes, "label", named=named)
        except LabelError as error:
            raise Declined(422, "wrong", str(error)) from None
        if not new and classes and not any(same(label, known) for known in classes):
            raise Declined(200, "new", f"{label!r} is new: is it the other label?")
        return label

    def _undo_of(self, post: Post, person: Person) -> ReceivedAnswer:
        mine = self._answers_of(person)
        if not mine or mine[-1][0] != post.row:
            raise Declined(409, "gone", "expected your last answer to take back, found that it has changed: look again")
        if self._trial_warning() and not post.ends:
            raise Declined(200, "ends", self._trial_warning())
        self._answered -= {post.row}
        card = self._cards.get(post.row)
        if card is not None:
            person.back.append(card)
        return received_answer(post.row, None, "undo", post.who, post.id)

    def mark_written(self, one: ReceivedAnswer) -> None:
        """An answer is on disk."""
        with self._lock:
            self._ids_on_disk.add(one.id)

    def unbook(self, one: ReceivedAnswer) -> None:
        """Forget an answer that could not be written."""
        with self._lock:
            self._pending.pop(one.id, None)
            self._ids.discard(one.id)
            person = self._people[one.who]
            person.back = [card for card in person.back if card.row != one.row]
            if one.action == "undo":
                self._answered |= {one.row}
            else:
                person.back.append(self._cards[one.row])

    # the view of an annotator

    def view(self, who: str) -> dict[str, Any]:
        """The content of the page, for a registered annotator."""
        with self._lock:
            person, snapshot = self._people[who], self._snapshot
            found: dict[str, Any] = {
                "run": self.run,
                "version": self._version,
                "who": who,
                "busy": self.busy,
                "trouble": self.trouble,
                "news": self._messages.pop(who, []),
                "ready": snapshot is not None,
            }
            if snapshot is None:
                return found
            cards, mine, waiting = self._open_cards(person), self._answers_of(person), self._pending_labels()
            found["classes"] = [str(label) for label in self._classes()]
            found["facts"] = texts.facts(snapshot.status, self._forecast(snapshot), waiting)
            found["question"] = self._question_view(cards[0], snapshot) if cards else None
            found["next_image"] = cards[1].content.get("image") if len(cards) > 1 else None
            found["ended"] = None if self._pending else texts.ended(snapshot.status)
            found["others"] = snapshot.status["awaited"] if not cards else 0
            found["last"] = {"row": mine[-1][0], "label": str(mine[-1][1])} if mine else None
            done, left = snapshot.status["labels"] + waiting, self._forecast(snapshot).total
            found["done"], found["left"] = done, left
            return found

    def _question_view(self, card: Card, snapshot: CampaignSnapshot) -> dict[str, Any]:
        status = snapshot.status
        if card.why == "draw":  # add pending answers
            more = sum(one.action == "label" and self._why(one.row) == "draw" for one in self._pending.values())
            more = min(more, max(0, status["draws_open"] - 1))
            status = {**status, "draws_done": status["draws_done"] + more, "draws_open": status["draws_open"] - more}
        return {**card.content, "why": texts.WHAT[card.why], "reason": texts.reason(card.why, card.near, status)}

    def _why(self, row: int) -> str | None:
        card = self._cards.get(row)
        return None if card is None else card.why

    def _open_cards(self, person: Person) -> list[Card]:
        """The open questions of an annotator, the next one first."""
        latest = self._pending_actions(person)
        back = [card for card in reversed(person.back) if latest.get(card.row, "undo") == "undo"]
        rows = {card.row for card in back} | set(latest)
        return back + [card for card in person.queue if card.row not in rows]

    def _pending_actions(self, person: Person) -> dict[int, str]:
        """The last action on rows with pending answers; with several people per row, that of this annotator."""
        people = 1 if self._snapshot is None else self._snapshot.status["people"]
        return {one.row: one.action for one in self._pending.values() if people == 1 or one.who == person.name}

    def _answers_of(self, person: Person) -> Sequence[tuple[int, Any]]:
        """Current answers of an annotator, pending ones included, the last one at the end."""
        mine = list(person.last)
        for one in self._pending.values():
            if one.who == person.name and one.action in ("label", "undo"):
                mine = [pair for pair in mine if pair[0] != one.row]
                if one.action == "label":
                    mine.append((one.row, one.label))
        return mine

    def _pending_labels(self) -> int:
        """The number of rows with a pending label."""
        latest = {one.row: one.action for one in self._pending.values() if one.action in ("label", "undo")}
        return sum(1 if action == "label" else 0 for action in latest.values())

    def _forecast(self, snapshot: CampaignSnapshot) -> Forecast:
        left, waiting = snapshot.left, self._pending_labels()
        if left.near:
            return Forecast(left.draws, max(1, left.near - waiting))
        return Forecast(max(0, left.draws - waiting), 0)

    def _classes(self) -> list[Any]:
        """The classes known so far, those of pending answers included."""
        found = [] if self._snapshot is None else list(self._snapshot.status["classes"])
        for one in self._pending.values():
            if one.action == "label" and len(found) < 2 and not any(same(one.label, known) for known in found):
                found.append(one.label)
        return found

    def _trial_warning(self) -> str:
        """The warning that taking an answer back ends a trial; empty without a running trial."""
        status = {} if self._snapshot is None else self._snapshot.status
        if not (status.get("draws_open") or status.get("draws_done")):
            return ""
        done = status["draws_done"] + sum(self._why(one.row) == "draw" for one in self._pending.values())
        return f"This ends attempt {status['attempt']}, with its {done:,} answers to rows drawn by lot. Take back?"
