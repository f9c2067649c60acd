"""Shared parts of commands about campaigns: options, opening one, and printing its status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import PATH
from coremargin.cli.printing import print_json, print_lines
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.engine.problem import NextScan

campaign_argument = click.argument("campaign", type=PATH)
_SHOWN = (
    click.option("--text", metavar="FILE[:COLUMN]", help="Texts of the rows: one per line, or a column of a table."),
    click.option(
        "--image",
        metavar="PATTERN|FILE:COLUMN",
        help="Images of the rows: a path with {row} in it, or a column of paths relative to the table.",
    ),
    click.option("--pixels", metavar="HxW[x3]", help="Draw the features as an image of this height and width."),
)
who_option = click.option("--who", metavar="NAME", help="Name of the annotator.  [default: the current user]")


def shown_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that show rows to people."""
    for option in reversed(_SHOWN):
        command = option(command)
    return command


def shown_of(options: dict[str, Any]) -> dict[str, str | None]:
    """Remove these options from all options; returns them as arguments of ``RowView``."""
    return {name: options.pop(name) for name in ("text", "image", "pixels")}


@contextmanager
def opening(path: Path, cluster: str | None = None, *, quiet: bool = True, whole: bool = True) -> Iterator[Campaign]:
    """Open a campaign within the context; scans are reported on stderr. whole: hold its lock throughout."""
    from coremargin.active import Campaign
    from coremargin.engine.loop import Callbacks
    from coremargin.spec import format_size

    def scan(which: NextScan, size: int) -> None:
        print_lines(f"scan {which.number}: no row in memory is worth a question; reading {format_size(size)}", err=True)

    with terminable():
        opened = Campaign(path, cluster=cluster, watch=Callbacks() if quiet else Callbacks(on_scan=scan))
        with opened.locked() if whole else nullcontext(), opened:
            yield opened


def print_status(
    found: dict[str, Any], as_json: bool, *head: str, before: dict[str, Any] | None = None, **more: Any
) -> None:
    """Print the status of a campaign; before: the status before new answers."""
    from coremargin.cli.campaign_status import ended, status_text

    if as_json:
        print_json({**more, **found})
    else:
        print_lines(*head, *(() if before is None else ended(before, found)), *status_text(found))
