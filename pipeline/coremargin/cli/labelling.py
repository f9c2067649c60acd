"""A campaign on a terminal: rows shown one at a time, a key an answer; and where it stands, in words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from coremargin.active.asked import name_of
from coremargin.active.labels import meant
from coremargin.cli.printing import print_lines
from coremargin.errors import Busy, LabelError, UsageError
from coremargin.formats.answers import same
from coremargin.report.numbers import plain_bounds
from coremargin.report.text import count, facts
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.asked import Question

T = TypeVar("T")
SHOWN = 12  #: numbers of a row, rows of a list


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
        if not _answered(campaign, question, who):
            return
        waiting = [one for one in when_free(lambda: campaign.ask(1, who=who, again=True)) if one.row != question.row]


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


def _answered(campaign: Campaign, question: Question, who: str) -> bool:
    """Whether to go on; what was answered is on disk."""
    while True:
        classes = when_free(lambda: campaign.classes)
        key = _key(classes) if len(classes) == 2 else _word(classes)
        if key == "q":
            return False
        if key == "u":
            done = when_free(partial(_undone, campaign, who))
        elif key in ("s", "?"):
            done = bool(when_free(partial(campaign.skip, question.row, unsure=key == "?", who=who)))
            if key == "?":
                print_lines(f"row {question.row:,} is not asked about again; while it has no label the proof may fail")
        else:
            label = classes[int(key) - 1] if len(classes) == 2 else key
            done = _told(campaign, question.row, label, classes, who)
        if done:
            return True


def _told(campaign: Campaign, row: int, label: Any, classes: list[Any], who: str) -> bool:
    """Whether an answer was taken; what cannot be one is said, and a label that is new is asked about."""
    try:
        if len(classes) < 2 and not _is_meant(label, classes):
            return False
        when_free(partial(campaign.tell, [row], [label], who=who))
    except LabelError as error:
        print_lines(str(error))
        return False
    return True


def _undone(campaign: Campaign, who: str) -> bool:
    """Take back what was answered last by the person here; False where nothing was."""
    last, found = campaign.last_answer(who), campaign.status
    if last is None:
        print_lines(f"there is no answer of {who} to take back")
        return False
    row, label = last
    if found["draws_open"]:
        done = count(found["draws_done"], "answer")
        question = f"this ends attempt {found['attempt']} to try the model, with its {done}; take back? (y/n)"
        if not _yes(question):
            return False
    with campaign.held():
        if campaign.last_answer(who) != last:
            print_lines("somebody has changed that answer meanwhile: it stays as it is")
            return False
        campaign.undo(row, who=who)
    print_lines(f"taken back: row {row:,} {label!r}")
    return True


def _is_meant(word: str, classes: list[Any]) -> bool:
    """Whether a word is a label that is known, or one that somebody who was asked once more says is one.

    Raises LabelError for a word that is none.
    """
    label = meant(word, classes, "label")
    if any(same(label, known) for known in classes) or (not classes and isinstance(label, str)):
        return True
    what = "the other label" if classes else "one of the two labels"
    return _yes(f"{label!r} is new: is it {what}? (y/n)")


def _yes(question: str) -> bool:
    while True:
        word = _line(question).lower()
        if word in ("y", "yes", "n", "no", "q"):
            return word.startswith("y")


def _word(classes: list[Any]) -> str:
    """A word, as long as the two labels are not known."""
    known = f"{classes[0]!r} or the other label" if classes else "a label"
    while True:
        word = _line(f"type {known}, or s skip   ? unsure   u undo   q quit")
        if word:
            return word


def _line(question: str) -> str:
    """A line that somebody types; q at the end of the input."""
    print_lines(question)
    try:
        return input("> ").strip()
    except EOFError:
        return "q"


def _key(classes: list[Any]) -> str:
    """One key; q at the end of the input."""
    print_lines(f"1 {classes[0]!r}   2 {classes[1]!r}   s skip   ? unsure   u undo   q quit")
    while True:
        try:
            key = click.getchar()
        except EOFError:
            return "q"
        if key in ("1", "2", "s", "?", "u", "q"):
            return key
        if not key:  # the terminal is gone, and its signal is ignored, as by nohup
            return "q"


def _shown(question: Question) -> list[str]:
    """A row: its number, why it is asked about, and its first numbers that are not zero."""
    row = question.features
    row = row.toarray() if hasattr(row, "toarray") else row
    values = row.reshape(-1)
    places = [int(place) for place in values.nonzero()[0][:SHOWN]] if len(values) > SHOWN else range(len(values))
    numbers = ", ".join(f"{place}: {values[place]:.6g}" for place in places)
    more = ", ..." if len(values) > SHOWN else ""
    return [f"row {question.row:,} ({question.why})", f"  {numbers}{more}"]


def listed(rows: Sequence[int]) -> str:
    """The numbers of rows, the first of them where there are many."""
    text = ", ".join(map(str, rows[:SHOWN]))
    return text if len(rows) <= SHOWN else f"{text} and {len(rows) - SHOWN:,} more"


def status_text(found: dict[str, Any]) -> list[str]:
    """Where a campaign stands, for people."""
    lower, upper = (text or "not known" for text in plain_bounds(found["lower"], found["upper"]))
    labels = "nothing is shown yet of the rows without an answer"
    if found["error_bound"] is not None:
        labels = (
            f"at most {found['error_bound']:,} of {found['population']:,} rows without an answer are wrong, with "
            f"confidence {found['confidence']}"
        )
    said = found["status"]
    taken_back = found["labels_asked"] - found["labels"]
    more = f", and {count(taken_back, 'label')} corrected or taken back" if taken_back else ""
    pairs = [
        ("status", said + ("" if said in ("running", found["reason"]) else f": {found['reason']}")),
        ("answers", f"{found['labels']:,} of {found['rows']:,} rows, {found['draws']:,} of them drawn{more}"),
        ("margin", f"{lower} if the rows without an answer are labelled as the model says; at most {upper}"),
        ("labels", labels),
        ("waiting", f"{count(found['awaited'], 'question')} without an answer, {found['passed']:,} passed over"),
        ("read", f"{format_size(found['bytes_read'])} in {count(found['scans'], 'scan')} and a sample"),
    ]
    if found["draws_open"]:
        pairs.append(("draws", f"{found['draws_open']:,} of attempt {found['attempt']} are still to be answered"))
    if found["passed"] and not found["awaited"] and found["status"] == "running":
        pairs.append(("passed", f"rows {listed(found['passed_rows'])}: a label for them may be what the proof needs"))
    if found.get("unknown"):
        pairs.append(("unknown", f"the file has no label for rows {listed(found['unknown'])}"))
    if found["contradiction"]:
        shown = ", ".join(f"{one['row']} ({one['label']!r})" for one in found["contradiction"][:8])
        pairs.append(("look at", f"rows {shown}: one of these answers is wrong, or a hyperplane is not enough"))
    if found["status"] == "certified":
        pairs.append(("check", f"coremargin verify {found['out']} {found['store']}"))
    return facts(pairs)
