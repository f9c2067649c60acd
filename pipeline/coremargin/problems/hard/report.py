"""The HTML page of a hard margin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.formats.model_record import FILE
from coremargin.problems.common import report as common
from coremargin.problems.hard.generalization import read_generalization
from coremargin.report import page
from coremargin.report.view import claims_of

if TYPE_CHECKING:
    from coremargin.report.page import Json


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError if it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    shown = common.influence_of(folder, model, name)
    return render(model, run, records, common.read_coreset(folder, model), name=name, influence=shown)


def render(
    model: Json,
    run: Json,
    records: Sequence[Json],
    coreset: Mapping[str, Any],
    *,
    name: str = "MODEL",
    influence: Json | None = None,
) -> str:
    """The page as text, from what the folder holds."""
    claims = claims_of(model, name)
    view = common.view(model, run, records, coreset, common.margin_columns(claims.precision), name)
    view |= common.margin_view(claims, run, records, view["status"])
    view |= {"kkt": (run.get("kkt") or [None])[0]}
    view |= {"influence": influence, "own": run.get("own"), "generalization": read_generalization(run)}
    return page.template("problems/hard/report.html.j2").render(view)
