"""The page of a fleet: which C, which classes, what is proven of each model, and what it all cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from markupsafe import Markup

from coremargin.formats.fleet_record import FILE, Evaluation
from coremargin.models.brought import terms_of, with_function
from coremargin.models.fleet import choice_of
from coremargin.models.fleet_record import setting_of
from coremargin.problems.common.report import influence_of
from coremargin.problems.fleet import report_charts
from coremargin.report import charts, numbers, page, rounds
from coremargin.report.confusion import by_class, confusions, matrix_lines, share
from coremargin.report.view import view as common_view

if TYPE_CHECKING:
    from coremargin.formats.fleet_record import Setting
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column

MEMBERS_SHOWN = 300  #: rows of the table of models


def page_of(folder: Path, name: str) -> str:
    """The page of a fleet's folder. Raises DataError where it does not hold a readable fleet."""
    fleet, run, records = page.read_folder(folder, FILE)
    kernel = fleet["problem"] == "kernel"
    influence = None if kernel else influence_of(folder, fleet, name, _chosen(fleet)[0])
    return render(fleet, run, records, name=name, influence=influence)


def _settings(fleet: Json) -> list[Setting]:
    return list(dict.fromkeys(setting_of(member) for member in fleet["members"]))


def _chosen(fleet: Json) -> Setting:
    """The C and gamma whose members the page is about: the last ones, where none were chosen."""
    return setting_of(fleet["chosen"]) if fleet["chosen"] else _settings(fleet)[-1]


def render(
    fleet: Json, run: Json, records: Sequence[Json], *, name: str = "FLEET", influence: Json | None = None
) -> str:
    """The page as text, of what ``fleet.json``, ``run.json`` and ``rounds.jsonl`` hold; name: report/view.py.

    influence: common/report.py.
    """
    view = common_view(fleet, run, records, _columns(), name)
    labels, settings, chosen = view["classes"], _settings(fleet), _chosen(fleet)
    costs, gammas = ([one for one in dict.fromkeys(own) if one is not None] for own in zip(*settings, strict=True))
    confusion, held_out = _confusion_at(fleet["evaluations"] or _as_read(run, len(labels)), chosen)
    statuses = [member["status"] for member in fleet["members"]]
    view |= {
        "soft": view["parameters"].get("loss") is not None, "costs": costs, "gammas": gammas,
        "chosen": chosen[0], "chosen_gamma": chosen[1],
        "was_chosen": fleet["chosen"], "validation": fleet["validation"],
        "best": next((row for row in fleet["validation"] or () if setting_of(row) == chosen), None),
        "certified": statuses.count("certified"), "stopped": statuses.count("stopped"),
        "inseparable": statuses.count("not_separable"), "count": len(statuses),
        "folds": view["parameters"].get("folds") or 0, "held_out": held_out, "accuracy": share(confusion),
        "as_read": not fleet["evaluations"] and confusion is not None,
        "confusion": matrix_lines(confusion, labels), "confusions": confusions(confusion, labels),
        "by_class": _by_class(fleet, chosen, confusion, labels), "one_against_rest": len(labels) > 2,
        "kernel": view["parameters"].get("kernel"), "terms": terms_of(view["parameters"]),
        "commands": with_function(view["commands"], view["parameters"]),
        "members": _members(fleet), "charts": _charts(fleet, run, records), "influence": influence,
        "choice": choice_of(
            settings, chosen if fleet["chosen"] else (None, None), view["parameters"].get("folds")
        ),
    }  # fmt: skip
    return page.template("problems/fleet/report.html.j2").render(view)


def _columns() -> tuple[Column, ...]:
    done = rounds.counted("Certified", "members_certified")
    worst = rounds.Column("Furthest from its proof", _furthest, is_text=True)
    at_work = rounds.Column("At work", _at_work)
    return (rounds.NUMBER, rounds.KIND, done, at_work, worst, rounds.gap("Its gap"), *rounds.COSTS)


def _furthest(row: Json) -> Markup:
    return Markup("<code>{}</code>").format(row.get("worst") or numbers.DASH)


def _at_work(row: Json) -> str:
    """Members that are neither proven nor given up."""
    members, done = numbers.finite(row.get("members")), numbers.finite(row.get("members_done"))
    return numbers.DASH if members is None or done is None else numbers.count(members - done)


def _as_read(run: Json, classes: int) -> Sequence[Json]:
    """What was counted as rows were read, where it is as training writes it: matrices (classes, classes)."""
    found = run.get("as_read") or []
    try:
        entries = msgspec.convert(found, list[Evaluation])
    except msgspec.ValidationError:
        return ()
    return found if all(np.shape(entry.confusion) == (classes, classes) for entry in entries) else ()


def _confusion_at(evaluations: Sequence[Json], one: Setting) -> tuple[np.ndarray | None, bool]:
    """Confusion matrix (k, k) at a C and gamma: of all held-out rows where there are folds, else of training rows."""
    mine = [entry for entry in evaluations if setting_of(entry) == one]
    folds = [np.array(entry["confusion"]) for entry in mine if entry["fold"] is not None]
    if folds:
        return np.sum(folds, axis=0), True
    return (np.array(mine[0]["confusion"]), False) if mine else (None, False)


def _deciders(fleet: Json, one: Setting) -> list[Json]:
    """The members that decide at a C and gamma: trained on all rows."""
    return [member for member in fleet["members"] if member["fold"] is None and setting_of(member) == one]


def _by_class(fleet: Json, one: Setting, matrix: np.ndarray | None, labels: Sequence[str]) -> list[dict[str, Any]]:
    """For each class its model's bounds and how its rows fare."""
    members = _deciders(fleet, one)
    fares = by_class(matrix, labels) or [{"label": label} for label in labels]
    if len(members) != len(labels):
        return fares
    digits = [numbers.precision_for(member["lower"], member["upper"]) for member in members]
    return [
        line | {"member": member, "precision": precision}
        for line, member, precision in zip(fares, members, digits, strict=True)
    ]


def _members(fleet: Json) -> list[Mapping[str, Any]]:
    """The table of models; those without a proof first, then by what is missing."""
    listed = sorted(fleet["members"], key=lambda m: (m["status"] == "certified", -_missing(m)))
    return [
        {**member, "precision": numbers.precision_for(member["lower"], member["upper"])}
        for member in listed[:MEMBERS_SHOWN]
    ]


def _missing(member: Json) -> float:
    return numbers.relative_gap(member) or 0.0


def _charts(fleet: Json, run: Json, records: Sequence[Json]) -> dict[str, Markup | None]:
    found: dict[str, Markup | None] = {"curve": None, "certified": None, "bytes": charts.reading(records, run)}
    cost, gamma = _chosen(fleet)  # the curve is of C, at the gamma that was chosen
    table = [row for row in fleet["validation"] or () if row.get("gamma") == gamma]
    if len(table) > 1 and cost is not None:
        mine = [entry for entry in fleet["evaluations"] if entry["fold"] is None and entry.get("gamma") == gamma]
        trained, chosen = {entry["C"]: entry["accuracy"] for entry in mine}, cost if fleet["chosen"] else None
        found["curve"] = charts.drawings(charts.FULL, partial(report_charts.curve, table, trained, chosen))
    if records:
        found["certified"] = charts.drawings(charts.HALF, partial(report_charts.certified, records))
    return found
