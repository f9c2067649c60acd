"""The page of a logistic loss: its objective, and the bounds of its value."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.formats.model_record import FILE
from coremargin.problems.common import report as common
from coremargin.problems.common.report import influence_of
from coremargin.report import charts, page, rounds, rulers
from coremargin.report.numbers import relative_gap
from coremargin.report.view import claims_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.report.page import Json


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError where it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    coreset = common.read_coreset(folder, model)
    return render(model, run, records, coreset, name=name, influence=influence_of(folder, model, name))


def render(
    model: Json,
    run: Json,
    records: Sequence[Json],
    coreset: Mapping[str, Any],
    *,
    name: str = "MODEL",
    influence: Json | None = None,
) -> str:
    """The page as text, from the views of common/report.py."""
    claims, parameters = claims_of(model, name), model.get("parameters") or {}
    columns = (rounds.NUMBER, rounds.KIND, *rounds.bare_bounds(claims.precision, "Dual", "Value"))
    view = common.view(model, run, records, coreset, (*columns, *rounds.CHUNKS, *rounds.COSTS), name)
    about = {
        "cost": parameters.get("C"),
        "class_weight": parameters.get("class_weight"),
        "gap": relative_gap(model.get("certificate") or {}),
        "scanned": any(row.get("kind") != "sample" for row in records),
    }
    drawn = charts.by_round(records, run, claims, of="value") | {"ruler": rulers.value(claims)}
    view |= claims.view() | {"charts": drawn, "about": about, "influence": influence}
    return page.template("problems/logistic/report.html.j2").render(view)
