"""What goes to and fro between browsers and a campaign: answers, questions, people, where all stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from coremargin.formats.answers import AnswerId
from coremargin.formats.model_record import Count, Strict

if TYPE_CHECKING:
    from coremargin.active.status import Forecast

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Post(Strict, frozen=True, kw_only=True):
    """What a browser sends when a key was pressed.

    run: of the program that has served its page. id: the same whenever the same answer is sent again. new: a label that
    there was not yet is meant. ends: an answer is taken back though that ends a trial.
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
    """An answer that is not taken; code: of HTTP, 200 to ask back. kind: what a browser makes of it."""

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code, self.kind = code, kind


class Card(NamedTuple):
    """A question as it is shown. near: the distance of its row, and how far the slab reaches; content: shown.py."""

    row: int
    why: str
    near: tuple[float, float] | None
    content: dict[str, Any]


@dataclass
class Person:
    """Somebody who answers here. queue: what lies ready; last: rows with their labels, as the log has them, in order.

    back: a row whose answer was taken back, and that is shown again first.
    """

    name: str
    seen: float
    queue: list[Card] = field(default_factory=list)
    last: list[tuple[int, Any]] = field(default_factory=list)
    back: list[Card] = field(default_factory=list)


@dataclass(frozen=True)
class CampaignStatus:
    """Where the campaign stands, as the thread aside has found it.

    named: whether it names its classes. ids: of the answers in the log. answered: rows that have one.
    """

    status: dict[str, Any]
    left: Forecast
    named: bool
    ids: frozenset[str]
    answered: frozenset[int]
