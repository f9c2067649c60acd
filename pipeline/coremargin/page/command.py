"""From a campaign to its page, until somebody ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from coremargin.active import Campaign
from coremargin.data.locked import Locked
from coremargin.engine.loop import Callbacks
from coremargin.errors import Busy
from coremargin.page.access import FILE
from coremargin.page.row_view import Shown
from coremargin.page.server import serve
from coremargin.page.worker import CampaignWorker, Reading
from coremargin.serve.access import load_address, open_listener

if TYPE_CHECKING:
    from coremargin.serve.access import Address

WAIT_S = 3.0  #: for what the thread aside is doing when somebody ends the page


def run_page(
    path: Path,
    *,
    text: str | None,
    image: str | None,
    pixels: str | None,
    port: int | None,
    cluster: str | None,
    ready: Callable[[Address], None],
) -> None:
    """Serve the page of a campaign until KeyboardInterrupt. ready: called with its address when it can be opened.

    Raises Busy where a page of this campaign is open already, and what ``Campaign`` and ``Shown`` raise.
    """
    reading = Reading()
    watch = Callbacks(on_scan=reading.scan, on_block=reading.block)
    campaign = Campaign(path, cluster=cluster, watch=watch)
    with _Alone(campaign.path):
        shown = Shown(campaign.store, text=text, image=image, pixels=pixels)
        address, listener = open_listener(campaign.path / FILE, port)
        desks = list[CampaignWorker]()

        def make(changed: Callable[[], None]) -> tuple[CampaignWorker, Shown]:
            desks.append(CampaignWorker(campaign, shown, reading, changed))
            return desks[0], shown

        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(serve(make, address, listener, campaign.path.name, lambda _: ready(address)))
        if not desks or desks[0].stop(WAIT_S):
            campaign.close()


class _Alone(Locked):
    """One page a campaign: a second one says where the first is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE, "")
        self._folder = folder

    def __enter__(self) -> Self:
        try:
            super().__enter__()
        except Busy:
            address = load_address(self._folder / FILE)
            where = "" if address is None else f" at {address.url}"
            raise Busy(
                f"{self._folder}: its page is open already{where}; open that address, by as many people as you like, "
                "or end the other program first"
            ) from None
        return self
