"""Worker processes read buckets by themselves: with options from the driver, and credentials of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import coremargin
from cloud_kit import KEYS, WaitProbe
from coremargin.data.store import Store
from coremargin.engine.clusters.embedded import start_embedded
from coremargin.engine.plan import plan_blocks
from coremargin.errors import CoremarginError

if TYPE_CHECKING:
    from cloud_kit import BucketServer
    from coremargin.formats.location import Location


def test_workers_read_by_themselves(place: Location, rows: Store, server: BucketServer) -> None:
    """The same model, although answers are late, broken or wrong."""
    expected = coremargin.train(rows, cluster="threads")
    faults = server.faults
    faults.delay, faults.busy, faults.reset, faults.flip = 0.01, 0.03, 0.03, 0.03
    found = coremargin.train(Store.open(place), cluster="embedded")
    assert sum(faults.happened.values()) > 0
    np.testing.assert_array_equal(found.w, expected.w)


def test_a_refusal_on_a_worker_is_reported_by_name(
    place: Location, server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a worker that was lost; without the credentials."""
    store = Store.open(place)
    store.scalars()
    server.allow = lambda header: "AccessDenied"
    with pytest.raises(CoremarginError, match="access denied") as caught:
        coremargin.train(store, cluster="embedded")
    assert not any(secret in repr(caught.value) for secret in KEYS.values() if len(secret) > 10)


def test_workers_fetch_their_next_blocks(place: Location, server: BucketServer) -> None:
    """While they probe one: but for the first, blocks are there when they are probed, and fetched once."""
    store = Store.open(place)
    store.scalars()
    probe, blocks = WaitProbe(0.8), plan_blocks(store, 3 * 20_000)
    with start_embedded(workers=2, threads=1) as executor:
        list(executor.run(store, WaitProbe(0.0), blocks[:2]))  # which open the store
        server.faults.delay = 0.4
        server.requests.clear()
        waits = [result.summary for result in executor.run(store, probe, blocks)]
    assert len(waits) == len(blocks) > 8
    assert sum(wait < 0.2 for wait in waits) > len(blocks) / 2, waits
    chunks = [key for _, key in server.requests if "/X/" in key]
    assert len(chunks) == len(set(chunks)) == store.chunks
