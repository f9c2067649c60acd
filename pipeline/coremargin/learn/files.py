"""Training straight from files: they become a store beside the model, as ``ingest`` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.data.ingest import ingest
from coremargin.data.owned import STORE
from coremargin.data.store_paths import store_beside
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.ingest_report import IngestReport
    from coremargin.learn.train import Begin


def ingest_beside(source: Any, out: Path, begin: Begin, *, overwrite: bool, **options: Any) -> IngestReport | None:
    """Write the rows of files into the store beside a model, and report; None where they are there to be resumed with.

    options: those of ``ingest``. Raises UsageError where a store is there that nobody said to overwrite, and as
    ``ingest`` does.
    """
    store = store_beside(out)
    if begin == "resume" and STORE.is_at(store):
        return None
    if store.exists() and not overwrite:
        raise UsageError(
            f"{store}: exists already: train on it with `coremargin train {store}`, or say --overwrite to make it, and "
            "the model, anew"
        )
    return ingest(source, store, overwrite=overwrite, **options)
