"""Label rows of a campaign in a terminal: one row at a time, one key per answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
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
    import numpy as np

    from coremargin.active import Campaign
    from coremargin.active.queried_rows import Question

T = TypeVar("T")
SHOWN = 12  #: most features shown of a row
DIGITS = "123456789"
KEYS = len(DIGITS)  #: most labels with a key each; unknown labels, and those of more classes, are typed
COMMANDS = {"s": "skip", "?": "unsure", "u": "undo", "q": "quit"}
OF_STREAM = {"?": "unsure", "q": "quit"}  #: rows of a stream are gone once the next one comes


@dataclass(frozen=True)
class Label:
    """An entered label."""

    label: Any


@dataclass(frozen=True)
class Done:
    """The end of a question; back: the row whose answer was taken back instead of answering."""

    back: int | None = None


def require_terminal() -> None:
    """Raises UsageError if stdin is no terminal."""
    if not at_terminal():
        raise UsageError(
            "active label: expected a terminal, found none; use `coremargin active ask CAMPAIGN --to FILE` and "
            "`coremargin active tell CAMPAIGN FILE`"
        )


def at_terminal() -> bool:
    """Whether stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def session(campaign: Campaign, who: str | None) -> None:
    """Ask questions until the campaign ends, no question is left, or q is pressed."""
    who = name_of(who)
    waiting = when_free(lambda: campaign.ask(1, who=who, again=True))
    while question := next(iter(waiting or when_free(lambda: campaign.ask(1, who=who))), None):
        print_lines("", *_describe_question(question))
        done = _answer_question(campaign, question, who)
        if done is None:
            return
        waiting = when_free(partial(_next_questions, campaign, who, question.row, done.back))


def when_free(call: Callable[[], T]) -> T:
    """The result of a call, repeated while another process holds the campaign."""
    announced = False
    while True:
        try:
            return call()
        except Busy:
            if not announced:
                print_lines("another process works on the campaign, and may be reading the store: waiting for it")
            announced = True


def _next_questions(campaign: Campaign, who: str, shown: int, back: int | None) -> list[Question]:
    """The next questions: the row whose answer was taken back, or open ones except the one just shown."""
    with campaign.locked():
        if back is None:
            return [one for one in campaign.ask(1, who=who, again=True) if one.row != shown]
        again = [one for one in campaign.ask(1, again=True) if one.row == back]
        return again or campaign.ask(1, who=who)


def _answer_question(campaign: Campaign, question: Question, who: str) -> Done | None:
    """Ask a question, and record the answer; None ends the session."""
    row, done = question.row, False
    while not done:
        classes = when_free(lambda: campaign.classes)
        entry = _read_key(classes) if 2 <= len(classes) <= KEYS else _read_word(classes)
        if isinstance(entry, Label):
            done = _record_label(campaign, row, entry.label, classes, who)
        elif entry == "q":
            return None
        elif entry == "u":
            back = when_free(partial(_undo_last, campaign, who))
            if back is not None:
                return Done(back)
        else:
            done = when_free(partial(_skip_row, campaign, row, who, unsure=entry == "?"))
    return Done()


def _skip_row(campaign: Campaign, row: int, who: str, *, unsure: bool) -> bool:
    """Record a skip or an unsure answer, unless the row has an answer; returns True."""
    with campaign.locked():
        if not _report_other_answer(campaign, row):
            campaign.skip(row, unsure=unsure, who=who)
            if unsure:
                print_lines(f"row {row:,} is not asked about again, and nothing is claimed of it")
    return True


def _record_unless_answered(campaign: Campaign, row: int, label: Any, who: str) -> None:
    """Record a label, unless the row has another one."""
    with campaign.locked():
        if not _report_other_answer(campaign, row, label):
            campaign.tell([row], [label], who=who)


def _report_other_answer(campaign: Campaign, row: int, label: Any = None) -> bool:
    """Whether the row has another answer by now; then print it."""
    there = campaign.answer_of(row)
    if there is None or (label is not None and same(match_label(label, campaign.classes, "label"), there)):
        return False
    change = "a file with the action correct, for `coremargin active tell`, changes it"
    print_lines(f"row {row:,} was answered meanwhile: {there!r} is kept; {change}")
    return True


def _record_label(campaign: Campaign, row: int, label: Any, classes: list[Any], who: str) -> bool:
    """Record a label; returns whether it was accepted. Prints errors, and asks for confirmation of a new label."""
    try:
        if len(classes) < 2 and not _confirm_new_label(label, classes):
            return False
        when_free(partial(_record_unless_answered, campaign, row, label, who))
    except LabelError as error:
        print_lines(str(error))
        return False
    return True


