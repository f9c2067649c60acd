"""The log of answers (``answers.jsonl``): one JSON object a line, only ever appended to.

Every line holds the hash of the line before it (SHA-256 of its bytes without the line feed; of those of
``campaign.toml`` for the first), so that no line can be changed, left out or put elsewhere. What lies behind the last
line feed is what a killed writer left: half a line, of an answer that nobody was told is kept.

Most lines are answers about a row. One with the action "grow" says that rows were appended to the store: all that
follows is about the commit that it names.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, BinaryIO, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from coremargin.errors import DataError
from coremargin.formats.choices import Why
from coremargin.formats.model_record import Count, Digest, Label, Rows, Strict, Word
from coremargin.formats.strict_json import read_object, typed

LONGEST_LINE = 1 << 16  #: bytes

Action = Literal["label", "skip", "unsure", "undo", "correct"]
ACTIONS: tuple[Action, ...] = ("label", "skip", "unsure", "undo", "correct")
GROW: Literal["grow"] = "grow"

Number: TypeAlias = Annotated[int, Meta(ge=1)]
When: TypeAlias = Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
Hash: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
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

    attempt: the first one that is drawn from it; draws of those before are of the commits before, whenever their
    answers come. who, when, scans, before: as of an answer.
    """

    number: Number
    action: Literal["grow"]
    rows: Rows
    digest: Digest
    attempt: Number
    who: Word
    when: When
    scans: Count
    before: Hash


Entry: TypeAlias = Line | Growth  #: a line of the log, whatever it says


@dataclass(frozen=True)
class Answers:
    """entries and their hashes, in their order; whole: so many bytes hold them, what follows is half a line."""

    entries: tuple[Entry, ...]
    hashes: tuple[str, ...]
    whole: int

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Those about rows; where they stand in the log is their ``number``."""
        return tuple(entry for entry in self.entries if isinstance(entry, Line))

    @cached_property
    def growths(self) -> tuple[Growth, ...]:
        """The others."""
        return tuple(entry for entry in self.entries if isinstance(entry, Growth))


def hash_of(text: bytes) -> str:
    """The hash of a line without its line feed."""
    return hashlib.sha256(text).hexdigest()


def bytes_of(line: Entry) -> bytes:
    """A line without its line feed."""
    values = {name: value for name in line.__struct_fields__ if (value := getattr(line, name)) is not UNSET}
    return json.dumps(values, allow_nan=False, ensure_ascii=False).encode("utf-8")


def read_answers(data: bytes | BinaryIO, first: str, place: str, *, after: Answers | None = None) -> Answers:
    """The lines in the bytes, or in the file, of a log; first: the hash that its first line holds; place: its path.

    after: what was read before; data is what follows. Raises DataError that names the line: no JSON, an unknown or
    missing key, a number or a hash that does not follow from the line before.
    """
    lines, hashes = ([], []) if after is None else (list(after.entries), list(after.hashes))
    whole = 0 if after is None else after.whole
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    while text := file.readline(LONGEST_LINE + 1):
        if text[-1:] != b"\n" and len(text) <= LONGEST_LINE:
            break
        whole, text = whole + len(text), text.removesuffix(b"\n")
        line = _line(text, f"{place}, line {len(lines) + 1}")
        expected = hashes[-1] if hashes else first
        if line.number != len(lines) + 1 or line.before != expected:
            what = "number" if line.number != len(lines) + 1 else "hash of the line before"
            found, wanted = (line.number, len(lines) + 1) if what == "number" else (line.before, expected)
            raise DataError(
                f"{place}, line {len(lines) + 1}: {what}: expected {wanted}, found {found}: lines were changed, left "
                "out or moved; get an unaltered copy"
            )
        lines.append(line)
        hashes.append(hash_of(text))
    return Answers(tuple(lines), tuple(hashes), whole)


def _line(text: bytes, place: str) -> Entry:
    content = read_object(text, place, largest=LONGEST_LINE)
    return typed(Growth, content, place) if content.get("action") == GROW else typed(Line, content, place)
