"""Stores in buckets: the same objects as on disk, whatever writers are killed, stopped, or at work at the same time."""

from __future__ import annotations

import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data import commits, lease
from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy, CoremarginError, OutputError, StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloud_kit import Proxy
    from coremargin.formats.location import Location

FEATURES = 6


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels."""
    X = np.random.default_rng(seed).normal(size=(count, FEATURES)).astype(np.float32)
    return X, np.where(X[:, 0] > 0, "a", "b")


def create(address: Any, count: int = 100, **options: Any) -> None:
    """A new store of chunks of 40 rows."""
    with StoreWriter.create(address, features=FEATURES, chunk_rows=40, **options) as writer:
        writer.write(*rows(count))


def append(address: Any, count: int = 30, seed: int = 1) -> None:
    """Rows at the end, in the chunk that is not full and in another one."""
    with StoreWriter.append(address) as writer:
        writer.write(*rows(count, seed))


def relabel(address: Any) -> None:
    """Three labels."""
    write_labels(address, [1, 2, 50], ["b", "a", None])


CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": append,
    "relabel": relabel,
    "remove": lambda address: remove_rows(address, [3, 41]),
    "reweigh": lambda address: set_weights(address, [4, 99], [2.0, 0.5]),
    "compact": compact,
}


def objects(address: Location) -> dict[str, bytes]:
    """All objects of what is current, by key."""
    storage = ObjectStorage(address)
    found = {}
    for key, _ in storage.list_all():
        with storage.open(key) as file:
            found[key] = file.read()
    return found


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says the same time twice."""
    monkeypatch.setattr(commits, "time", SimpleNamespace(time=lambda: 1.0e9))


