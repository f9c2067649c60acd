"""The page of a model of several classes: bounds, results by class, cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.formats.model_record import FILE
from coremargin.problems.common.report import influence_of
from coremargin.report import charts, page, rounds, rulers
from coremargin.report.confusion import confusion_view
from coremargin.report.view import claims_of
from coremargin.report.view import view as common_view

if TYPE_CHECKING:
    from coremargin.report.numbers import Precision
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError when it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    return render(model, run, records, name=name, influence=influence_of(folder, model, name))


def render(
    model: Json, run: Json, records: Sequence[Json], *, name: str = "MODEL", influence: Json | None = None
) -> str:
    """Render the page from ``model.json``, ``run.json`` and ``rounds.jsonl``."""
    claims = claims_of(model, name)
    view = common_view(model, run, records, _columns(claims.precision), name)
    soft = view["parameters"].get("loss") is not None
    of, ruler = ("value", rulers.value) if soft else ("margin", rulers.margin)
    drawn = charts.by_round(records, run, claims, of=of, closing=view["status"] != "not_separable")
    view |= claims.view() | {
        "soft": soft,
        "left_out": view["parameters"].get("outliers"),
        "charts": drawn | {"ruler": ruler(claims)},
        **confusion_view(run, view["classes"]),
        "influence": influence,
    }
    return page.template("problems/multiclass/report.html.j2").render(view)


def _columns(precision: Precision) -> tuple[Column, ...]:
    bounds = rounds.bounds(precision)
    return (rounds.NUMBER, rounds.KIND, *bounds, rounds.counted("Rows in memory", "working_set_rows"), *rounds.COSTS)
