"""A campaign on a terminal: rows shown one at a time, a key an answer; and where it stands, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from coremargin.active.asked import name_of
from coremargin.cli.printing import print_lines
from coremargin.errors import LabelError
from coremargin.report.numbers import plain_bounds
from coremargin.report.text import count, facts
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.asked import Question

SHOWN = 12  #: numbers of a row


def session(campaign: Campaign, who: str | None) -> None:
    """Ask until the campaign ends, nothing is left to ask, or somebody presses q."""
    who = name_of(who)
    waiting = campaign.ask(1, who=who, again=True)
    while question := next(iter(waiting or campaign.ask(1, who=who)), None):
        print_lines("", *_shown(question))
        if not _answered(campaign, question, who):
            return
        waiting = [one for one in campaign.ask(1, who=who, again=True) if one.row != question.row]


def _answered(campaign: Campaign, question: Question, who: str | None) -> bool:
    """Whether to go on; what was answered is on disk."""
    while True:
        classes = campaign.classes
        key = _key(classes)
        if key in ("q", "\x03", "\x04", ""):
            return False
        if key == "u":
            if not campaign.status["labels_asked"]:
                print_lines("there is no answer to take back")
                continue
            campaign.undo(who=who)
            print_lines("taken back: the last answer")
            return True
        if key == "s":
            campaign.skip(question.row, who=who)
            return True
        if key == "?":
            campaign.skip(question.row, unsure=True, who=who)
            return True
        try:
            campaign.tell([question.row], [classes[int(key) - 1] if len(classes) == 2 else key], who=who)
        except LabelError as error:
            print_lines(str(error))
            continue
        return True


def _key(classes: list[Any]) -> str:
    """One key, or a word as long as the labels are not known."""
    if len(classes) < 2:
        known = f" ({classes[0]!r} or another)" if classes else ""
        return str(click.prompt(f"label{known}, s(kip), ?, u(ndo), q(uit)", prompt_suffix=" ")).strip()
    print_lines(f"1 {classes[0]!r}   2 {classes[1]!r}   s skip   ? unsure   u undo   q quit")
    while True:
        key = click.getchar()
        if key in ("1", "2", "s", "?", "u", "q", "\x03", "\x04", ""):
            return key


def _shown(question: Question) -> list[str]:
    """A row: its number, why it is asked about, and its first numbers that are not zero."""
    row = question.features
    row = row.toarray() if hasattr(row, "toarray") else row
    values = row.reshape(-1)
    places = [int(place) for place in values.nonzero()[0][:SHOWN]] if len(values) > SHOWN else range(len(values))
    numbers = ", ".join(f"{place}: {values[place]:.6g}" for place in places)
    more = ", ..." if len(values) > SHOWN else ""
    return [f"row {question.row:,} ({question.why})", f"  {numbers}{more}"]


def status_text(found: dict[str, Any]) -> list[str]:
    """Where a campaign stands, for people."""
    lower, upper = (text or "not known" for text in plain_bounds(found["lower"], found["upper"]))
    labels = "nothing is shown yet of the rows without an answer"
    if found["error_bound"] is not None:
        labels = (
            f"at most {found['error_bound']:,} of {found['population']:,} rows without an answer are wrong, with "
            f"confidence {found['confidence']}"
        )
    pairs = [
        ("status", f"{found['status']}: {found['reason']}" if found["status"] != "running" else "running"),
        ("answers", f"{found['labels_asked']:,} of {found['rows']:,} rows, {found['draws']:,} of them drawn"),
        ("margin", f"{lower} if the rows without an answer are labelled as the model says; at most {upper}"),
        ("labels", labels),
        ("waiting", f"{count(found['awaited'], 'question')} without an answer, {found['passed']:,} passed over"),
        ("read", f"{format_size(found['bytes_read'])} in {count(found['scans'], 'scan')} and a sample"),
    ]
    if found["draws_open"]:
        pairs.append(("draws", f"{found['draws_open']:,} of attempt {found['attempt']} are still to be answered"))
    if found["contradiction"]:
        shown = ", ".join(f"{one['row']} ({one['label']!r})" for one in found["contradiction"][:8])
        pairs.append(("look at", f"rows {shown}: one of these answers is wrong, or a hyperplane is not enough"))
    if found["status"] == "certified":
        pairs.append(("check", f"coremargin verify {found['out']} {found['store']}"))
    return facts(pairs)
