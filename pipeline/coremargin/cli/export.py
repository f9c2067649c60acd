"""``coremargin export``: models for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import MODEL, STORE, cost_option, gamma_option, json_option, storage_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.interruption import terminable
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.formats.location import Location

SECTION = "Models"


@click.command(no_args_is_help=True)
@click.argument("model", type=MODEL)
@click.argument("out", type=STORE)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["onnx", "sklearn-skops"]),
    default="onnx",
    show_default=True,
    help="onnx: an ONNX graph; sklearn-skops: a fitted LinearSVC, saved by skops.",
)
@click.option(
    "--precision",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="Data type of rows, coefficients and decision values in ONNX.",
)
@cost_option
@gamma_option
@storage_option
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@json_option
def export(  # noqa: PLR0913 - one for each option
    model: Path | Location,
    out: Path | Location,
    *,
    kind: Any,
    precision: Any,
    C: float | None,
    gamma: str | float | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write MODEL to the file or address OUT, for use without coremargin.

    ONNX (pip install 'coremargin[onnx]'): input X (rows, features), outputs label and decision. In float64 both
    agree with `coremargin predict`; in float32 rows and coefficients are rounded first. skops (pip install
    'coremargin[skops]'): skops.io.load returns a scikit-learn LinearSVC that predicts the same.

    \b
    Examples:
      coremargin export rows.model rows.onnx
      coremargin export rows.model rows.skops --format sklearn-skops
    """
    from coremargin.models.export import export as export_model

    with terminable():
        size = export_model(model, out, format=kind, precision=precision, C=C, gamma=gamma, overwrite=overwrite)
    if as_json:
        print_json({"out": str(out), "format": kind, "bytes": size})
    else:
        print_lines(f"{out}: {kind}, {format_size(size)}")


COMMANDS = (export,)
