"""Storages do what stores need of them, and a store lives in any that does: here in memory, where nothing is a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse

import coremargin
from coremargin.data.amend import commit_changes, read_rows, remove_rows, set_weights, write_labels
from coremargin.data.check import check_store
from coremargin.data.commits import CommitInfo
from coremargin.data.compact import compact
from coremargin.data.difference import difference
from coremargin.data.format import read_facts
from coremargin.data.local_storage import LocalStorage
from coremargin.data.memory_storage import InMemoryStorage
from coremargin.data.opened import open_source
from coremargin.data.storage import ABSENT, WrongSize
from coremargin.data.storages import open_storage
from coremargin.data.store import Store
from coremargin.data.synth import Recipe, synth
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy, DamagedChunk, DataError, StoreError, UsageError
from store_kit import all_rows, write_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.data.storage import Storage

ROWS = 300


def every(key: str, folder: bool) -> bool:
    """All is owned."""
    return True


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty one of each kind."""
    if request.param == "memory":
        return InMemoryStorage("memory://test")
    (tmp_path / "s").mkdir()
    return LocalStorage(tmp_path / "s")


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a storage in memory that nothing was written to."""
    yield f"memory://{request.node.nodeid}"
    InMemoryStorage._known.clear()


class TestStorage:
    """Whatever storage it is."""

    def test_objects(self, storage: Storage) -> None:
        """What was written is read, listed, and gone once it is removed."""
        assert not storage.list()
        assert not storage.list("a")
        storage.write("a/b", [b"abc", memoryview(b"de")])
        storage.write("a/c/d", [b""])
        storage.write("e", [b"f"])
        with storage.open("a/b") as file:
            assert file.read() == b"abcde"
        assert [(entry.name, entry.kind) for entry in storage.list()] == [("a", "folder"), ("e", "object")]
        assert [(entry.name, entry.kind) for entry in storage.list("a")] == [("b", "object"), ("c", "folder")]
        assert storage.stored_bytes() == 6
        assert [storage.exists(key) for key in ("", "a", "a/b", "a/c/d", "b", "a/b/c")] == [True] * 4 + [False] * 2
        storage.sync("a", "a/c", "")
        storage.remove("a", lambda key, folder: folder or key == "a/b")
        assert [entry.name for entry in storage.list("a")] == ["c"]
        storage.remove("e", every)
        storage.remove("a", every)
        storage.remove("a", every)
        assert not storage.list()
        for missing in (storage.open, storage.tag):
            with pytest.raises(FileNotFoundError):
                missing("e")

    def test_appends(self, storage: Storage) -> None:
        """What lies behind the length is replaced."""
        storage.append("log", 0, b"first\n")
        storage.append("log", 6, b"second, half")
        storage.append("log", 6, b"second\n")
        with storage.open("log") as file:
            assert file.read() == b"first\nsecond\n"

    def test_tags(self, storage: Storage) -> None:
        """An object is replaced only where it is the one that is meant."""
        first = storage.write("a", [b"1"], replaces=ABSENT)
        assert storage.tag("a") == first
        with pytest.raises(Busy, match="another writer has changed a"):
            storage.write("a", [b"2"], replaces=ABSENT)
        second = storage.write("a", [b"2"], replaces=first)
        assert second != first
        with pytest.raises(Busy):
            storage.write("a", [b"3"], replaces=first)
        with storage.open("a") as file:
            assert file.read() == b"2"

    @pytest.mark.parametrize("map_bytes", [0, 1 << 30])
    def test_chunks(self, storage: Storage, map_bytes: int) -> None:
        """Parts of objects, with their tags; an object of another size is refused."""
        storage.write("c.0", [bytes(range(100)), b"\xff" * 4])
        chunks = storage.chunks(104, 100, map_bytes)
        for _ in range(2):
            data, tag = chunks.read("c.0", 3, 8)
            assert (data.tolist(), tag) == ([3, 4, 5, 6, 7], storage.tag("c.0"))
        out = np.empty((2, 3), np.uint8)
        assert chunks.read_pieces("c.0", [5, 50], out, tag)
        assert out.tolist() == [[5, 6, 7], [50, 51, 52]]
        storage.prefetch("c.0", 0, 100)
        storage.write("c.0", [bytes(104)])
        assert not chunks.read_pieces("c.0", [5, 50], out, tag)
        again, changed = chunks.read("c.0", 3, 8)
        assert changed != tag
        assert again.tolist() == [0] * 5
        assert data.tolist() == [3, 4, 5, 6, 7]
        assert chunks.read_all("c.0", 200)[0].tolist() == [0] * 104
        with pytest.raises(WrongSize, match="at most 50"):
            chunks.read_all("c.0", 50)
        storage.write("c.0", [bytes(90)])
        with pytest.raises(WrongSize, match="cut short: expected 104 bytes, got 90"):
            chunks.read("c.0", 3, 8)
        with pytest.raises(FileNotFoundError):
            chunks.read("c.1", 0, 1)

    def test_locks(self, storage: Storage) -> None:
        """One writer at a time; nobody takes away what is read."""
        lock = storage.lock_writers()
        with pytest.raises(Busy, match="another writer"):
            storage.lock_writers()
        lock.release()
        storage.lock_writers().release()
        reading = storage.lock_removal()
        with pytest.raises(Busy, match="reading"), storage.without_readers():
            pass
        reading.release()
        reading.release()
        with storage.without_readers():
            pass

    def test_publishing(self, storage: Storage) -> None:
        """What was prepared takes the place of all that was there."""
        storage.write("old", [b"1"])
        prepared = storage.prepare()
        prepared.write("new", [b"2"])
        assert [entry.name for entry in storage.list()] == ["old"]
        again = storage.prepared()
        assert again is not None
        assert [entry.name for entry in again.list()] == ["new"]
        storage.publish(prepared, every)
        assert [entry.name for entry in storage.list()] == ["new"]
        assert storage.prepared() is None


def rows_of(kind: str) -> Any:
    """Rows of two classes that lie apart."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 5)).astype(np.float32)
    X[:, 0] += np.where(np.arange(ROWS) % 2, 3, -3)
    if kind == "sparse":
        X[np.abs(X) < 0.5] = 0
    return scipy.sparse.csr_array(X) if kind == "sparse" else X


