"""Parts of the HTML pages of several kinds: the proof, the rounds, and the influence of features.

``view`` returns the variables of ``two_classes.html.j2``, ``margin_view`` the additional ones of ``margin.html.j2``,
``influence_of`` those of the section ``report/influence.html.j2``. All are functions of the files in a model's folder.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import DataError
from coremargin.formats.columns import FILE as COLUMNS
from coremargin.formats.model_record import FILE
from coremargin.formats.registry import typed_record
from coremargin.maths.rows import from_arrays
from coremargin.models.feature_map import feature_map_of
from coremargin.models.registry import load
from coremargin.report import charts, numbers, rounds, rulers, text
from coremargin.report import view as pages
from coremargin.report.histogram import histogram, signed_bins
from coremargin.report.influence import influence

if TYPE_CHECKING:
    from markupsafe import Markup

    from coremargin.maths.rows import Rows
    from coremargin.models.coefficients import Hyperplane
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column
    from coremargin.report.view import Claims

CORESET_SHOWN = 50  #: rows of the coreset in the table, by weight
FEW = 300  #: models with more features, and no names for them, have no section about influence
_SHOWN, _SHOWN_OF_SEVERAL = 15, 8  # features of a hyperplane
_CLASSES = 12


@contextmanager
def open_arrays(folder: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The arrays of a model's folder, open within the context. Raises DataError if they are not a model's."""
    path = folder / "arrays.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            yield arrays
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"{path}: expected the arrays of a model, got: {error}; is this a model's folder?") from error


def rows_of_proof(record: Json, arrays: Mapping[str, np.ndarray]) -> Rows:
    """The rows of the proof (m, d), mapped if the model maps rows. Raises DataError."""
    rows = from_arrays("coreset_x", arrays)
    if not rows.shape[1] or not (record.get("parameters") or {}).get("map"):
        return rows
    made = feature_map_of(typed_record(record, FILE), arrays)
    return rows if made is None else made.of_rows(rows)


