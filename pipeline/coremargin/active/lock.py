"""The right to work on a campaign: one process at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.data.locked import Locked
from coremargin.formats.campaign import ANSWERS

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 5.0  #: for another process that works on the same campaign
ADVICE = "wait for it, as it may be reading the whole store, then give the same command again"  #: nothing is half done


def campaign_lock(path: Path) -> Locked:
    """Of the campaign in a folder. Entering it raises Busy where another process keeps it for too long."""
    return Locked(path / ANSWERS, "this campaign", advice=ADVICE, wait_s=PATIENCE_S)
