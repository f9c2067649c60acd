"""Sparse stores on disk: the rows of a dense store and of arrays in memory, however they are stored, read and cut."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from coremargin.data import maps
from coremargin.data.arrays import ArraySource
from coremargin.data.check import check_store
from coremargin.data.moments import overview
from coremargin.data.opened import open_source
from coremargin.data.source import Source
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import BadRow, DamagedChunk, StoreError, UsageError
from store_kit import FAULTS, edit_attributes, quick_folder, rewrite_array, write_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS, FEATURES, CHUNK_ROWS = 333, 40, 64
VECTORS = ("centre", "low", "high", "total", "spread")


def sparse_rows(rng: np.random.Generator, n: int = ROWS, d: int = FEATURES, density: float = 0.1) -> sp.csr_array:
    """Random rows, float32; the first is empty."""
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    X[0] = 0.0
    return sp.csr_array(X.astype(np.float32))


def write_sparse(path: Path, X: Any, y: Any, weights: Any = None, **options: Any) -> Store:
    """A sparse store in one commit, chunks of 64 rows, files of 128 values that follow no chunk."""
    plan = {"chunk_rows": CHUNK_ROWS, "chunk_bytes": 256, "dtype": X.dtype.name, **options}
    weighted = weights is not None
    with StoreWriter.create(path, features=X.shape[1], sparse=True, weighted=weighted, **plan) as writer:
        writer.write(X, y, weights, origin="test")
    return Store.open(path)


def dense(source: Source) -> np.ndarray:
    """All rows of a sparse source."""
    return np.concatenate([source.read(chunk)[0].toarray() for chunk in range(source.chunks)])


def _mapped(path: Path, X: Any, y: Any, weights: Any) -> Store:
    return write_sparse(path, X, y, weights)


def _buffered(path: Path, X: Any, y: Any, weights: Any) -> Store:
    write_sparse(path, X, y, weights)
    return Store.open(path, map_bytes=0)


def _one_file(path: Path, X: Any, y: Any, weights: Any) -> Store:
    return write_sparse(path, X, y, weights, chunk_bytes=1 << 20)


def _lz4(path: Path, X: Any, y: Any, weights: Any) -> Store:
    return write_sparse(path, X, y, weights, compression="lz4")


def _zstd(path: Path, X: Any, y: Any, weights: Any) -> Store:
    return write_sparse(path, X, y, weights, compression="zstd")


def _rewritten(path: Path, X: Any, y: Any, weights: Any) -> Store:
    write_sparse(path, X, y, weights)
    for name in ("X/data", "X/indices", "X/indptr"):
        rewrite_array(path, name, compressors=None)
    return Store.open(path)


def _appended(path: Path, X: Any, y: Any, weights: Any) -> Store:
    write_sparse(path, X[:100], y[:100], weights[:100])
    for start, stop in ((100, 101), (101, 128), (128, 256), (256, ROWS)):
        with StoreWriter.append(path) as writer:
            part = X[start:stop]
            writer.write(part.toarray() if start == 128 else part, y[start:stop], weights[start:stop])
    return Store.open(path)


MAKERS = [_mapped, _buffered, _one_file, _lz4, _zstd, _rewritten, _appended]


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[sp.csr_array, np.ndarray, np.ndarray]:
    """Rows, labels of three classes, weights."""
    return sparse_rows(rng), rng.integers(0, 3, ROWS), rng.random(ROWS)


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.__name__.strip("_"))
def store(request: pytest.FixtureRequest, tmp_path: Path, data: tuple[Any, Any, Any]) -> Store:
    """A store of the same rows, each time kept or read in another way."""
    maker: Callable[..., Store] = request.param
    return maker(tmp_path / "s.zarr", *data)


class TestStore:
    """What every sparse store promises."""

    def test_is_the_arrays(self, store: Store, data: tuple[Any, Any, Any]) -> None:
        """Facts, rows, codes, weights, statistics and digest are those of the arrays in memory, twice in a row."""
        memory = ArraySource(data[0], data[1], weights=data[2], chunk_rows=CHUNK_ROWS)
        assert isinstance(store, Source)
        for name in ("rows", "features", "chunks", "classes", "dtype", "sparse", "digest", "nbytes"):
            assert getattr(store, name) == getattr(memory, name), name
        for chunk in 2 * list(range(store.chunks)):
            (X, y), (ours, codes) = store.read(chunk), memory.read(chunk)
            for part in ("data", "indices", "indptr"):
                found = getattr(X, part)
                np.testing.assert_array_equal(found, getattr(ours, part))
                assert not found.flags.writeable
            assert (X.dtype, X.indices.dtype, X.indptr.dtype) == (np.float32, np.int32, np.int32)
            np.testing.assert_array_equal(y, codes)
            np.testing.assert_array_equal(store.weights(chunk), memory.weights(chunk))
        for name, values in vars(store.scalars()).items():
            np.testing.assert_array_equal(values, getattr(memory.scalars(), name), err_msg=name)
        ours, theirs = store.statistics(1, 4), memory.statistics(1, 4)
        for name in VECTORS:
            np.testing.assert_array_equal(getattr(ours, name).toarray(), getattr(theirs, name).toarray())
        np.testing.assert_array_equal(store.centres(2, 5), memory.centres(2, 5))

    def test_says_what_the_dense_store_says(self, store: Store, data: tuple[Any, Any, Any], tmp_path: Path) -> None:
        """Rows by id, counts, extremes, norms: as the same rows kept dense have them."""
        full = write_store(tmp_path / "dense.zarr", data[0].toarray(), data[1], chunk_rows=CHUNK_ROWS)
        np.testing.assert_array_equal(dense(store), data[0].toarray())
        ids = np.array([332, 0, 64, 63, 0, 200, 199])
        for _ in range(2):
            X, y = store.rows_at(ids)
            assert (X.format, X.dtype, y.tolist()) == ("csr", np.float64, full.rows_at(ids)[1].tolist())
            np.testing.assert_array_equal(X.toarray(), full.rows_at(ids)[0])
        assert store.rows_at(np.array([], dtype=np.int64))[0].shape == (0, FEATURES)
        for name in ("rows", "counts", "unlabelled"):
            np.testing.assert_array_equal(getattr(store.scalars(), name), getattr(full.scalars(), name))
        for name in ("radius", "max_norm"):
            np.testing.assert_allclose(getattr(store.scalars(), name), getattr(full.scalars(), name), rtol=1e-12)
        for name, value in vars(overview(store)).items():
            assert value == pytest.approx(getattr(overview(full), name), rel=1e-9), name
        assert store.digest != full.digest

    def test_whole(self, store: Store) -> None:
        """The check finds nothing to complain about."""
        assert check_store(store.path, workers=1).damaged == ()

    def test_travels(self, store: Store) -> None:
        """A pickled handle opens the same rows."""
        twin = open_source(cloudpickle.loads(cloudpickle.dumps(store.handle())))
        assert twin.digest == store.digest
        np.testing.assert_array_equal(dense(twin), dense(store))

    def test_others_read_it(self, store: Store, data: tuple[Any, Any, Any]) -> None:
        """Plain zarr-python finds anndata's encoding of a CSR matrix, and the weights beside it."""
        group = zarr.open_group(store.path, mode="r")
        X: Any = group["X"]
        expected = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [ROWS, FEATURES]}
        assert dict(X.attrs) == expected
        parts = tuple(X[name][:] for name in ("data", "indices", "indptr"))
        np.testing.assert_array_equal(sp.csr_array(parts, shape=(ROWS, FEATURES)).toarray(), data[0].toarray())
        np.testing.assert_array_equal(np.asarray(group["weights"]), data[2])


