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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, BinaryIO, Literal, TypeAlias

from msgspec import Meta

from coremargin.errors import DataError
from coremargin.formats.choices import Why
from coremargin.formats.model_record import Count, Digest, Label, Rows, Strict, Word
from coremargin.formats.strict_json import cut, read_object, typed

LONGEST_LINE = 1 << 16  #: bytes

Action = Literal["label", "skip", "unsure", "undo", "correct"]
ACTIONS: tuple[Action, ...] = ("label", "skip", "unsure", "undo", "correct")
GROW: Literal["grow"] = "grow"

Number: TypeAlias = Annotated[int, Meta(ge=1)]
When: TypeAlias = Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
Hash: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Line(Strict, frozen=True, kw_only=True):
    """One answer.

    row, label: of which row, and what it is; None unless the action is "label" or "correct". who, when: gave it. why:
    the row was asked about, with the number of the ``attempt`` that it was drawn for. scans: of the store that were
    finished then. before: hash of the line before.
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

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        if (self.label is not None) != (self.action in ("label", "correct")):
            raise ValueError(f"expected a label with label and correct only, found {self.label!r} with {self.action}")
        if (self.attempt is not None) != (self.why == "draw"):
            raise ValueError(f"expected an attempt with draws only, found {self.attempt!r} with {self.why}")


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
    values = {name: getattr(line, name) for name in line.__struct_fields__}
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


def effective(lines: Iterable[Line], known: Mapping[int, Any] | None = None) -> dict[int, Any]:
    """Row -> the label that holds at the end, of all rows that have one; known: those that held before the lines."""
    labels = dict(known or {})
    for line in lines:
        if line.action in ("label", "correct"):
            labels[line.row] = line.label
        elif line.action == "undo":
            labels.pop(line.row, None)
    return labels


def unsure_of(lines: Iterable[Line]) -> set[int]:
    """Rows that nobody could label: from an "unsure" line that finds one without an answer up to one that labels it."""
    labelled, found = set[int](), set[int]()
    for line in lines:
        if line.action in ("label", "correct"):
            labelled.add(line.row)
            found.discard(line.row)
        elif line.action == "undo":
            labelled.discard(line.row)
        elif line.action == "unsure" and line.row not in labelled:
            found.add(line.row)
    return found


class Held:
    """Labels that hold, by row, and the classes that they are of as far as they are known, of two (negative, positive).

    known: the classes, where the campaign names them; three or more always are. Else a class is one as long as an
    answer holds it: a label that was mistyped goes with its last answer, and what this is corrected to takes its place.
    """

    def __init__(self, known: Sequence[Any] | None = None) -> None:
        self.labels: dict[int, Any] = {}
        self._classes: list[tuple[Any, int]] = [(label, 0) for label in known or ()]  # with how many rows have it
        self.named = known is not None  #: whether the campaign names its classes

    def copy(self) -> Held:
        """Another that goes its own way."""
        found = Held()
        found.labels, found._classes, found.named = dict(self.labels), list(self._classes), self.named
        return found

    @property
    def classes(self) -> list[Any]:
        """All of them as far as they are known, of two (negative, positive)."""
        return [label for label, _ in self._classes]

    def beside(self, row: int) -> list[Any]:
        """The classes that there would be without the answer about a row."""
        alone = self._alone(row)
        return [label for place, label in enumerate(self.classes) if place != alone]

    def take(self, row: int, action: Action, label: Any) -> None:
        """What a line says of a row."""
        if action not in ("label", "correct", "undo"):
            return
        alone = self._alone(row)
        if alone is not None and action != "undo" and self._place(label) is None:
            self._classes[alone] = label, 1
        else:
            self._count(self.labels.pop(row, None), -1)
            self._count(label, 1)
        self.labels.pop(row, None)
        if label is not None:
            self.labels[row] = label

    def _count(self, label: Any, more: int) -> None:
        place = None if label is None else self._place(label)
        if place is not None:
            label, count = self._classes[place]
            self._classes[place] = label, count + more
            if count + more == 0 and not self.named:
                del self._classes[place]
        elif label is not None:
            self._classes.append((label, more))

    def _place(self, label: Any) -> int | None:
        return next((place for place, (known, _) in enumerate(self._classes) if same(label, known)), None)

    def _alone(self, row: int) -> int | None:
        """The place of a class that no other row holds, nor the campaign names."""
        place = self._place(self.labels[row]) if row in self.labels and not self.named else None
        return place if place is not None and self._classes[place][1] == 1 else None


def classes_of(lines: Iterable[Line], known: Sequence[Any] | None) -> list[Any]:
    """(negative, positive) of a campaign: those that it names or else, in this order, those that its answers hold."""
    if known is not None:
        return list(known)
    held = Held()
    for line in lines:
        held.take(line.row, line.action, line.label)
    return held.classes


def same(first: Any, second: Any) -> bool:
    """Whether two labels are one: 1 and true are not."""
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def check_lines(lines: Sequence[Entry], rows: int, classes: Sequence[Any] | None, place: str) -> None:
    """Raises DataError, naming the line, for rows beyond the store, a third label, or answers that do not go together.

    A row that has an answer is not labelled again, and only its answer is corrected or taken back. rows: of the commit
    that the campaign began with.
    """
    held, scans, attempt = Held(classes), 0, 0
    for line in lines:
        where = f"{place}, line {line.number}"
        if line.scans < scans:
            raise DataError(f"{where}: scans: expected at least {scans}, found {line.scans}; get an unaltered copy")
        scans = line.scans
        if isinstance(line, Growth):
            _check_growth(line, rows, attempt, where)
            rows, attempt = line.rows, line.attempt - 1
            continue
        attempt = max(attempt, line.attempt or 0)
        if line.row >= rows:
            raise DataError(f"{where}: expected a row below {rows:,}, found {line.row:,}; is this another store's log?")
        found = held.beside(line.row)
        if line.label is not None and not fits(line.label, found):
            raise DataError(
                f"{where}: label: expected {cut(' or '.join(repr(label) for label in found))}, found "
                f"{cut(repr(line.label))}; get an unaltered copy"
            )
        if line.action in ("undo", "correct", "label") and (line.row in held.labels) != (line.action != "label"):
            what = "one without" if line.action == "label" else "one with"
            raise DataError(f"{where}: {line.action}: expected {what} an answer, found row {line.row:,}; get a copy")
        held.take(line.row, line.action, line.label)


def _check_growth(line: Growth, rows: int, attempt: int, where: str) -> None:
    """attempt: the last one that may have been drawn before."""
    if line.rows <= rows:
        raise DataError(
            f"{where}: grow: expected more than the {rows:,} rows before, found {line.rows:,}; get an unaltered copy"
        )
    if line.attempt <= attempt:
        raise DataError(
            f"{where}: grow: attempt: expected one above {attempt}, which was drawn from the rows before, found "
            f"{line.attempt}; get an unaltered copy"
        )


def fits(label: Any, classes: Sequence[Any]) -> bool:
    """Whether a label is one of the classes, or may be the one that is not known yet: texts go with texts only."""
    if any(same(label, known) for known in classes):
        return True
    return len(classes) < 2 and all(isinstance(label, str) == isinstance(known, str) for known in classes)
