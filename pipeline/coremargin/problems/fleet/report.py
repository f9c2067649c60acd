"""The page of a fleet: the choice of C, the accuracy of each class, the proof of each model, the costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from markupsafe import Markup

from coremargin.formats.fleet_record import FILE, Evaluation
from coremargin.models.fleet import choice_of
from coremargin.models.fleet_record import setting_of
from coremargin.models.user_kernel import terms_of, with_function
from coremargin.problems.common.report import influence_of
from coremargin.problems.hard.generalization import read_fleet_generalization, vacuous_from
from coremargin.report import charts, numbers, page, rounds, svg
from coremargin.report.charts import RoundAxis
from coremargin.report.confusion import by_class, confusions, matrix_lines, share
from coremargin.report.numbers import count, finite, magnitude, power_of_ten, significant
from coremargin.report.svg import Frame, Scale
from coremargin.report.view import view as common_view

if TYPE_CHECKING:
    from coremargin.formats.fleet_record import Setting
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column

MEMBERS_SHOWN = 300  #: rows of the table of models


def page_of(folder: Path, name: str) -> str:
    """The page of a fleet's folder. Raises DataError if it holds no readable fleet."""
    fleet, run, records = page.read_folder(folder, FILE)
    kernel = fleet["problem"] == "kernel"
    influence = None if kernel else influence_of(folder, fleet, name, _chosen(fleet)[0])
    return render(fleet, run, records, name=name, influence=influence)


def _settings(fleet: Json) -> list[Setting]:
    return list(dict.fromkeys(setting_of(member) for member in fleet["members"]))


def _chosen(fleet: Json) -> Setting:
    """The C and gamma of the page: the chosen ones, or the last."""
    return setting_of(fleet["chosen"]) if fleet["chosen"] else _settings(fleet)[-1]


def render(
    fleet: Json, run: Json, records: Sequence[Json], *, name: str = "FLEET", influence: Json | None = None
) -> str:
    """The page as text, from ``fleet.json``, ``run.json`` and ``rounds.jsonl``.

    name: as in report/view.py; influence: as common/report.py makes it.
    """
    view = common_view(fleet, run, records, _columns(), name)
    labels, settings, chosen = view["classes"], _settings(fleet), _chosen(fleet)
    costs, gammas = ([one for one in dict.fromkeys(own) if one is not None] for own in zip(*settings, strict=True))
    confusion, held_out = _confusion_at(fleet["evaluations"] or _as_read(run, len(labels)), chosen)
    statuses = [member["status"] for member in fleet["members"]]
    bound = view["parameters"].get("relative_margin")
    view |= {
        "soft": view["parameters"].get("loss") is not None,
        "within": "" if bound is None else f" with decision values from \u2212{bound:g} to {bound:g}",
        "costs": costs,
        "gammas": gammas,
        "chosen": chosen[0],
        "chosen_gamma": chosen[1],
        "was_chosen": fleet["chosen"],
        "validation": fleet["validation"],
        "risks": fleet.get("risk"),
        "best": next((row for row in fleet["validation"] or () if setting_of(row) == chosen), None),
        "certified": statuses.count("certified"),
        "stopped": statuses.count("stopped"),
        "inseparable": statuses.count("not_separable"),
        "count": len(statuses),
        "folds": view["parameters"].get("folds") or 0,
        "held_out": held_out,
        "accuracy": share(confusion),
        "as_read": not fleet["evaluations"] and confusion is not None,
        "confusion": matrix_lines(confusion, labels),
        "confusions": confusions(confusion, labels),
        "by_class": _by_class(fleet, chosen, confusion, labels),
        "one_against_rest": len(labels) > 2,
        "kernel": view["parameters"].get("kernel"),
        "terms": terms_of(view["parameters"]),
        "commands": with_function(view["commands"], view["parameters"]),
        "members": _members(fleet),
        "kkt": run.get("kkt") or {},
        "charts": _charts(fleet, run, records),
        "influence": influence,
        "generalization": read_fleet_generalization(run),
        "vacuous_from": vacuous_from,
        "choice": choice_of(
            settings,
            chosen if fleet["chosen"] else (None, None),
            ended="stopped" not in statuses and "kernel" in view["parameters"],
            chooses=bool(view["parameters"].get("folds")) or view["parameters"].get("choose") == "risk",
        ),
    }
    return page.template("problems/fleet/report.html.j2").render(view)


def _columns() -> tuple[Column, ...]:
    done = rounds.counted("Certified", "members_certified")
    worst = rounds.Column("Largest gap", _worst_member, is_text=True)
    running = rounds.Column("Running", _running_members)
    return (rounds.NUMBER, rounds.KIND, done, running, worst, rounds.gap("Gap"), *rounds.COSTS)


