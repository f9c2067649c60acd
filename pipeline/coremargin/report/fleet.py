"""The report of a fleet: which C, which classes, what is proven of each model, and what it all cost.

``render_fleet`` is a pure function of what ``fleet.json``, ``run.json`` and ``rounds.jsonl`` hold.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.report import charts, fleet_charts, numbers, page
from coremargin.report.confusion import confusions, matrix_lines, share

if TYPE_CHECKING:
    from coremargin.report.page import Json

FILE = "fleet.json"
MEMBERS_SHOWN = 300  #: rows of the table of models


def read_and_render(folder: Path, name: str) -> str:
    """The page of a fleet's folder. Raises DataError where it does not hold a readable fleet."""
    fleet, run = page.read_json(folder / FILE), page.read_json(folder / "run.json")
    return render_fleet(fleet, run, page.read_lines(folder / "rounds.jsonl"), name=name)


def render_fleet(fleet: Json, run: Json, rounds: Sequence[Json], *, name: str = "FLEET") -> str:
    """The page as text; ``name`` is the fleet's folder, for the commands that the page shows."""
    costs = [cost for cost in dict.fromkeys(member["C"] for member in fleet["members"]) if cost is not None]
    chosen = (fleet["chosen"] or {}).get("C", costs[-1] if costs else None)
    judged, held_out = _judged(fleet["evaluations"], chosen)
    labels = [numbers.label_text(label) for label in fleet["classes"]]
    statuses = [member["status"] for member in fleet["members"]]
    store, name = shlex.quote(str(run.get("store") or "STORE")), shlex.quote(name)
    view = {
        "fleet": fleet, "run": run, "status": str(fleet["status"]), "parameters": fleet["parameters"],
        "scaling": numbers.SCALINGS.get(str(fleet["parameters"].get("scaling"))), "classes": labels, "costs": costs,
        "chosen": chosen, "was_chosen": fleet["chosen"], "validation": fleet["validation"],
        "best": next((row for row in fleet["validation"] or () if row["C"] == chosen), None),
        "certified": statuses.count("certified"), "stopped": statuses.count("stopped"),
        "inseparable": statuses.count("not_separable"), "count": len(statuses),
        "folds": fleet["parameters"].get("folds") or 0, "held_out": held_out,
        "accuracy": share(judged), "confusion": matrix_lines(judged, labels), "confusions": confusions(judged, labels),
        "by_class": _by_class(fleet, chosen, judged, labels), "deciders": _deciders(fleet, chosen),
        "members": _members(fleet), "rounds": page.round_rows(rounds), "reading": page.reading(run, rounds),
        "started": page.moment(run.get("started")), "charts": _charts(fleet, run, rounds),
        "commands": {
            "verify": f"coremargin verify {name} {store}",
            "resume": f"coremargin train {store} --out {name} --resume",
        },
    }  # fmt: skip
    return page.template("fleet.html.j2").render(view)


def _judged(evaluations: Sequence[Json], cost: float | None) -> tuple[np.ndarray | None, bool]:
    """Confusion matrix (k, k) at a C: of all held-out rows where there are folds, else of the training rows."""
    mine = [entry for entry in evaluations if entry["C"] == cost]
    folds = [np.array(entry["confusion"]) for entry in mine if entry["fold"] is not None]
    if folds:
        return np.sum(folds, axis=0), True
    return (np.array(mine[0]["confusion"]), False) if mine else (None, False)


def _deciders(fleet: Json, cost: float | None) -> list[Json]:
    """The members that decide at a C: trained on all rows."""
    return [member for member in fleet["members"] if member["fold"] is None and member["C"] == cost]


def _by_class(fleet: Json, cost: float | None, matrix: np.ndarray | None, labels: Sequence[str]) -> list[Json]:
    """For each class its model's bounds and how its rows fare."""
    members = _deciders(fleet, cost)
    lines: list[Json] = []
    for i, label in enumerate(labels):
        member = members[i] if len(members) == len(labels) else None
        told: dict[str, Any] = {"label": label, "member": member}
        if member is not None:
            told["precision"] = numbers.precision_for(member["lower"], member["upper"])
        if matrix is not None:
            rows, given, right = int(matrix[i].sum()), int(matrix[:, i].sum()), int(matrix[i, i])
            told |= {
                "rows": rows, "recall": right / rows if rows else None, "exact": right / given if given else None,
                "f1": 2 * right / (rows + given) if rows + given else None,
            }  # fmt: skip
        lines.append(told)
    return lines


def _members(fleet: Json) -> list[Mapping[str, Any]]:
    """The table of models; those without a proof first, then by what is missing."""
    listed = sorted(fleet["members"], key=lambda m: (m["status"] == "certified", -_missing(m)))
    return [
        {**member, "precision": numbers.precision_for(member["lower"], member["upper"])}
        for member in listed[:MEMBERS_SHOWN]
    ]


def _missing(member: Json) -> float:
    return numbers.relative_gap(member) or 0.0


def _charts(fleet: Json, run: Json, rounds: Sequence[Json]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(("curve", "certified", "bytes"))
    table = fleet["validation"]
    if table and len(table) > 1:
        trained = {entry["C"]: entry["accuracy"] for entry in fleet["evaluations"] if entry["fold"] is None}
        chosen = (fleet["chosen"] or {}).get("C")
        found["curve"] = charts.drawings(charts.FULL, partial(fleet_charts.curve, table, trained, chosen))
    if rounds:
        found["certified"] = charts.drawings(charts.HALF, partial(fleet_charts.certified, rounds))
    store = numbers.finite(run.get("store_bytes"))
    if rounds and store:
        found["bytes"] = charts.drawings(charts.HALF, partial(charts.bytes_per_round, rounds, store))
    return found
