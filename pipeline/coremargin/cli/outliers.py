"""``coremargin outliers``: which rows a model leaves out, and what that buys."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from coremargin.cli.common import json_option
from coremargin.cli.printing import print_json, print_lines

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
    from coremargin.models.registry import read_model
    from coremargin.problems.outliers import messages
    from coremargin.problems.outliers.left_out import left_out

    found = left_out(read_model(model))
    if as_json:
        print_json(asdict(found))
    else:
        print_lines(*messages.listed(found))


COMMANDS = (outliers,)
