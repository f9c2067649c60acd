"""``coremargin outliers``: which rows a model leaves out, and what that buys."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coremargin.cli.common import json_option
from coremargin.cli.printing import say, say_json
from coremargin.report.numbers import plain_bounds, plain_share
from coremargin.report.text import table

if TYPE_CHECKING:
    from coremargin.models.left_out import LeftOut, Step

SECTION = "Models"


@click.command(no_args_is_help=True)
@click.argument("model", type=click.Path(path_type=Path))
@json_option
def outliers(model: Path, as_json: bool) -> None:
    """List the rows that MODEL leaves out, and the margin against their number.

    A row's gain is how much smaller the margin of the others would be at least if that row had to stay. The rows are
    those that spoil the margin most: look at their labels first.

    \b
      coremargin train rows.zarr --out rows.model --outliers 0..10
      coremargin outliers rows.model
    """
    from coremargin.models.fleet import read_model
    from coremargin.models.left_out import left_out

    found = left_out(read_model(model))
    if as_json:
        say_json(asdict(found))
    else:
        say(*outliers_text(found))


def outliers_text(found: LeftOut) -> list[str]:
    """Two tables."""
    rows = [("row", "label", "margin", "gain")]
    rows += [
        (f"{row.id:,}", repr(row.label), f"{row.margin:.6g}", "?" if row.gain is None else f"{row.gain:.4g}")
        for row in found.rows
    ]
    steps = [("outliers", "margin", "at most", "proven"), *(_step(step) for step in found.steps)]
    none = "no row is below the margin: none needs to be left out" if found.steps[-1].lower else "no rows are left out"
    lines = [*(table(rows, indent="", left=0) if found.rows else [none]), "", *table(steps, indent="", left=0)]
    if found.contradictions:
        lines += ["", "no hyperplane separates any of these sets of rows, no two of which have a row in common:"]
        lines += [f"  rows {', '.join(map(str, ids))}" for ids in found.contradictions]
    return lines


def _step(step: Step) -> tuple[str, str, str, str]:
    lower, upper = plain_bounds(step.lower, step.upper)
    if step.impossible:
        return f"{step.k:,}", lower or "none", "0", "not separable"
    share = plain_share(min(1.0, step.lower / step.upper)) if step.lower is not None and step.upper else ""
    return f"{step.k:,}", lower or "none", upper or "?", share


COMMANDS = (outliers,)
