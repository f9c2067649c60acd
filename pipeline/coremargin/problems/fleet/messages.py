"""Descriptions of fleets: the verdict of a run, and what `coremargin show` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.models.fleet import shown
from coremargin.models.fleet_record import setting_of
from coremargin.models.user_kernel import terms_of
from coremargin.problems.common.messages import describe_maps
from coremargin.report.text import count, explain_coreset, facts, listed, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coremargin.models.fleet import FleetModel


def describe_verdict(
    fleet: FleetModel, epsilon: float, as_read: Sequence[Mapping[str, Any]] | None = None
) -> list[str]:
    """How many members are proven, and their accuracies; as_read: evaluations made while rows were read, if any."""
    statuses = [entry["status"] for entry in fleet.record["members"]]
    if set(statuses) == {"certified"}:
        models = count(len(statuses), "model")
        proven = f"certified: all {models} are proven to be within {epsilon} of the best possible."
    else:
        counts = ", ".join(
            f"{statuses.count(status):,} {status.replace('_', ' ')}" for status in dict.fromkeys(sorted(statuses))
        )
        proven = f"of {count(len(statuses), 'model')}: {counts}; epsilon {epsilon}."
    return [proven, *_describe_accuracies(fleet, as_read), *_describe_choice(fleet)]


def _describe_accuracies(fleet: FleetModel, as_read: Sequence[Mapping[str, Any]] | None = None) -> list[str]:
    """After an empty line, a table of the accuracies on held-out and on training rows for each C and gamma."""
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
        chosen = [f"{name} {shown(value)}" for name, value in record["chosen"].items() if name != "by" and value]
        lines.append(f"  {', '.join(chosen)}: the best mean accuracy on held-out rows" if chosen else "")
    return lines


def _describe_choice(fleet: FleetModel) -> list[str]:
    """What to do if there are several values of C and none is chosen."""
    return ["", fleet.choice] if fleet.choice else []


def describe_fleet(path: Path, fleet: FleetModel, made: Sequence[tuple[str, str]]) -> list[str]:
    """The fleet, the claims of its members, and their accuracies."""
    record = fleet.record
    pairs = [
        ("fleet", f"{path}, {fleet.problem}, {count(len(fleet.members), 'model')}"),
        ("status", fleet.status),
        ("classes", listed([repr(label) for label in fleet.classes])),
        ("rows", f"{fleet.rows:,} of {fleet.features:,} features, {record['dtype']}"),
        *describe_maps(fleet.row_maps),
        *([("kernel", f"a function: {terms}")] if (terms := terms_of(fleet.parameters)) else []),
        ("store", fleet.store_digest),
        ("software", ", ".join(f"{name} {version}" for name, version in record["software"].items())),
        *made,
    ]
    head = ("model", "status", "proven", "coreset")
    lines = [
        (
            entry["name"],
            entry["status"],
            "none" if entry["ratio"] is None else repr(entry["ratio"]),
            f"{entry['coreset_rows']:,}",
        )
        for entry in record["members"]
    ]
    soft, kernel = fleet.parameters.get("loss") is not None, "kernel" in fleet.parameters
    meaning = f"coreset: {'rows that carry the functions, and their proof' if kernel else explain_coreset(value=soft)}"
    return [
        *facts(pairs),
        *_describe_accuracies(fleet),
        *_describe_choice(fleet),
        "",
        *table([head, *lines]),
        "",
        meaning,
    ]
