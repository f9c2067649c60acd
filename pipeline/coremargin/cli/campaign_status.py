"""The status of a campaign as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from coremargin.formats.location import Location, storage_words
from coremargin.problems.active import describe
from coremargin.problems.active.describe import restart_command_at_once, restart_command_with_loss
from coremargin.report.numbers import plain_bounds
from coremargin.report.text import count, facts
from coremargin.spec import format_size

SHOWN = 12  #: most rows in a list


def listed(rows: Sequence[Any]) -> str:
    """The numbers of rows; of many, the first."""
    text = ", ".join(map(str, rows[:SHOWN]))
    return text if len(rows) <= SHOWN else f"{text} and {len(rows) - SHOWN:,} more"


def status_text(found: dict[str, Any]) -> list[str]:
    """The status as lines of text; found: from ``Campaign.status``."""
    ended = found["status"]
    pairs = [
        ("status", ended + ("" if ended in ("running", found["reason"]) else f": {found['reason']}")),
        ("answers", _answers(found)),
        *_bounds(found),
        *_labels_at_most(found),
        *describe.expected_pairs(found, left=_left(found)),
        *describe.evidence_pairs(found["evidence"], unsure=found["unsure"], left=_left(found)),
        ("waiting", f"{count(found['awaited'], 'question')} without an answer, {found['passed']:,} put off"),
        ("read", f"{_size(found['bytes_read'])} in {count(found['scans'], 'scan')} and a sample"),
    ]
    if found["parameters"].get("map"):
        pairs.append(("map", f"{found['parameters']['map']}: what is claimed is about mapped rows"))
    if found["people"] > 1:
        who = found["settle"] or "more people"
        rows = listed(
            [
                f"{one['row']} ({', '.join(f'{name}: {label!r}' for name, label in one['labels'].items())})"
                for one in found["conflicts"]
            ]
        )
        pairs.append(("people", f"{found['people']:,} are asked about each row"))
        pairs += [("conflicts", f"rows {rows}: {who} to settle")] if found["conflicts"] else []
    if found["draws_open"]:
        pairs.append(("draws", f"{found['draws_open']:,} of attempt {found['attempt']} are still to be answered"))
    if found["passed"] and not found["awaited"] and ended == "running":
        pairs.append(("put off", f"rows {listed(found['passed_rows'])}: a label for them may be what the proof needs"))
    if found["unsure_rows"]:
        pairs.append(("unsure", f"rows {listed(found['unsure_rows'])}: a label for one of them is taken at any time"))
    if found.get("unknown"):
        pairs.append(("unknown", f"the file has no label for rows {listed(found['unknown'])}"))
    pairs += ways_on(found)
    if ended == "certified":
        pairs.append(
            (
                "check",
                shlex.join(["coremargin", "verify", found["out"], found["store"], *storage_words(_store_of(found))]),
            )
        )
    return facts(pairs)


def _left(found: dict[str, Any]) -> int:
    """The number of rows that can still be labelled."""
    return int(found["rows"]) - int(found["labels"]) - int(found["unsure"])


def _size(read: int | None) -> str:
    return "an unknown number of bytes" if read is None else format_size(read)


def _answers(found: dict[str, Any]) -> str:
    taken_back = found["labels_asked"] - found["labels"]
    more = f", and {count(taken_back, 'label')} corrected or taken back" if taken_back else ""
    wrong = f", {found['draws_wrong']:,} of them predicted wrongly" if found["draws_wrong"] else ""
    return f"{found['labels']:,} of {found['rows']:,} rows, {found['draws']:,} of them drawn{wrong}{more}"


def _bounds(found: dict[str, Any]) -> describe.Pairs:
    """The bounds proven for the answered rows, and for the others if the model labels them correctly."""
    lower, upper = (text or "not known" for text in plain_bounds(found["lower"], found["upper"]))
    if found["contradiction"]:
        return [("margin", "no hyperplane agrees with all answers")]
    apart = len(found["classes"]) > 2 and "multi_class" not in found["parameters"]
    worst = ", of the class that is furthest from its best" if apart else ""
    if found["loss"] is not None:
        loss = f"{found['loss'].replace('_', ' ')}, C {found['C']}"
        value = f"{upper} of the rows answered, {loss}; none can be below {lower}{worst}"
        return [("value", "nothing is proven yet" if found["upper"] is None else value), _trial(found)]
    if found["upper"] is None:
        return [("margin", "nothing is proven yet")]
    return [("margin", f"{lower} if the rows without an answer are labelled as the model says; at most {upper}{worst}")]


def _labels_at_most(found: dict[str, Any]) -> describe.Pairs:
    """Lemma 4.2, before a margin is known."""
    most = found.get("labels_at_most")
    if most is None:
        return []
    cases = [
        f"{one['coreset']:,.3g} rows near the hyperplane and {one['labels']:,.3g} labels if the margin is "
        f"{one['margin']:.3g}"
        for one in most["cases"]
    ]
    return [("published", f"Lemma 4.2 allows {'; '.join(cases)}; never more than the {found['rows']:,} rows")]


def _trial(found: dict[str, Any]) -> tuple[str, str]:
    """The number of rows in a trial of a model with a loss, which people should know in advance."""
    where = "of those without an answer, or all that there are"
    each = f" {where} of each class that is predicted" if found["by_class"] else f" {where}"
    return "trial", f"draws {count(found['trial'], 'row')}{each}"


def ended(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Lines about an attempt or proof that answers have ended, by a wrongly predicted draw or otherwise."""
    if now["attempt"] == before["attempt"]:
        return []
    more = ": others will be drawn" if now["status"] == "running" else ""
    return [f"attempt {before['attempt']} to try the model has ended, its draws are answers like any other{more}"]


def _store_of(found: dict[str, Any]) -> Location:
    return Location(found["store"], found["store_options"])


def ways_on(found: dict[str, Any]) -> describe.Pairs:
    """The rows whose hulls meet, and what to do: take an answer back, or start a campaign with a loss."""
    if not found["contradiction"]:
        return []
    rows = listed([f"{one['row']} ({one['label']!r})" for one in found["contradiction"]])
    tell = f"`{shlex.join(['coremargin', 'active', 'tell', found['out'], 'FILE'])}` with row, label and action"
    about = "" if found["against_rest"] is None else f" for the class {found['against_rest']!r} against the rest"
    begin = restart_command_with_loss(
        _store_of(found), found["out"], found["parameters"], fewest=min(found["answered_by_class"], default=0)
    )
    ways = [
        ("look at", f"rows {rows}: one of these answers is wrong, or a hyperplane is not enough{about}"),
        ("take back", f"a wrong answer: {tell} undo or correct"),
    ]
    at_once = restart_command_at_once(_store_of(found), found["out"], found["parameters"])
    if found["against_rest"] is not None and at_once is not None:
        ways.append(("continue", f"with all classes at once: {at_once}"))
    return [
        *ways,
        ("continue", f"with a loss, where answers may contradict each other: {begin}"),
    ]


def nothing_to_ask(found: dict[str, Any]) -> list[str]:
    """Lines that explain why there is no question now."""
    if found["status"] != "running":
        return [f"nothing to ask: the campaign has ended ({found['reason']})", *facts(ways_on(found))]
    waiting = f"nothing to ask before others are answered: {found['awaited']:,} questions have no answer yet"
    return [f"{waiting} (`coremargin active ask --again` shows them)"]
