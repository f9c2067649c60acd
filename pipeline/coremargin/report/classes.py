"""The report of a model of several classes at once: what is proven, how each class fares, what it cost.

``render_classes`` is a pure function of what ``model.json``, ``run.json`` and ``rounds.jsonl`` hold.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.report import charts, numbers, page
from coremargin.report.confusion import confusions, matrix_lines, share
from coremargin.report.zones import value_ruler

if TYPE_CHECKING:
    from coremargin.report.page import Json


def read_and_render(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError where it does not hold a readable model."""
    model, run = page.read_json(folder / "model.json"), page.read_json(folder / "run.json")
    return render_classes(model, run, page.read_lines(folder / "rounds.jsonl"), name=name)


def render_classes(model: Json, run: Json, rounds: Sequence[Json], *, name: str = "MODEL") -> str:
    """The page as text; ``name`` is the model's folder, for the commands that the page shows."""
    certificate, parameters = model["certificate"], model["parameters"]
    lower, upper = numbers.finite(certificate["lower"]), numbers.finite(certificate["upper"])
    labels = [numbers.label_text(label) for label in model["classes"]]
    matrix = np.array(run["confusion"]) if run.get("confusion") else None
    matrix = matrix if matrix is not None and matrix.sum() else None
    store, name = shlex.quote(str(run.get("store") or "STORE")), shlex.quote(name)
    view = {
        "model": model, "run": run, "status": str(model["status"]), "certificate": certificate,
        "parameters": parameters, "soft": certificate["kind"] == "duality_gap", "lower": lower, "upper": upper,
        "precision": numbers.precision_for(lower, upper), "ratio": numbers.finite(certificate["ratio"]),
        "scaling": numbers.SCALINGS.get(str(parameters.get("scaling"))), "classes": labels,
        "accuracy": share(matrix), "confusion": matrix_lines(matrix, labels),
        "confusions": confusions(matrix, labels), "by_class": _by_class(matrix, labels),
        "final": run.get("confusion_of") == "final", "rounds": page.round_rows(rounds),
        "reading": page.reading(run, rounds), "started": page.moment(run.get("started")),
        "charts": _charts(model, run, rounds),
        "commands": {
            "verify": f"coremargin verify {name} {store}", "resume": f"coremargin train {store} --out {name} --resume",
        },
    }  # fmt: skip
    return page.template("classes.html.j2").render(view)


def _by_class(matrix: np.ndarray | None, labels: Sequence[str]) -> list[Json]:
    """For each class how its rows fare; nothing before a scan."""
    if matrix is None:
        return []
    lines: list[Json] = []
    for i, label in enumerate(labels):
        rows, given, right = int(matrix[i].sum()), int(matrix[:, i].sum()), int(matrix[i, i])
        lines.append({
            "label": label, "rows": rows, "recall": right / rows if rows else None,
            "exact": right / given if given else None, "f1": 2 * right / (rows + given) if rows + given else None,
        })  # fmt: skip
    return lines


def _charts(model: Json, run: Json, rounds: Sequence[Json]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(("ruler", "bounds", "gaps", "bytes"))
    certificate = model["certificate"]
    lower, upper = numbers.finite(certificate["lower"]), numbers.finite(certificate["upper"])
    epsilon, precision = float(certificate["epsilon"]), numbers.precision_for(lower, upper)
    soft = certificate["kind"] == "duality_gap"
    if lower is not None and upper is not None and lower > 0:
        draw = partial(value_ruler, lower, upper, lower / (1.0 - epsilon), precision)
        if not soft:
            draw = partial(charts.ruler, lower, upper, (1.0 - epsilon) * upper, precision)
        found["ruler"] = charts.drawings(charts.RULER, draw)
    if rounds:
        of = "value" if soft else "margin"
        found["bounds"] = charts.drawings(charts.HALF, partial(charts.bounds, rounds, precision, of=of))
    if model["status"] != "not_separable" and any(numbers.relative_gap(row) is not None for row in rounds):
        found["gaps"] = charts.drawings(charts.HALF, partial(charts.gaps, rounds, epsilon))
    store = numbers.finite(run.get("store_bytes"))
    if rounds and store:
        found["bytes"] = charts.drawings(charts.HALF, partial(charts.bytes_per_round, rounds, store))
    return found
