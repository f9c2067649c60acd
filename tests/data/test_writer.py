"""Batches of any size and kind become the same store; what cannot be stored is refused by name."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from coremargin.data import files
from coremargin.data.arrays import ArraySource
from coremargin.data.format import read_facts
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import BadRow, Busy, LabelError, OutputError, StoreError, UsageError
from store_kit import all_rows, quick_folder, write_store

if TYPE_CHECKING:
    from pathlib import Path


def _rows(rng: np.random.Generator, rows: int = 500, features: int = 4) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(rows, features)).astype(np.float32)
    return X, np.where(X[:, 0] > 0, "yes", "no")


@pytest.mark.parametrize("batch", [1, 7, 64, 100, 500])
def test_batches_do_not_matter(tmp_path: Path, rng: np.random.Generator, batch: int) -> None:
    """The content of a store depends on the rows, not on the batches they came in."""
    X, y = _rows(rng)
    with StoreWriter.create(tmp_path / "s.zarr", features=4, chunk_bytes=64 * 16) as writer:
        for start in range(0, 500, batch):
            writer.write(X[start : start + batch], y[start : start + batch])
        assert writer.rows == 500
        assert writer.committed == 0
    store = Store.open(tmp_path / "s.zarr")
    np.testing.assert_array_equal(all_rows(store)[0], X)
    assert store.digest == ArraySource(X, y).digest


def test_zarr_and_its_readers_open_a_store(tmp_path: Path, rng: np.random.Generator) -> None:
    """A store is plain Zarr: arrays named X and y with dimension names, whole chunks on disk, statistics in blocks."""
    X, y = _rows(rng)
    path = write_store(tmp_path / "s.zarr", X, y).path
    group = zarr.open_group(path, mode="r")
    assert dict(group.attrs)["rows"] == 500
    array = group["X"]
    assert isinstance(array, zarr.Array)
    np.testing.assert_array_equal(array[:], X)
    assert array.metadata.dimension_names == ("row", "feature")
    assert array.nchunks_initialized == array.nchunks == 8
    assert np.isnan(array.fill_value)
    assert group["y"].dtype == np.int32
    np.testing.assert_array_equal(group["blocks/000000/rows"][:], [64] * 7 + [52])
    np.testing.assert_array_equal(group["blocks/000000/centre"][:], Store.open(path).statistics().centre)


def test_file_bytes(tmp_path: Path) -> None:
    """A chunk's file is its raw little-endian rows, NaN to the full size of a chunk, and a crc32c."""
    write_store(tmp_path / "s.zarr", np.array([[1.0, 2.0]], dtype=np.float32), ["a"], chunk_rows=2)
    data = (tmp_path / "s.zarr" / "X" / "c.0.0").read_bytes()
    assert data[:8] == np.array([1, 2], dtype="<f4").tobytes()
    assert np.isnan(np.frombuffer(data[8:16], dtype="<f4")).all()
    assert len(data) == 20


def test_appending_gives_the_store_of_all_rows(tmp_path: Path, rng: np.random.Generator) -> None:
    """A store grown by many appends has the digest and the statistics of one written at once."""
    X, y = _rows(rng, 700)
    write_store(tmp_path / "s.zarr", X[:130], y[:130])
    for start in range(130, 700, 57):
        with StoreWriter.append(tmp_path / "s.zarr") as writer:
            writer.write(X[start : start + 57], y[start : start + 57])
    grown, once = Store.open(tmp_path / "s.zarr"), write_store(tmp_path / "t.zarr", X, y)
    assert grown.digest == once.digest
    for name, values in vars(once.statistics()).items():
        np.testing.assert_array_equal(getattr(grown.statistics(), name), values)
    for commit in read_facts(grown.storage).commits:
        frozen = Store.open(grown.path, rows=commit.rows)
        assert frozen.digest == ArraySource(X[: commit.rows], y[: commit.rows]).digest
        np.testing.assert_array_equal(frozen.statistics().rows.sum(), commit.rows)