def _worst_member(row: Json) -> Markup:
    return Markup("<code>{}</code>").format(row.get("worst") or numbers.DASH)


def _running_members(row: Json) -> str:
    members, done = finite(row.get("members")), finite(row.get("members_done"))
    return numbers.DASH if members is None or done is None else count(members - done)


def _as_read(run: Json, classes: int) -> Sequence[Json]:
    """Evaluations made while rows were read, if the run has valid ones: confusion matrices (classes, classes)."""
    found = run.get("as_read") or []
    try:
        entries = msgspec.convert(found, list[Evaluation])
    except msgspec.ValidationError:
        return ()
    return found if all(np.shape(entry.confusion) == (classes, classes) for entry in entries) else ()


def _confusion_at(evaluations: Sequence[Json], one: Setting) -> tuple[np.ndarray | None, bool]:
    """Confusion matrix (k, k) at a C and gamma: of the held-out rows (True) of all folds, or of training rows."""
    mine = [entry for entry in evaluations if setting_of(entry) == one]
    folds = [np.array(entry["confusion"]) for entry in mine if entry["fold"] is not None]
    if folds:
        return np.sum(folds, axis=0), True
    return (np.array(mine[0]["confusion"]), False) if mine else (None, False)


def _deciders(fleet: Json, one: Setting) -> list[Json]:
    """The members with this C and gamma that are trained on all rows."""
    return [member for member in fleet["members"] if member["fold"] is None and setting_of(member) == one]


def _by_class(fleet: Json, one: Setting, matrix: np.ndarray | None, labels: Sequence[str]) -> list[dict[str, Any]]:
    """For each class the bounds of its model and the accuracy on its rows."""
    members = _deciders(fleet, one)
    accuracies = by_class(matrix, labels) or [{"label": label} for label in labels]
    if len(members) != len(labels):
        return accuracies
    digits = [numbers.precision_for(member["lower"], member["upper"]) for member in members]
    return [
        line | {"member": member, "precision": precision}
        for line, member, precision in zip(accuracies, members, digits, strict=True)
    ]


def _members(fleet: Json) -> list[Mapping[str, Any]]:
    """The table of models: those without a proof first, then by their gaps."""
    listed = sorted(fleet["members"], key=lambda m: (m["status"] == "certified", -(numbers.relative_gap(m) or 0.0)))
    return [
        {**member, "precision": numbers.precision_for(member["lower"], member["upper"])}
        for member in listed[:MEMBERS_SHOWN]
    ]


def _charts(fleet: Json, run: Json, records: Sequence[Json]) -> dict[str, Markup | None]:
    found: dict[str, Markup | None] = {"curve": None, "certified": None, "bytes": charts.reading(records, run)}
    cost, gamma = _chosen(fleet)  # the curve is of C, at the gamma that was chosen
    table = [row for row in fleet["validation"] or () if row.get("gamma") == gamma]
    if len(table) > 1 and cost is not None:
        mine = [entry for entry in fleet["evaluations"] if entry["fold"] is None and entry.get("gamma") == gamma]
        trained, chosen = {entry["C"]: entry["accuracy"] for entry in mine}, cost if fleet["chosen"] else None
        found["curve"] = charts.drawings(charts.FULL, partial(accuracy_curve, table, trained, chosen))
    if records:
        found["certified"] = charts.drawings(charts.HALF, partial(certified_bars, records))
    return found


# Charts


def _percent(accuracy: float) -> str:
    return f"{100.0 * accuracy:.2f}\u00a0%"


def accuracy_curve(table: Sequence[Json], trained: Mapping[float, float], chosen: float | None, width: int) -> Markup:
    """Accuracy on held-out rows against C: each fold, the mean and its standard deviation; and on training rows."""
    frame, scale, across, grid = _plane(table, trained, width)
    costs = [row["C"] for row in table]
    parts = [svg.text(2, 12, "rows classified correctly", "axis-name", "start"), grid]
    if chosen is not None:
        at = across(chosen)
        parts += [
            svg.line(at, frame.top, at, frame.height - frame.bottom, "mark-goal"),
            svg.text(at, frame.top - 6, f"chosen: C = {significant(chosen)}", "note"),
        ]
    parts += _series(table, trained, scale, across)
    parts.append(svg.bottom_axis(frame, _cost_marks(costs, across), "C (log scale)"))
    best = max(table, key=lambda row: float(row["mean"]))
    description = f"Best mean accuracy on held-out rows: {_percent(best['mean'])} at C = {significant(best['C'])}."
    return svg.drawing("curve", frame, "Accuracy on held-out rows against C", description, parts)


