"""The command that makes models of kernels smaller: reduce."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from coremargin.cli.common import (
    MODEL,
    PATH,
    cluster_option,
    cost_option,
    gamma_option,
    json_option,
    kernel_option,
    progress,
    quiet_option,
)
from coremargin.cli.printing import print_json, print_lines
from coremargin.engine.interruption import terminable

SECTION = "Models"


@click.command(no_args_is_help=True)
@click.argument("model", type=MODEL)
@click.argument("store", type=PATH)
@click.option("--out", type=PATH, required=True, help="Folder of the new model.")
@click.option("--rows", type=click.IntRange(1), metavar="NUMBER", required=True, help="Rows that carry it, at most.")
@cost_option
@gamma_option
@kernel_option
@cluster_option
@click.option("--overwrite", is_flag=True, help="Replace a model that is there.")
@json_option
@quiet_option
def reduce(  # noqa: PLR0913 - one word for each decision, all but four with a default
    model: Path, store: Path, *, out: Path, rows: int, C: float | None, gamma: str | float | None, kernel: Any,
    cluster: str | None, overwrite: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Make a smaller model of a MODEL of a kernel, and prove on STORE what that costs.

    STORE is what the model was trained on. So many of its rows as --rows says carry the new model, chosen and weighted
    so that it decides as nearly as before as it can; it predicts and is exported in proportion faster and smaller. One
    scan of all rows proves how far its decision values are from those of before, how many rows may be given another
    class, and the bounds of its own certificate, which `coremargin verify` checks as those of any model. Its folder
    keeps all rows of the old one, which are needed for that. Of a fleet the machine that is chosen is
    made smaller, or the one of --C and --gamma.

    \b
    Examples:
      coremargin reduce rows.model rows.zarr --rows 500 --out small.model
      coremargin verify small.model rows.zarr
    """
    from coremargin.problems.kernel.reduce import reduce as run
    from coremargin.problems.kernel.words import reduced_told
    from coremargin.problems.registry import write_report

    with terminable(), progress(quiet=quiet) as advance:

        def shown(done: int, all_rows: int) -> None:
            if advance is not None:
                advance("comparing", done, all_rows, f"{done:,} rows")

        named = partial(write_report, name=str(out))
        made = run(
            model, store, out, rows=rows, C=C, gamma=gamma, kernel=kernel, cluster=cluster, overwrite=overwrite,
            report=named,
            on_progress=shown,
        )  # fmt: skip
    if as_json:
        print_json({"out": str(out), "status": made.status, **made.record["reduced"], **made.proof})
    else:
        print_lines(f"{out}: {reduced_told(made)}", f"it is {made.status}: {made.bounds_text()}")


COMMANDS = (reduce,)