def coreset_of(record: Json, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The rows of the proof, m entries each: ``ids`` int64, ``y`` in {-1, +1}, ``alpha`` dual weights, ``margins``.

    Margins are NaN where the proof does not need the rows themselves. ``norm`` is that of the hyperplane.
    """
    y = arrays["coreset_y"].astype(np.int8)
    rows = rows_of_proof(record, arrays)
    margins = y * (rows @ arrays["w"] + arrays["b"][0]) if rows.shape[1] else np.full(len(y), np.nan)
    norm = float(np.linalg.norm(arrays["w"]))
    return {"ids": arrays["coreset_ids"], "y": y, "alpha": arrays["alpha"], "margins": margins, "norm": norm}


def read_coreset(folder: Path, record: Json) -> dict[str, Any]:
    """The rows of the proof in a model's folder, whose record this is. Raises DataError."""
    with open_arrays(folder) as arrays:
        return coreset_of(record, arrays)


def view(
    model: Json, run: Json, records: Sequence[Json], coreset: Mapping[str, Any], columns: Sequence[Column], name: str
) -> dict[str, Any]:
    """The view of a page about a hyperplane.

    ``model``, ``run`` and ``records`` are the contents of model.json, run.json and rounds.jsonl; ``coreset``: from
    ``coreset_of``; rows of a larger ``rank`` (by default that of their dual weight) are shown first.
    """
    common = pages.view(model, run, records, columns, name)
    intercept = common["parameters"].get("intercept", True)
    total = int((model.get("certificate") or {}).get("coreset_rows") or len(coreset["ids"]))
    return common | {
        "intercept": intercept,
        "plane": "hyperplane" if intercept else "hyperplane through the origin",
        "weights": numbers.precision_for(None, float(np.max(coreset["alpha"], initial=0.0))),
        "coreset": _coreset_rows(coreset, total),
        "proof_rows": numbers.count(total),
        "beyond": _beyond(run),
    }


def _coreset_rows(coreset: Mapping[str, Any], total: int) -> dict[str, Any]:
    """The heaviest rows, ties by id, and the number of rows of each class."""
    ids, y, alpha, margins = (np.asarray(coreset[key]) for key in ("ids", "y", "alpha", "margins"))
    order = np.lexsort((ids, -np.asarray(coreset.get("rank", alpha))))[:CORESET_SHOWN]
    heaviest = float(alpha.max()) if len(alpha) else 0.0
    shown = [
        {
            "id": int(ids[i]),
            "positive": bool(y[i] > 0),
            "alpha": float(alpha[i]),
            "share": 100.0 * float(alpha[i]) / heaviest if heaviest > 0.0 else 0.0,
            "margin": float(margins[i]),
        }
        for i in order
    ]
    weighty = alpha > 0.0
    return {
        "shown": shown,
        "rows": len(ids),
        "total": total,
        "negative": int(((y < 0) & weighty).sum()),
        "positive": int(((y > 0) & weighty).sum()),
    }


def _beyond(run: Json) -> bool:
    """Whether the outermost bins hold rows: they then count everything beyond them too."""
    found = run.get("histogram") or {}
    return any(rows and (rows[0] or rows[-1]) for rows in (found.get("negative"), found.get("positive")))


def margin_columns(precision: numbers.Precision) -> tuple[Column, ...]:
    """The columns of the table of rounds of a margin."""
    counted = rounds.counted
    working_set = (
        counted("Working set", "working_set_rows", text.WORKING_SET),
        counted("Coreset", "coreset_rows", text.explain_coreset(value=False)),
    )
    found = (counted("New rows", "new_rows"), counted("Rows below", "rows_below"))
    head = (rounds.NUMBER, rounds.KIND, *rounds.bare_bounds(precision))
    return (*head, *working_set, *found, *rounds.CHUNKS, *rounds.COSTS)


def margin_view(
    claims: Claims, run: Json, records: Sequence[Json], status: str, none_within: tuple[str, str] = ("no row", "none")
) -> dict[str, Any]:
    """The view of a page about a margin; none_within: the words for no rows, in the histogram and its description."""
    bins, precision = signed_bins(run.get("histogram"), claims.lower), claims.precision
    open_end = status != "not_separable"
    drawn: dict[str, Markup | None] = charts.by_round(records, run, claims, closing=open_end)
    drawn |= {"ruler": rulers.margin(claims) if open_end else None, "margins": None}
    if bins:
        draw = partial(histogram, bins, claims.lower, precision, none_within=none_within)
        drawn["margins"] = charts.drawings(charts.FULL, draw)
    return claims.view() | {"charts": drawn, "bins": bins, "seen": sum(part.rows for part in bins)}


def influence_of(folder: Path, record: Json, name: str, C: float | None = None) -> dict[str, Any] | None:
    """The view of a model's features; None if nothing separates the classes, or if there are many without names.

    record: of the model in ``folder``; name: its name on the page; C: of the chosen one of several models. Raises
    DataError if it is no readable model.
    """
    if (record.get("parameters") or {}).get("map"):  # weights of mapped rows say nothing of features
        return None
    nameless = not (folder / COLUMNS).exists()  # the model is then not loaded
    if record.get("status") == "not_separable" or (nameless and (numbers.finite(record.get("features")) or 0) > FEW):
        return None
    model = load(folder)
    chosen = model if C is None else model.at(C)
    scaling = chosen.scorer().scaling
    several, unchosen = len(chosen.classes) > 2, C if getattr(model, "C", None) is None else None
    option = "" if unchosen is None else f" --C {unchosen!r}"
    shown, widths = (_SHOWN_OF_SEVERAL, charts.HALF) if several else (_SHOWN, charts.FULL)
    try:
        planes = chosen.coefficients(shown)
    except DataError:  # its weights for unscaled rows overflow
        return None
    return {
        "unit": None if scaling is None else numbers.UNITS.get(scaling.kind),
        "of_lengths": scaling is not None and scaling.kind == "rownorm",
        "planes": [_hyperplane_view(plane, number, widths) for number, plane in enumerate(planes[:_CLASSES])],
        "features": model.features,
        "shown": shown,
        "more": model.features > shown,
        "classes_more": max(0, len(planes) - _CLASSES),
        "C": unchosen,
        "command": f"coremargin coefficients {shlex.quote(name)}{option}",
    }


def _hyperplane_view(plane: Hyperplane, number: int, widths: tuple[int, ...]) -> dict[str, Any]:
    """One hyperplane with its picture."""
    label = numbers.label_text(plane.label)
    effects = [(one.feature, one.effect) for one in plane.coefficients]
    return {
        "label": label,
        "against": "" if plane.against is None else numbers.label_text(plane.against),
        "features": [one._asdict() for one in plane.coefficients],
        "chart": charts.drawings(widths, partial(influence, f"influence-{number}", effects, label)),
    }
