"""Writers of a bucket are killed or stopped before each request that they make: no commit is lost, or half of one seen.

The bucket is in memory, so that every request can be tried; test_writing.py has the same protocol on a service.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from coremargin.data import conditional_puts, lease
from coremargin.data.amend import remove_rows
from coremargin.data.check import check_store
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.store import Store
from coremargin.data.vacuum import vacuum
from coremargin.errors import CoremarginError, StoreError
from writing_kit import CHANGES, Buckets, Kill, Stop, append, create

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 11])


@pytest.fixture
def buckets(monkeypatch: pytest.MonkeyPatch) -> Buckets:
    """All leases there have expired, and nobody renews one."""
    monkeypatch.setattr(lease, "now_there", lambda puts: time.time() + 1e6)
    monkeypatch.setattr(conditional_puts, "_PAUSE", 0.0)
    found = Buckets(monkeypatch)
    create(found.at("s"))
    remove_rows(found.at("s"), [7])
    return found


def changing(name: str) -> Callable[[Any], Any]:
    """What changes a store."""
    return CHANGES.get(name) or partial(create, count=70, overwrite=name == "overwrite")


@EVERY
@pytest.mark.parametrize("name", ["create", "overwrite", *CHANGES])
def test_killed_before_every_request(buckets: Buckets, name: str, step: int) -> None:
    """A reader sees what was there before, or all of it; then the next writer does it again, and nothing is left."""
    before = None if name == "create" else Store.open(buckets.at("s")).digest
    seen, n = set[Any](), 1
    while True:
        buckets.hooks.clear()
        address = buckets.at(f"s{n}")
        if before is not None:
            buckets.copy("s", f"s{n}")
        buckets.hooks["killed"] = kill = Kill(n)
        try:
            changing(name)(buckets.at(f"s{n}", "killed"))
        except CoremarginError:
            assert kill.happened
        try:
            found = Store.open(address).digest
            assert check_store(address).whole, n
        except StoreError:
            assert before is None, n
            assert not ObjectStorage(address).exists(), n
            found = None
        seen.add(found)
        if not kill.happened:
            break
        if found == before:
            changing(name)(address)
            assert check_store(address).whole, n
            assert Store.open(address).digest != before, n
        expected = Store.open(address).digest
        vacuum(address, older_than=0)
        assert Store.open(address).digest == expected, n
        assert check_store(address).whole, n
        assert not vacuum(address, older_than=0, dry_run=True).objects, n
        n += step
    assert len(seen) == 2
    assert n > 40


@EVERY
@pytest.mark.parametrize("leftover", [False, True])
@pytest.mark.parametrize("name", ["append", "relabel", "compact", "overwrite"])
def test_stopped_before_every_request(buckets: Buckets, name: str, leftover: bool, step: int) -> None:
    """A writer is stopped, another one takes over and commits, and the first goes on: no commit is lost or mixed."""
    failures, n = 0, 1
    if leftover:
        buckets.hooks["killed"] = Kill(80)
        with pytest.raises(CoremarginError):
            append(buckets.at("s", "killed"), count=60, seed=7)
        assert Store.open(buckets.at("s")).rows == 100
    while True:
        address = buckets.at(f"s{n}")
        buckets.copy("s", f"s{n}")
        buckets.hooks["stopped"] = stop = Stop(n, partial(append, address, 21, 9))
        try:
            changing(name)(buckets.at(f"s{n}", "stopped"))
        except CoremarginError:
            failures += 1
            assert Store.open(address).rows == 121, n
        else:
            log = [entry.did for entry in Store.open(address).log]
            expected = {"compact": stop.happened}.get(name, 1 + stop.happened)
            if name == "overwrite":  # before, or of what was written
                expected = Store.open(address).rows > 70
            assert log.count("append") + log.count("labels") == expected, n
        assert check_store(address).whole, n
        if not stop.happened:
            break
        n += step
    assert failures > 3
    assert n > 40