@pytest.mark.parametrize(("kind", "compression"), [("dense", "none"), ("dense", "lz4"), ("sparse", "none")])
def test_a_store_lives_in_memory(kind: str, compression: str, address: str, tmp_path: Path) -> None:
    """It is made, read, trained on, verified, appended to, relabelled, reweighed, compacted and replaced, and each of
    its objects is the one that a folder has.
    """  # fmt: skip
    X, y = rows_of(kind), np.where(np.arange(ROWS) % 2, "b", "a").astype(object)
    names: list[Any] = [address, tmp_path / "s.zarr"]
    options: dict[str, Any] = {"features": 5, "chunk_rows": 64, "sparse": kind == "sparse", "compression": compression}
    for name in names:
        with StoreWriter.create(name, **options) as writer:
            writer.write(X[:100], y[:100].tolist())
        with StoreWriter.append(name) as writer:
            writer.write(X[100:], y[100:].tolist())
        model = coremargin.train(Store.open(name), out=tmp_path / f"{len(str(name))}.model", loss="hinge", C=1.0)
        assert coremargin.verify(tmp_path / f"{len(str(name))}.model", open_storage(name)).ok
        before = Store.open(name)
        assert model.store_digest == before.digest
        write_labels(name, [3, 70], ["a", None])
        set_weights(name, [5], [2.0])
        remove_rows(name, [200, 201])
        now = Store.open(name)
        assert difference(before, now).ids.tolist() == [3, 5, 70, 200, 201]
        assert check_store(name, workers=1).whole
        assert open_source(now.handle()).digest == now.digest
        assert [entry.did for entry in now.log] == ["ingest", "append", "labels", "weights", "remove"]
    assert same_objects(*names)
    del before, now
    for name in names:
        assert compact(name).removed == 2
        with StoreWriter.create(name, overwrite=True, **options) as writer:
            writer.write(X[:10], y[:10].tolist())
        assert Store.open(name).rows == 10
    assert same_objects(*names)


