"""The fast readers give what zarr-python gives, within their budget, and notice files that change."""

from __future__ import annotations

import gc
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from coremargin.data import maps
from coremargin.data.opened import open_source
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, StoreError
from store_kit import all_rows, edit_attributes, edit_json, quick_folder, rewrite_array, write_store

if TYPE_CHECKING:
    from pathlib import Path


@settings(max_examples=30)
@given(
    rows=st.integers(1, 70),
    features=st.integers(1, 9),
    chunk_rows=st.integers(1, 80),
    dtype=st.sampled_from(["float32", "float64"]),
    compression=st.sampled_from(["none", "lz4", "zstd", "auto"]),
    cuts=st.lists(st.integers(0, 70), max_size=3),
    seed=st.integers(0, 99),
)
def test_every_path_equals_zarr_python(
    rows: int, features: int, chunk_rows: int, dtype: str, compression: str, cuts: list[int], seed: int
) -> None:
    """Map, buffer and codec readers give the bits that zarr-python gives, for any shape, chunk, dtype and history."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features)).round(1).astype(dtype)
    y = rng.integers(0, 3, rows)
    with quick_folder() as folder:
        path = folder / "s.zarr"
        chunk_bytes = chunk_rows * features * X.dtype.itemsize
        with StoreWriter.create(
            path, features=features, dtype=dtype, chunk_bytes=chunk_bytes, compression=compression
        ) as writer:
            bounds = [0, *sorted(cut for cut in cuts if 0 < cut < rows), rows]
            for start, stop in pairwise(bounds):
                writer.write(X[start:stop], y[start:stop])
                if stop > start:
                    writer.commit()
        plain = zarr.open_group(path, mode="r")
        assert plain["X"].shape == (rows, features)
        for map_bytes in (0, 1 << 20):
            store = Store.open(path, map_bytes=map_bytes)
            found_X, found_y = all_rows(store)
            for found, array in ((found_X, "X"), (found_y, "y")):
                slow = plain[array]
                assert isinstance(slow, zarr.Array)
                assert found.dtype == slow.dtype
                np.testing.assert_array_equal(found, slow[:])
            np.testing.assert_array_equal(found_X, X)
            assert [store.classes[code] for code in found_y] == y.tolist()


def _filled(tmp_path: Path, rng: np.random.Generator) -> tuple[Path, np.ndarray]:
    X = rng.normal(size=(320, 4)).astype(np.float32)
    write_store(tmp_path / "s.zarr", X, rng.integers(0, 2, 320), chunk_rows=64)
    return tmp_path / "s.zarr", X


def test_maps_stay_within_the_budget(tmp_path: Path, rng: np.random.Generator) -> None:
    """Maps are kept up to the budget of the process, the first ones stay, and closing gives the bytes back."""
    gc.collect()
    path, X = _filled(tmp_path, rng)
    before = maps.budget.used_bytes
    chunk_bytes = 64 * 4 * 4
    store = Store.open(path, map_bytes=before + 2 * chunk_bytes + 10)
    for _ in range(3):
        np.testing.assert_array_equal(all_rows(store)[0], X)
        assert sorted(store.readers()[0]._chunks._maps._kept) == ["X/c.0.0", "X/c.1.0"]
        assert maps.budget.used_bytes == before + 2 * chunk_bytes
    del store
    gc.collect()
    assert maps.budget.used_bytes == before


def test_mapped_rows_survive_the_store(tmp_path: Path, rng: np.random.Generator) -> None:
    """Rows that came from a map stay readable after the store and its files are gone."""
    path, X = _filled(tmp_path, rng)
    rows = Store.open(path).read(1)[0]
    gc.collect()
    (path / "X" / "c.1.0").unlink()
    np.testing.assert_array_equal(rows, X[64:128])


def test_buffers_are_reused(tmp_path: Path, rng: np.random.Generator) -> None:
    """Beyond the budget a loop reads into two buffers, those of its thread: one it holds, and one to fill."""
    path, X = _filled(tmp_path, rng)
    store = Store.open(path, map_bytes=0)
    places = set()
    for chunk in [0, 1, 2, 3] * 5:
        rows = store.read(chunk)[0]
        places.add(rows.__array_interface__["data"][0])
        np.testing.assert_array_equal(rows, X[64 * chunk : 64 * (chunk + 1)])
    assert len(places) == 2
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(store.read, 2).result()[0]
    assert other.__array_interface__["data"][0] not in places


def test_threads_read_the_same_rows(tmp_path: Path, rng: np.random.Generator) -> None:
    """Many threads over one store see what one thread sees, mapped or not."""
    path, X = _filled(tmp_path, rng)
    for map_bytes in (0, 3000, 1 << 20):
        store = Store.open(path, map_bytes=map_bytes)
        with ThreadPoolExecutor(8) as pool:
            sums = list(pool.map(lambda chunk, store=store: float(store.read(chunk)[0].sum()), [0, 1, 2, 3, 4] * 20))
        assert sums == [float(X[k * 64 : (k + 1) * 64].sum()) for k in range(5)] * 20


@pytest.mark.parametrize("map_bytes", [0, 1 << 20])
def test_a_file_altered_after_it_was_trusted(tmp_path: Path, rng: np.random.Generator, map_bytes: int) -> None:
    """A chunk replaced, shortened or removed between two reads is checked again and refused."""
    path, X = _filled(tmp_path, rng)
    file = path / "X" / "c.1.0"
    good = file.read_bytes()
    store = Store.open(path, map_bytes=map_bytes)
    for bad in (bytes(len(good)), good[:100], good + b"0"):
        np.testing.assert_array_equal(store.read(1)[0], X[64:128])
        aside = path / "other"
        aside.write_bytes(bad)
        os.replace(aside, file)
        with pytest.raises(DamagedChunk, match=r"chunk 1 \(rows 64 to 127\), file X/c.1.0"):
            store.read(1)
        file.write_bytes(good)
    file.unlink()
    with pytest.raises(DamagedChunk, match="the file is missing"):
        store.rows_at(np.array([70]))


def test_a_store_that_grows_while_it_is_read(tmp_path: Path, rng: np.random.Generator) -> None:
    """A reader sees the rows of the commit that it opened, and so does a handle opened after the store grew."""
    X = rng.normal(size=(300, 4)).astype(np.float32)
    labels = np.array(["a", "b"] * 100 + ["c"] * 100)
    store = write_store(tmp_path / "s.zarr", X[:150], labels[:150], chunk_rows=64)
    handle, early = store.handle(), np.array(store.read(2)[0])
    with StoreWriter.append(store.path) as writer:
        writer.write(X[150:], labels[150:])
        np.testing.assert_array_equal(all_rows(Store.open(store.path))[0], X[:150])
    for frozen in (store, open_source(handle)):
        np.testing.assert_array_equal(frozen.read(2)[0], early)
        np.testing.assert_array_equal(all_rows(frozen)[0], X[:150])
        assert (frozen.rows, frozen.classes, frozen.digest) == (150, ("a", "b"), handle.digest)
        assert frozen.statistics().counts.shape == (3, 2)
    grown = Store.open(store.path)
    assert (grown.rows, grown.classes) == (300, ("a", "b", "c"))
    np.testing.assert_array_equal(all_rows(grown)[0], X)


def test_a_handle_refuses_another_store(tmp_path: Path, rng: np.random.Generator) -> None:
    """A store replaced by another since the handle was made is refused, whether or not it has as many rows."""
    X = rng.normal(size=(100, 4)).astype(np.float32)
    handle = write_store(tmp_path / "s.zarr", X, np.arange(100) % 2).handle()
    write_store(tmp_path / "s.zarr", X + 1, np.arange(100) % 2, overwrite=True)
    with pytest.raises(StoreError, match="expected a commit with .*, found sha256:.* of 100 rows: the store was"):
        open_source(handle)
    write_store(tmp_path / "s.zarr", X[:50], np.arange(50) % 2, overwrite=True)
    with pytest.raises(StoreError, match="expected a commit with .*, found sha256:.* of 50 rows: the store was"):
        open_source(handle)


def test_commits_are_opened_by_digest(tmp_path: Path, rng: np.random.Generator) -> None:
    """Each commit opens by its digest with its own rows, and by a handle; another digest, or other rows, is refused."""
    X = rng.normal(size=(300, 4)).astype(np.float32)
    stores = [write_store(tmp_path / "s.zarr", X[:100], np.arange(100) % 2)]
    for start in (100, 200):
        with StoreWriter.append(tmp_path / "s.zarr") as writer:
            writer.write(X[start : start + 100], np.arange(100) % 2)
        stores.append(Store.open(tmp_path / "s.zarr"))
    for store, rows in zip(stores, (100, 200, 300), strict=True):
        for found in (Store.open(store.path, digest=store.digest), open_source(store.handle())):
            assert (found.digest, found.rows) == (store.digest, rows)
            np.testing.assert_array_equal(all_rows(found)[0], X[:rows])
    assert Store.open(stores[1].path, rows=200, digest=stores[1].digest).commits == 2
    unknown = "sha256:" + 64 * "a"
    with pytest.raises(StoreError, match=f"expected a commit with the content {unknown}, found {stores[0].digest} of"):
        Store.open(stores[0].path, digest=unknown)
    with pytest.raises(StoreError, match=f"expected a commit of 300 rows with the content {stores[0].digest}, found"):
        Store.open(stores[0].path, rows=300, digest=stores[0].digest)


def test_open_source_keeps_one_store_per_process(tmp_path: Path, rng: np.random.Generator) -> None:
    """The same handle gives the same object; a path gives the latest commit."""
    path, _ = _filled(tmp_path, rng)
    store = open_source(str(path))
    assert open_source(store.handle()) is store
    assert open_source(path) is store
    with pytest.raises(TypeError, match="expected a source's handle"):
        open_source(42)


@pytest.mark.parametrize("name", ["gzip", "vlen-bytes", "my.codec"])
def test_codecs_off_the_list_are_refused(tmp_path: Path, rng: np.random.Generator, name: str) -> None:
    """Metadata that names a codec off the allow-list is refused before any codec runs."""
    path, _ = _filled(tmp_path, rng)
    edit_json(path / "X" / "zarr.json", lambda array: array["codecs"].append({"name": name, "configuration": {}}))
    with pytest.raises(StoreError, match=f"codec '{name}' is not allowed"):
        Store.open(path)


def test_a_chunk_cannot_inflate(tmp_path: Path, rng: np.random.Generator) -> None:
    """A compressed chunk that promises another size than its chunk's, or a file larger than any, is refused unread."""
    from numcodecs.blosc import Blosc

    from coremargin.data.checksum import crc32c

    X = rng.normal(size=(320, 4)).astype(np.float32)
    store = write_store(tmp_path / "s.zarr", X, X[:, 0] > 0, compression="lz4")
    file = store.path / "X" / "c.0.0"
    bomb = Blosc("lz4").encode(np.zeros(1 << 20, dtype=np.uint8))
    file.write_bytes(bomb + crc32c(bomb).to_bytes(4, "little"))
    with pytest.raises(DamagedChunk, match="the header promises 1,048,576"):
        store.read(0)
    file.write_bytes(bytes(100_000))
    with pytest.raises(DamagedChunk, match="expected at most"):
        store.read(0)
    whole = 64 * 4 * 4
    short = struct.pack("<BBBBIII", 2, 1, 2, 4, whole, whole, whole + 16)  # copied as they are: c-blosc would read on
    file.write_bytes(short + crc32c(short).to_bytes(4, "little"))
    with pytest.raises(DamagedChunk, match="expected 1,040 compressed bytes, as the header promises, got 16"):
        store.read(0)


