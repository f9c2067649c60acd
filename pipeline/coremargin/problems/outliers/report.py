"""The page of a margin with outliers: the rows left out, what each buys, and the margin against their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.formats.model_record import FILE
from coremargin.formats.outliers import OUTLIERS
from coremargin.maths.rows import lengths
from coremargin.problems.common import report as common
from coremargin.problems.common.report import influence_of
from coremargin.problems.outliers.charts import Bounds, against_k, against_time, bounds_known
from coremargin.problems.outliers.left_out import Step, steps_of
from coremargin.problems.outliers.messages import expectations, theorem_told, tried_told
from coremargin.report import charts, page
from coremargin.report.claims import claims_of
from coremargin.report.numbers import finite, precision_for

if TYPE_CHECKING:
    from coremargin.report.page import Json

ROWS_SHOWN = 200
#: With no more changes of the bounds than that there is nothing to draw against time.
FEW_BOUNDS = 3
#: What is not within the margin, where rows that are left out may be.
OTHERS = ("no other row", "but for those left out, none")


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError where it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    shown = influence_of(folder, model, name)
    return render(model, run, records, *read_arrays(folder, model), name=name, influence=shown)


def read_arrays(folder: Path, model: Json) -> tuple[Json, Json, tuple[Step, ...]]:
    """The rows of the proof; what the model has of outliers, by name; and what each number of them allows.

    model: its record. Raises DataError.
    """
    with common.open_arrays(folder) as arrays:
        left_out = {key.removeprefix(OUTLIERS): arrays[key] for key in arrays if key.startswith(OUTLIERS)}
        shortest = float(lengths(common.rows_of_proof(model, arrays)).min(initial=np.inf))
        steps = steps_of(left_out, shortest, hopeless=model.get("status") == "not_separable")
        return common.coreset_of(model, arrays), left_out, steps


def render(  # noqa: PLR0913 - all that a folder holds
    model: Json, run: Json, records: Sequence[Json], coreset: Json, left_out: Json, steps: Sequence[Step], *, name: str,
    influence: Json | None = None,
) -> str:  # fmt: skip
    """The page as text; what it is made of: common/report.py, and what ``read_arrays`` finds."""
    claims = claims_of(model, name)
    view = common.view(model, run, records, coreset, common.margin_columns(claims.precision), name)
    view |= common.margin_view(claims, run, records, view["status"], OTHERS) | {"influence": influence}
    found = run.get("published", [])
    theorem = theorem_told(steps[-1].k, bool(steps[-1].lower), model["parameters"]["epsilon"])
    ended = found and all(one["ended"] for one in found)
    view["about"] = _about(left_out, steps, view["status"], bounds_known(run.get("bounds", []))) | {
        "tried": tried_told(found), "theorem": theorem if ended else "",
        "expected": expectations(run) if view["status"] == "stopped" else [], "least": run.get("least"),
        "loss": LOSS_TAKEN,
    }  # fmt: skip
    return page.template("problems/outliers/report.html.j2").render(view)


def _about(
    arrays: Mapping[str, np.ndarray], found: Sequence[Step], status: str, bounds: Sequence[Bounds]
) -> dict[str, Any]:
    """What the template needs beyond what every margin has; a bound that is rounding is 0."""
    steps = [replace(step, upper=0.0) if step.impossible else step for step in found]
    rows = [
        {"id": int(i), "positive": sign > 0, "margin": float(margin), "gain": finite(float(gain))}
        for i, sign, margin, gain in zip(*(arrays[n] for n in ("ids", "signs", "margins", "gains")), strict=True)
    ]
    precision = precision_for(steps[-1].lower, steps[-1].upper)
    drawn = [step for step in steps if step.upper is not None or step.lower is not None]
    several, long = len(steps) > 1 and len(drawn) > 1, len(bounds) > FEW_BOUNDS
    return {
        "k": steps[-1].k, "rows": rows[:ROWS_SHOWN], "total": len(rows), "steps": steps,
        "knee": _knee(steps) if status != "not_separable" else None, "nodes": sum(step.nodes for step in steps),
        "chart": charts.drawings(charts.FULL, partial(against_k, drawn, precision)) if several else None,
        "over_time": charts.drawings(charts.FULL, partial(against_time, bounds, precision)) if long else None,
    }  # fmt: skip


def _knee(steps: Sequence[Step]) -> int | None:
    """The k whose step up in margin is the largest, where one is: beyond it outliers buy less."""
    known = [(step.k, step.lower or 0.0) for step in steps]
    gains = np.diff([margin for _, margin in known])
    return known[int(np.argmax(gains)) + 1][0] if len(gains) and gains.max() > 0 else None
