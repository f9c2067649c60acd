"""What a finished fleet says to a person, and what any job has cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.cli.printing import count, facts, table
from coremargin.report.numbers import SCALINGS
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.learn.job import TrainJob
    from coremargin.learn.outcome import Outcome
    from coremargin.models.fleet import FleetModel


def cost_of(done: dict[str, Any], job: TrainJob, held: tuple[str, str]) -> list[tuple[str, str]]:
    """What a run read, how long it took, what memory it had and what it held in it, from its summary."""
    reads = done["bytes_read"] / done["store_bytes"]
    scans = count(done["scans"], "scan")
    cost = [
        ("read", f"{format_size(done['bytes_read'])}, {reads:.2f} times the store, in {scans} and a sample"),
        ("time", format_seconds(done["seconds"])),
        ("memory", f"{format_size(done['peak_rss_bytes'])} at most, driver and workers together"),
        held,
    ]
    if job.scaling is not None:
        cost.append(("scaled", f"{SCALINGS[job.scaling]}; the model does it by itself"))
    return cost


def fleet_text(outcome: Outcome, fleet: FleetModel, job: TrainJob) -> list[str]:
    """How many members are proven, how they do together, what it cost and what to do next."""
    done = outcome.summary()
    held = ("rows", f"{done['pool_rows']:,} rows are held, each once, for all models")
    next_ = [f"model   {job.out}", f"report  {job.out / 'report.html'}"]
    next_.append(f"check   coremargin verify {job.out} {job.store}")
    if outcome.resumable:
        next_.insert(2, "go on   the same command with --resume and a larger limit")
    cost = facts(cost_of(done, job, held))
    return [*_fleet_verdict(fleet, job), "", *_accuracies(fleet), *cost, "", *next_]


def _fleet_verdict(fleet: FleetModel, job: TrainJob) -> list[str]:
    words = [entry["status"] for entry in fleet.record["members"]]
    if set(words) == {"certified"}:
        models = count(len(words), "model")
        return [f"certified: all {models} are proven to be within {job.epsilon} of the best possible."]
    told = ", ".join(f"{words.count(word):,} {word.replace('_', ' ')}" for word in dict.fromkeys(sorted(words)))
    return [f"of {count(len(words), 'model')}: {told}; epsilon asked for {job.epsilon}."]


def _accuracies(fleet: FleetModel) -> list[str]:
    """A line for each C: accuracy on held-out rows, and on the rows trained on."""
    record = fleet.record
    if not record["evaluations"]:
        return []
    training = {entry["C"]: entry["accuracy"] for entry in record["evaluations"] if entry["fold"] is None}
    checked = {entry["C"]: entry for entry in record["validation"] or ()}
    head = ("C", *(("held-out accuracy", "std") if checked else ()), "training accuracy")
    rows = [
        (
            "none" if cost is None else f"{cost:g}",
            *((f"{checked[cost]['mean']:.6f}", f"{checked[cost]['std']:.6f}") if checked else ()),
            f"{training[cost]:.6f}",
        )
        for cost in fleet.costs
    ]
    lines = [*table([head, *rows]), ""]
    if checked and record["chosen"] is not None:
        cost = "" if record["chosen"]["C"] is None else f"C {record['chosen']['C']:g}: "
        lines[-1:] = [f"  {cost}the best mean accuracy on held-out rows" if cost else "", ""]
    return lines


def fleet_facts(path: Path, fleet: FleetModel, made: list[tuple[str, str]]) -> list[str]:
    """What a fleet is, what its members claim, and how they do together."""
    record = fleet.record
    pairs = [
        ("fleet", f"{path}, {fleet.problem}, {count(len(fleet.members), 'model')}"),
        ("status", fleet.status),
        ("classes", ", ".join(map(repr, fleet.classes))),
        ("rows", f"{fleet.rows:,} of {fleet.features:,} features, {record['dtype']}"),
        ("store", fleet.store_digest),
        ("software", ", ".join(f"{name} {version}" for name, version in record["software"].items())),
        *made,
    ]
    head = ("model", "status", "proven", "coreset")
    lines = [
        (entry["name"], entry["status"], "none" if entry["ratio"] is None else repr(entry["ratio"]),
         f"{entry['coreset_rows']:,}")
        for entry in record["members"]
    ]  # fmt: skip
    return [*facts(pairs), "", *_accuracies(fleet), *table([head, *lines])]
