"""Stores in buckets are read as those on disk: the same rows, the same models, and damage is noticed."""

from __future__ import annotations

import multiprocessing
import pickle  # noqa: TID251 - as Dask sends handles to workers
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from cloud_kit import upload
from coremargin.data import object_storage
from coremargin.data.check import check_store
from coremargin.data.object_storage import Part, Prefetcher, prefetcher
from coremargin.data.store import Store
from coremargin.data.synth import Recipe, synth
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, RunError, StoreError, UsageError
from coremargin.formats import object_storage as formats_storage
from coremargin.formats.location import Location, location
from coremargin.formats.object_storage import Fetched

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloud_kit import BucketServer


def same_rows(one: Store, other: Store) -> bool:
    """Rows, labels and digests of all chunks."""

    def equal(chunk: int) -> bool:
        (a, y), (b, z) = one.read(chunk), other.read(chunk)
        return np.array_equal(y, z) and ((a != b).nnz == 0 if one.sparse else np.array_equal(a, b))

    return one.digest == other.digest and all(equal(chunk) for chunk in range(one.chunks))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_same_rows(server: BucketServer, at: Callable[..., Location], sparse: bool, compression: str) -> None:
    """Dense and sparse, raw and compressed."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 30)) * (rng.random((3000, 30)) < (0.2 if sparse else 1.0))
    path = server.root / "buck" / "rows.zarr"
    with StoreWriter.create(path, features=30, sparse=sparse, compression=compression, chunk_bytes=10_000) as writer:
        writer.write(csr_array(X) if sparse else X, np.where(X[:, 0] > 0, "a", "b"), origin="test")
    assert Store.open(path).chunks > 5
    assert same_rows(Store.open(path), Store.open(at("rows.zarr")))


@pytest.mark.parametrize("ahead", [False, True])
def test_rows_of_zeros_alone(server: BucketServer, at: Callable[..., Location], ahead: bool) -> None:
    """Chunks without a stored value, in the middle of a file and at its end: no service answers an empty range."""
    X = np.zeros((300, 20))
    X[:30], X[200:250] = 1.5, np.arange(20)
    path = server.root / "buck" / "rows.zarr"
    with StoreWriter.create(path, features=20, sparse=True, chunk_rows=20) as writer:
        writer.write(csr_array(X), np.arange(300) % 2, origin="test")
    found = Store.open(at("rows.zarr"))
    parts = [part for chunk in range(found.chunks if ahead else 0) for part in found.objects(chunk)]
    with found.storage.fetching([(part.key, part.start, part.nbytes) for part in parts]):
        assert same_rows(Store.open(path), found)
    assert prefetcher.held_bytes == 0
    assert check_store(at("rows.zarr")).whole


def test_moto_reads_any_name(moto: str, tmp_path: Path) -> None:
    """Blanks, percent signs and other letters in a prefix are names as they stand."""
    import boto3
    from obstore.store import S3Store

    options = {"endpoint": moto}
    boto3.client("s3", endpoint_url=moto).create_bucket(Bucket="names")
    local = synth(tmp_path / "rows.zarr", Recipe(1000, 5, chunk_bytes=2000))
    prefix = "my rows%20 é/rows.zarr"
    upload(local.path, S3Store("names", endpoint=moto, client_options={"allow_http": True}), prefix)
    found = Store.open(location(f"s3://names/{prefix}", options))
    assert same_rows(local, found)
    assert found.stored_bytes == local.stored_bytes
    with pytest.raises(StoreError, match="no such bucket"):
        Store.open(location("s3://missing-bucket/rows.zarr", options))
    with pytest.raises(StoreError, match="found nothing there"):
        Store.open(location("s3://names/rows.zarr", options))


def test_training_gives_the_same_model(place: Location, rows: Store) -> None:
    """In this process and on two threads; nothing stays fetched after it."""
    expected = coremargin.train(rows, cluster="threads")
    found = coremargin.train(Store.open(place), cluster="threads")
    assert found.status == "certified"
    np.testing.assert_array_equal(found.w, expected.w)
    assert found.b == expected.b
    assert prefetcher.held_bytes == 0


def test_faults_of_a_network(place: Location, rows: Store, server: BucketServer) -> None:
    """Answers 503, broken connections and flipped bits change no bit of a model."""
    expected = coremargin.train(rows, cluster="threads")
    faults = server.faults
    faults.busy, faults.reset, faults.flip = 0.1, 0.1, 0.1  # of some hundred answers: each happens
    found = coremargin.train(Store.open(place), cluster="threads")
    assert all(faults.happened.values()), faults.happened
    np.testing.assert_array_equal(found.w, expected.w)


def test_chunks_are_fetched_ahead(place: Location, server: BucketServer) -> None:
    """Latency is paid for many chunks at once."""
    store = Store.open(place)
    store.read(0)
    server.faults.delay = 0.1
    parts = [part for chunk in range(16) for part in store.objects(chunk)]
    started = time.monotonic()
    with store.storage.fetching([(part.key, part.start, part.nbytes) for part in parts]):
        for chunk in range(16):
            store.read(chunk)
    assert time.monotonic() - started < 16 * 2 * 0.1 / 2
    assert prefetcher.held_bytes == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_damage(server: BucketServer, at: Callable[..., Location], sparse: bool) -> None:
    """A damaged chunk is fetched once more, then named with its rows; a deleted one is never NaN."""
    path = server.root / "buck" / "rows.zarr"
    synth(path, Recipe(2000, 20, chunk_bytes=20_000, density=0.5 if sparse else 1.0))
    store = Store.open(at("rows.zarr"))
    file = path / ("X/data/c.0" if sparse else "X/c.1.0")
    kept = file.read_bytes()
    file.write_bytes(kept[:100] + bytes([kept[100] ^ 1]) + kept[101:])
    server.requests.clear()
    chunk = 0 if sparse else 1
    with pytest.raises(DamagedChunk, match=r"rows .* altered"):
        store.read(chunk)
    key = str(file.relative_to(server.root))
    assert server.requests.count(("GET", key)) == 2
    file.unlink()
    with pytest.raises(DamagedChunk, match="missing"):
        store.read(chunk)
    file.write_bytes(kept[:50])
    with pytest.raises(DamagedChunk):
        store.read(chunk)
    file.write_bytes(kept)
    store.read(chunk)


def test_a_replaced_chunk_is_reported_as_such(place: Location, rows: Store) -> None:
    """Its ETag has changed since it was read; the same bytes again are no error."""
    store = Store.open(place)
    store.read(0)
    file = rows.path / "X/c.0.0"
    kept = file.read_bytes()
    file.write_bytes(bytes(len(kept)))
    with pytest.raises(DamagedChunk, match="replaced while it was in use"):
        store.read(0)
    file.write_bytes(kept)
    store.read(0)


def test_thirty_commits_open_within_a_second(server: BucketServer, at: Callable[..., Location]) -> None:
    """At 30 ms for a request: metadata are read in parallel."""
    rng = np.random.default_rng(1)
    path = server.root / "buck" / "rows.zarr"
    for number in range(30):
        writer = StoreWriter.append(path) if number else StoreWriter.create(path, features=3, chunk_rows=20)
        with writer:
            writer.write(rng.normal(size=(20, 3)), np.arange(20) % 2, origin="test")
    expected = Store.open(path)
    assert expected.commits == 30
    server.faults.delay = 0.03
    server.requests.clear()
    started = time.monotonic()
    found = Store.open(at("rows.zarr"))
    scalars = found.scalars()
    seconds = time.monotonic() - started
    np.testing.assert_array_equal(scalars.digest, expected.scalars().digest)
    assert server.busiest >= 8
    assert seconds < 10  # of a machine that is busy; 0.25 s where it is not


def test_a_store_travels_with_its_options(place: Location) -> None:
    """To another process, as a handle; credentials do not."""
    store = Store.open(place)
    packed = pickle.dumps((store.handle(), store.storage))
    assert b"planted" not in packed
    assert b"AKIA" not in packed
    handle, storage = pickle.loads(packed)  # noqa: S301
    assert handle.path.options == place.options
    assert storage == store.storage
    assert Store.open(handle.path).digest == store.digest


def test_a_bucket_that_may_not_be_listed(place: Location, server: BucketServer) -> None:
    """Is read; only what needs a list is refused."""
    server.hidden = True
    store = Store.open(place)
    store.read(0)
    with pytest.raises(RunError, match="access denied"):
        store.stored_bytes  # noqa: B018 - it is listed when it is asked for
    with pytest.raises(RunError, match="no right to list"):
        Store.open(location("s3://buck/nothing", place.options))


def test_a_web_server(place: Location, rows: Store, server: BucketServer) -> None:
    """Reads without listing."""
    found = Store.open(location(f"{server.endpoint}/buck/rows.zarr"))
    assert same_rows(rows, found)
    with pytest.raises(UsageError, match="does not list"):
        found.stored_bytes  # noqa: B018
    with pytest.raises(StoreError, match="nothing there"):
        Store.open(location(f"{server.endpoint}/buck/nothing"))


def test_a_web_server_is_only_read(server: BucketServer, rows: Store) -> None:
    """Whatever would be written there, before any request."""
    address = location(f"{server.endpoint}/buck/rows.zarr")
    server.requests.clear()
    for refused in (
        lambda: coremargin.ingest([[1.0]], address),
        lambda: coremargin.remove_rows(address, [1]),
        lambda: coremargin.compact(address),
        lambda: StoreWriter.create(address, features=2),
    ):
        with pytest.raises(UsageError, match="a web server is only read"):
            refused()
    assert not server.requests


def test_memory_for_what_is_fetched_ahead_is_bounded(
    place: Location, server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is requested, by several threads; whatever has no room is fetched when it is read."""
    most = 5 * 20_000
    limited, held = Prefetcher(lambda: most), list[int]()
    monkeypatch.setattr(object_storage, "prefetcher", limited)
    store = Store.open(place)
    store.readers()
    server.faults.delay = 0.005

    def read(first: int) -> None:
        parts = [part for chunk in range(first, 40, 2) for part in store.objects(chunk)]
        with store.storage.fetching([(part.key, part.start, part.nbytes) for part in parts]):
            for chunk in range(first, 40 if first else 20, 2):  # one of them ends before it has read all
                store.read(chunk)
                held.append(limited.held_bytes)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(read, (0, 1)))
    assert 0 < max(held) <= most
    for _ in range(100):  # what was being fetched when its reader ended
        if not limited.held_bytes:
            break
        time.sleep(0.05)
    assert limited.held_bytes == 0


