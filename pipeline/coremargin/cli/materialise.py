"""``coremargin materialise``: write mapped rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from coremargin.cli.common import MODEL, STORE, json_option, progress, quiet_option, storage_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.interruption import terminable
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.formats.location import Location

SECTION = "Models"


@click.command(no_args_is_help=True)
@click.argument("model", type=MODEL)
@click.argument("store", type=STORE)
@storage_option
@click.option("--out", type=STORE, required=True, help="Path of the new store, or its address.")
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="Data type of the rows.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing store.")
@json_option
@quiet_option
def materialise(
    model: Path | Location,
    store: Path | Location,
    *,
    out: Path | Location,
    dtype: str,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the rows of STORE, scaled and mapped by MODEL, into a new store.

    Useful if you train on mapped rows many times and have the disk space: training on the new store reads mapped rows
    instead of mapping them each time. With float64 it is the same problem, to the bit; float32 takes half the space.
    MODEL must have been trained with --map. Rows to predict must be materialised with the same MODEL.

    \b
    Examples:
      coremargin train rows.zarr --out first.model --map nystroem --components 500 --loss hinge
      coremargin materialise first.model rows.zarr --out mapped.zarr
      coremargin train mapped.zarr --out more.model --loss hinge --C 0.1,1,10 --folds 5
    """
    from coremargin.models.materialise import materialise as write_mapped_rows

    with terminable(), progress(quiet=quiet) as advance:

        def show(done: int, rows: int) -> None:
            if advance is not None:
                advance("mapping", done, rows, f"{done:,} rows")

        made = write_mapped_rows(model, store, out, dtype=cast("Any", dtype), overwrite=overwrite, on_rows=show)
    if as_json:
        print_json({"store": made.name, "rows": made.rows, "features": made.features, "digest": made.digest})
    else:
        print_lines(f"wrote {made.rows:,} rows of {made.features:,} features, {format_size(made.scan_bytes)}, to {out}")


COMMANDS = (materialise,)
