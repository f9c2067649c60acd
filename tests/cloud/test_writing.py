"""Stores in buckets: the same objects as on disk, whatever writers are killed, stopped, or at work at the same time."""

from __future__ import annotations

import pickle  # noqa: TID251 - as Dask sends handles to workers
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data import commits
from coremargin.data.amend import remove_rows
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.store import Store, let_go, opened
from coremargin.data.vacuum import vacuum
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy, StoreError, UsageError
from writing_kit import CHANGES, FEATURES, append, create, relabel, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coremargin.formats.location import Location


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


def test_workers_that_come_late(bucket: Callable[..., Location]) -> None:
    """What was opened before a store was replaced is opened by other processes too, until ``vacuum``."""
    address = bucket("s.zarr")
    create(address)
    remove_rows(address, [7])
    store = Store.open(address)
    handle = pickle.loads(pickle.dumps(store.handle()))  # noqa: S301
    compact(address)
    found = opened(handle)
    assert (found.rows, found.digest) == (100, store.digest)
    np.testing.assert_array_equal(found.read(1)[0], store.read(1)[0])
    assert Store.open(address).rows == 99
    vacuum(address, older_than=0)
    let_go(handle.path)
    with pytest.raises(StoreError):
        opened(handle)


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
