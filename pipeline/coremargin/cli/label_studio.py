"""``coremargin active label-studio``: annotators answer in Label Studio."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.campaigns import campaign_argument, opening, shown_of, shown_options
from coremargin.cli.common import WHOLE, cluster_option
from coremargin.cli.printing import print_lines
from coremargin.errors import Interrupted, UsageError
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.label_studio.client import Client
    from coremargin.serve.access import Address


@click.command(name="label-studio")
@campaign_argument
@click.option("--configuration", is_flag=True, help="Print the labelling configuration for a project and exit.")
@shown_options
@click.option("--url", envvar="LABEL_STUDIO_URL", show_envvar=True, help="URL of Label Studio.")
@click.option("--project", type=click.IntRange(1), help="Number of the project that receives the tasks.")
@click.option("-n", "ahead", type=WHOLE, default=20, show_default=True, help="Questions to keep in the project.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on.  [default: the same as last time]")
@click.option("--host", help="Address to listen on.  [default: this machine only]")
@cluster_option
def label_studio(campaign: Path, configuration: bool, url: str | None, project: int | None, **options: Any) -> None:
    """Serve a campaign as the ML backend of Label Studio.

    Register the printed address with a project (Settings, Model, Connect Model): annotations that are created,
    changed or deleted there are recorded here. With --project, and an access token in LABEL_STUDIO_API_KEY,
    questions become tasks of the project and missed annotations are fetched. --text, --image and --pixels say what
    Label Studio shows of a row; give them to --configuration too. Ctrl-C stops it.

    \b
      coremargin active label-studio rows.campaign --configuration
      coremargin active label-studio rows.campaign --url http://127.0.0.1:8080 --project 3
    """
    from coremargin.active.external_answers import refuse_several
    from coremargin.label_studio.server import run_backend
    from coremargin.label_studio.tasks import configuration as for_project
    from coremargin.page.row_view import RowView

    show = shown_of(options)
    if configuration:
        with opening(campaign) as opened:
            refuse_several(opened.settings.people)
            print_lines(for_project(opened.classes, RowView(opened.store, **show).parts).rstrip("\n"))
        return

    def ready(address: Address) -> None:
        print_lines(f"the address for Label Studio: {address.url}", "Ctrl-C ends it; every answer is kept")

    client = _client(url, project)
    with terminable():
        run_backend(campaign, client=client, show=show, ready=ready, **options)
    raise Interrupted(f"Label Studio's backend of {campaign} has ended; every answer is kept")


def _client(url: str | None, project: int | None) -> Client | None:
    """The client of Label Studio's API; None without --project."""
    from coremargin.label_studio.client import KEY, Client

    if project is None:
        return None
    key = os.environ.get(KEY)
    if url is None or not key:
        missing = "--url, where Label Studio is" if url is None else f"an access token of Label Studio in {KEY}"
        raise UsageError(f"--project: expected {missing}, found none; give it")
    return Client(url, project, key)