def test_a_model_lives_in_memory(address: str, tmp_path: Path) -> None:
    """It is saved, loaded, verified and replaced, and each of its objects is the one that a folder has."""
    model = coremargin.train(rows_of("dense"), np.where(np.arange(ROWS) % 2, "b", "a"), loss="hinge", C=1.0)
    with pytest.raises(DataError, match="found nothing there"):
        coremargin.load(address)
    for name in (address, tmp_path / "m"):
        model.save(name)
        with pytest.raises(UsageError, match="a model is there already"):
            model.save(name)
        model.save(name, overwrite=True)
        again = coremargin.load(name)
        assert again.predict(rows_of("dense")[:9]).tolist() == model.predict(rows_of("dense")[:9]).tolist()
    assert contents(open_storage(address)) == contents(open_storage(tmp_path / "m"))
    rows = f"{address}/rows"
    with StoreWriter.create(rows, features=5) as writer:
        writer.write(rows_of("dense"), np.where(np.arange(ROWS) % 2, "b", "a").tolist())
    coremargin.train(Store.open(rows), loss="hinge", C=1.0).save(address, overwrite=True)
    assert coremargin.verify(open_storage(address), open_storage(rows)).ok
    open_storage(address).remove("arrays.npz", every)
    with pytest.raises(DataError, match="found a folder without .*arrays"):
        coremargin.load(address)


def same_objects(one: Any, other: Any) -> bool:
    """Whether two stores have the same objects, but for the log, which knows the time, and the root, its checksum."""
    found = [contents(open_storage(name)) for name in (one, other)]
    for part in found:
        for key in ("log.jsonl", "zarr.json", ".lock"):
            part.pop(key, None)
    return found[0] == found[1]


def contents(storage: Storage, prefix: str = "") -> dict[str, bytes]:
    """All objects."""
    found = dict[str, bytes]()
    for entry in storage.list(prefix):
        key = f"{prefix}/{entry.name}" if prefix else entry.name
        if entry.kind == "folder":
            found |= contents(storage, key)
        else:
            with storage.open(key) as file:
                found[key] = file.read()
    return found


def test_what_is_wrong_in_memory_is_named(address: str) -> None:
    """No store, a lost chunk, an altered one, a second writer."""
    with pytest.raises(StoreError, match="found nothing there"):
        Store.open(address)
    store = synth(address, Recipe(rows=500, features=4, chunk_bytes=1 << 11), workers=1)
    storage = store.storage
    assert store.chunks > 2
    with pytest.raises(UsageError, match="something is there already"):
        StoreWriter.create(address, features=2)
    with StoreWriter.append(address), pytest.raises(Busy, match=r"memory://.*another writer"):
        StoreWriter.append(address)
    storage.remove("X/c.1.0", every)
    with pytest.raises(DamagedChunk, match=r"X/c\.1\.0: the file is missing"):
        Store.open(address).read(1)
    with storage.open("X/c.0.0") as file:
        data = bytearray(file.read())
    data[7] ^= 1
    storage.write("X/c.0.0", [data])
    with pytest.raises(DamagedChunk, match=r"X/c\.0\.0: the bytes were altered"):
        Store.open(address).read(0)
    assert [damage.chunk for damage in check_store(address, workers=1).damaged] == [0, 1]


def test_a_commit_that_another_overtook_is_refused(tmp_path: Path) -> None:
    """Two writers where the locks of a file system do not work: the root that the second one read is gone."""
    path = write_store(tmp_path / "s.zarr", rows_of("dense"), np.arange(ROWS) % 2, chunk_rows=64).path
    store = Store.open(path)
    facts, rows = read_facts(store.storage), read_rows(store, np.arange(64))
    write_labels(path, [100], [1])
    with pytest.raises(Busy, match=r"another writer has changed zarr\.json"):
        commit_changes(store, facts, replace(rows, codes_after=1 - rows.codes_before), CommitInfo("labels"))
    assert Store.open(path).commits == 2
    assert check_store(path).whole


@pytest.mark.parametrize("given", ["hdfs://host/rows.zarr", "ftp://c/rows.zarr", "zip::s3://b/r", "s3a://host/r.zarr"])
def test_addresses_that_nothing_opens_are_refused(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as paths, which have a slash less; nothing is made of that name here."""
    monkeypatch.chdir(tmp_path)
    for name in (given, Path(given)):
        for opens in (open_storage, Store.open, StoreWriter.append, lambda name: StoreWriter.create(name, features=2)):
            with pytest.raises(UsageError, match="not supported"):
                opens(name)
    assert not list(tmp_path.iterdir())


def test_a_store_of_another_process(address: str) -> None:
    """A handle finds the storage by its address."""
    storage = open_storage(address)
    assert open_storage(address) is open_storage(Path(address)) is storage
    store = synth(address, Recipe(rows=100, features=3), workers=1)
    np.testing.assert_array_equal(all_rows(open_source(store.handle()))[0], all_rows(store)[0])