def test_a_part_is_taken_once_or_dropped() -> None:
    """A reader whose part another thread has dropped fetches for itself; bytes are given back once, and not held."""
    limited, may_end, done = Prefetcher(lambda: 1000), Event(), Fetched(memoryview(b"x"), "tag", 1)

    def fetch() -> Fetched:
        assert may_end.wait(60)
        return done

    running, queued = [Part(fetch, 10) for _ in range(object_storage.REQUESTS)], Part(fetch, 10)
    for part in (*running, queued):
        limited.request(part)
    for part in (queued, running[0]):  # one is cancelled, the other cannot be any more
        limited.drop(part)
        assert limited.take(part) is None
    may_end.set()
    assert [limited.take(part) for part in running[1:]] == [done] * len(running[1:])
    assert [limited.take(part) for part in running[1:]] == [None] * len(running[1:])
    assert [part.started for part in running] == [None] * len(running)  # bytes that were read are their reader's
    for _ in range(100):
        if not limited.held_bytes:
            break
        time.sleep(0.05)
    assert limited.held_bytes == 0


def test_a_forked_process_is_refused(place: Location) -> None:
    """It would wait forever for threads that it does not have."""
    Store.open(place)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        future = pool.submit(_rows_at, place)
        with pytest.raises(RunError, match="spawn or forkserver"):
            future.result(timeout=60)


