"""(i) Few labels: questions, draws, scans and waits of a campaign; others' labels; how often its claim is false.

Rows are those of ``coremargin synth`` with a margin of 0.5, seed 1; their own labels answer, one question at a time.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from false_claims import false_claims
from labels_needed import labels_needed, on_real_rows
from play import played
from table import Group, Row

from coremargin.data.store import Store

if TYPE_CHECKING:
    from stores import Settings


def few_labels(settings: Settings) -> Iterator[Group]:
    """All groups of part (i)."""
    for rows, features in settings.labelled:
        store = Store.open(settings.synthetic(rows, features, f"labels-{rows}-{features}"))
        yield _on_store(settings, store)
        yield labels_needed(settings, store, "margin 0.5")
    yield from on_real_rows(settings)
    yield false_claims(settings.campaigns)


def _on_store(settings: Settings, store: Store) -> Group:
    title = f"a campaign on {store.rows:,} rows of {store.features} features, margin 0.5, to 0.9 of the best margin"
    group = Group("i", title)
    with tempfile.TemporaryDirectory(dir=settings.work) as folder:
        found = played(store, Path(folder) / "rows.campaign")
    status = found.status
    group.rows.append(
        Row(
            f"campaign, {found.queries:,} questions and {status['draws']:,} draws",
            found.seconds,
            read=status["bytes_read"] / status["store_bytes"],
            scans=status["scans"],
            labels=found.queries,
            margin=status["ratio"],
            memory=status["peak_rss_bytes"],
            note=f"{status['status']}; {_told(found.waits)}",
        )
    )
    group.notes.append("margin/bound: of all rows as the last scan found them; the bound is the campaign's own")
    return group


def _told(waits: list[float]) -> str:
    return f"from an answer to the next question {statistics.median(waits):.3f} s, at most {max(waits):.3f} s"
