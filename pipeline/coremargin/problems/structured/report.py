"""The page of structured output: bounds, confusion of rows, transitions of a chain, features of each label."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import FILE
from coremargin.models.registry import load
from coremargin.problems.common.report import influence_of
from coremargin.report import charts, page, rounds, rulers, svg
from coremargin.report.confusion import confusion_view
from coremargin.report.numbers import label_text, significant, visible
from coremargin.report.svg import Frame
from coremargin.report.view import claims_of
from coremargin.report.view import view as common_view

if TYPE_CHECKING:
    from markupsafe import Markup

    from coremargin.report.numbers import Precision
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column

DRAWN = 60  #: most labels whose transitions are drawn
_LISTED = 12  # transitions in each of the two lists
_LONGEST = 12  # characters of a label in the drawing


def page_of(folder: Path, name: str) -> str:
    """The page of a model's folder. Raises DataError when it does not hold a readable model."""
    model, run, records = page.read_folder(folder, FILE)
    own = "function" in model  # a structure of the user, whose weights have no names
    transitions = getattr(load(folder), "transitions", None)
    return render(
        model, run, records, transitions, name=name, influence=None if own else influence_of(folder, model, name)
    )


def render(
    model: Json,
    run: Json,
    records: Sequence[Json],
    transitions: np.ndarray | None,
    *,
    name: str = "MODEL",
    influence: Json | None = None,
) -> str:
    """Render the page from ``model.json``, ``run.json``, ``rounds.jsonl`` and the transitions (k, k) of a chain."""
    claims = claims_of(model, name)
    view = common_view(model, run, records, _columns(claims.precision), name)
    labels = [label_text(label) for label in model.get("classes") or ()]
    soft = view["parameters"].get("loss") is not None
    of, ruler = ("value", rulers.value) if soft else ("margin", rulers.margin)
    drawn: dict[str, Markup | None] = dict(charts.by_round(records, run, claims, of=of))
    drawn |= {"ruler": ruler(claims), "transitions": None}
    if transitions is not None and len(labels) <= DRAWN:
        drawn["transitions"] = charts.drawings(charts.FULL, partial(draw_transitions, transitions, labels))
    if "function" in model:
        view["commands"] = view["commands"] | {"verify": f"{view['commands']['verify']} --structure MODULE:NAME"}
    view |= claims.view() | {
        "soft": soft,
        "charts": drawn,
        **confusion_view(run, view["classes"]),
        "transitions": None if transitions is None else list_transitions(transitions, labels),
        "influence": influence,
    }
    return page.template("problems/structured/report.html.j2").render(view)


def _columns(precision: Precision) -> tuple[Column, ...]:
    bounds = rounds.bounds(precision)
    labellings = rounds.counted("Labellings", "labellings", "labellings with a dual weight")
    rows = rounds.counted("Rows in memory", "working_set_rows")
    return (rounds.NUMBER, rounds.KIND, *bounds, labellings, rows, *rounds.COSTS)


def list_transitions(transitions: np.ndarray, labels: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The highest and the lowest transitions (k, k), from one label to another."""
    order = np.argsort(transitions, axis=None, kind="stable")
    shown = order[: min(_LISTED, len(order) // 2)], order[::-1][: min(_LISTED, len(order) - len(order) // 2)]
    low, high = (
        [
            {"before": labels[i], "after": labels[j], "score": float(transitions[i, j])}
            for i, j in (divmod(int(place), len(labels)) for place in some)
        ]
        for some in shown
    )
    return {"highest": high, "lowest": low}


def draw_transitions(transitions: np.ndarray, labels: Sequence[str], width: int) -> Markup:
    """A cell for each two labels: the one before in its line, the one after in its column; shades for scores."""
    names = [visible(label) for label in labels]
    shown = [name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "\u2026" for name in names]
    margin = max(map(len, shown)) * svg.CHARACTER + 10
    cell = min(26.0, (width - margin - 4) / len(names))
    side = cell * len(names)
    frame = Frame(width, int(margin + side + 6), margin, width - margin - side, margin, 6)
    largest = float(np.abs(transitions).max(initial=0.0)) or 1.0
    parts = []
    if cell >= 11:
        for number, name in enumerate(shown):
            centre = margin + (number + 0.5) * cell
            parts.append(svg.text(margin - 6, centre + 4, name, anchor="end"))
            turned = f"rotate(-90 {centre + 4:.1f} {margin - 6:.1f})"
            parts.append(svg.tag("text", name, x=centre + 4, y=margin - 6, class_="tick", transform=turned))
    for i, line in enumerate(transitions.tolist()):
        for j, score in enumerate(line):
            tip = svg.tag("title", f"{names[i]}, then {names[j]}: {significant(score)}")
            kind = "positive" if score > 0 else "negative"
            parts.append(
                svg.tag(
                    "rect",
                    tip,
                    x=margin + j * cell,
                    y=margin + i * cell,
                    width=cell - 1.0,
                    height=cell - 1.0,
                    class_=f"bar-{kind}",
                    style=f"fill-opacity:{abs(score) / largest:.3f}",
                )
            )
    i, j = divmod(int(np.argmax(transitions)), len(names))
    description = f"The highest score is that of {names[j]} after {names[i]}: {significant(float(transitions[i, j]))}."
    return svg.drawing("transitions", frame, "Scores of labels that follow one another", description, parts)
