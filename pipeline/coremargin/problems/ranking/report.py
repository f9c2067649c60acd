"""The page of a ranking: the bounds by cuts."""

from __future__ import annotations

from pathlib import Path

from coremargin.formats.model_record import FILE
from coremargin.report import charts, page, rounds, rulers
from coremargin.report.view import claims_of
from coremargin.report.view import view as common_view


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError when it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    claims = claims_of(model, name)
    columns = (rounds.NUMBER, *rounds.bare_bounds(claims.precision), rounds.counted("Cuts", "cuts"), *rounds.COSTS)
    view = common_view(model, run, records, columns, name) | claims.view()
    drawn = charts.by_round(records, run, claims, of="value") | {"ruler": rulers.value(claims)}
    view |= {"charts": drawn}
    return page.template("problems/ranking/report.html.j2").render(view)