def _plane(table: Sequence[Json], trained: Mapping[float, float], width: int) -> tuple[Frame, Scale, Scale, Markup]:
    """The frame, accuracy upwards, C across, and the grid."""
    spread = [row["mean"] + sign * row["std"] for row in table for sign in (-1, 1)]
    low, high = svg.padded([*spread, *(a for row in table for a in row["accuracies"]), *trained.values()])
    low, high = max(low, 0.0), min(high, 1.0)
    ticks = svg.nice_ticks(low, high, 5)
    digits = max(0, -magnitude((ticks[1] - ticks[0]) * 100)) if len(ticks) > 1 else 0
    labels = [f"{100.0 * tick:.{digits}f}\u00a0%" for tick in ticks]
    frame = Frame(width, 342, max(map(len, labels)) * svg.CHARACTER + 14, 14, 38, 44)
    scale = Scale(low, high, frame.height - frame.bottom, frame.top)
    room = (frame.width - frame.left - frame.right) * 0.06
    costs = [row["C"] for row in table]
    across = Scale(min(costs), max(costs), frame.left + room, frame.width - frame.right - room, log=True)
    return frame, scale, across, svg.value_axis(frame, scale, ticks, labels)


def _series(table: Sequence[Json], trained: Mapping[float, float], scale: Scale, across: Scale) -> list[Markup]:
    """The band of one standard deviation, the training rows, the folds, the mean."""
    band = [(across(r["C"]), scale(r["mean"] + r["std"])) for r in table]
    band += [(across(r["C"]), scale(r["mean"] - r["std"])) for r in reversed(table)]
    parts = [svg.path(band, "gap-area", closed=True)]
    if len(trained) == len(table):
        line = [(across(row["C"]), scale(trained[row["C"]])) for row in table]
        parts += [
            svg.path(line, "line-upper"),
            *(svg.tag("circle", cx=x, cy=y, r=3.0, class_="dot-upper") for x, y in line),
        ]
    parts += [
        svg.tag("circle", cx=across(row["C"]), cy=scale(value), r=2.5, class_="dot-tried")
        for row in table
        for value in row["accuracies"]
    ]
    means = [(across(row["C"]), scale(row["mean"])) for row in table]
    parts.append(svg.path(means, "line-lower"))
    for row, (x, y) in zip(table, means, strict=True):
        description = f"C = {significant(row['C'])}: {_percent(row['mean'])} \u00b1 {_percent(row['std'])}"
        parts.append(svg.tag("circle", svg.tag("title", description), cx=x, cy=y, r=4.0, class_="dot-lower"))
    return parts


def _cost_marks(costs: Sequence[float], across: Scale) -> list[tuple[float, str]]:
    """Labels of the values of C, without those that would overlap the one before."""
    marks: list[tuple[float, str]] = []
    for cost in costs:
        label = significant(cost, 2) if 1e-3 <= cost < 1e4 else power_of_ten(magnitude(cost))
        x = across(cost)
        if not marks or x - marks[-1][0] > 8 * svg.CHARACTER:
            marks.append((x, label))
    return marks


def certified_bars(records: Sequence[Json], width: int) -> Markup:
    """How many models are certified after each round."""
    total = max(int(finite(row.get("members")) or 0) for row in records) or 1
    ticks = [tick for tick in svg.nice_ticks(0.0, float(total), 5) if tick == int(tick)]
    labels = [count(tick) for tick in ticks]
    frame = Frame(width, 250, max(map(len, labels)) * svg.CHARACTER + 14, 10, 26, 44)
    scale = Scale(0.0, total * 1.12, frame.height - frame.bottom, frame.top)
    axis = RoundAxis(frame, records)
    done = [int(finite(row.get("members_certified")) or 0) for row in records]
    thick = min(axis.band * 0.7, 76.0)
    boxes = [(axis.centre(i) - thick / 2, scale(n), thick, scale(0.0) - scale(n)) for i, n in enumerate(done)]
    parts = [
        svg.text(2, 12, "models certified", "axis-name", "start"),
        svg.value_axis(frame, scale, ticks, labels),
        svg.bars(boxes, "read"),
        svg.line(frame.left, scale(total), width - frame.right, scale(total), "mark-store"),
        svg.text(width - frame.right, scale(total) - 6, f"all: {count(total)}", "note", "end"),
        axis.draw(),
        axis.hover(lambda row: f"Round {row.get('round')}: {count(row.get('members_certified'))} certified"),
    ]
    description = f"{done[-1]} of {total} models are certified after {len(records)} rounds."
    return svg.drawing("certified", frame, "Models certified, by round", description, parts)
