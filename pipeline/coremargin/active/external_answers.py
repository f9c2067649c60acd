"""Synchronise a campaign with answers in another program, such as Label Studio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from coremargin.active.answers import Annotation, match_label
from coremargin.errors import DataError, UsageError
from coremargin.formats.current_answers import same

if TYPE_CHECKING:
    from coremargin.active.log import Log
    from coremargin.active.queried_rows import AskedRow
    from coremargin.formats.answers import Line


class ExternalAnswer(NamedTuple):
    """The current answer of one person in another program.

    label: None if the row was skipped. at: when it was received, in seconds since 1970. decides: it overrides the
    answers of others.
    """

    label: Any
    who: str
    at: float
    decides: bool = False
    place: str = ""


@dataclass(frozen=True)
class RowReport:
    """All current answers about a row in another program, and the names of all who ever answered there."""

    said: Sequence[ExternalAnswer]
    names: frozenset[str]


class Conflict(NamedTuple):
    """A row on which answers disagree, with the answer of each person; the campaign keeps its answer, if any."""

    row: int
    said: tuple[tuple[str, Any], ...]


class Refusal(NamedTuple):
    """A row whose external answer was rejected, and the reason."""

    row: int
    why: str


def refuse_several(people: int | None) -> None:
    """Raises UsageError for a campaign that counts votes of several people itself."""
    if people is not None:
        raise UsageError(
            f"a campaign that asks {people} people about each row (--people) follows no other program: let them answer "
            "on the page, or begin one without --people: what people disagree about there is listed, and a ground "
            "truth decides"
        )


@dataclass
class FollowResult:
    """new: number of recorded answers. unasked: rows that were not queried; their answers wait until they are."""

    new: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    unasked: list[int] = field(default_factory=list)


class Follower:
    """Compares external answers with a log. asked: open questions."""

    def __init__(self, log: Log, asked: Iterable[AskedRow]) -> None:
        self._current = log.current
        self._last = {line.row: line for line in log.lines}
        self._open = {one.row: one.at for one in asked}

    def answer_for(self, row: int, report: RowReport) -> Annotation | Conflict | None:
        """The answer to record so that the campaign agrees with the report; None if it already does.

        Answers that were given in the campaign stay. Raises LabelError for a label that is none of the classes.
        """
        labelled = [one for one in report.said if one.label is not None]
        labelled = [one for one in labelled if one.decides] or labelled
        if not labelled:
            return self._without_label(row, report)
        first, last, there = labelled[0], self._last.get(row), row in self._current.labels
        ours = not there or (last is not None and last.who in report.names)
        classes = self._current.classes_without(row) if there and ours else self._current.classes
        labels = [match_label(one.label, classes, one.place, named=self._current.named) for one in labelled]
        if not all(same(labels[0], label) for label in labels):
            return Conflict(row, tuple((one.who, label) for one, label in zip(labelled, labels, strict=True)))
        if there and same(self._current.labels[row], labels[0]):
            return None
        if not ours and last is not None:
            return Conflict(row, ((last.who, self._current.labels[row]), (first.who, labels[0])))
        if not there and self._taken_back_here(last, labelled, report):
            return None
        return Annotation(row, labels[0], "correct" if there else "label", first.place, who=first.who)

    def _without_label(self, row: int, report: RowReport) -> Annotation | None:
        """The answer for a row that has no label there any more."""
        last = self._last.get(row)
        if row in self._current.labels:
            if last is None or last.who not in report.names:
                return None
            return Annotation(row, None, "undo", f"row {row:,}", who=last.who)
        latest = max(report.said, key=lambda one: one.at, default=None)
        if latest is None or not self._open.get(row, latest.at) < latest.at:  # skipped before it was queried again
            return None
        return Annotation(row, None, "skip", latest.place, who=latest.who)

    def _taken_back_here(self, last: Line | None, labelled: Sequence[ExternalAnswer], report: RowReport) -> bool:
        """Whether the campaign undid the answer after it was given there: then it is not recorded again."""
        if last is None or last.action != "undo" or last.who in report.names:
            return False
        return max(one.at for one in labelled) < datetime.fromisoformat(last.when).timestamp()


def sort_reports(
    follower: Follower, reports: Mapping[int, RowReport], asked: frozenset[int] | None, *, strict: bool
) -> tuple[list[Annotation], FollowResult]:
    """The answers to record, with conflicts and rejections.

    asked: rows that may be answered; None: any. strict: raise DataError for rejected answers.
    """
    given, found = list[Annotation](), FollowResult()
    for row, report in sorted(reports.items()):
        try:
            one = follower.answer_for(row, report)
        except DataError as error:
            if strict:
                raise
            found.refused.append(Refusal(row, str(error)))
            continue
        if isinstance(one, Conflict):
            found.conflicts.append(one)
        elif one is not None and asked is not None and row not in asked and not strict:
            found.unasked.append(row)
        elif one is not None:
            given.append(one)
    return given, found
