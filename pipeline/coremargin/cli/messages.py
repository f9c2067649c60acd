"""The result of a training, for a terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coremargin.problems.registry import kind_of
from coremargin.report.numbers import SCALINGS
from coremargin.report.text import count, describe_reading, facts, listed
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import Outcome


def describe_outcome(outcome: Outcome, job: TrainJob) -> list[str]:
    """Result, cost and next steps."""
    if outcome.found:
        head = [
            f"nothing to do: {job.out} is the finished model of this job. This is its record; nothing was computed or",
            "checked now. `coremargin verify` checks it.",
        ]
        return [*head, "", *describe_outcome(replace(outcome, found=False), job)]
    kind = kind_of(job)
    cost = [*_describe_cost(outcome.run), kind.driver_memory(outcome)]
    short = (outcome.run.get("memory") or {}).get("short")
    if short:
        cost.append(("short", short))
    if job.scaling is not None:
        cost.append(("scaled", f"{SCALINGS[job.scaling]}; part of the model{_describe_scaling_read(outcome.run)}"))
    if job.map is not None:
        cost.append(("mapped", f"{job.map}; part of the model; the proof is about mapped rows"))
    return [
        *kind.verdict(outcome, job),
        "",
        *facts([*describe_changes(outcome.run), *cost, *kind.describe_published(outcome)]),
        "",
        *kind.next_steps(outcome, job),
    ]


def _describe_scaling_read(run: Mapping[str, Any]) -> str:
    """What finding out how rows are scaled has cost; "" if that took no read."""
    cost = run.get("scaling")
    if not isinstance(cost, dict):
        return ""
    if cost.get("kept"):
        return ", that of the earlier model"
    return f", found in {format_seconds(cost['seconds'])} before the training"


def describe_changes(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of a retrained model: the earlier model, changes of the rows, and why it was trained from scratch."""
    retrained = run.get("retrained")
    if not isinstance(retrained, dict):
        return []
    changes = [
        count(retrained[key], f"row {change}").replace(f"row {change}s", f"rows {change}")
        for key, change in (("rows_appended", "appended"), ("rows_changed", "with another label or weight"))
        if retrained.get(key)
    ]
    news = listed(changes) or "nothing new"
    lines = [("from", f"{retrained.get('model')}, of {retrained.get('rows'):,} rows; since then {news}")]
    if "from_scratch" in retrained:
        lines.append(("trained", f"from scratch: {retrained['from_scratch']}"))
    if run.get("near_rows_lost"):
        from coremargin.formats.model_files import NEAR_ROWS

        lines.append(("re-read", f"{NEAR_ROWS} of that model was damaged: its rows were read from the store"))
    return lines


def _describe_state(state: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Size and time of the warm-start state."""
    if not state:
        return []
    if "wanted_bytes" in state:
        wanted, most = format_size(state["wanted_bytes"]), format_size(state["most_bytes"])
        return [("state", f"none for retraining: it needs {wanted}, allowed are {most} (--keep-for-retraining)")]
    if not state["bytes"]:
        return [("state", "none, so that retraining starts from scratch; --keep-for-retraining may allow more")]
    return [("state", f"{format_size(state['bytes'])} for retraining, {format_seconds(state['seconds'])} of that time")]


def _describe_cost(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    reads = run["bytes_read"] / run["store_bytes"]
    return [
        ("read", f"{format_size(run['bytes_read'])}, {reads:.2f} times the store: {describe_reading(run)}"),
        ("time", format_seconds(run["seconds"])),
        *_describe_state(run.get("retraining")),
        ("memory", f"{format_size(run['peak_rss_bytes'])} at most, driver and workers together"),
    ]
