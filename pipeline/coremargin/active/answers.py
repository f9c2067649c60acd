"""Answers of people, checked against open questions and earlier answers before they are written to the log."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from getpass import getuser
from typing import Any

import numpy as np

from coremargin.data.labels import checked_label, is_missing, label_from_text
from coremargin.errors import DataError, LabelError, UsageError
from coremargin.formats.answers import ACTIONS, Action
from coremargin.formats.current_answers import CurrentAnswers, fits, same
from coremargin.formats.limits import MOST_CLASSES
from coremargin.formats.model_record import different_labels
from coremargin.formats.strict_json import cut

#: Advice if a third label is no mistake.
THIRD = (
    "more classes than two are named when a campaign begins: `coremargin active start STORE --out NEW --classes A,B,C "
    "--examples OLD` takes over the answers that hold"
)
#: The reason for the end if draws find no row of a class.
LACKING = "there is a class that no answer has"


def match_label(given: Any, classes: Sequence[Any], place: str, *, named: bool = True) -> Any:
    """The campaign's label for a given value; classes: the known ones, fewer than two if others may follow.

    A text means the label that is written like it. named: whether the campaign began with named classes. Raises
    LabelError for any other label.
    """
    missing = is_missing(given)
    for label in [] if missing else classes:
        if same(given, label) or (isinstance(given, str) and given.strip() in _written(label)):
            return label
    try:
        new = None if missing else label_from_text(given) if isinstance(given, str) else checked_label(given)
    except LabelError as error:
        raise LabelError(f"{place}: {error}") from error
    known = next((label for label in classes if new is not None and same(new, label)), None)
    if known is not None:
        return known
    if new is None or not fits(new, classes):
        expected = cut(" or ".join(repr(label) for label in classes)) or "a label"
        more = "" if len(classes) != 1 else " or another of its kind"
        advice = "" if named or len(classes) < 2 else f"; {THIRD}"
        raise LabelError(f"{place}: expected {expected}{more}, found {cut(repr(given))}; correct the answer{advice}")
    return new


def named_classes(classes: Iterable[Any], place: str) -> list[Any]:
    """Labels as plain values, as files hold them; of two: (negative, positive).

    Raises LabelError.
    """
    found = [checked_label(label) for label in classes]
    if not 2 <= len(found) <= MOST_CLASSES:
        raise LabelError(
            f"{place}: classes: expected two labels, (negative, positive), or more, up to {MOST_CLASSES:,}; found "
            f"{len(found):,}; name all that there are"
        )
    try:
        different_labels(found)
    except ValueError as error:
        raise LabelError(f"{place}: classes: {error}") from error
    return found


def _written(label: Any) -> tuple[str, ...]:
    return (str(label), str(label).lower()) if isinstance(label, bool) else (str(label),)


def codes_of(labels: Mapping[int, Any], classes: Sequence[Any]) -> dict[int, int]:
    """Class codes by row."""
    places = {key_of(label): code for code, label in enumerate(classes)}
    return {row: places[key_of(label)] for row, label in labels.items()}


def counts_of(labels: Mapping[int, Any], classes: Sequence[Any]) -> list[int]:
    """How many rows have each class."""
    codes = Counter(codes_of(labels, classes).values())
    return [codes[code] for code in range(len(classes))]


def describe_missing_classes(
    classes: Sequence[Any], seen: Collection[int], number: int, answers: int, most: str = ""
) -> str:
    """The message about classes without answers; number: how many classes there are, some perhaps not yet known.

    seen: codes of the classes with answers; most: bound on the rows of other classes, from the draws.
    """
    if number == 2:
        wanted, found = "two classes", [f"all of them {cut(repr(classes[code]))}" for code in seen]
    else:
        missing = [repr(label) for code, label in enumerate(classes) if code not in seen]
        wanted, found = f"{number} classes", [f"none of them {cut(', '.join(missing))}"]
    head = ", ".join([f"expected rows of {wanted}", f"found {answers:,} answers", *found])
    other = "have another label" if number == 2 else "are labelled wrongly, and no more can have such a label"
    return f"{head}; {most} {other}" if most else head


def key_of(label: Any) -> tuple[bool, Any]:
    """Two labels are ``same`` where their keys are equal."""
    return isinstance(label, bool), label


@dataclass(frozen=True)
class Annotation:
    """One answer, as ``Campaign.answer`` takes it.

    Parameters
    ----------
    row : int
        Its number in the store.
    label : object
        The label; None where the action is not about one.
    action : {"label", "skip", "unsure", "undo", "correct"}, default "label"
        The kind of the answer.
    place : str, default ""
        Its place in a file, for messages.
    id : str, optional
        32 hexadecimal digits, of an answer that may be sent more than once.
    when : str, optional
        Time of the answer, in UTC as "2026-01-31T12:00:00Z"; None: when it is recorded.
    who : str, optional
        Name of the annotator; None: the caller's ``who``.
    """

    row: int
    label: Any
    action: Action = "label"
    place: str = ""
    id: str | None = None
    when: str | None = None
    who: str | None = None


@dataclass(frozen=True)
class AnswerContext:
    """The state that answers are checked against: current labels, classes, and rows that may be answered.

    rows: their number in the store. examples: accept answers about any row, queried or not. last: the last action by
    row.
    """

    current: CurrentAnswers
    asked: frozenset[int]
    rows: int
    examples: bool = False
    last: Mapping[int, str] = field(default_factory=dict)


def row_number(value: Any, place: str) -> int:
    """A row number from a caller. Raises DataError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise DataError(f"{place}: expected the number of a row, found {value!r}")
    return int(value)


