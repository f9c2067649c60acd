"""Answers as people give them, checked against what was asked and known, before a line of them is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coremargin.active.labels import meant
from coremargin.errors import DataError, UsageError
from coremargin.formats.answers import ACTIONS, Action
from coremargin.formats.current_answers import Held, same


@dataclass(frozen=True)
class Given:
    """One answer as it was given: what ``Campaign.answer`` takes.

    Parameters
    ----------
    row : int
        Its number in the store.
    label : object
        The label; None where the action is not about one.
    action : {"label", "skip", "unsure", "undo", "correct"}, default "label"
        What is said of the row.
    place : str, default ""
        Where it stands, for messages.
    id : str, optional
        32 hexadecimal digits, of an answer that may be sent more than once.
    when : str, optional
        When it was given, in UTC as "2026-01-31T12:00:00Z"; None: when it is taken.
    who : str, optional
        Who gives it; None: whoever tells it.
    """

    row: int
    label: Any
    action: Action = "label"
    place: str = ""
    id: str | None = None
    when: str | None = None
    who: str | None = None


@dataclass(frozen=True)
class Known:
    """What answers are checked against: labels that hold with their classes, and rows that may be answered.

    rows: of the store. examples: answers of any row are taken, whether it was asked about or not. last: what was said
    of rows last.
    """

    held: Held
    asked: frozenset[int]
    rows: int
    examples: bool = False
    last: Mapping[int, str] = field(default_factory=dict)


def row_number(value: Any, place: str) -> int:
    """The number of a row, as somebody gives it. Raises DataError for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise DataError(f"{place}: expected the number of a row, found {value!r}")
    return int(value)


def check_number(n: Any) -> None:
    """Raises UsageError for what is no number of rows to ask about."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UsageError(f"n: expected at least one row, found {n!r}")


def taken(given: Iterable[Given], known: Known) -> list[Given]:
    """Those that say something new, with the labels that are meant; the same answer twice is no error.

    Raises DataError and LabelError: a row that was not asked about, an unknown label, two answers for a row that
    differ, a change of an answer that there is not. Nothing is taken then.
    """
    held, found = known.held.copy(), list[Given]()
    labels = held.labels
    for one in given:
        last = None if one.row in labels else known.last.get(one.row)
        if last is not None and (one.action, last) in (("undo", "undo"), ("unsure", "unsure"), ("skip", "unsure")):
            continue  # told twice, as after a kill; and a row that nobody can label waits for nobody
        _check(one, labels, known)
        label = None
        if one.action in ("label", "correct"):
            classes = held.beside(one.row) if one.action == "correct" else held.classes
            label = meant(one.label, classes, one.place, named=held.named)
            if one.row in labels and same(labels[one.row], label):
                continue  # so is this
            if one.action == "label" and one.row in labels:
                raise DataError(
                    f"{one.place}: row {one.row:,}: expected {labels[one.row]!r}, which it was answered with, found "
                    f"{label!r}; to change an answer, give it with the action 'correct'"
                )
        held.take(one.row, one.action, label)
        found.append(replace(one, label=label))
    return found


def _check(one: Given, labels: Mapping[int, Any], known: Known) -> None:
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