def test_anndata(tmp_path: Path, data: tuple[Any, Any, Any]) -> None:
    """anndata reads X as its own, whole and in slices."""
    anndata = pytest.importorskip("anndata")
    store = write_sparse(tmp_path / "s.zarr", data[0], data[1])
    group = zarr.open_group(store.path, mode="r")
    np.testing.assert_array_equal(anndata.io.read_elem(group["X"]).toarray(), data[0].toarray())
    np.testing.assert_array_equal(anndata.io.sparse_dataset(group["X"])[50:99].toarray(), data[0].toarray()[50:99])


@settings(max_examples=25)
@given(
    rows=st.integers(1, 60),
    features=st.integers(1, 9),
    density=st.sampled_from([0.0, 0.2, 1.0]),
    chunk_rows=st.integers(1, 20),
    file_bytes=st.integers(1, 60),
    compression=st.sampled_from(["none", "lz4"]),
    cuts=st.lists(st.integers(1, 59), max_size=4),
)
def test_any_cuts(
    rows: int, features: int, density: float, chunk_rows: int, file_bytes: int, compression: str, cuts: list[int]
) -> None:
    """However rows are cut into chunks, files and commits: every commit holds its rows, and the check agrees."""
    rng = np.random.default_rng(rows)
    X = (rng.normal(size=(rows, features)) * (rng.random((rows, features)) < density)).astype(np.float32)
    y, bounds = np.arange(rows) % 2, sorted({cut for cut in cuts if cut < rows} | {rows})
    options: dict[str, Any] = {"chunk_rows": chunk_rows, "chunk_bytes": file_bytes, "compression": compression}
    with quick_folder() as folder:
        path = folder / "s.zarr"
        write_sparse(path, X[: bounds[0]], y[: bounds[0]], **options)
        for start, stop in itertools.pairwise(bounds):
            with StoreWriter.append(path) as writer:
                writer.write(X[start:stop], y[start:stop])
        for stop in bounds:
            for map_bytes in (0, 1 << 20):
                store = Store.open(path, rows=stop, map_bytes=map_bytes)
                np.testing.assert_array_equal(dense(store), X[:stop])
                assert store.digest == ArraySource(sp.csr_array(X[:stop]), y[:stop]).digest
        assert check_store(path, workers=1).damaged == ()


