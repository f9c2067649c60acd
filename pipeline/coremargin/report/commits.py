"""What commits of a store did, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.report.text import count

if TYPE_CHECKING:
    from coremargin.formats.store_log import LogEntry

_COUNTS = {
    "added": "added",
    "removed": "taken out",
    "returned": "back",
    "reweighed": "with another weight",
    "labels_added": "with a first label",
    "labels_replaced": "with another label",
    "labels_removed": "without their label",
}


def done_by(entry: LogEntry) -> str:
    """What a commit did: "20 rows added"."""
    counts = entry.counts
    known = [f"{count(counts[name], 'row')} {said}" for name, said in _COUNTS.items() if name in counts]
    return ", ".join(known) or f"{entry.did}, nobody wrote down of how many rows"  # before there were logs
