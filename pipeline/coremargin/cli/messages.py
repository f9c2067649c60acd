"""What a finished job says to a person."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coremargin.problems.registry import kind_of
from coremargin.report.numbers import SCALINGS
from coremargin.report.text import count, facts, listed, reading_told
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import Outcome


def outcome_text(outcome: Outcome, job: TrainJob) -> list[str]:
    """The result, what it cost, and what to do next."""
    if outcome.found:
        head = [
            f"nothing to do: {job.out} is a finished model of this job. This is what it says of itself and its run;",
            "nothing was computed or checked now: `coremargin verify` does that.",
        ]
        return [*head, "", *outcome_text(replace(outcome, found=False), job)]
    kind = kind_of(job)
    cost = [*_cost_of(outcome.run), kind.driver_memory(outcome)]
    short = (outcome.run.get("memory") or {}).get("short")
    if short:
        cost.append(("short", short))
    if job.scaling is not None:
        cost.append(("scaled", f"{SCALINGS[job.scaling]}; the model does it by itself"))
    if job.map is not None:
        cost.append(("mapped", f"{job.map}; what is proven is about mapped rows, the model maps rows by itself"))
    since = since_told(outcome.run)
    return [*kind.verdict(outcome, job), "", *facts([*since, *cost]), "", *kind.next_steps(outcome, job)]


def since_told(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of a retrained model: from which one, and what has happened to the rows since; why it is trained from scratch."""
    about = run.get("retrained")
    if not isinstance(about, dict):
        return []
    news = [
        count(about[key], f"row {word}").replace(f"row {word}s", f"rows {word}")
        for key, word in (("rows_appended", "appended"), ("rows_changed", "with another label or weight"))
        if about.get(key)
    ]
    told = [
        ("from", f"{about.get('model')}, of {about.get('rows'):,} rows; since then {listed(news) or 'nothing new'}")
    ]
    if "from_nothing" in about:
        told.append(("anew", f"trained from scratch: {about['from_nothing']}"))
    if run.get("near_rows_lost"):
        from coremargin.formats.model_files import NEAR_ROWS

        told.append(("again", f"{NEAR_ROWS} of that model was damaged: what it held was read from the store again"))
    return told


def _kept(about: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """What lies beside the model for a later retraining, and its part of the time."""
    if not about:
        return []
    if "wanted_bytes" in about:
        wanted, most = format_size(about["wanted_bytes"]), format_size(about["most_bytes"])
        return [("kept", f"nothing for retraining: it takes {wanted}, allowed are {most} (--keep-for-retraining)")]
    if not about["bytes"]:
        return [("kept", "nothing for retraining, which will begin from scratch; --keep-for-retraining may keep more")]
    return [("kept", f"{format_size(about['bytes'])} for retraining, {format_seconds(about['seconds'])} of that time")]


def _cost_of(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a run read, how long it took and what memory it had."""
    reads = run["bytes_read"] / run["store_bytes"]
    return [
        ("read", f"{format_size(run['bytes_read'])}, {reads:.2f} times the store: {reading_told(run)}"),
        ("time", format_seconds(run["seconds"])),
        *_kept(run.get("retraining")),
        ("memory", f"{format_size(run['peak_rss_bytes'])} at most, driver and workers together"),
    ]