def test_absurd_sizes_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    """Metadata that would make a reader allocate absurd amounts is refused before anything is allocated."""
    path, _ = _filled(tmp_path, rng)
    good = (path / "zarr.json").read_bytes()
    for changes in ({"chunk_rows": 1 << 40}, {"features": 1 << 60}, {"rows": -1}, {"rows": 10**15}, {"features": 2.5}):
        edit_attributes(path, **changes)
        with pytest.raises(StoreError, match="expected"):
            Store.open(path)
        (path / "zarr.json").write_bytes(good)


def test_columns_split_over_chunks_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    """X must be chunked by whole rows; anything else is refused with what to do."""
    path, _ = _filled(tmp_path, rng)
    edit_json(
        path / "X" / "zarr.json",
        lambda array: array["chunk_grid"]["configuration"].update(chunk_shape=[64, 2]),
    )
    with pytest.raises(StoreError, match=r"expected chunks of 64 whole rows.*ingest"):
        Store.open(path)


def test_slashes_in_chunk_names(tmp_path: Path, rng: np.random.Generator) -> None:
    """As other tools name chunks; a missing one is an error as ever."""
    path, X = _filled(tmp_path, rng)
    rewrite_array(path, "X", compressors=None)
    store = Store.open(path)
    np.testing.assert_array_equal(all_rows(store)[0], X)
    np.testing.assert_array_equal(store.rows_at(np.array([5, 300]))[0], X[[5, 300]])
    (path / "X" / "c" / "2" / "0").unlink()
    with pytest.raises(DamagedChunk, match="file X/c/2/0: the file is missing"):
        store.read(2)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"filters": [zarr.codecs.TransposeCodec(order=(1, 0))], "compressors": None}, "'transpose'"),
        ({"serializer": zarr.codecs.ShardingCodec(chunk_shape=(16, 4)), "compressors": None}, "'sharding_indexed'"),
        ({"compressors": zarr.codecs.GzipCodec()}, "'gzip'"),
    ],
    ids=["transpose", "shards", "gzip"],
)
def test_codecs_that_stores_do_not_use(
    tmp_path: Path, rng: np.random.Generator, options: dict[str, Any], found: str
) -> None:
    """They are refused when the store is opened: 60 kB in a shard may inflate to a gigabyte, and no header says so."""
    path, _ = _filled(tmp_path, rng)
    rewrite_array(path, "X", **options)
    with pytest.raises(
        StoreError, match=f"codec {found} is not allowed, and is not run; expected bytes, blosc, crc32c"
    ):
        Store.open(path)


@pytest.mark.parametrize(
    "options",
    [
        {"serializer": zarr.codecs.BytesCodec(endian="big"), "compressors": None},
        {"compressors": zarr.codecs.BloscCodec(cname="zlib", clevel=1, shuffle="noshuffle")},
        {"compressors": [zarr.codecs.BloscCodec(cname="lz4"), zarr.codecs.BloscCodec(cname="lz4")]},
        {"compressors": [zarr.codecs.Crc32cCodec(), zarr.codecs.BloscCodec(cname="lz4")]},
    ],
    ids=["big", "zlib", "twice", "order"],
)
def test_chains_of_codecs_that_stores_do_not_use(
    tmp_path: Path, rng: np.random.Generator, options: dict[str, Any]
) -> None:
    """Known codecs in another order, twice, or with other settings are refused, too."""
    path, _ = _filled(tmp_path, rng)
    rewrite_array(path, "X", **options)
    with pytest.raises(StoreError, match=r"X/zarr.json: .*codecs"):
        Store.open(path)