def _rows_at(place: Location) -> int:
    return Store.open(place).rows


def test_large_metadata_are_not_fetched_before_their_size_is_checked(
    place: Location, rows: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is larger than small objects are is read when it is opened."""
    monkeypatch.setattr(formats_storage, "_SMALL_BYTES", 500)
    keys = [str(path.relative_to(rows.path)) for path in (rows.path / "blocks").rglob("*") if path.is_file()]
    reader = formats_storage.ObjectReader(place)
    reader.preload(keys)
    kept = [key for key, found in reader._preloaded.items() if found is not None]
    assert sorted(kept) == sorted(key for key in keys if (rows.path / key).stat().st_size <= 500)
    assert 0 < len(kept) < len(keys)
    assert Store.open(place).scalars().digest.tolist() == rows.scalars().digest.tolist()


@pytest.mark.parametrize("name", ["redirects", "redirect"])
def test_names_are_not_taken_for_redirects(at: Callable[..., Location], server: BucketServer, name: str) -> None:
    """A refusal is reported as such, whatever the object is called."""
    server.allow = lambda header: "AccessDenied"
    with pytest.raises(RunError, match="access denied"):
        Store.open(at(name))


def test_two_of_three_copies_are_no_store(place: Location, rows: Store, server: BucketServer) -> None:
    """What a tool has copied by half is refused by the name of what is missing, at the latest where it is read."""
    (rows.path / "blocks/000000/digest/c.0").unlink()
    with pytest.raises(StoreError, match=r"blocks/000000/digest/c\.0: statistics are missing"):
        Store.open(place).scalars()


def test_a_retraining_and_a_proof_from_python(place: Location, rows: Store, tmp_path: Path) -> None:
    """Take the options of an address."""
    coremargin.train(rows, out=tmp_path / "a.model", epsilon=0.01)
    made = coremargin.retrain(tmp_path / "a.model", str(place), out=tmp_path / "b.model", storage_options=place.options)
    assert made.status == "certified"
    assert coremargin.verify(tmp_path / "b.model", str(place), storage_options=place.options).ok


def test_a_server_without_ranges(place: Location, server: BucketServer) -> None:
    """Is refused as such: it would send all of an object for a part."""
    server.ranges = False
    store = Store.open(place)
    with pytest.raises(RunError, match="supports ranges"):
        store.read(0)


def test_requester_pays(at: Callable[..., Location], rows: Store, server: BucketServer) -> None:
    """Is said in every request."""
    server.allow = lambda header: "" if "x-amz-request-payer" in header else "AccessDenied"
    assert Store.open(at("rows.zarr", requester_pays="true")).read(0)[0].shape == rows.read(0)[0].shape
    with pytest.raises(RunError, match="AccessDenied"):
        Store.open(at("rows.zarr"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8"])
def test_narrow_types(server: BucketServer, at: Callable[..., Location], tmp_path: Path, dtype: str) -> None:
    """Rows in narrow types are read in a bucket by training, check and proof."""
    place, rng = at("rows.zarr"), np.random.default_rng(46)
    X = rng.integers(0, 200, (300, 4)).astype(np.float32)
    path = server.root / "buck" / "rows.zarr"
    with StoreWriter.create(path, features=4, dtype=dtype, chunk_rows=64) as writer:
        writer.write(X, np.where(X[:, 0] > 100, 1, -1))
    store = Store.open(place)
    assert (store.rows_at(np.arange(300))[0] == X).all()
    coremargin.train(store, loss="hinge", out=tmp_path / "a.model")
    assert coremargin.verify(tmp_path / "a.model", str(place), storage_options=place.options).ok
    assert check_store(place).whole