def test_statistics_of_many_small_commits_are_merged(rng: np.random.Generator) -> None:
    """However many commits made a store, few groups of statistics describe it."""
    X, y = _rows(rng, 80)
    with quick_folder() as folder:
        path = folder / "s.zarr"
        with StoreWriter.create(path, features=4, chunk_bytes=2 * 16) as writer:
            for start in range(0, 80, 2):
                writer.write(X[start : start + 2], y[start : start + 2])
                writer.commit()
        store = Store.open(path)
        assert store.commits == 40
        assert len(store._manifest._spans) <= 6
        np.testing.assert_array_equal(all_rows(store)[0], X)


def test_small_store_has_a_small_chunk(tmp_path: Path, rng: np.random.Generator) -> None:
    """A few rows do not take a whole default chunk on disk, and go on to grow as usual."""
    X, y = _rows(rng)
    with StoreWriter.create(tmp_path / "s.zarr", features=4) as writer:
        writer.write(X, y)
    assert Store.open(tmp_path / "s.zarr").stored_bytes < 2 << 20
    big = rng.normal(size=(70_000, 4)).astype(np.float32)
    with StoreWriter.create(tmp_path / "t.zarr", features=4) as writer:
        writer.write(big[:65_536])
        writer.commit()
        assert writer.chunk_rows == 65_536
        writer.write(big[65_536:])
    store = Store.open(tmp_path / "t.zarr")
    assert store.chunks == 2
    np.testing.assert_array_equal(all_rows(store)[0], big)


def test_compression_auto(tmp_path: Path, rng: np.random.Generator) -> None:
    """The choice "auto" compresses rows that shrink, and leaves rows of noise as they are."""
    noise = write_store(tmp_path / "n.zarr", rng.normal(size=(500, 4)).astype(np.float32), None, compression="auto")
    assert noise.compression == "none"
    rounded = rng.integers(0, 4, (5000, 4)).astype(np.float32)
    small = write_store(tmp_path / "r.zarr", rounded, None, chunk_rows=1024, compression="auto")
    assert small.compression == "lz4"
    assert small.compressed_bytes < small.nbytes / 2
    np.testing.assert_array_equal(all_rows(small)[0], rounded)
    with StoreWriter.append(small.path) as writer:
        writer.write(rounded[:10])
    assert Store.open(small.path).compression == "lz4"


