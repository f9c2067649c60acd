"""The page of a model whose labels were asked for."""

from __future__ import annotations

from pathlib import Path

from coremargin.formats.model_record import FILE
from coremargin.problems.common import report as common
from coremargin.report import page
from coremargin.report.claims import claims_of


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError where it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    claims = claims_of(model, name)
    view = common.view(model, run, records, common.read_coreset(folder), common.margin_columns(claims.precision), name)
    view |= common.margin_view(claims, run, records, view["status"])
    view |= {"evidence": model.get("evidence"), "answers": model.get("answers")}
    return page.template("problems/active/report.html.j2").render(view)
