"""The command that writes rows as a model maps them: materialise."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from coremargin.cli.common import MODEL, PATH, json_option, progress, quiet_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.interruption import terminable
from coremargin.spec import format_size

SECTION = "Models"


@click.command(no_args_is_help=True)
@click.argument("model", type=MODEL)
@click.argument("store", type=PATH)
@click.option("--out", type=PATH, required=True, help="The new store.")
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
    model: Path, store: Path, *, out: Path, dtype: str, overwrite: bool, as_json: bool, quiet: bool
) -> None:
    """Write the rows of STORE as MODEL scales and maps them into another store.

    For who has disk to spare and trains on mapped rows many times: training on the new store reads them instead of
    mapping them each time. With float64 it is the same problem, to the bit; float32 takes half of the disk. MODEL is
    one that was trained with --map. New rows have to be materialised by the same MODEL before a model of the new store
    can decide about them.

    \b
    Examples:
      coremargin train rows.zarr --out first.model --map nystroem --components 500 --loss hinge
      coremargin materialise first.model rows.zarr --out mapped.zarr
      coremargin train mapped.zarr --out more.model --loss hinge --C 0.1,1,10 --folds 5
    """
    from coremargin.models.materialise import materialise as run

    with terminable(), progress(quiet=quiet) as advance:

        def shown(done: int, rows: int) -> None:
            if advance is not None:
                advance("mapping", done, rows, f"{done:,} rows")

        made = run(model, store, out, dtype=cast("Any", dtype), overwrite=overwrite, on_rows=shown)
    if as_json:
        print_json({"store": made.name, "rows": made.rows, "features": made.features, "digest": made.digest})
    else:
        print_lines(f"wrote {made.rows:,} rows of {made.features:,} features, {format_size(made.nbytes)}, to {out}")


COMMANDS = (materialise,)