LABELS: dict[str, tuple[Any, tuple[Any, ...], list[int]]] = {
    "texts": (np.array(["b", "a", "b"]), ("b", "a"), [0, 1, 0]),
    "bytes": (np.array([b"b", b"a", b"b"]), ("b", "a"), [0, 1, 0]),
    "whole numbers": (np.array([7, -1, 7], dtype=np.int8), (7, -1), [0, 1, 0]),
    "floats with NaN": (np.array([1.5, np.nan, -1.0]), (1.5, -1.0), [0, -1, 1]),
    "booleans": (np.array([False, True, False]), (False, True), [0, 1, 0]),
    "objects with None": (np.array(["x", None, "y"], dtype=object), ("x", "y"), [0, -1, 1]),
    "a list": ([3, 2, 3], (3, 2), [0, 1, 0]),
    "a list with None": ([None, "q", None], ("q",), [-1, 0, -1]),
    "none at all": (None, (), [-1, -1, -1]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels(tmp_path: Path, case: str) -> None:
    """Labels of any one kind are kept as given, in order of first appearance; None and NaN are unlabelled."""
    labels, classes, codes = LABELS[case]
    X = np.ones((3, 2), dtype=np.float32)
    store = write_store(tmp_path / "s.zarr", X, labels)
    assert store.classes == ArraySource(X, labels).classes == classes
    assert [type(label) for label in store.classes] == [type(label) for label in classes]
    assert store.read(0)[1].tolist() == codes
    assert store.statistics().unlabelled.sum() == codes.count(-1)


def test_kinds_of_numbers_join(tmp_path: Path) -> None:
    """Whole numbers that come as floats, for missing values among them, are the same labels."""
    with StoreWriter.create(tmp_path / "s.zarr", features=1) as writer:
        writer.write([[1.0], [2.0]], [1, 0])
        writer.write([[3.0], [4.0]], [np.nan, 1.0])
    assert Store.open(tmp_path / "s.zarr").classes == (1, 0)
    assert Store.open(tmp_path / "s.zarr").read(0)[1].tolist() == [0, 1, -1, 0]


BAD_LABELS = {
    "text after numbers": (["1"], "row 2: expected a whole number like the labels before it .0., got a text, '1'"),
    "fraction after whole numbers": ([0.5], "got a number, 0.5"),
    "booleans after numbers": ([True], "got yes or no, True"),
    "mixed in one list": ([1, "1"], "row 3: expected a whole number"),
    "infinite": ([np.inf], "expected a label"),
    "an object": ([object()], "expected a label"),
    "too few": ([], "expected as many labels as rows, 1, got 0"),
    "a column": ([[1]], "expected labels as a vector|expected a label"),
    "a matrix": (np.ones((1, 1)), r"expected labels as a vector, got an array of shape \(1, 1\)"),
    "complex": (np.array([1j]), "expected texts or numbers as labels"),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_bad_labels(tmp_path: Path, case: str) -> None:
    """Labels that do not fit are refused with their row, and the refused batch leaves no trace."""
    labels, message = BAD_LABELS[case]
    with StoreWriter.create(tmp_path / "s.zarr", features=2) as writer:
        writer.write(np.zeros((2, 2)), [0, 5])
        with pytest.raises(LabelError, match=message):
            writer.write(np.ones((max(1, len(labels)), 2)), labels)
        assert writer.classes == (0, 5)
    assert Store.open(tmp_path / "s.zarr").rows == 2


def test_too_many_classes(tmp_path: Path) -> None:
    """A column of measurements given as labels is refused with the right question."""
    writer = StoreWriter.create(tmp_path / "s.zarr", features=1)
    for labels in (np.arange(5000) / 7, [str(k) for k in range(5000)]):
        with pytest.raises(LabelError, match="at most 4096 classes.*measurement rather than a label"):
            writer.write(np.ones((5000, 1)), labels)
    writer.close()


def test_rows_are_named(tmp_path: Path) -> None:
    """NaN and infinities are refused with file, row and column, counted over the batches of one origin."""
    with StoreWriter.create(tmp_path / "s.zarr", features=3) as writer:
        writer.write(np.zeros((10, 3)), origin="a.csv")
        writer.write(np.zeros((4, 3)), origin="b.csv")
        for bad in (np.nan, np.inf, -np.inf):
            X = np.zeros((6, 3))
            X[4, 2] = bad
            with pytest.raises(BadRow, match=rf"b.csv: row 8, column 2 .* finite number, got {bad}"):
                writer.write(X, origin="b.csv")
        assert writer.rows == 14


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "ragged": ([[1.0], [1.0, 2.0]], "rows of equal length"),
    "texts": ([["a", "b"]], "expected real numbers, got values of type <U1"),
    "objects": (np.array([[None, 1]], dtype=object), "got values of type object"),
    "complex": (np.array([[1j, 1]]), "got values of type complex128"),
    "a vector": ([1.0, 2.0], r"got an array of shape \(2,\)"),
    "other features": ([[1.0, 2.0, 3.0]], "expected rows of 2 features, got 3"),
    "beyond float32": ([[1.0, 1e39]], "row 0, column 1 .*1e\\+39 is beyond the range of float32.*--dtype float64"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows(tmp_path: Path, case: str) -> None:
    """Rows that are not a matrix of real numbers of the store's width are refused, saying what they are."""
    X, message = BAD_ROWS[case]
    writer = StoreWriter.create(tmp_path / "s.zarr", features=2)
    with pytest.raises(BadRow, match=message):
        writer.write(X)
    writer.close()
    assert list(tmp_path.iterdir()) == []


KINDS = ["float16", "int8", "uint8", "bool", "int64", "uint64", ">f4", ">i2", "float64"]


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_numbers(tmp_path: Path, kind: str) -> None:
    """Every kind of real number is stored by value, from any memory layout, read-only or not."""
    X = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind)
    X = np.asfortranarray(X)[:, ::-1]
    X.flags.writeable = False
    for source in (write_store(tmp_path / "s.zarr", X, [0, 1]), ArraySource(X, [0, 1])):
        np.testing.assert_array_equal(source.read(0)[0], X.astype(np.float64))
        assert source.dtype == ("float64" if kind == "float64" else "float32")


def test_arrays_are_left_alone(rng: np.random.Generator) -> None:
    """Arrays given to a source are neither copied nor made read-only."""
    X = rng.normal(size=(5, 2))
    source = ArraySource(X)
    assert X.flags.writeable
    assert np.shares_memory(source.read(0)[0], X)
    assert not source.read(0)[0].flags.writeable


def test_arrays_keep_large_integers_exact() -> None:
    """Arrays of integers beyond float32's exact range become float64."""
    assert ArraySource(np.array([[2**24 + 1]])).dtype == np.float64
    assert ArraySource(np.array([[2**24 + 1]])).read(0)[0][0, 0] == 2**24 + 1
    assert ArraySource(np.array([[-(2**24)]])).dtype == np.float32


BAD_ARRAYS: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "NaN": ([[0.0], [np.nan]], None, BadRow, "X: row 1, column 0 .*got nan"),
    "lengths": ([[0.0]], [1, 2], LabelError, "y: expected as many labels as rows, 1, got 2"),
    "y 2-D": ([[0.0]], [[1]], LabelError, "y: "),
    "no rows": (np.zeros((0, 3)), None, StoreError, r"at least one row and one feature, got shape \(0, 3\)"),
    "no features": (np.zeros((3, 0)), None, StoreError, "at least one row and one feature"),
    "complex": (np.array([[1j]]), None, BadRow, "X: expected real numbers"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays(case: str) -> None:
    """Arrays are held to the rules of stores."""
    X, y, error, message = BAD_ARRAYS[case]
    with pytest.raises(error, match=message):
        ArraySource(X, y)


def test_arrays_with_given_classes() -> None:
    """An order of classes can be given; labels beyond it are refused, and so are chunks of no rows."""
    X = np.zeros((2, 1))
    assert ArraySource(X, ["b", "a"], classes=("a", "b")).read(0)[1].tolist() == [1, 0]
    with pytest.raises(LabelError, match="got also"):
        ArraySource(X, ["b", "c"], classes=("a", "b"))
    with pytest.raises(UsageError, match="chunk_rows"):
        ArraySource(X, chunk_rows=0)
    assert "2 rows" in repr(ArraySource(X))


def test_existing_paths(tmp_path: Path, rng: np.random.Generator) -> None:
    """A store is not overwritten unasked; a folder of something else never is; the old store stays until the commit."""
    X, y = _rows(rng)
    path = write_store(tmp_path / "s.zarr", X, y).path
    with pytest.raises(UsageError, match="something is there already"):
        StoreWriter.create(path, features=4)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("text")
    with pytest.raises(UsageError, match="only a store may be overwritten"):
        StoreWriter.create(tmp_path / "other", features=4, overwrite=True)
    assert (tmp_path / "other" / "thesis.txt").exists()
    with StoreWriter.create(path, features=2, overwrite=True) as writer:
        writer.write(np.ones((3, 2)))
        assert Store.open(path).features == 4
    assert Store.open(path).features == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other", "s.zarr"]


def test_replacing_without_exchange(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system cannot exchange two folders in one step, two renames replace the store."""
    X, y = _rows(rng)
    path = write_store(tmp_path / "s.zarr", X, y).path
    monkeypatch.setattr(files.ctypes, "CDLL", lambda *args, **options: object())
    write_store(path, X[:3], y[:3], overwrite=True)
    assert Store.open(path).rows == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.zarr"]


def test_leaving_by_an_exception(tmp_path: Path, rng: np.random.Generator) -> None:
    """A writer left by an exception keeps what was committed, and a new store without a commit disappears."""
    X, y = _rows(rng)
    bad = np.full((1, 4), np.nan)

    def write(*, committed: bool) -> None:
        with StoreWriter.create(tmp_path / "a.zarr", features=4) as writer:
            writer.write(X[:100], y[:100])
            if committed:
                assert writer.commit() == writer.commit() == 100
            writer.write(X[100:], y[100:])
            writer.write(bad)

    with pytest.raises(BadRow):
        write(committed=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadRow):
        write(committed=True)
    assert Store.open(tmp_path / "a.zarr").rows == 100


def test_nothing_to_write(tmp_path: Path) -> None:
    """A store of no rows or of no features is refused, and nothing is left behind."""
    with pytest.raises(StoreError, match="at least one row"), StoreWriter.create(tmp_path / "s", features=2) as writer:
        writer.write(np.zeros((0, 2)))
    with pytest.raises(StoreError, match="at least one feature"):
        StoreWriter.create(tmp_path / "s", features=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [{"dtype": "int32"}, {"compression": "gzip"}, {"features": -1}, {"chunk_bytes": 0}, {"chunk_bytes": 1 << 40}],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any]) -> None:
    """Options that cannot be met are usage errors that name the option."""
    with pytest.raises(UsageError, match=f"{next(iter(options))}: expected"):
        StoreWriter.create(tmp_path / "s", **{"features": 2, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"weighted": 1}, {"weighted": "no"}, {"sparse": 0}, {"sparse": None}, {"overwrite": 1}, {"features": True},
        {"features": 3.0}, {"features": "3"}, {"chunk_rows": 10.0}, {"chunk_rows": True}, {"chunk_bytes": "1 MiB"},
        {"chunk_bytes": False}, {"dtype": None}, {"dtype": "real"}, {"about": {"rows": np.int64(3)}},
    ],
)  # fmt: skip
def test_arguments_of_other_types_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """Before rows are written: a record would have them, and no reader would take it."""
    with pytest.raises(UsageError, match=f"{next(iter(options))}: expected"):
        StoreWriter.create(tmp_path / "s", **{"features": 3, **options})
    assert not list(tmp_path.iterdir())


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    """They come from shapes and comparisons of arrays; further commits read what the first one recorded."""
    options: dict[str, Any] = {"features": np.int64(3), "chunk_rows": np.uint8(20), "chunk_bytes": np.int32(4000)}
    flags: dict[str, Any] = {"weighted": np.True_, "sparse": np.False_, "overwrite": np.False_}
    with StoreWriter.create(tmp_path / "s", **options, **flags) as writer:
        for _ in range(2):
            writer.write(np.ones((50, 3)), np.arange(50) % 2, np.ones(50))
            writer.commit()
    with StoreWriter.append(tmp_path / "s") as writer:
        writer.write(np.ones((50, 3)), np.arange(50) % 2, np.ones(50))
    store = Store.open(tmp_path / "s")
    assert (store.rows, store.weighted, store.chunk_rows) == (150, True, 20)


def test_second_writer_is_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    """A second writer is refused while the first is at work, whether it creates, appends or replaces."""
    X, y = _rows(rng)
    path = tmp_path / "s.zarr"
    with StoreWriter.create(path, features=4) as writer:
        with pytest.raises(Busy, match="another writer"):
            StoreWriter.create(path, features=4)
        writer.write(X, y)
        writer.commit()
        with pytest.raises(Busy, match="another writer"):
            StoreWriter.append(path)
        replacing = StoreWriter.create(path, features=4, overwrite=True)
        replacing.write(X[:5], y[:5])
        with pytest.raises(Busy, match="another writer"):
            replacing.commit()
        replacing.close()
    with StoreWriter.append(path) as writer:
        writer.write(X, y)
    assert Store.open(path).rows == 1000


def test_append_refuses_foreign_codecs(tmp_path: Path, rng: np.random.Generator) -> None:
    """A store whose arrays have another checksum and chunk names than the writer's is read, but not appended to."""
    from store_kit import rewrite_array

    X, y = _rows(rng)
    path = write_store(tmp_path / "s.zarr", X, y).path
    rewrite_array(path, "X", compressors=None)
    with pytest.raises(StoreError, match="ingest into a new store"):
        StoreWriter.append(path)
    np.testing.assert_array_equal(all_rows(Store.open(path))[0], X)


def _fail(patch: pytest.MonkeyPatch, code: int) -> None:
    """Let every fsync fail."""

    def fsync(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    patch.setattr(files.os, "fsync", fsync)


@pytest.mark.faults
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_failing_disk(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A disk that fails at a commit is an OutputError that says what was needed; the commit can be tried again."""
    X, y = _rows(rng)
    path = write_store(tmp_path / "s.zarr", X, y).path
    with StoreWriter.append(path) as writer:
        writer.write(X[:5], y[:5])
        with monkeypatch.context() as patch:
            _fail(patch, code)
            for _ in range(2):
                with pytest.raises(OutputError, match="needed 1,028 bytes" if code == errno.ENOSPC else "cannot be"):
                    writer.commit()
        assert Store.open(path).rows == 500
        assert not list(path.rglob("*.aside"))
    np.testing.assert_array_equal(all_rows(Store.open(path))[0], np.concatenate([X, X[:5]]))


@pytest.mark.faults
def test_disk_that_failed_in_the_background(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that was lost by a writing thread makes every later commit fail: rows never go missing in silence."""
    X, y = _rows(rng)
    path = write_store(tmp_path / "s.zarr", X, y).path
    writer = StoreWriter.append(path)
    with monkeypatch.context() as patch:
        _fail(patch, errno.EIO)
        writer.write(X[:64], y[:64])
        with pytest.raises(OutputError):
            writer.commit()
    with pytest.raises(OutputError):
        writer.commit()
    writer.close()
    np.testing.assert_array_equal(all_rows(Store.open(path))[0], X)


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small file system here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # what a failed test holds open does not hold it


@pytest.mark.faults
def test_full_disk(small_disk: Path, rng: np.random.Generator) -> None:
    """On a disk that is really full, committed rows stay readable and the error says what was needed and free."""
    X, y = _rows(rng, 20_000)
    path = write_store(small_disk / "s.zarr", X[:1000], y[:1000], chunk_rows=1024).path
    writer = StoreWriter.append(path)
    with pytest.raises(OutputError, match="the disk is full; needed (16,388|4,100) bytes, [0-9,]+ are free"):
        writer.write(np.tile(X, (10, 1)), np.tile(y, 10))
    writer.close()
    np.testing.assert_array_equal(all_rows(Store.open(path))[0], X[:1000])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for make in (lambda: StoreWriter.create(small_disk / "t.zarr", features=2), lambda: StoreWriter.append(path)):
        with pytest.raises(OutputError, match="(?i)read-only"):
            make()
    np.testing.assert_array_equal(all_rows(Store.open(path))[0], X[:1000])


@pytest.mark.faults
def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A store below a file is an OutputError before any row is read."""
    (tmp_path / "file").write_text("text")
    with pytest.raises(OutputError, match="cannot be written"):
        StoreWriter.create(tmp_path / "file" / "s.zarr", features=2)
