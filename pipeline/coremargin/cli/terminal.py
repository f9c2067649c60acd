"""A campaign on a terminal: rows shown one at a time, a key an answer; and where it stands, in words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from coremargin.active.answers import match_label, name_of
from coremargin.cli.printing import print_lines
from coremargin.errors import Busy, LabelError, UsageError
from coremargin.formats.current_answers import same
from coremargin.report.text import count

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.queried_rows import Question

T = TypeVar("T")
SHOWN = 12  #: numbers of a row
DIGITS = "123456789"
KEYS = len(DIGITS)  #: labels that have a key; of more, and of one that is not known yet, labels are typed
COMMANDS = "s skip   ? unsure   u undo   q quit"
LETTERS = ("s", "?", "u", "q")


@dataclass(frozen=True)
class Label:
    """What somebody has answered: a key or a word."""

    label: Any


@dataclass(frozen=True)
class Done:
    """A question is over; back: the row whose answer was taken back instead."""

    back: int | None = None


def require_terminal() -> None:
    """Raises UsageError where there is no terminal whose keys could be read."""
    if not at_terminal():
        raise UsageError(
            "active label: expected a terminal, found none; use `coremargin active ask CAMPAIGN --to FILE` and "
            "`coremargin active tell CAMPAIGN FILE`"
        )


def at_terminal() -> bool:
    """Whether somebody can press keys."""
    return sys.stdin is not None and sys.stdin.isatty()


def session(campaign: Campaign, who: str | None) -> None:
    """Ask until the campaign ends, nothing is left to ask, or somebody presses q."""
    who = name_of(who)
    waiting = when_free(lambda: campaign.ask(1, who=who, again=True))
    while question := next(iter(waiting or when_free(lambda: campaign.ask(1, who=who))), None):
        print_lines("", *_shown(question))
        done = _answered(campaign, question, who)
        if done is None:
            return
        waiting = when_free(partial(_waiting, campaign, who, question.row, done.back))


def when_free(call: Callable[[], T]) -> T:
    """What a call gives, tried again as long as another process works on the campaign."""
    said = False
    while True:
        try:
            return call()
        except Busy:
            if not said:
                print_lines("another process works on the campaign, and may be reading the store: waiting for it")
            said = True


def _waiting(campaign: Campaign, who: str, shown: int, back: int | None) -> list[Question]:
    """Questions to show next: the row whose answer was taken back, or those that wait, without the one just shown."""
    with campaign.locked():
        if back is None:
            return [one for one in campaign.ask(1, who=who, again=True) if one.row != shown]
        again = [one for one in campaign.ask(1, again=True) if one.row == back]
        return again or campaign.ask(1, who=who)


def _answered(campaign: Campaign, question: Question, who: str) -> Done | None:
    """How a question ends, None: the session does; what was answered is on disk."""
    row, done = question.row, False
    while not done:
        classes = when_free(lambda: campaign.classes)
        said = _key(classes) if 2 <= len(classes) <= KEYS else _word(classes)
        if isinstance(said, Label):
            done = _told(campaign, row, said.label, classes, who)
        elif said == "q":
            return None
        elif said == "u":
            back = when_free(partial(_undone, campaign, who))
            if back is not None:
                return Done(back)
        else:
            done = when_free(partial(_passed, campaign, row, who, unsure=said == "?"))
    return Done()


def _passed(campaign: Campaign, row: int, who: str, *, unsure: bool) -> bool:
    """Put a row off, or say that nobody can tell, unless somebody has; True: either way it is over."""
    with campaign.locked():
        if not _known(campaign, row):
            campaign.skip(row, unsure=unsure, who=who)
            if unsure:
                print_lines(f"row {row:,} is not asked about again, and nothing is claimed of it")
    return True


def _given(campaign: Campaign, row: int, label: Any, who: str) -> None:
    """Take an answer, unless somebody has given another one."""
    with campaign.locked():
        if not _known(campaign, row, label):
            campaign.tell([row], [label], who=who)


def _known(campaign: Campaign, row: int, label: Any = None) -> bool:
    """Whether a row that is shown has an answer that is not the one given here, which is said."""
    there = campaign.answer_of(row)
    if there is None or (label is not None and same(match_label(label, campaign.classes, "label"), there)):
        return False
    change = "a file with the action correct, for `coremargin active tell`, changes it"
    print_lines(f"row {row:,} was answered meanwhile: {there!r}, which stays; {change}")
    return True


def _told(campaign: Campaign, row: int, label: Any, classes: list[Any], who: str) -> bool:
    """Whether an answer was taken; what cannot be one is said, and a label that is new is asked about."""
    try:
        if len(classes) < 2 and not _is_meant(label, classes):
            return False
        when_free(partial(_given, campaign, row, label, who))
    except LabelError as error:
        print_lines(str(error))
        return False
    return True


def _undone(campaign: Campaign, who: str) -> int | None:
    """Take back what was answered last by the person here; its row, None where nothing was."""
    last, found = campaign.last_answer(who), campaign.status
    if last is None:
        print_lines(f"there is no answer of {who} to take back")
        return None
    row, label = last
    if found["draws_open"] or found["draws_done"]:
        done = count(found["draws_done"], "answer")
        question = f"this ends attempt {found['attempt']} to try the model, with its {done}; take back? (y/n)"
        if not _yes(question):
            return None
    with campaign.locked():
        if campaign.last_answer(who) != last:
            print_lines("somebody has changed that answer meanwhile: it stays as it is")
            return None
        campaign.undo(row, who=who)
    print_lines(f"taken back: row {row:,} {label!r}; it is asked about again now")
    return row


def _is_meant(word: str, classes: list[Any]) -> bool:
    """Whether a word is a label that is known, or one that somebody who was asked once more says is one.

    Raises LabelError for a word that is none.
    """
    label = match_label(word, classes, "label")
    if any(same(label, known) for known in classes) or (not classes and isinstance(label, str)):
        return True
    what = "the other label" if classes else "one of the two labels"
    return _yes(f"{label!r} is new: is it {what}? (y/n)")


def _yes(question: str) -> bool:
    while True:
        word = _line(question).lower()
        if word in ("y", "yes", "n", "no", "q"):
            return word.startswith("y")


def _word(classes: list[Any]) -> Label | str:
    """A label that is typed, or a letter of what else can be done; in quotes it is a label whatever it is."""
    if len(classes) > KEYS:
        known = f"one of {len(classes):,} labels, such as {classes[0]!r}"
    else:
        known = f"{classes[0]!r} or the other label" if classes else "a label"
    while True:
        word = _line(f"type {known}, or {COMMANDS}")
        if len(word) > 2 and word[0] == word[-1] and word[0] in "\"'":
            return Label(word[1:-1])
        if word:
            return word if word in LETTERS else Label(word)


def _line(question: str) -> str:
    """A line that somebody types; q at the end of the input."""
    print_lines(question)
    try:
        return input("> ").strip()
    except EOFError:
        return "q"


def _key(classes: list[Any]) -> Label | str:
    """One key: a label's number, or a letter of what else can be done; q at the end of the input."""
    print_lines("   ".join([*(f"{number} {label!r}" for number, label in enumerate(classes, 1)), COMMANDS]))
    while True:
        try:
            key = click.getchar()
        except EOFError:
            return "q"
        if not key:  # the terminal is gone, and its signal is ignored, as by nohup
            return "q"
        if key in LETTERS:
            return key
        if key in DIGITS[: len(classes)]:
            return Label(classes[int(key) - 1])


def _shown(question: Question) -> list[str]:
    """A row: its number, why it is asked about, and its first numbers that are not zero."""
    row = question.features
    row = row.toarray() if hasattr(row, "toarray") else row
    values = row.reshape(-1)
    places = [int(place) for place in values.nonzero()[0][:SHOWN]] if len(values) > SHOWN else range(len(values))
    numbers = ", ".join(f"{place}: {values[place]:.6g}" for place in places)
    more = ", ..." if len(values) > SHOWN else ""
    return [f"row {question.row:,} ({question.why})", f"  {numbers}{more}"]
