"""The report of a model: one HTML page that needs nothing but itself.

``render_report`` is a pure function of what a model folder holds; ``read_and_render`` reads a folder with numpy, scipy
and json only. The page loads nothing, runs no script, and escapes every value.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import DataError
from coremargin.maths.rows import from_arrays, lengths
from coremargin.report import charts, numbers, outliers, page, soft
from coremargin.report.histogram import histogram, signed_bins

if TYPE_CHECKING:
    from coremargin.report.page import Json

_OUTLIERS = "ledger_outliers_"
CORESET_SHOWN = 50  #: rows of the coreset in the table, by weight


def render_report(
    model: Json, run: Json, rounds: Sequence[Json], coreset: Mapping[str, Any], *, name: str = "MODEL"
) -> str:
    """The page as text.

    ``model``, ``run`` and ``rounds`` are what model.json, run.json and rounds.jsonl hold. ``coreset`` has arrays of
    m entries each: ``ids`` int64, ``y`` in {-1, +1}, ``alpha`` dual weights, ``margins`` geometric. ``name`` is the
    model's folder, for the commands that the page shows. Missing and non-finite numbers become dashes.
    """
    certificate = model.get("certificate") or {}
    lower, upper = numbers.finite(certificate.get("lower")), numbers.finite(certificate.get("upper"))
    precision = numbers.precision_for(lower, upper)
    if certificate.get("kind") == "duality_gap":
        coreset = soft.heaviest(coreset, model)
    about = coreset.get("outliers")
    view = {
        "model": model,
        "run": run,
        "certificate": certificate,
        "status": str(model.get("status")),
        "parameters": model.get("parameters") or {},
        "scaling": numbers.SCALINGS.get(str((model.get("parameters") or {}).get("scaling"))),
        "classes": [numbers.label_text(label) for label in model.get("classes") or ("-1", "+1")],
        "lower": lower,
        "upper": upper,
        "ratio": _ratio(certificate, lower, upper),
        "precision": precision,
        "weights": numbers.precision_for(None, float(np.max(coreset["alpha"], initial=0.0))),
        "epsilon": _epsilon(model),
        "rounds": page.round_rows(rounds),
        "coreset": _coreset_rows(coreset, int(certificate.get("coreset_rows") or len(coreset["ids"]))),
        "reading": page.reading(run, rounds),
        "started": page.moment(run.get("started")),
        "commands": _commands(run, name),
        **_charts(model, run, rounds, precision),
        "outliers": outliers.view(about, str(model.get("status")), coreset["shortest"]) if about else None,
        "soft": soft.view(model, run, rounds, coreset) if certificate.get("kind") == "duality_gap" else None,
    }
    return page.template("template.html.j2").render(view)


def read_and_render(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError where it does not hold a readable model."""
    model, run = page.read_json(folder / "model.json"), page.read_json(folder / "run.json")
    return render_report(model, run, page.read_lines(folder / "rounds.jsonl"), _read_coreset(folder), name=name)


def _read_coreset(folder: Path) -> dict[str, Any]:
    path = folder / "arrays.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            y = arrays["coreset_y"].astype(np.int8)
            rows = from_arrays("coreset_x", arrays)  # no columns where the proof does not need the rows themselves
            margins = y * (rows @ arrays["w"] + arrays["b"][0]) if rows.shape[1] else np.full(len(y), np.nan)
            norm = float(np.linalg.norm(arrays["w"]))
            about = {n.removeprefix(_OUTLIERS): arrays[n] for n in arrays.files if n.startswith(_OUTLIERS)}
            found = {"ids": arrays["coreset_ids"], "y": y, "alpha": arrays["alpha"], "margins": margins, "norm": norm}
            shortest = float(lengths(rows).min(initial=np.inf)) if about else np.inf
            return found | {"outliers": about, "shortest": shortest}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"{path}: expected the arrays of a model, got: {error}; is this a model's folder?") from error


def _epsilon(model: Json) -> float:
    for holder in (model.get("certificate"), model.get("parameters")):
        found = numbers.finite((holder or {}).get("epsilon"))
        if found is not None and 0.0 < found < 1.0:
            return found
    raise DataError("model.json: expected an epsilon between 0 and 1, found none; is this a model's folder?")


def _ratio(certificate: Json, lower: float | None, upper: float | None) -> float | None:
    """The proven share of the best margin, never more than the bounds say."""
    if lower is None or upper is None or upper <= 0.0:
        return None
    proven = math.nextafter(lower / upper, -math.inf) if lower < upper else 1.0
    claimed = numbers.finite(certificate.get("ratio"))
    return proven if claimed is None else min(claimed, 1.0)


def _coreset_rows(coreset: Mapping[str, Any], total: int) -> dict[str, Any]:
    """The heaviest rows, ties by id, and how many there are of each class."""
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
        "held": len(ids),
        "total": total,
        "negative": int(((y < 0) & weighty).sum()),
        "positive": int(((y > 0) & weighty).sum()),
    }


def _commands(run: Json, name: str) -> dict[str, str]:
    store, model = shlex.quote(str(run.get("store") or "STORE")), shlex.quote(name)
    return {
        "verify": f"coremargin verify {model} {store}",
        "resume": f"coremargin train {store} --out {model} --resume",
    }


def _charts(model: Json, run: Json, rounds: Sequence[Json], precision: numbers.Precision) -> dict[str, Any]:
    """The drawings that the numbers allow; None for the others."""
    certificate = model.get("certificate") or {}
    lower, upper = numbers.finite(certificate.get("lower")), numbers.finite(certificate.get("upper"))
    store, epsilon = numbers.finite(run.get("store_bytes")), _epsilon(model)
    gap, trimmed = certificate.get("kind") == "duality_gap", model.get("problem") == "outliers"
    bins = [] if gap else signed_bins(run.get("histogram"), lower)
    found: dict[str, Any] = dict.fromkeys(("ruler", "margins", "bounds", "gaps", "bytes"))
    if gap:
        found |= soft.drawings(run, lower, upper, epsilon, precision)
    elif lower is not None and upper is not None and lower > 0.0 and upper > 0.0:
        asked = (1.0 - epsilon) * upper
        found["ruler"] = charts.drawings(charts.RULER, partial(charts.ruler, lower, upper, asked, precision))
    if bins:
        found["margins"] = charts.drawings(charts.FULL, partial(histogram, bins, lower, precision, trimmed=trimmed))
    if rounds:
        found["bounds"] = charts.drawings(
            charts.HALF, partial(charts.bounds, rounds, precision, of="value" if gap else "margin")
        )
    if model.get("status") != "not_separable" and any(numbers.relative_gap(row) is not None for row in rounds):
        found["gaps"] = charts.drawings(charts.HALF, partial(charts.gaps, rounds, epsilon))
    if rounds and store:
        found["bytes"] = charts.drawings(charts.HALF, partial(charts.bytes_per_round, rounds, store))
    return {"charts": found, "bins": bins, "seen": sum(part.rows for part in bins), "beyond": _beyond(run)}


def _beyond(run: Json) -> bool:
    """Whether the outermost bins hold rows: they then stand for everything beyond them too."""
    histogram = run.get("histogram") or {}
    return any(rows and (rows[0] or rows[-1]) for rows in (histogram.get("negative"), histogram.get("positive")))