def check_number(n: Any) -> None:
    """Raises UsageError unless n is a positive whole number."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UsageError(f"n: expected at least one row, found {n!r}")


def check_answers(given: Iterable[Annotation], known: AnswerContext) -> list[Annotation]:
    """The new answers, with labels of the campaign's classes; repeated answers are skipped.

    Raises DataError and LabelError: a row that was not queried, an unknown label, two different answers about a row, a
    change of a missing answer. Nothing is recorded then.
    """
    current, found = known.current.copy(), list[Annotation]()
    labels = current.labels
    for one in given:
        last = None if one.row in labels else known.last.get(one.row)
        if last is not None and (one.action, last) in (("undo", "undo"), ("unsure", "unsure"), ("skip", "unsure")):
            continue  # repeated, as after a kill; unsure rows are not queried again
        _check(one, labels, known)
        label = None
        if one.action in ("label", "correct"):
            classes = current.classes_without(one.row) if one.action == "correct" else current.classes
            label = match_label(one.label, classes, one.place, named=current.named)
            if one.row in labels and same(labels[one.row], label):
                continue  # so is this
            if one.action == "label" and one.row in labels:
                raise DataError(
                    f"{one.place}: row {one.row:,}: expected {labels[one.row]!r}, which it was answered with, found "
                    f"{label!r}; to change an answer, give it with the action 'correct'"
                )
        current.take(one.row, one.action, label)
        found.append(replace(one, label=label))
    return found


def _check(one: Annotation, labels: Mapping[int, Any], known: AnswerContext) -> None:
    if one.action not in ACTIONS:
        raise UsageError(f"{one.place}: action: expected one of {', '.join(ACTIONS)}, found {one.action!r}")
    if not 0 <= one.row < known.rows:
        raise DataError(f"{one.place}: expected a row from 0 to {known.rows - 1:,}, found {one.row:,}; correct it")
    if one.action in ("undo", "correct") and one.row not in labels:
        advice = "give its label with the action 'label'" if one.action == "correct" else "leave it out"
        raise DataError(
            f"{one.place}: row {one.row:,}: expected one with an answer to {one.action}, found none; {advice}"
        )
    if one.action in ("skip", "unsure") and one.row in labels:
        raise DataError(f"{one.place}: row {one.row:,} has the answer {labels[one.row]!r}; take it back with 'undo'")
    if one.row not in known.asked and one.row not in labels and not known.examples:
        raise DataError(
            f"{one.place}: row {one.row:,}: expected a row that was asked about, found one that was not; answers of "
            "other rows are examples: `coremargin active tell --examples`"
        )


def name_of(who: str | None) -> str:
    """A name in the form of the log; None: the user of this process."""
    if who is None:
        try:
            who = getuser()
        except (KeyError, OSError):  # a user without a name, as in some containers
            who = f"user {os.getuid()}"
    return who.encode("utf-8", "backslashreplace").decode("utf-8")[:200]