@pytest.fixture
def expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """All leases have expired, and nobody renews one."""
    monkeypatch.setattr(lease, "_now_there", lambda puts: time.time() + 1e6)


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("sparse", [False, True])
def test_the_same_objects(bucket: Callable[..., Location], tmp_path: Path, sparse: bool) -> None:
    """A store has the same bytes in a bucket as on disk, after each change; and nothing else is there."""
    address, path = bucket("rows of 100%20/s.zarr"), tmp_path / "s.zarr"
    for place in (address, path):
        X, y = rows(100)
        with StoreWriter.create(place, features=FEATURES, chunk_rows=40, sparse=sparse) as writer:
            writer.write(csr_array(X) if sparse else X, y)
    for name in (None, "append", "relabel", "remove", "reweigh", "append"):
        if name is not None:
            for place in (address, path):
                CHANGES[name](place)
        files = {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
        assert objects(address) == {key: data for key, data in files.items() if key != ".lock"}, name
    assert check_store(address).whole
    assert compact(address).digest == compact(path).digest
    assert check_store(address).whole


def test_what_is_there(bucket: Callable[..., Location]) -> None:
    """It is replaced only if that is allowed; readers of the old store go on."""
    address = bucket("s.zarr")
    create(address)
    with pytest.raises(UsageError, match="something is there already"):
        create(address)
    old = Store.open(address)
    create(address, 70, overwrite=True)
    assert Store.open(address).rows == 70
    np.testing.assert_array_equal(old.read(1)[0], rows(100)[0][40:80])
    ObjectStorage(bucket("other")).write("text.txt", [b"mine"])
    for overwrite in (False, True):
        with pytest.raises(UsageError):
            create(bucket("other"), overwrite=overwrite)


def test_a_store_that_was_copied_there(bucket: Callable[..., Location], tmp_path: Path) -> None:
    """Without a generation: it is changed in its place, and replaced by one."""
    address, path = bucket("s.zarr"), tmp_path / "s.zarr"
    create(path)
    storage = ObjectStorage(address)
    for file in (file for file in path.rglob("*") if file.is_file()):
        storage.write(str(file.relative_to(path)), [file.read_bytes()])
    append(address)
    assert Store.open(address).rows == 130
    assert ObjectStorage(address).generation is None
    remove_rows(address, [7])
    old = Store.open(address)
    assert compact(address).rows == 129
    assert ObjectStorage(address).generation is not None
    assert old.read(0)[0].shape == (40, FEATURES)
    assert check_store(address).whole


def test_two_writers(bucket: Callable[..., Location]) -> None:
    """The second one is told who is at work, whatever it wants to do."""
    address = bucket("s.zarr")
    create(address)
    with StoreWriter.append(address) as writer:
        writer.write(*rows(5))
        for change in (append, relabel, compact, lambda there: create(there, overwrite=True)):
            with pytest.raises(Busy, match=r"another writer is at work there: process \d+ of .+, since "):
                change(address)
    assert Store.open(address).rows == 105
    append(address)
    assert Store.open(address).rows == 135


def test_a_new_store_goes_on(bucket: Callable[..., Location]) -> None:
    """After its first commit no other writer may append, and it may itself."""
    address = bucket("s.zarr")
    with StoreWriter.create(address, features=FEATURES, chunk_rows=40) as writer:
        writer.write(*rows(50))
        writer.commit()
        with pytest.raises(Busy):
            append(address)
        writer.write(*rows(30, 1))
    assert Store.open(address).rows == 80
    assert check_store(address).whole


def killed_at(proxy: Proxy, n: int, address: Any, change: Callable[[Any], Any]) -> bool:
    """Whether a change came to its n-th put: nothing that it sends from then on arrives, as if it were killed."""
    count = 0

    def refuse(method: str, path: str) -> str:
        nonlocal count
        if method not in ("GET", "HEAD"):
            count += 1
        return "AccessDenied" if count >= n else ""

    proxy.refuse = refuse
    try:
        change(address)
    except CoremarginError:
        pass
    else:
        return False
    finally:
        proxy.refuse = lambda method, path: ""
    return True


@pytest.mark.specimens(5)
@pytest.mark.usefixtures("expired")
@pytest.mark.parametrize("name", ["create", "overwrite", *CHANGES])
def test_killed_at_every_put(
    bucket: Callable[..., Location], proxy: Proxy, name: str, request: pytest.FixtureRequest
) -> None:
    """A reader sees what was there before, or all of it; the next writer does it again."""
    address = bucket("s.zarr")
    through = bucket("s.zarr", endpoint=proxy.endpoint)
    change = CHANGES.get(name) or (lambda there: create(there, 70, overwrite=name == "overwrite"))
    ObjectStorage(through).resolved()
    n, done = 1, set[Any]()
    while True:
        address, through = bucket(f"s{n}.zarr"), bucket(f"s{n}.zarr", endpoint=proxy.endpoint)
        ObjectStorage(through).resolved()
        if name != "create":
            create(address)
        before = None if name == "create" else Store.open(address).digest
        if not killed_at(proxy, n, through, change):
            break
        try:
            found = Store.open(address).digest
            assert check_store(address).whole
        except StoreError:
            assert before is None
            assert not ObjectStorage(address).exists()
            found = None
        done.add(found)
        if found == before:
            change(address)
            assert check_store(address).whole
            assert Store.open(address).digest != before
        n += 1
    assert n > 5
    assert before in done


class Stop:
    """Lets another writer do its work, once, before the n-th request of one that is stopped meanwhile."""

    def __init__(self, n: int, other: Callable[[], Any]) -> None:
        self._left, self._other = n, other
        self._counting = threading.Lock()
        self.happened = False

    def __call__(self, method: str, path: str) -> str:
        with self._counting:
            self._left -= 1
            if self._left == 0:
                self._other()
                self.happened = True
        return ""


@pytest.mark.parametrize("leftover", [False, True])
@pytest.mark.parametrize("name", ["append", "relabel", "compact", "overwrite"])
@pytest.mark.specimens(2)
@pytest.mark.usefixtures("expired")
def test_stopped_at_every_request(bucket: Callable[..., Location], proxy: Proxy, name: str, leftover: bool) -> None:
    """A writer is stopped, another one takes over and commits, and the first goes on: no commit is lost or mixed."""
    change = CHANGES.get(name) or partial(create, count=70, overwrite=True)
    failures, n = 0, 0
    while True:
        n += 1
        address, through = bucket(f"s{n}.zarr"), bucket(f"s{n}.zarr", endpoint=proxy.endpoint)
        create(address)
        ObjectStorage(through).resolved()
        if leftover:
            assert killed_at(proxy, 24, through, partial(append, count=60, seed=7))
            assert Store.open(address).rows == 100
        proxy.refuse = stop = Stop(n, partial(append, address, 21, 9))
        try:
            change(through)
        except (Busy, OutputError, StoreError):
            failures += 1
            assert Store.open(address).rows == 121, n
        else:
            log = [entry.did for entry in Store.open(address).log]
            assert log.count("append") + log.count("labels") == stop.happened + (name in CHANGES), n
        finally:
            proxy.refuse = lambda method, path: ""
        assert check_store(address).whole, n
        if not stop.happened:
            break
    assert failures > 3
