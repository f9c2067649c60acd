"""Rows that grow too old: taken out by when they came, as the store's log has it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.amend import WeightReport, amend_weights
from coremargin.data.commits import CommitInfo
from coremargin.data.storages import open_storage
from coremargin.data.store import Store
from coremargin.errors import ExpiryRefused, UsageError
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.storages import Address


_FUTURE_S = 3600.0  # that the clocks of two machines may differ by
_USUAL = 6.0  # times the usual time from one commit to the next: more than that is a jump
_FEW = 3  # times between commits; fewer tell nothing
_UNKNOWN = 2.5  # the same in units of the age, where too few commits tell what is usual


def expire(path: Address, age: float, *, now: float | None = None, note: str = "", force: bool = False) -> WeightReport:
    """Take out the rows that came longer ago than ``age`` seconds, in a commit of its own; none where there are none.

    Parameters
    ----------
    path : path-like
        The store.
    age : float
        Seconds, above 0.
    now : float, optional
        Seconds since 1970; by default, what the clock says, which is compared with when rows came.
    note : str, optional
        A word on it for the store's log.
    force : bool, default False
        Trust the clock.

    Returns
    -------
    WeightReport
        What has changed.

    Raises
    ------
    ExpiryRefused
        The clock cannot be trusted: the newest rows came in the future, or time has jumped since the rows that would
        expire, so far that it was the clock rather than the producer. Where the producer did stop for so long,
        ``force`` expires them.
    UsageError, LabelError, OutputError, Busy, DamagedChunk
        As ``remove_rows``: a class would have no rows, and so on.
    """
    if not age > 0:
        raise UsageError(f"age: expected seconds above 0, got {age}")
    open_storage(path).resolved()  # raises UsageError where nothing can be written
    store = Store.open(path, map_bytes=0)
    clock = time.time() if now is None else now
    arrivals = _arrivals(store, clock)
    old = [(one, _counting(store, one.start, one.stop)) for one in arrivals if one.time <= clock - age]
    old = [(one, ids) for one, ids in old if len(ids)]
    if not old:
        return WeightReport(0, 0, 0, 0, store.digest)
    if now is None and not force:
        _check_clock(store, arrivals, max(one.time for one, _ in old), clock, age)
    ids = np.concatenate([ids for _, ids in old])
    return amend_weights(store.storage, (ids, None, None), None, store.digest, CommitInfo("expire", note))


@dataclass(frozen=True)
class _Arrival:
    """Rows [start, stop) of one commit. written: by the clock of then; time: when they came at the earliest."""

    written: float
    time: float
    start: int
    stop: int


def _arrivals(store: Store, now: float) -> list[_Arrival]:
    """The commits that brought rows, in order.

    Rows came no earlier than those before them, whatever a clock said that went backwards; only times that are yet to
    come say nothing about later rows.
    """
    found, start, before = list[_Arrival](), 0, 0.0
    for entry in store.log:
        if "added" in entry.counts:
            found.append(_Arrival(entry.time, max(entry.time, before), start, entry.commit.rows))
            before = max(before, entry.time) if entry.time <= now else before
            start = entry.commit.rows
    return found


def _check_clock(store: Store, arrivals: Sequence[_Arrival], last_old: float, now: float, age: float) -> None:
    """Raises ExpiryRefused where time may have jumped, as far as commits tell.

    Rows arrive in a rhythm. What is usual is the time between two commits in which half of all past time lies, so that
    many commits of one run count for little. A jump is more than six times that, and half the age, between any two
    commits since the rows that would expire, or since the newest one, unless as much time has passed since then.
    """
    advice = (
        f"see that the clock of this machine is right; if it is, `coremargin expire {store.storage.name} "
        f"--older-than AGE --force` expires them"
    )
    ahead = arrivals[-1].written - now
    if ahead > _FUTURE_S:
        raise ExpiryRefused(
            f"{store.name}: the newest rows came {format_seconds(ahead)} in the future, so the age of rows is not "
            f"known; {advice}, and so do the rows that come next"
        )
    times = np.sort([one.time for one in arrivals if one.time <= now] + [now])
    gaps = np.diff(times)
    recent = np.flatnonzero(times[:-1] >= last_old)
    recent = recent[gaps[recent] > now - times[recent + 1]]
    if not len(recent):
        return
    at = recent[np.argmax(gaps[recent])]
    others = np.sort(np.delete(gaps, at))
    if len(others) < _FEW:
        most = _UNKNOWN * age
    else:
        usual = others[np.searchsorted(np.cumsum(others), others.sum() / 2)]
        most = max(age / 2, _USUAL * usual)
    if gaps[at] > most:
        moment = datetime.fromtimestamp(times[at], UTC).strftime("%Y-%m-%d")
        raise ExpiryRefused(
            f"{store.name}: no rows came for {format_seconds(gaps[at])} after {moment}, far longer than usual, or the "
            f"clock has jumped by then; {advice}"
        )


def _counting(store: Store, start: int, stop: int) -> np.ndarray:
    """Those of the rows [start, stop) that have not been taken out."""
    found = list[np.ndarray]()
    for chunk in range(start // store.chunk_rows, -(-stop // store.chunk_rows)):
        first, last = store.span(chunk)
        ids, weights = np.arange(max(start, first), min(stop, last)), store.weights(chunk)
        found.append(ids if weights is None else ids[weights[ids - first] > 0])
    return np.concatenate(found)
