"""Texts of the page: why a row is queried, and what is left to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.problems.active import describe
from coremargin.report.numbers import plain_share, significant
from coremargin.report.text import count

if TYPE_CHECKING:
    from coremargin.active.status import Forecast

Status = dict[str, Any]

WHAT = {"start": "Beginning", "query": "Near the boundary", "draw": "Drawn by lot", "example": "Example"}


def reason(why: str, near: tuple[float, float] | None, status: Status) -> str:
    """Why a row is queried; near: its distance from the hyperplane, and half the width of the slab."""
    if why == "draw":
        done = status["draws_done"] + 1
        of = status["draws_done"] + status["draws_open"]
        which = f"Draw {done:,} of {of:,} of attempt {status['attempt']}. " if status["draws_open"] else ""
        return f"{which}Rows are drawn by lot from all that have no answer: they try what has been learnt so far."
    if why == "query" and near is not None:
        if near[0] < near[1]:
            far = f"It lies {significant(near[0], 2)} from the boundary, within the {significant(near[1], 2)} that"
            return f"{far} nothing is known about. Whatever its label is, it says much."
        return "It lay near the boundary when it was chosen."
    if why == "query":
        return "It lies near the boundary. Whatever its label is, it says much."
    if why == "start" and status["like"]:
        return (
            "The rows most similar to the examples come first; then, until rows of every class are known, those far "
            "from each other."
        )
    if why == "start":
        return "Until rows of every class are known, those far from each other are asked about."
    return "It was given as an example before."


def facts(status: Status, left: Forecast, waiting: int) -> list[list[str]]:
    """The status of a campaign as (name, value, more); waiting: answers that are not in its log yet."""
    asked = status["labels"] + waiting
    found = [["Answers", f"{asked:,}", f"of {status['rows']:,} rows"]]
    expected = f"about {left.total:,}" if left.near else f"{left.total:,}"
    if status["status"] == "running":
        parts = [f"{left.near:,} near the boundary"] if left.near else []
        parts += [f"{left.draws:,} drawn by lot"] if left.draws else []
        found.append(["Still to come", expected, ", ".join(parts) + (", if none is wrong" if left.draws else "")])
    left_rows = status["rows"] - status["labels"] - status["unsure"]
    warnings = [text for name, text in describe.expected_pairs(status, left=left_rows) if name == "warning"]
    found += [["Warning", "nearly all rows", text] for text in warnings]
    found.append(_wrong(status))
    margin = _margin(status)
    return found if margin is None else [*found, margin]


def _wrong(status: Status) -> list[str]:
    """The bound on wrong labels of rows without an answer."""
    evidence = status["evidence"]
    if evidence is None:
        wanted = f"asked for: at most {significant(100 * status['parameters']['error'], 3)} %"
        return ["Wrong labels", "not known yet", wanted]
    shown = describe.wrong_rows(evidence, unsure=status["unsure"])
    return ["Wrong labels", shown, f"confidence {status['confidence']}"]


def _margin(status: Status) -> list[str] | None:
    """The proven share of the best margin; nothing with a loss."""
    if status["loss"] is not None or status["upper"] is None:
        return None
    if not status["ratio"]:
        return ["Margin", "not known yet", "all rows are looked at before it is"]
    return ["Margin", f"{plain_share(status['ratio'])} of the best", "proven, if no label is wrong"]


def ended(status: Status) -> str | None:
    """The text at the end of a campaign; None while it runs."""
    if status["status"] == "certified":
        evidence = status["evidence"]
        shown = describe.no_draws_text(status["rows"] - status["labels"] - status["unsure"])
        if evidence is not None:
            shown = (
                f"{describe.wrong_rows(evidence, unsure=status['unsure'])} of the {describe.population_text(evidence)}"
            )
            shown += f" are labelled wrongly, with confidence {status['confidence']}"
        return f"All that was asked for is proven by {count(status['labels'], 'answer')}: {shown}."
    if status["contradiction"]:
        rows = ", ".join(f"{one['row']} ({one['label']})" for one in status["contradiction"][: describe.SHOWN])
        return f"These answers contradict each other, or no boundary is straight enough: rows {rows}. {_advice(status)}"
    return None if status["status"] == "running" else f"The campaign has ended: {status['reason']}."


def _advice(status: Status) -> str:
    return f"Take a wrong one back, or let answers contradict each other: `coremargin active status {status['out']}`"
