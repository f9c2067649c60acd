"""``coremargin show``: what a model is, what it claims and how it was made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import json_option
from coremargin.cli.outliers import which_rows
from coremargin.cli.printing import count, facts, say, say_json
from coremargin.errors import DataError
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from coremargin.models.model import Model
    from coremargin.models.multiclass import MulticlassModel

SECTION = "Models"


@click.command(no_args_is_help=True)
@click.argument("model", type=click.Path(path_type=Path))
@json_option
def show(model: Path, *, as_json: bool) -> None:
    """Show what a MODEL is, what it claims and how it was made.

    What it claims is not checked here: `coremargin verify` does that.

    \b
    Examples:
      coremargin show rows.model
      coremargin show rows.model --json | jq .certificate.ratio
    """
    from coremargin.cli.fleet_words import fleet_facts
    from coremargin.models.fleet import FleetModel, read_model

    loaded, run = read_model(model), _run_of(model)
    if as_json:
        say_json({**loaded.record, "run": run})
    elif isinstance(loaded, FleetModel):
        say(*fleet_facts(model, loaded, _made(run)))
    else:
        say(*_described(model, loaded, run))


def _run_of(model: Path) -> dict[str, Any]:
    """How the run went; empty when the file is missing or broken, as nothing rests on it."""
    from coremargin.formats.plain_file import read_plain
    from coremargin.formats.run_record import RUN
    from coremargin.formats.strict_json import LARGEST, read_object

    path = model / RUN
    try:
        return read_object(read_plain(path, LARGEST), str(path), names=True)
    except (OSError, DataError):
        return {}


def _described(path: Path, model: Model | MulticlassModel, run: dict[str, Any]) -> list[str]:
    sides = ("", "") if len(model.classes) > 2 else (" (negative)", " (positive)")
    names = ", ".join(f"{label!r}{sides[k % 2]}" for k, label in enumerate(model.classes))
    intercept = "" if model.parameters.get("intercept", True) else ", through the origin"
    pairs = [
        ("model", f"{path}, {model.problem}{intercept}"),
        ("status", model.status),
        ("classes", names),
        ("rows", f"{model.rows:,} of {model.features:,} features, {model.record['dtype']}"),
        *_scaling(model),
        *_claims(model),
        ("store", model.certificate.store_digest),
        ("software", ", ".join(f"{name} {version}" for name, version in model.record["software"].items())),
    ]
    return facts([*pairs, *_made(run)])


def _made(run: dict[str, Any]) -> list[tuple[str, str]]:
    """When, and what it cost, as far as that is known."""
    numbers = {key: value for key, value in run.items() if isinstance(value, int | float)}
    pairs = [("made", str(run["started"]))] if "started" in run else []
    if {"scans", "bytes_read", "seconds"} <= set(numbers):
        scans = count(int(numbers["scans"]), "scan")
        took = f"{scans}, {format_size(numbers['bytes_read'])} in {format_seconds(numbers['seconds'])}"
        pairs.append(("took", took))
    return pairs


def _scaling(model: Model | MulticlassModel) -> list[tuple[str, str]]:
    from coremargin.report.numbers import SCALINGS

    if model.scaling is None:
        return []
    return [("scaling", f"{model.scaling}: {SCALINGS[model.scaling]}; what is claimed is about rows so scaled")]


def _claims(model: Model | MulticlassModel) -> list[tuple[str, str]]:
    claims, asked = model.certificate, model.parameters
    ratio = ("ratio", f"{_bound(claims.ratio)}, epsilon {claims.epsilon}")
    if claims.kind == "duality_gap":
        weight = asked["class_weight"]
        shown = "" if weight is None else f", class weight {weight if weight == 'balanced' else tuple(weight)}"
        value = f"at most {_bound(claims.upper)} over {which_rows(model)}"
        if claims.upper is None:
            value = "not known: no scan of all rows was finished"
        return [
            ("loss", f"{asked['loss']}, C {asked['C']:g}{shown}"),
            ("value", value),
            ("best possible", f"at least {_bound(claims.lower)}"),
            ratio,
        ]
    return [
        ("margin", f"{_bound(claims.lower)} proven for {which_rows(model)}"),
        ("best possible", f"at most {_bound(claims.upper)}"),
        ratio,
        ("coreset", f"{claims.coreset_rows:,} rows carry the proof"),
    ]


def _bound(value: float | None) -> str:
    return "nothing" if value is None else repr(value)  # every digit: a rounded bound may claim too much


COMMANDS = (show,)
