"""``coremargin active label`` and ``page``: label rows in a terminal, or in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coremargin.cli.campaigns import campaign_argument, opening, print_status, shown_options, who_option
from coremargin.cli.common import cluster_option, quiet_option
from coremargin.cli.printing import print_lines
from coremargin.errors import Interrupted
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.serve.access import Address


@click.command()
@campaign_argument
@who_option
@cluster_option
@quiet_option
def label(campaign: Path, who: str | None, cluster: str | None, quiet: bool) -> None:
    """Answer in the terminal with one key per row: 1, 2, ... for up to nine labels.

    While a label is unknown, and for more than nine, type labels as words. s skips a question, ? marks a row that
    no annotator can label, u undoes the last answer of --who, q quits. Several people may answer at the same time.

    \b
      coremargin active label rows.campaign --who anna
    """
    from coremargin.cli.terminal import require_terminal, session, when_free

    require_terminal()
    with opening(campaign, cluster, quiet=quiet, whole=False) as opened:
        session(opened, who)
        status = when_free(lambda: opened.status)
    print_status(status, as_json=False)


@click.command()
@campaign_argument
def report(campaign: Path) -> None:
    """Write the report of a campaign, CAMPAIGN/report.html: claims, questions, answers, annotators.

    \b
      coremargin active report rows.campaign
    """
    with opening(campaign) as opened:
        print_lines(f"wrote {opened.report()}")


@click.command()
@campaign_argument
@shown_options
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on.  [default: the same as last time]")
@cluster_option
def page(
    campaign: Path, text: str | None, image: str | None, pixels: str | None, port: int | None, cluster: str | None
) -> None:
    """Answer in the browser, one key per row.

    The page is served to this machine only, at an address that contains a secret; several people who have it can
    answer at the same time. Ctrl-C stops it. Every answer is on disk before the next question is shown.

    \b
      coremargin active page rows.campaign
      coremargin active page mails.campaign --text mails.parquet:body
      coremargin active page digits.campaign --pixels 8x8
    """
    from coremargin.page.server import run_page

    def ready(address: Address) -> None:
        print_lines(f"open {address.url}", "Ctrl-C ends it; every answer is kept, and the address stays the same")

    with terminable():
        run_page(campaign, text=text, image=image, pixels=pixels, port=port, cluster=cluster, ready=ready)
    raise Interrupted(f"the page of {campaign} has ended; every answer is kept")
