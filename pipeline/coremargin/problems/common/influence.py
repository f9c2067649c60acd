"""What a page says of the features that decide: the model in a folder, with the names of its features."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

from coremargin.errors import DataError
from coremargin.formats.columns import FILE as COLUMNS
from coremargin.models.registry import load
from coremargin.report.charts import FULL, HALF, drawings
from coremargin.report.influence import influence
from coremargin.report.numbers import UNITS, finite, label_text

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.models.coefficients import Hyperplane
    from coremargin.report.page import Json

FEW = 300  #: features without names that there may be: of more, a number says nothing to anybody
_SHOWN, _SHOWN_OF_SEVERAL = 15, 8  # features of a hyperplane
_CLASSES = 12


def influence_of(folder: Path, record: Json, name: str, C: float | None = None) -> dict[str, Any] | None:
    """The view of a model's features; None where nothing separates the classes, or there are many without names.

    record: of the model in ``folder``; name: what the page calls that; C: of a fleet, whose members decide. Raises
    DataError where it is no readable model.
    """
    if (record.get("parameters") or {}).get("map"):  # weights of mapped rows say nothing of features
        return None
    nameless = not (folder / COLUMNS).exists()  # such a model is not even read
    if record.get("status") == "not_separable" or (nameless and (finite(record.get("features")) or 0) > FEW):
        return None
    model = load(folder)
    chosen = model if C is None else model.at(C)
    scaling = chosen.scorer().scaling
    several, unchosen = len(chosen.classes) > 2, C if getattr(model, "C", None) is None else None
    option = "" if unchosen is None else f" --C {unchosen!r}"
    shown = _SHOWN_OF_SEVERAL if several else _SHOWN
    try:
        planes = chosen.coefficients(shown)
    except DataError:  # its weights for rows as they are overflow: it scales rows, and decides nevertheless
        return None
    return {
        "unit": None if scaling is None else UNITS.get(scaling.kind),
        "of_lengths": scaling is not None and scaling.kind not in UNITS,
        "planes": [_plane(plane, number, HALF if several else FULL) for number, plane in enumerate(planes[:_CLASSES])],
        "features": model.features, "shown": shown, "more": model.features > shown,
        "classes_more": max(0, len(planes) - _CLASSES),
        "C": unchosen, "command": f"coremargin coefficients {shlex.quote(name)}{option}",
    }  # fmt: skip


def _plane(plane: Hyperplane, number: int, widths: tuple[int, ...]) -> dict[str, Any]:
    """One hyperplane with its picture."""
    label = label_text(plane.label)
    effects = [(one.feature, one.effect) for one in plane.coefficients]
    return {
        "label": label,
        "against": "" if plane.against is None else label_text(plane.against),
        "features": [one._asdict() for one in plane.coefficients],
        "chart": drawings(widths, partial(influence, f"influence-{number}", effects, label)),
    }
