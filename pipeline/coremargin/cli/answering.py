"""``coremargin active label`` and ``page``: people answer in a terminal, or in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coremargin.cli.campaigns import campaign_argument, opening, say, shown_options, who_option
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
    """Answer in this terminal, one key an answer: 1, 2 and so on for up to nine labels.

    As long as a label is not known, and of more than nine, labels are typed as words. s puts a question off, ?
    says that nobody can tell, u takes back the last answer of --who, q ends. Several people may answer at the same
    time.

    \b
      coremargin active label rows.campaign --who anna
    """
    from coremargin.cli.labelling import require_terminal, session, when_free

    require_terminal()
    with opening(campaign, cluster, quiet=quiet, whole=False) as opened:
        session(opened, who)
        status = when_free(lambda: opened.status)
    say(status, as_json=False)


@click.command()
@campaign_argument
def report(campaign: Path) -> None:
    """Write what a campaign claims, asked and was told, by whom, as a page: CAMPAIGN/report.html.

    \b
      coremargin active report rows.campaign
    """
    with opening(campaign) as opened:
        print_lines(f"wrote {opened.report()}")


@click.command()
@campaign_argument
@shown_options
@click.option("--port", type=click.IntRange(1, 65535), help="Where to listen; else where it was the last time.")
@cluster_option
def page(
    campaign: Path, text: str | None, image: str | None, pixels: str | None, port: int | None, cluster: str | None
) -> None:
    """Answer in a browser: one row at a time, one key an answer.

    The page is served to this machine only, at an address that holds a secret; whoever has it can answer, several
    people at a time. Ctrl-C ends it. Every answer is on disk before the next question.

    \b
      coremargin active page rows.campaign
      coremargin active page mails.campaign --text mails.parquet:body
      coremargin active page digits.campaign --pixels 8x8
    """
    from coremargin.page.command import run_page

    def ready(address: Address) -> None:
        print_lines(f"open {address.url}", "Ctrl-C ends it; every answer is kept, and the address stays the same")

    with terminable():
        run_page(campaign, text=text, image=image, pixels=pixels, port=port, cluster=cluster, ready=ready)
    raise Interrupted(f"the page of {campaign} has ended; every answer is kept")
