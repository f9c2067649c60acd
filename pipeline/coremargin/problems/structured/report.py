"""The page of structured output: its objective, the bounds of its value, cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.formats.model_record import FILE
from coremargin.report import charts, page, rounds, rulers
from coremargin.report.view import claims_of
from coremargin.report.view import view as common_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.report.page import Json


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError when it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    return render(model, run, records, name=name)


def render(model: Json, run: Json, records: Sequence[Json], *, name: str = "MODEL") -> str:
    """Render the page from ``model.json``, ``run.json`` and ``rounds.jsonl``."""
    claims = claims_of(model, name)
    columns = (
        rounds.NUMBER,
        rounds.KIND,
        *rounds.bounds(claims.precision),
        rounds.counted("Rows in memory", "working_set_rows"),
        rounds.counted("Labellings", "labellings"),
        *rounds.COSTS,
    )
    view = common_view(model, run, records, columns, name)
    soft = view["parameters"].get("loss") is not None
    of, ruler = ("value", rulers.value) if soft else ("margin", rulers.margin)
    drawn = charts.by_round(records, run, claims, of=of) | {"ruler": ruler(claims)}
    chained = view["parameters"].get("structure") == "chain"
    view |= claims.view() | {"charts": drawn, "chained": chained, "soft": soft}
    return page.template("problems/structured/report.html.j2").render(view)
