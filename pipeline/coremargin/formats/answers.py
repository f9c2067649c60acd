"""The log of answers (``answers.jsonl``): a chained log (chained.py); its first line has the hash of ``campaign.toml``.

Most lines are answers about a row. One with the action "grow" says that rows were appended to the store: all that
follows is about the commit that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, BinaryIO, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.chained import LONGEST_LINE, Chain, Hash, Number, When, read_chain
from coremargin.formats.choices import Why
from coremargin.formats.model_record import Count, Digest, Label, Rows, StoreHash, Strict, Word
from coremargin.formats.strict_json import read_object, typed

Action = Literal["label", "skip", "unsure", "undo", "correct"]
ACTIONS: tuple[Action, ...] = ("label", "skip", "unsure", "undo", "correct")
GROW: Literal["grow"] = "grow"

AnswerId: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]


class Line(Strict, frozen=True, kw_only=True):
    """One answer.

    row, label: of which row, and what it is; None unless the action is "label" or "correct". who, when: gave it. why:
    the row was asked about, with the number of the ``attempt`` that it was drawn for. scans: of the store that were
    finished then. before: hash of the line before. tried: of a draw, the hash of the hypothesis that it tries, which
    was there before the answer; not of one whose attempt was over by then. id: of an answer that may have been sent
    more than once, as by a page that did not hear of it: no two lines have the same.
    """

    number: Number
    row: Count
    label: Label | None
    action: Action
    who: Word
    when: When
    why: Why
    attempt: Number | None
    scans: Count
    before: Hash
    tried: Hash | UnsetType = UNSET
    id: AnswerId | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        if (self.label is not None) != (self.action in ("label", "correct")):
            raise ValueError(f"expected a label with label and correct only, found {self.label!r} with {self.action}")
        if (self.attempt is not None) != (self.why == "draw"):
            raise ValueError(f"expected an attempt with draws only, found {self.attempt!r} with {self.why}")
        if self.tried is not UNSET and self.why != "draw":
            raise ValueError(f"expected a hypothesis that is tried with draws only, found one with {self.why}")


class Growth(Strict, frozen=True, kw_only=True):
    """Rows were appended to the store: what follows is about the commit that has so many rows and this digest.

    store_sha256: of the same content, where the store has it. attempt: the first one that is drawn from it; draws of
    those before are of the commits before, whenever their answers come. who, when, scans, before: as of an answer.
    """

    number: Number
    action: Literal["grow"]
    rows: Rows
    digest: Digest
    store_sha256: StoreHash | UnsetType = UNSET
    attempt: Number
    who: Word
    when: When
    scans: Count
    before: Hash


Entry: TypeAlias = Line | Growth  #: a line of the log, whatever it says


@dataclass(frozen=True)
class Answers(Chain[Entry]):
    """All lines of a log of answers."""

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Those about rows; where they stand in the log is their ``number``."""
        return tuple(entry for entry in self.entries if isinstance(entry, Line))

    @cached_property
    def growths(self) -> tuple[Growth, ...]:
        """The others."""
        return tuple(entry for entry in self.entries if isinstance(entry, Growth))


def read_answers(data: bytes | BinaryIO, first: str, place: str, *, after: Answers | None = None) -> Answers:
    """The lines in the bytes, or in the file, of a log; first: the hash that its first line holds; place: its path.

    after: what was read before; data is what follows. Raises DataError that names the line: no JSON, an unknown or
    missing key, a number or a hash that does not follow from the line before.
    """
    return Answers(**vars(read_chain(data, first, place, _line, after)))


def _line(text: bytes, place: str) -> Entry:
    content = read_object(text, place, largest=LONGEST_LINE)
    return typed(Growth, content, place) if content.get("action") == GROW else typed(Line, content, place)


VOTES = "votes.jsonl"


class Vote(Strict, frozen=True, kw_only=True):
    """A label that an annotator gives a row, or takes back; number, before: as of any such line."""

    number: Number
    before: Hash
    id: AnswerId
    row: Count
    label: Label | None
    action: Action
    who: Word
    when: When


def read_votes(data: bytes | BinaryIO, first: str, place: str, after: Chain[Vote] | None = None) -> Chain[Vote]:
    """The votes in the bytes, or in the file, of a log; as ``read_chain``."""

    def vote_of(text: bytes, where: str) -> Vote:
        one: Vote = typed(Vote, read_object(text, where, largest=LONGEST_LINE), where)
        return one

    return read_chain(data, first, place, vote_of, after)
