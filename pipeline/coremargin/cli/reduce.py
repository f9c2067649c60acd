"""``coremargin reduce``: smaller kernel models."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import (
    MODEL,
    STORE,
    cluster_option,
    cost_option,
    gamma_option,
    json_option,
    kernel_option,
    progress,
    quiet_option,
    storage_option,
)
from coremargin.cli.printing import print_json, print_lines
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.formats.location import Location

SECTION = "Models"


@click.command(no_args_is_help=True)
@click.argument("model", type=MODEL)
@click.argument("store", type=STORE)
@click.option("--out", type=STORE, required=True, help="Folder of the new model, or its address.")
@click.option("--rows", type=click.IntRange(1), metavar="NUMBER", required=True, help="Most rows in the new model.")
@cost_option
@gamma_option
@kernel_option
@storage_option
@cluster_option
@click.option("--overwrite", is_flag=True, help="Replace an existing model.")
@json_option
@quiet_option
def reduce(  # noqa: PLR0913 - one for each option
    model: Path | Location,
    store: Path | Location,
    *,
    out: Path | Location,
    rows: int,
    C: float | None,
    gamma: str | float | None,
    kernel: Any,
    cluster: str | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make a smaller kernel model from MODEL, and prove on STORE what that costs.

    STORE is the one that MODEL was trained on. The new model has at most --rows support vectors, chosen and weighted
    so that its decisions change as little as possible; prediction becomes faster in proportion. One scan
    proves how far decision values move, how many rows may change class, and the bounds of the new certificate,
    which `coremargin verify` checks. The folder keeps all rows of the old model, which the proof needs. With
    several models, the selected one is reduced, or the one of --C and --gamma.

    \b
    Examples:
      coremargin reduce rows.model rows.zarr --rows 500 --out small.model
      coremargin verify small.model rows.zarr
    """
    from coremargin.problems.kernel.kind import describe_reduction
    from coremargin.problems.kernel.reduce import reduce as reduce_model
    from coremargin.problems.registry import write_report

    with terminable(), progress(quiet=quiet) as advance:

        def show(done: int, all_rows: int) -> None:
            if advance is not None:
                advance("comparing", done, all_rows, f"{done:,} rows")

        report = partial(write_report, name=str(out))
        made = reduce_model(
            model,
            store,
            out,
            rows=rows,
            C=C,
            gamma=gamma,
            kernel=kernel,
            cluster=cluster,
            overwrite=overwrite,
            report=report,
            on_progress=show,
        )
    if as_json:
        print_json({"out": str(out), "status": made.status, **made.record["reduced"], **made.proof})
    else:
        print_lines(f"{out}: {describe_reduction(made)}", f"it is {made.status}: {made.bounds_text()}")


COMMANDS = (reduce,)
