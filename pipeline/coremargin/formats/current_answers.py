"""What the lines of a log of answers come to: the labels that hold, their classes, and whether they go together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from coremargin.errors import DataError
from coremargin.formats.answers import Action, Entry, Growth, Line
from coremargin.formats.strict_json import cut


def effective(lines: Iterable[Line], known: Mapping[int, Any] | None = None) -> dict[int, Any]:
    """Row -> the label that holds at the end, of all rows that have one; known: those that held before the lines."""
    labels = dict(known or {})
    for line in lines:
        if line.action in ("label", "correct"):
            labels[line.row] = line.label
        elif line.action == "undo":
            labels.pop(line.row, None)
    return labels


class CurrentAnswers:
    """The result of a log's lines: labels, their classes, and rows that annotators left without a label.

    labels: by row. unsure: rows that no annotator could label, from an "unsure" line that finds one without an answer
    up to one that labels it; also rows whose answer was taken back: as it is known, drawing them would show nothing.
    known: the classes (negative, positive), or all of more, if the campaign names them. Otherwise a class is
    one as long as a label has it: a mistyped class goes with its last label, and what this is corrected to takes its
    place.
    """

    def __init__(self, known: Sequence[Any] | None = None) -> None:
        self.labels: dict[int, Any] = {}
        self.unsure = set[int]()
        self.named = known is not None  #: whether the campaign names its classes
        self._classes: list[tuple[Any, int]] = [(label, 0) for label in known or ()]  # with how many rows have it
        self._undone = dict[int, None]()  # rows whose answer was taken back, nothing but skips since, in order
        self._skipped = dict[int, int]()  # rows that were skipped, with the number of the line

    def copy(self) -> CurrentAnswers:
        """An independent copy."""
        found = CurrentAnswers()
        found.labels, found.unsure, found.named = dict(self.labels), set(self.unsure), self.named
        found._classes, found._undone, found._skipped = list(self._classes), dict(self._undone), dict(self._skipped)
        return found

    @property
    def undone(self) -> list[int]:
        """Rows whose answer was taken back, and of which nothing else was said since, the last one first."""
        return list(reversed(self._undone))

    @property
    def skipped(self) -> dict[int, int]:
        """Rows that were skipped and have no label since, with the number of that line; without unsure rows."""
        unsure = self.unsure - self._undone.keys()
        return {row: number for row, number in self._skipped.items() if row not in unsure}

    @property
    def classes(self) -> list[Any]:
        """All of them as far as they are known, of two (negative, positive)."""
        return [label for label, _ in self._classes]

    def classes_without(self, row: int) -> list[Any]:
        """The classes that there would be without the answer about a row."""
        alone = self._alone(row)
        return [label for place, label in enumerate(self.classes) if place != alone]

    def take(self, row: int, action: Action, label: Any, number: int = 0) -> None:
        """Follow a line of the log. number: of the line, for skipped rows."""
        if action == "skip":
            if row not in self.labels:
                self._skipped[row] = number
            return
        self._undone.pop(row, None)
        if action == "unsure":
            if row not in self.labels:
                self.unsure.add(row)
            return
        if action == "undo":
            self._undone[row] = None
            self.unsure.add(row)
        else:
            self.unsure.discard(row)
            self._skipped.pop(row, None)
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


def replay(lines: Iterable[Line], known: Sequence[Any] | None = None) -> CurrentAnswers:
    """What these lines come to. known: the classes, if the campaign names them."""
    current = CurrentAnswers(known)
    for line in lines:
        current.take(line.row, line.action, line.label, line.number)
    return current


def classes_of(lines: Iterable[Line], known: Sequence[Any] | None) -> list[Any]:
    """(negative, positive) of a campaign: those that it names or else, in this order, those of its labels."""
    return replay(lines).classes if known is None else list(known)


def same(first: Any, second: Any) -> bool:
    """Whether two labels are one: 1 and true are not."""
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def check_lines(lines: Sequence[Entry], rows: int, classes: Sequence[Any] | None, place: str) -> None:
    """Raises DataError, naming the line, for rows beyond the store, a third label, or answers that do not go together.

    A row that has an answer is not labelled again, and only its answer is corrected or taken back; no id is there
    twice. rows: of the commit
    that the campaign began with.
    """
    current, scans, attempt, ids = CurrentAnswers(classes), 0, 0, set[str]()
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
        if line.id is not UNSET:
            if line.id in ids:
                raise DataError(f"{where}: id: expected another than that of a line before; get an unaltered copy")
            ids.add(line.id)
        if line.row >= rows:
            raise DataError(f"{where}: expected a row below {rows:,}, found {line.row:,}; is this another store's log?")
        found = current.classes_without(line.row)
        if line.label is not None and not fits(line.label, found):
            raise DataError(
                f"{where}: label: expected {cut(' or '.join(repr(label) for label in found))}, found "
                f"{cut(repr(line.label))}; get an unaltered copy"
            )
        if line.action in ("undo", "correct", "label") and (line.row in current.labels) != (line.action != "label"):
            what = "one without" if line.action == "label" else "one with"
            raise DataError(f"{where}: {line.action}: expected {what} an answer, found row {line.row:,}; get a copy")
        current.take(line.row, line.action, line.label)


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
