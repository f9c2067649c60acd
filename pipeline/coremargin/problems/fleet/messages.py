"""What a fleet says to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.models.brought import terms_of
from coremargin.models.fleet import shown
from coremargin.models.fleet_record import setting_of
from coremargin.problems.common.messages import describe_maps
from coremargin.report import words
from coremargin.report.text import count, facts, listed, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coremargin.models.fleet import FleetModel


def verdict(fleet: FleetModel, epsilon: float, as_read: Sequence[Mapping[str, Any]] | None = None) -> list[str]:
    """How many members are proven, and how they do together; as_read: what was counted as rows were read, if it was."""
    statuses = [entry["status"] for entry in fleet.record["members"]]
    if set(statuses) == {"certified"}:
        models = count(len(statuses), "model")
        proven = f"certified: all {models} are proven to be within {epsilon} of the best possible."
        return [proven, *_accuracies(fleet, as_read), *_undecided(fleet)]
    counts = ", ".join(
        f"{statuses.count(status):,} {status.replace('_', ' ')}" for status in dict.fromkeys(sorted(statuses))
    )
    return [
        f"of {count(len(statuses), 'model')}: {counts}; epsilon asked for {epsilon}.",
        *_accuracies(fleet, as_read),
        *_undecided(fleet),
    ]


def _accuracies(fleet: FleetModel, as_read: Sequence[Mapping[str, Any]] | None = None) -> list[str]:
    """After an empty line, one for each C: accuracy on held-out rows, and on the rows trained on."""
    record = fleet.record
    evaluations = record["evaluations"] or as_read
    if not evaluations:
        return []
    training = {setting_of(entry): entry["accuracy"] for entry in evaluations if entry["fold"] is None}
    checked = {setting_of(entry): entry for entry in record["validation"] or ()}
    when, of_gamma = "" if record["evaluations"] else " as rows were read", fleet.gammas != (None,)
    head = (
        "C",
        *(("gamma",) if of_gamma else ()),
        *(("held-out accuracy", "std") if checked else ()),
        f"training accuracy{when}",
    )
    rows = [
        (
            *(shown(value) or "none" for value in setting[: 1 + of_gamma]),
            *((f"{checked[setting]['mean']:.6f}", f"{checked[setting]['std']:.6f}") if checked else ()),
            f"{training[setting]:.6f}",
        )
        for setting in fleet.facts.settings
    ]
    lines = ["", *table([head, *rows])]
    if checked and record["chosen"] is not None:
        told = [f"{name} {shown(value)}" for name, value in record["chosen"].items() if name != "by" and value]
        lines.append(f"  {', '.join(told)}: the best mean accuracy on held-out rows" if told else "")
    return lines


def _undecided(fleet: FleetModel) -> list[str]:
    """What to do where there are several values of C, none of which is chosen."""
    return ["", fleet.choice] if fleet.choice else []


def described(path: Path, fleet: FleetModel, made: Sequence[tuple[str, str]]) -> list[str]:
    """What a fleet is, what its members claim, and how they do together."""
    record = fleet.record
    pairs = [
        ("fleet", f"{path}, {fleet.problem}, {count(len(fleet.members), 'model')}"),
        ("status", fleet.status),
        ("classes", listed([repr(label) for label in fleet.classes])),
        ("rows", f"{fleet.rows:,} of {fleet.features:,} features, {record['dtype']}"),
        *describe_maps(fleet.row_maps),
        *([("kernel", f"a function: {told}")] if (told := terms_of(fleet.parameters)) else []),
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
    soft, kernel = fleet.parameters.get("loss") is not None, "kernel" in fleet.parameters
    meaning = f"coreset: {'rows that carry the functions, and their proof' if kernel else words.coreset(value=soft)}"
    return [*facts(pairs), *_accuracies(fleet), *_undecided(fleet), "", *table([head, *lines]), "", meaning]
