"""The command line: one module per group of commands.

A module has ``COMMANDS`` (click commands) and a ``SECTION`` (their heading in ``coremargin --help``;
``common.SECTIONS`` is the order of the headings). It is named at the end of this file or, with its kind of problem, in
formats/kinds.py. Modules import NumPy, Dask and Zarr inside of commands, so that ``--help`` is fast.
"""

from __future__ import annotations

import logging
import sys

import click

from coremargin.cli import (
    coefficients,
    export,
    ingest,
    init,
    kinds,
    materialise,
    model_use,
    registry,
    schedule,
    show,
    store_changes,
    stores,
    train,
)
from coremargin.cli.common import Main
from coremargin.cli.printing import Formatter, Records, print_bug, print_lines
from coremargin.interruption import command_was_interrupted
from coremargin.version import version


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        print_lines(f"coremargin {version()}")
        ctx.exit()


@click.group("coremargin", cls=Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.option("-v", "--verbose", count=True, help="Log to stderr: -v steps, -vv details.")
def main(verbose: int) -> None:
    """Train maximum-margin classifiers from disk, with a certificate of their optimality gap.

    A first job, from a file to a verified model:

    \b
      coremargin ingest rows.csv rows.zarr
      coremargin train rows.zarr --out rows.model --epsilon 1e-3
      coremargin verify rows.model rows.zarr

    Exit codes: 0 done, 1 a bug (with a traceback), 2 wrong usage or an existing output, 3 a problem with the
    data, 4 not certified, 5 the run failed, 10 refused by a gate, 11 files are in quarantine, 12 rows were not
    expired because the clock is in doubt, 75 another run of the job is active, 130 interrupted, 141 the output
    was closed early.
    """
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    handler = Records()
    handler.setLevel(level)  # explicit, since Dask sets lower levels for its loggers
    handler.setFormatter(Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: not (command_was_interrupted() and record.name.startswith("distributed")))
    logging.basicConfig(level=level, handlers=[handler])
    sys.excepthook = print_bug


for _module in (
    ingest,
    stores,
    store_changes,
    init,
    train,
    *kinds.modules(),
    model_use,
    show,
    coefficients,
    kinds,
    export,
    materialise,
    registry,
    schedule,
):
    for _command in _module.COMMANDS:
        main.add_to_section(_module.SECTION, _command)
