"""The log of answers (``answers.jsonl``): one JSON object a line, only ever appended to.

Every line holds the hash of the line before it (SHA-256 of its bytes without the line feed; of those of
``campaign.toml`` for the first), so that no line can be changed, left out or put elsewhere. What lies behind the last
line feed is what a killed writer left: half a line, of an answer that nobody was told is kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from coremargin.errors import DataError
from coremargin.formats.choices import Why
from coremargin.formats.model_record import Count, Label, Strict, Word
from coremargin.formats.strict_json import cut, read_object, typed

LONGEST_LINE = 1 << 16  #: bytes

Action = Literal["label", "skip", "unsure", "undo", "correct"]
ACTIONS: tuple[Action, ...] = ("label", "skip", "unsure", "undo", "correct")


class Line(Strict, frozen=True, kw_only=True):
    """One answer.

    row, label: of which row, and what it is; None unless the action is "label" or "correct". who, when: gave it. why:
    the row was asked about, with the number of the ``attempt`` that it was drawn for. scans: of the store that were
    finished then. before: hash of the line before.
    """

    number: Annotated[int, Meta(ge=1)]
    row: Count
    label: Label | None
    action: Action
    who: Word
    when: Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
    why: Why
    attempt: Annotated[int, Meta(ge=1)] | None
    scans: Count
    before: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        if (self.label is not None) != (self.action in ("label", "correct")):
            raise ValueError(f"expected a label with label and correct only, found {self.label!r} with {self.action}")
        if (self.attempt is not None) != (self.why == "draw"):
            raise ValueError(f"expected an attempt with draws only, found {self.attempt!r} with {self.why}")


@dataclass(frozen=True)
class Answers:
    """lines and their hashes, in their order; whole: so many bytes hold them, what follows is half a line."""

    lines: tuple[Line, ...]
    hashes: tuple[str, ...]
    whole: int


def hash_of(text: bytes) -> str:
    """The hash of a line without its line feed."""
    return hashlib.sha256(text).hexdigest()


def bytes_of(line: Line) -> bytes:
    """A line without its line feed."""
    values = {name: getattr(line, name) for name in line.__struct_fields__}
    return json.dumps(values, allow_nan=False, ensure_ascii=False).encode("utf-8")


def read_answers(data: bytes, first: str, place: str, *, after: Answers | None = None) -> Answers:
    """The lines in the bytes of a log; first: the hash that its first line holds; place: its path, for messages.

    after: what was read before; data is what follows. Raises DataError that names the line: no JSON, an unknown or
    missing key, a number or a hash that does not follow from the line before.
    """
    lines, hashes = ([], []) if after is None else (list(after.lines), list(after.hashes))
    start = 0 if after is None else after.whole
    whole = data.rfind(b"\n") + 1
    for text in data[:whole].split(b"\n")[:-1]:
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
    return Answers(tuple(lines), tuple(hashes), start + whole)


def _line(text: bytes, place: str) -> Line:
    return typed(Line, read_object(text, place, largest=LONGEST_LINE), place)


def effective(lines: Iterable[Line], known: Mapping[int, Any] | None = None) -> dict[int, Any]:
    """Row -> the label that holds at the end, of all rows that have one; known: those that held before the lines."""
    labels = dict(known or {})
    for line in lines:
        if line.action in ("label", "correct"):
            labels[line.row] = line.label
        elif line.action == "undo":
            labels.pop(line.row, None)
    return labels


def classes_of(lines: Iterable[Line], known: Sequence[Any] | None) -> list[Any]:
    """(negative, positive) of a campaign: those that it names or, in this order, the first that were answered."""
    if known is not None:
        return list(known)
    found: list[Any] = []
    for line in lines:
        if line.label is not None and not any(same(line.label, label) for label in found):
            found.append(line.label)
    return found


def same(first: Any, second: Any) -> bool:
    """Whether two labels are one: 1 and true are not."""
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def check_lines(lines: Sequence[Line], rows: int, classes: Sequence[Any] | None, place: str) -> None:
    """Raises DataError, naming the line, for rows beyond the store, a third label, or answers that do not go together.

    A row that has an answer is not labelled again, and only its answer is corrected or taken back.
    """
    known, found, scans = set[int](), list(classes or ()), 0
    for line in lines:
        where = f"{place}, line {line.number}"
        if line.row >= rows:
            raise DataError(f"{where}: expected a row below {rows:,}, found {line.row:,}; is this another store's log?")
        if line.scans < scans:
            raise DataError(f"{where}: scans: expected at least {scans}, found {line.scans}; get an unaltered copy")
        scans = line.scans
        if line.label is not None and not any(same(line.label, label) for label in found):
            if len(found) == 2 or (found and isinstance(line.label, str) != isinstance(found[0], str)):
                raise DataError(
                    f"{where}: label: expected {' or '.join(repr(label) for label in found)}, found "
                    f"{cut(repr(line.label))}; get an unaltered copy"
                )
            found.append(line.label)
        if line.action in ("undo", "correct", "label") and (line.row in known) != (line.action != "label"):
            what = "one without" if line.action == "label" else "one with"
            raise DataError(f"{where}: {line.action}: expected {what} an answer, found row {line.row:,}; get a copy")
        (known.discard if line.action == "undo" else known.add if line.label is not None else _nothing)(line.row)


def _nothing(_: int) -> None:
    """Neither known nor unknown by it."""
