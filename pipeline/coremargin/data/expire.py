"""Rows that grow too old: taken out by when they came, as the store's log has it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.commits import Deed
from coremargin.data.reweigh import WeightReport, reweighed
from coremargin.data.store import Store
from coremargin.errors import StoreError, UsageError

if TYPE_CHECKING:
    import os


def expire(path: str | os.PathLike[str], age: float, *, now: float | None = None, note: str = "") -> WeightReport:
    """Take out the rows that came longer ago than ``age`` seconds, in a commit of its own; none where there are none.

    Parameters
    ----------
    path : path-like
        The store.
    age : float
        Seconds, above 0.
    now : float, optional
        Seconds since 1970; by default, what the clock says.
    note : str, optional
        A word on it for the store's log.

    Returns
    -------
    WeightReport
        What has changed.

    Raises
    ------
    StoreError
        It is not known when some rows came: the store is older than logs are.
    UsageError, LabelError, OutputError, Busy, DamagedChunk
        As ``remove_rows``: a class would have no rows, and so on.
    """
    if not age > 0:
        raise UsageError(f"age: expected seconds above 0, got {age}")
    store = Store.open(path, map_bytes=0)
    parts = _came_before(store, (time.time() if now is None else now) - age)
    ids = np.concatenate([np.zeros(0, np.int64), *(_counting(store, *part) for part in parts)])
    if not len(ids):
        return WeightReport(0, 0, 0, 0, store.digest)
    return reweighed(store.path, (ids, None), None, store.digest, Deed("expire", note))


def _came_before(store: Store, moment: float) -> list[tuple[int, int]]:
    """Rows [start, stop) of the commits that brought some by then; a clock that jumps disturbs its own rows alone."""
    found, start = list[tuple[int, int]](), 0
    for entry in store.log:
        if "added" in entry.counts:
            if not entry.time:
                raise StoreError(
                    f"{store.name}: commit {entry.commit.number} does not say when its rows came: it is older than the "
                    f"store's log; take them out with `coremargin remove`"
                )
            if entry.time <= moment:
                found.append((start, entry.commit.rows))
            start = entry.commit.rows
    return found


def _counting(store: Store, start: int, stop: int) -> np.ndarray:
    """Those of the rows [start, stop) that have not been taken out."""
    found = list[np.ndarray]()
    for chunk in range(start // store.chunk_rows, -(-stop // store.chunk_rows)):
        first, last = store.span(chunk)
        ids, weights = np.arange(max(start, first), min(stop, last)), store.weights(chunk)
        found.append(ids if weights is None else ids[weights[ids - first] > 0])
    return np.concatenate(found)