def _undo_last(campaign: Campaign, who: str) -> int | None:
    """Take back the last answer of ``who``; returns its row, None without one."""
    last, found = campaign.last_answer(who), campaign.status
    if last is None:
        print_lines(f"there is no answer of {who} to take back")
        return None
    row, label = last
    if found["draws_open"] or found["draws_done"]:
        done = count(found["draws_done"], "answer")
        question = f"this ends attempt {found['attempt']} to try the model, with its {done}; take back? (y/n)"
        if not _confirm(question):
            return None
    with campaign.locked():
        if campaign.last_answer(who) != last:
            print_lines("that answer was changed meanwhile, and is kept")
            return None
        campaign.undo(row, who=who)
    print_lines(f"taken back: row {row:,} {label!r}; it is asked about again now")
    return row


def _confirm_new_label(word: str, classes: list[Any]) -> bool:
    """Whether a word is a known label, or a new one that the user confirms.

    Raises LabelError for an impossible label.
    """
    label = match_label(word, classes, "label")
    if any(same(label, known) for known in classes) or (not classes and isinstance(label, str)):
        return True
    what = "the other label" if classes else "one of the two labels"
    return _confirm(f"{label!r} is new: is it {what}? (y/n)")


def _confirm(question: str) -> bool:
    while True:
        word = _read_line(question).lower()
        if word in ("y", "yes", "n", "no", "q"):
            return word.startswith("y")


def _read_word(classes: list[Any], commands: Mapping[str, str] = COMMANDS) -> Label | str:
    """Read a label or the letter of a command; quoted text is always a label."""
    if len(classes) > KEYS:
        known = f"one of {len(classes):,} labels, such as {classes[0]!r}"
    else:
        known = f"{classes[0]!r} or the other label" if classes else "a label"
    while True:
        word = _read_line(f"type {known}, or {_listed(commands)}")
        if len(word) > 2 and word[0] == word[-1] and word[0] in "\"'":
            return Label(word[1:-1])
        if word:
            return word if word in commands else Label(word)


def _read_line(question: str) -> str:
    """Read a line; q at the end of the input."""
    print_lines(question)
    try:
        return input("> ").strip()
    except EOFError:
        return "q"


def _listed(commands: Mapping[str, str]) -> str:
    return "   ".join(f"{key} {what}" for key, what in commands.items())


def _read_key(classes: list[Any], commands: Mapping[str, str] = COMMANDS) -> Label | str:
    """Read a key: the number of a label, or the letter of a command; q at the end of the input."""
    print_lines("   ".join([*(f"{number} {label!r}" for number, label in enumerate(classes, 1)), _listed(commands)]))
    while True:
        try:
            key = click.getchar()
        except EOFError:
            return "q"
        if not key:  # the terminal is closed, and SIGHUP is ignored, as by nohup
            return "q"
        if key in commands:
            return key
        if key in DIGITS[: len(classes)]:
            return Label(classes[int(key) - 1])


def _describe_question(question: Question) -> list[str]:
    """Lines about a row: its number, why it is queried, and its first nonzero features."""
    row = question.features
    row = row.toarray() if hasattr(row, "toarray") else row
    values = row.reshape(-1)
    return [f"row {question.row:,} ({question.why})", _describe_values(values, [str(k) for k in range(len(values))])]


def _describe_values(values: np.ndarray, names: Sequence[str]) -> str:
    places = [int(place) for place in values.nonzero()[0][:SHOWN]] if len(values) > SHOWN else range(len(values))
    numbers = ", ".join(f"{names[place]}: {values[place]:.6g}" for place in places)
    return f"  {numbers}{', ...' if len(values) > SHOWN else ''}"


# Streams


def ask_about_row(row: int, values: np.ndarray, features: Sequence[str], classes: list[Any]) -> Label | None:
    """Ask for the label of a row of a stream, None of one that cannot be labelled; returns None after q.

    Keys are read from the terminal, even where rows come from standard input.
    """
    keys = 2 <= len(classes) <= KEYS
    if not keys and not at_terminal():
        raise UsageError(
            f"rows come from standard input, so answers are keys: name 2 to {KEYS} --classes, or the column of labels "
            "with --label"
        )
    print_lines("", f"row {row:,}", _describe_values(values, features))
    while True:
        try:
            entry = _read_key(classes, OF_STREAM) if keys else _read_word(classes, OF_STREAM)
        except OSError as error:  # there is no terminal
            raise UsageError(
                "a person has to be asked, and there is no terminal; name the column of labels with --label"
            ) from error
        if entry == "?":
            return Label(None)
        if not isinstance(entry, Label):
            return None
        try:
            if len(classes) >= 2 or _confirm_new_label(entry.label, classes):
                return entry
        except LabelError as error:
            print_lines(str(error))
