"""``coremargin coefficients``: weights by feature name."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import MODEL, WHOLE, cost_option, json_option, storage_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.errors import UsageError
from coremargin.report.numbers import SCALINGS, UNITS
from coremargin.report.text import count, table

if TYPE_CHECKING:
    from coremargin.formats.location import Location
    from coremargin.models.base import BaseModel
    from coremargin.models.coefficients import Hyperplane

SECTION = "Models"
_TOP = 20  #: features of a class in the text


@click.command(no_args_is_help=True)
@click.argument("model", type=MODEL)
@click.option("--top", type=WHOLE, help="Features to list per class.  [default: 20; all with --json or --csv]")
@cost_option
@click.option("--class", "label", metavar="LABEL", help="Only the coefficients of this class.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of text.")
@storage_option
@json_option
def coefficients(
    model: Path | Location, *, top: int | None, C: float | None, label: str | None, as_csv: bool, as_json: bool
) -> None:
    """Show the weights of a MODEL by feature name, the most important first.

    The weight of a feature is the change of the decision value per unit of the raw feature, whatever the scaling (for
    rownorm: of the normalised rows). With scaled columns, the effect is the change per unit of the scaled feature; for
    standard, per standard deviation. Features are sorted by the size of their effect or, without scaling, of their
    weight, which means little if features have different units. Positive values favour the class that is named.

    \b
    Examples:
      coremargin coefficients adult.model
      coremargin coefficients iris.model --class setosa --top 5
      coremargin coefficients adult.model --csv > weights.csv
    """
    from coremargin.models.predict import opened_model

    if as_csv and as_json:
        raise UsageError("--csv and --json cannot be combined")
    trained = opened_model(model, C)
    planes = _select_class(trained.coefficients(_TOP if top is None and not (as_csv or as_json) else top), label)
    if as_json:
        print_json(_as_json(model, trained, planes))
    else:
        print_lines(*(_as_csv(planes) if as_csv else _as_text(model, trained, planes)))


def _select_class(planes: list[Hyperplane], label: str | None) -> list[Hyperplane]:
    """The hyperplane of a class; with two classes it is negated for the first."""
    if label is None:
        return planes
    negated = [_negate(plane) for plane in planes if plane.against is not None]
    every = [*negated, *planes]
    for plane in every:
        if label in (str(plane.label), repr(plane.label)):
            return [plane]
    known = ", ".join(repr(plane.label) for plane in every[:8]) + (", ..." if len(every) > 8 else "")
    raise UsageError(f"--class {label}: expected one of the model's classes: {known}")


def _negate(plane: Hyperplane) -> Hyperplane:
    found = tuple(one._replace(weight=-one.weight, effect=-one.effect) for one in plane.coefficients)
    return plane._replace(label=plane.against, against=plane.label, intercept=-plane.intercept, coefficients=found)


def _scaling(trained: BaseModel) -> str | None:
    scaling = trained.scorer().scaling
    return None if scaling is None else scaling.kind


def _as_json(path: Path | Location, trained: BaseModel, planes: Sequence[Hyperplane]) -> dict[str, Any]:
    classes = [
        {
            "class": plane.label,
            "against": plane.against,
            "intercept": plane.intercept,
            "coefficients": [one._asdict() for one in plane.coefficients],
        }
        for plane in planes
    ]
    return {"model": str(path), "features": trained.features, "scaling": _scaling(trained), "classes": classes}


def _as_csv(planes: Sequence[Hyperplane]) -> list[str]:
    lines = [_csv_line(["class", "feature", "column", "weight", "effect"])]
    for plane in planes:
        lines.append(_csv_line([plane.label, "(intercept)", "", plane.intercept, ""]))
        lines += [_csv_line([plane.label, *one]) for one in plane.coefficients]
    return lines


def _csv_line(values: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def _as_text(path: Path | Location, trained: BaseModel, planes: Sequence[Hyperplane]) -> list[str]:
    scaling = _scaling(trained)
    unit = UNITS.get(scaling or "")
    where = " of normalised rows" if scaling == "rownorm" else ""
    lines = [f"{path}: {count(trained.features, 'feature')}" + (f", scaled: {SCALINGS[scaling]}" if scaling else "")]
    lines.append(
        f"weight: change of the decision value per unit of a feature{where}" + (f"; effect: per {unit}" if unit else "")
    )
    for plane in planes:
        against = "all others" if plane.against is None else repr(plane.against)
        sides = f"{plane.label!r} (+) against {against} (-)"
        title = "score: the higher, the further ahead" if trained.ranks else sides
        lines += ["", title, *_table(plane, effects=unit is not None)]
    more = trained.features - max(len(plane.coefficients) for plane in planes)
    return [*lines, "", f"{more:,} more features; --top {trained.features} shows all"] if more else lines


def _table(plane: Hyperplane, *, effects: bool) -> list[str]:
    head = ("feature", "weight", *(("effect",) if effects else ()))
    rows = [
        (one.feature, f"{one.weight:+.6g}", *((f"{one.effect:+.6g}",) if effects else ())) for one in plane.coefficients
    ]
    return table([head, *rows, ("intercept", f"{plane.intercept:+.6g}", *(("",) if effects else ()))])


COMMANDS = (coefficients,)