class TestWriting:
    """How sparse stores are made."""

    def test_chunks_by_bytes(self, tmp_path: Path, rng: np.random.Generator) -> None:
        """Without a number of rows, a chunk holds about ``chunk_bytes`` of values and indices; files hold four."""
        X = sparse_rows(rng, 4000, 50, 0.2)
        store = write_sparse(tmp_path / "s.zarr", X, np.ones(4000), chunk_rows=None, chunk_bytes=8000)
        assert 90 <= store.chunk_rows <= 110
        assert store.chunk_rows * 10 * 8 == pytest.approx(8000, rel=0.1)
        files = len(list((store.path / "X" / "data").glob("c.*")))
        assert files == -(-X.nnz * 8 // 32000)
        np.testing.assert_array_equal(dense(store), X.toarray())

    def test_small_stores_have_small_files(self, tmp_path: Path, rng: np.random.Generator) -> None:
        """A store of a few values does not take the room of a full file."""
        with StoreWriter.create(tmp_path / "s.zarr", features=9, sparse=True) as writer:
            writer.write(sparse_rows(rng, 20, 9), np.ones(20))
        assert Store.open(tmp_path / "s.zarr").stored_bytes < 4 << 20

    def test_nothing_stored(self, tmp_path: Path) -> None:
        """Rows of zeros are rows."""
        store = write_sparse(tmp_path / "s.zarr", sp.csr_array((100, 7), dtype=np.float64), np.arange(100) % 2)
        assert (store.rows, store.nonzeros, store.dtype) == (100, 0, np.float64)
        assert not dense(store).any()
        assert check_store(store.path, workers=1).whole

    def test_either_kind_into_either_store(self, tmp_path: Path, rng: np.random.Generator) -> None:
        """A store keeps rows in its own kind, whatever they came in."""
        X = sparse_rows(rng, 50, 9)
        one = write_sparse(tmp_path / "a.zarr", X, np.ones(50))
        two = write_sparse(tmp_path / "b.zarr", X.toarray(), np.ones(50))
        assert one.digest == two.digest
        three = write_store(tmp_path / "c.zarr", X.toarray(), np.ones(50))
        with StoreWriter.create(tmp_path / "d.zarr", features=9) as writer:
            writer.write(X, np.ones(50))
        assert Store.open(tmp_path / "d.zarr").digest == three.digest

    def test_rows_are_checked(self, tmp_path: Path, rng: np.random.Generator) -> None:
        """NaN is refused by row, nothing of the batch is taken, and the rows before stay."""
        X = sparse_rows(rng, 30, 9)
        bad = X[:10].copy()
        bad.data[-1] = np.nan
        with StoreWriter.create(tmp_path / "s.zarr", features=9, sparse=True) as writer:
            writer.write(X, np.ones(30), origin="a.svm")
            with pytest.raises(BadRow, match=r"a.svm: row 39, column \d .*expected a finite number, got nan"):
                writer.write(bad, np.ones(10), origin="a.svm")
        assert Store.open(tmp_path / "s.zarr").rows == 30

    def test_another_format_is_refused(self, tmp_path: Path, rng: np.random.Generator) -> None:
        """All stores say format 5; 6 is refused."""
        X = sparse_rows(rng, 30, 9)
        one = write_sparse(tmp_path / "a.zarr", X, np.ones(30)).path
        two = write_store(tmp_path / "b.zarr", X.toarray(), np.ones(30)).path
        versions = [zarr.open_group(path, mode="r").attrs["version"] for path in (one, two)]
        assert versions == [5, 5]
        edit_attributes(one, version=6)
        with pytest.raises(StoreError, match="expected a store of format 5, found 6"):
            Store.open(one)

    @pytest.mark.parametrize("map_bytes", [0, 1 << 20])
    def test_readers_do_not_see_appends(self, tmp_path: Path, data: tuple[Any, Any, Any], map_bytes: int) -> None:
        """A store that was opened before an append goes on reading its own rows, though files were replaced."""
        X, y, weights = data
        path = write_sparse(tmp_path / "s.zarr", X[:150], y[:150], weights[:150]).path
        old = Store.open(path, map_bytes=map_bytes)
        np.testing.assert_array_equal(dense(old), X[:150].toarray())
        with StoreWriter.append(path) as writer:
            writer.write(X[150:], y[150:], weights[150:])
        np.testing.assert_array_equal(dense(old), X[:150].toarray())
        np.testing.assert_array_equal(old.weights(2), weights[128:150])
        assert old.statistics().rows.tolist() == [64, 64, 22]
        np.testing.assert_array_equal(dense(Store.open(path, map_bytes=map_bytes)), X.toarray())

    def test_maps_count(self, tmp_path: Path, rng: np.random.Generator) -> None:
        """Mapped files count against the budget of the process, and are given back with the store."""
        before = maps.budget.used_bytes
        store = write_sparse(tmp_path / "s.zarr", sparse_rows(rng), np.ones(ROWS))
        for chunk in range(store.chunks):
            store.read(chunk)
        used = maps.budget.used_bytes - before
        assert used > 0
        assert used % (128 // 4 * 4) == 0
        del store
        assert maps.budget.used_bytes == before


class TestWeights:
    """Weights on disk, beside rows of either kind."""

    @pytest.mark.parametrize("sparse", [False, True])
    def test_written_and_read(self, tmp_path: Path, rng: np.random.Generator, *, sparse: bool) -> None:
        """Every chunk has its weights, across appends, and they count in bytes and digest."""
        X, weights = sparse_rows(rng, 200, 9), rng.random(200)
        path = tmp_path / "s.zarr"
        with StoreWriter.create(path, features=9, sparse=sparse, weighted=True, chunk_rows=64) as writer:
            writer.write(X[:150], np.ones(150), weights[:150])
        with StoreWriter.append(path) as writer:
            writer.write(X[150:], np.ones(50), weights[150:])
        store = Store.open(path)
        for chunk in range(store.chunks):
            np.testing.assert_array_equal(store.weights(chunk), weights[slice(*store.span(chunk))])
        rows: Any = X if sparse else X.toarray()
        assert store.digest == ArraySource(rows, np.ones(200), weights=weights).digest
        assert store.nbytes == ArraySource(rows, np.ones(200), weights=weights).nbytes
        assert check_store(path, workers=1).whole

    def test_all_or_none(self, tmp_path: Path, rng: np.random.Generator) -> None:
        """A store has weights for all its rows or for none."""
        X = sparse_rows(rng, 30, 9)
        for weighted in (True, False):
            with StoreWriter.create(tmp_path / f"{weighted}.zarr", features=9, weighted=weighted) as writer:
                writer.write(X, np.ones(30), np.ones(30) if weighted else None)
                with pytest.raises(UsageError, match="give every row a weight or none"):
                    writer.write(X, np.ones(30), None if weighted else np.ones(30))

    @pytest.mark.faults
    def test_damage(self, tmp_path: Path, rng: np.random.Generator) -> None:
        """An altered weight is damage with a place."""
        store = write_sparse(tmp_path / "s.zarr", sparse_rows(rng), np.ones(ROWS), rng.random(ROWS))
        file = store.path / "weights" / "c.3"
        raw = bytearray(file.read_bytes())
        raw[17] ^= 1
        file.write_bytes(raw)
        with pytest.raises(DamagedChunk, match=r"chunk 3 \(rows 192 to 255\), file weights/c.3"):
            Store.open(store.path).weights(3)
        assert [found.chunk for found in check_store(store.path).damaged] == [3]


def complaint(store: Store, chunk: int) -> str:
    """What reading a chunk complains about; empty when it reads."""
    try:
        store.read(chunk)
    except DamagedChunk as error:
        return str(error)
    return ""


@pytest.mark.specimens(22)
@pytest.mark.faults
@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_file(tmp_path: Path, rng: np.random.Generator, fault: str, name: str, compression: str) -> None:
    """A damaged file raises with file, chunk and rows, however it is read; chunks in other files stay readable."""
    X = sparse_rows(rng)
    path = write_sparse(tmp_path / "s.zarr", X, np.ones(ROWS), compression=compression, chunk_bytes=1024).path
    file = path / "X" / name / "c.2"
    new = FAULTS[fault](file.read_bytes())
    if new is None:
        file.unlink()
    else:
        file.write_bytes(new)
    hit = {2}
    if name != "indptr":
        ends = X.indptr[[0, 64, 128, 192, 256, 320, 333]]
        hit = {k for k in range(6) if ends[k] < 3 * 512 and ends[k + 1] > 2 * 512}
    for map_bytes in (0, 1 << 20):
        store = Store.open(path, map_bytes=map_bytes)
        complaints = {chunk: text for chunk in range(store.chunks) if (text := complaint(store, chunk))}
        failed = set(complaints)
        for chunk, text in complaints.items():
            first, last = store.span(chunk)[0], store.span(chunk)[1] - 1
            assert f"chunk {chunk} (rows {first} to {last}), file X/{name}/c." in text
            assert "coremargin check" in text
        assert failed
        assert failed <= hit
        if fault != "one bit flipped":
            assert failed == hit
        with pytest.raises(DamagedChunk):
            store.rows_at(np.arange(ROWS))
    found = {damage.chunk for damage in check_store(path).damaged}
    assert failed <= found <= hit


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_statistics(tmp_path: Path, rng: np.random.Generator, fault: str) -> None:
    """Statistics of a chunk that are missing or altered raise when they are asked for, and name their file."""
    path = write_sparse(tmp_path / "s.zarr", sparse_rows(rng), np.ones(ROWS)).path
    file = path / "blocks" / "vectors" / "2.64"
    new = FAULTS[fault](file.read_bytes())
    if new is None:
        file.unlink()
    else:
        file.write_bytes(new)
    store = Store.open(path)
    store.read(2)
    with pytest.raises(StoreError, match=r"blocks/vectors/2\.64"):
        store.statistics(2, 3)
    assert check_store(path).damaged


@pytest.mark.faults
def test_check_reads_the_padding(tmp_path: Path, rng: np.random.Generator) -> None:
    """A bit flipped in the unused end of the last file does no harm to a reader, and is found by the check."""
    X = sparse_rows(rng)
    path = write_sparse(tmp_path / "s.zarr", X, np.ones(ROWS)).path
    file = path / "X" / "indices" / f"c.{X.nnz // 128}"
    raw = bytearray(file.read_bytes())
    raw[-6] ^= 1
    file.write_bytes(raw)
    np.testing.assert_array_equal(dense(Store.open(path)), X.toarray())
    assert check_store(path).damaged


@pytest.mark.faults
def test_rows_that_are_not_canonical(tmp_path: Path, rng: np.random.Generator) -> None:
    """Indices out of order are found by the check even where all checksums are theirs."""
    from coremargin.data import writer

    X = sparse_rows(rng, 30, 9, 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "as_sparse_rows", lambda rows, **_: rows)
        X.indices[X.indptr[3] : X.indptr[4]] = X.indices[X.indptr[3] : X.indptr[4]][::-1]
        store = write_sparse(tmp_path / "s.zarr", X, np.ones(30))
    (damage,) = check_store(store.path).damaged
    assert "expected ascending indices and no zeros" in damage.what


def test_ten_million_features_need_no_dense_chunk(tmp_path: Path) -> None:
    """A writer of sparse rows allocates nothing that is as wide as its features."""
    parts = np.ones(4, np.float32), np.array([3, 9_999_999, 0, 5]), np.array([0, 2, 4])
    X = sp.csr_array(parts, shape=(2, 10_000_000))
    with StoreWriter.create(tmp_path / "wide.zarr", features=10_000_000, sparse=True) as writer:
        writer.write(X, ["a", "b"])
    rows, _ = Store.open(tmp_path / "wide.zarr").read(0)
    assert rows.indices.tolist() == [3, 9_999_999, 0, 5]
