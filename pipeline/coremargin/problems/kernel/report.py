"""The page of a kernel machine: what is proven, the accuracy of each class, the coreset, the costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coremargin.formats.function import CALLABLE
from coremargin.formats.model_record import FILE
from coremargin.maths.rows import dense
from coremargin.models.kernel import KernelModel
from coremargin.models.registry import load
from coremargin.models.user_kernel import terms_of, with_function
from coremargin.report import charts, page, rounds, rulers
from coremargin.report.confusion import confusion_view
from coremargin.report.field import MOST, Field, extents, picture
from coremargin.report.numbers import label_text, precision_for
from coremargin.report.view import claims_of
from coremargin.report.view import view as common_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.models.kernel_ball import KernelBallModel
    from coremargin.report.numbers import Precision
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError where it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    return render(model, run, records, name=name, field=field_of(folder, model))


def field_of(folder: Path, record: Json) -> Field | None:
    """The decision function of a model of two classes and two features, for a drawing; None for other models.

    Raises DataError for an unreadable model.
    """
    user_kernel = (record.get("parameters") or {}).get("kernel") == CALLABLE  # no record's function is ever called
    if user_kernel or record.get("features") != 2 or len(record.get("classes") or []) != 2:
        return None
    found = load(folder)
    if not isinstance(found, KernelModel) or not len(found.coreset_ids):
        return None
    return field_around(found, found.coreset_classes[found.carriers] == 1)


def field_around(model: KernelModel | KernelBallModel, sides: NDArray[np.bool_]) -> Field | None:
    """The decision function of two features around the rows (m, 2) that carry it, which lie on these sides (m,).

    None for rows that scaling maps to fewer dimensions: these cannot be restored.
    """
    points, scaling = dense(model.expansion.rows), model.row_scaling
    if scaling is not None:  # back to unscaled rows
        if scaling.metric is not None and len(scaling.metric.columns) == points.shape[1]:
            shift, matrix = scaling.metric.affine()
            points = np.linalg.solve(matrix.T, points.T).T + shift
        elif scaling.shift is not None and scaling.factor is not None:
            points = points / scaling.factor.astype(float) + scaling.shift.astype(float)
        else:
            return None
    some = np.linspace(0, len(points) - 1, min(MOST, len(points))).astype(int)
    x, y = extents(points)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = model.scorer().values(grid).reshape(len(y), len(x))
    names = model.feature_names or ("feature 0", "feature 1")
    return Field(x, y, values, points[some], sides[some], (str(names[0]), str(names[1])))


def render(model: Json, run: Json, records: Sequence[Json], *, name: str = "MODEL", field: Field | None = None) -> str:
    """The page as text, from ``model.json``, ``run.json`` and ``rounds.jsonl``; name: as in report/view.py."""
    claims = claims_of(model, name)
    view = common_view(model, run, records, _columns(claims.precision), name)
    soft = view["parameters"].get("loss") is not None
    of, ruler = ("value", rulers.value) if soft else ("margin", rulers.margin)
    drawn = charts.by_round(records, run, claims, of=of, closing=True)
    reduced = model.get("reduced") or {}
    view |= claims.view() | {
        "soft": soft,
        "left_out": view["parameters"].get("outliers"),
        "charts": drawn | {"ruler": ruler(claims)},
        **confusion_view(run, view["classes"]),
        "kernel": model["kernel"],
        "terms": terms_of(view["parameters"]),
        "commands": with_function(view["commands"], view["parameters"]),
        "working_set": run.get("working_set") or {},
        "own": run.get("own"),
        "several": len(view["classes"]) > 2,
        "kkt": _kkt(run, model),
        "reduced": reduced,
        "bound": view["parameters"].get("relative_margin"),
        "distance": precision_for(None, reduced.get("distance")).up(reduced.get("distance")),
    }
    words = [label_text(label) for label in model["classes"]]
    view["field"] = None if field is None else charts.drawings(charts.FULL, partial(picture, field, words))
    return page.template("problems/kernel/report.html.j2").render(view)


def _kkt(run: Json, model: Json) -> list[Json]:
    """The KKT classes of each column, with its label; empty for a reduced model, whose duals are others."""
    known = run.get("kkt")
    if not isinstance(known, list) or model.get("reduced"):
        return []
    labels = model["classes"] if len(known) > 1 else model["classes"][1:]
    return [{"label": label_text(label), "counts": counts} for label, counts in zip(labels, known, strict=False)]


def _columns(precision: Precision) -> tuple[Column, ...]:
    bounds = rounds.bounds(precision)
    return (
        rounds.NUMBER,
        rounds.KIND,
        *bounds,
        rounds.counted("Rows in the working set", "working_set_rows"),
        *rounds.COSTS,
    )
