"""From a campaign to Label Studio's ML backend, until somebody ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.active import Campaign
from coremargin.active.answers import check_number
from coremargin.active.external_answers import refuse_several
from coremargin.data.locked import Locked
from coremargin.label_studio.server import serve
from coremargin.label_studio.sync import Synchronizer
from coremargin.page.row_view import Shown
from coremargin.serve.access import LOOPBACK, open_listener

if TYPE_CHECKING:
    from coremargin.label_studio.client import Client
    from coremargin.serve.access import Address

ADDRESS = "label-studio.json"  #: where it is served, in the folder of the campaign
WAIT_S = 3.0  #: for what the thread aside is doing when somebody ends it


def run_backend(  # noqa: PLR0913 - what the options of the command say
    path: Path,
    *,
    ahead: int,
    client: Client | None,
    port: int | None = None,
    host: str | None = None,
    cluster: str | None = None,
    show: Mapping[str, str | None],
    ready: Callable[[Address], None],
) -> None:
    """Serve until KeyboardInterrupt. ready: called with the address when requests are answered.

    show: as ``Shown`` has it. Raises Busy where another one serves this campaign, OutputError where nobody can listen
    there, UsageError where several people are asked about each row or no question is to lie ready, and what
    ``Campaign`` and ``Shown`` raise.
    """
    check_number(ahead)
    campaign = Campaign(path, cluster=cluster)
    refuse_several(campaign.facts.people)
    with Locked(campaign.path / ADDRESS, "answers of Label Studio", advice="end the other program first"):
        shown = Shown(campaign.store, **show)
        address, listener = open_listener(campaign.path / ADDRESS, port, host or LOOPBACK[0])
        desk = Synchronizer(campaign, ahead=ahead, client=client, shown=shown)
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(serve(desk, address, listener, lambda: ready(address)))
        if desk.stop(WAIT_S):
            campaign.close()
