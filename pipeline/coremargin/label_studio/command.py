"""From a campaign to Label Studio's ML backend, until somebody ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.active import Campaign
from coremargin.data.locked import Locked
from coremargin.label_studio.desk import Desk
from coremargin.label_studio.server import serve
from coremargin.serve.access import LOOPBACK, bound

if TYPE_CHECKING:
    from coremargin.label_studio.client import Client
    from coremargin.serve.access import Address

ADDRESS = "label-studio.json"  #: where it is served, in the folder of the campaign
WAIT_S = 3.0  #: for what the thread aside is doing when somebody ends it


def run_backend(
    path: Path, *, ahead: int, client: Client | None, port: int | None = None, host: str | None = None,
    cluster: str | None = None, ready: Callable[[Address], None],
) -> None:  # fmt: skip
    """Serve until KeyboardInterrupt. ready: called with the address when requests are answered.

    Raises Busy where another one serves this campaign, OutputError where nobody can listen there, and what ``Campaign``
    raises.
    """
    campaign = Campaign(path, cluster=cluster)
    with Locked(campaign.path / ADDRESS, "answers of Label Studio", advice="end the other program first"):
        address, listener = bound(campaign.path / ADDRESS, port, host or LOOPBACK[0])
        desk = Desk(campaign, ahead=ahead, client=client)
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(serve(desk, address, listener, lambda: ready(address)))
        if desk.stop(WAIT_S):
            campaign.close()
