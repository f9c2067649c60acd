"""The page of a model whose labels were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.campaign import FILE as CAMPAIGN
from coremargin.formats.model_record import FILE
from coremargin.problems.active import describe
from coremargin.problems.active.describe import restart_command_with_loss
from coremargin.problems.common import report as common
from coremargin.problems.common.report import influence_of
from coremargin.report import charts, page, rounds, rulers
from coremargin.report import view as pages
from coremargin.report.numbers import label_text, plain_bounds
from coremargin.report.view import claims_of

if TYPE_CHECKING:
    from coremargin.report.numbers import Precision
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column

ROWS_SHOWN = 50  #: rows that carry a proof, in the table


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError where it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    with common.open_arrays(folder) as arrays:
        rows = common.coreset_of(model, arrays) if "coreset_y" in arrays else _rows_of_classes(arrays)
        fewest = _fewest(arrays, len(model["classes"]))
    shown = influence_of(folder, model, name)
    if model.get("log") is not None:  # it is checked with the log of the campaign in which it lies
        place, _, last = name.rpartition("/")
        name = place or (folder.parent.name if (folder.parent / CAMPAIGN).is_file() else last)
    return render(model, run, records, rows, fewest, name=name, influence=shown)


def _fewest(arrays: Mapping[str, np.ndarray], classes: int) -> int:
    """Answers of the class that has the fewest."""
    codes = arrays["answered_classes"] if "answered_classes" in arrays else arrays["answered_signs"] > 0
    return int(np.bincount(codes.astype(np.int64), minlength=classes).min())


def _rows_of_classes(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Of several classes: the rows of the proof, m entries each: ``ids``, ``codes``, ``alpha`` (of all classes)."""
    return {"ids": arrays["coreset_ids"], "codes": arrays["coreset_classes"], "alpha": arrays["duals"].sum(axis=1)}


def render(
    model: Json,
    run: Json,
    records: Sequence[Json],
    rows: Mapping[str, Any],
    fewest: int,
    *,
    name: str = "MODEL",
    influence: Json | None = None,
) -> str:
    """The page as text, of what the files of a model hold; rows: those of the proof. name: report/view.py.

    fewest: answers of the class that has the fewest. influence: common/report.py.
    """
    soft, about = describe.is_soft(model.get("parameters") or {}), str(run.get("store") or "STORE")
    left = int(model["rows"]) - int(model.get("answers") or 0) - int(model.get("unsure") or 0)
    shared = evidence_view(model, left) | {"answers": model.get("answers"), "influence": influence, "with_loss": None}
    if model.get("log") is not None:
        asked = model.get("parameters") or {}
        shared["with_loss"] = restart_command_with_loss(about, name, asked, fewest=fewest)
    if soft or len(model["classes"]) > 2:
        return page.template("problems/active/several.html.j2").render(
            _several(model, run, records, rows, name) | shared
        )
    claims = claims_of(model, name)
    view = common.view(model, run, records, rows, common.margin_columns(claims.precision), name)
    view |= common.margin_view(claims, run, records, view["status"])
    return page.template("problems/active/report.html.j2").render(view | shared)


def evidence_view(model: Json, left: int) -> dict[str, Any]:
    """What draws show, in the same words as on terminals. left: rows without an answer that could have one."""
    evidence, unsure = model.get("evidence"), int(model.get("unsure") or 0)
    return {
        "evidence": evidence,
        "unsure": describe.unsure_text(unsure) if unsure else "",
        "wrong": None if evidence is None else describe.wrong_rows(evidence, unsure=unsure),
        "population": None if evidence is None else describe.population_text(evidence),
        "shown_without_draws": describe.no_draws_text(left),
        "strata": [
            {**part, "label": label_text(part["label"]), "wrong_rows": describe.wrong_rows(part, unsure=unsure)}
            for part in (evidence or {}).get("strata") or ()
        ],
    }


def _several(model: Json, run: Json, records: Sequence[Json], rows: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The page of several classes, or of a loss, besides the evidence."""
    claims, soft = claims_of(model, name), describe.is_soft(model["parameters"])
    view = pages.view(model, run, records, _columns(claims.precision, soft=soft), name)
    of, ruler = ("value", rulers.value) if soft else ("margin", rulers.margin)
    drawn = charts.by_round(records, run, claims, of=of, closing=False)
    codes = rows["codes"] if "codes" in rows else (np.asarray(rows["y"]) > 0).astype(int)
    order = np.lexsort((rows["ids"], -np.asarray(rows["alpha"])))[:ROWS_SHOWN]
    bounds = [(one, *plain_bounds(one["lower"], one["upper"])) for one in model.get("members") or ()]
    return (
        view
        | claims.view()
        | {
            "soft": soft,
            "charts": drawn | {"ruler": ruler(claims) if model.get("members") is None else None},
            "members": [{"label": label_text(one["label"]), "lower": low, "upper": high} for one, low, high in bounds],
            "proof": [
                {"id": int(rows["ids"][k]), "label": view["classes"][codes[k]], "alpha": float(rows["alpha"][k])}
                for k in order
            ],
            "proof_rows": len(rows["ids"]),
        }
    )


def _columns(precision: Precision, *, soft: bool) -> tuple[Column, ...]:
    bounds = rounds.bare_bounds(precision, "Dual", "Value") if soft else rounds.bare_bounds(precision)
    memory = rounds.counted("Rows in memory", "working_set_rows")
    return (rounds.NUMBER, rounds.KIND, *bounds, memory, *rounds.CHUNKS, *rounds.COSTS)
