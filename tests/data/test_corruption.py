"""Every way to damage a chunk or the metadata ends in an error that names the place, and in a finding of the check."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.data.check import check_store
from coremargin.data.ingest import ingest
from coremargin.data.labels import LabelCoder
from coremargin.data.local_storage import LocalStorage
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, StoreError
from coremargin.verify.rows import Rows
from store_kit import FAULTS, all_rows, edit_attributes, edit_json, one_bit_flipped, rewrite_array, write_store

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.faults


KINDS = {
    "raw": {},
    "raw, no checksum": {"compressors": None},
    "lz4": {"compression": "lz4"},
    "zstd": {"compression": "zstd"},
}


@pytest.fixture
def damaged(request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator) -> Path:
    """A store of one kind, five chunks of 64 rows, not damaged yet."""
    options = dict(KINDS[request.param])
    X = rng.normal(size=(300, 5)).astype(np.float32)
    own = {name: value for name, value in options.items() if name == "compression"}
    path = write_store(tmp_path / "s.zarr", X, rng.integers(0, 2, 300), chunk_rows=64, **own).path
    if "compressors" in options:
        rewrite_array(path, "X", compressors=None)
    return path


@pytest.mark.parametrize("damaged", KINDS, indirect=True)
@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_chunk(damaged: Path, fault: str) -> None:
    """A damaged chunk raises with its place, however it is stored and read; its neighbours stay readable."""
    (file,) = [*damaged.glob("X/c.2.0"), *damaged.glob("X/c/2/0")]
    new = FAULTS[fault](file.read_bytes())
    if new is None:
        file.unlink()
    else:
        file.write_bytes(new)
    for map_bytes in (0, 1 << 20):
        store = Store.open(damaged, map_bytes=map_bytes)
        with pytest.raises(DamagedChunk, match=r"chunk 2 \(rows 128 to 191\), file X/c.*`coremargin check"):
            store.read(2)
        with pytest.raises(DamagedChunk, match="chunk 2"):
            store.rows_at(np.array([130]))
        assert len(store.read(1)[0]) == 64
        assert len(store.read(3)[0]) == 64
        (found,) = check_store(damaged).damaged
        assert (found.chunk, found.start, found.stop) == (2, 128, 192)
        assert file.relative_to(damaged).as_posix() in found.what


@pytest.mark.parametrize("damaged", ["raw", "lz4"], indirect=True)
@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_labels(damaged: Path, fault: str) -> None:
    """A damaged chunk of labels is found like one of rows."""
    file = damaged / "y" / "c.4"
    new = FAULTS[fault](file.read_bytes())
    if new is None:
        file.unlink()
    else:
        file.write_bytes(new)
    with pytest.raises(DamagedChunk, match=r"chunk 4 \(rows 256 to 299\), file y/c.4"):
        Store.open(damaged).read(4)
    assert [found.chunk for found in check_store(damaged).damaged] == [4]


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
def test_check_names_everything(damaged: Path) -> None:
    """The check goes on after the first finding, and reports progress for every chunk."""
    (damaged / "X" / "c.0.0").unlink()
    (damaged / "y" / "c.0").write_bytes(b"")
    (damaged / "X" / "c.3.0").write_bytes(one_bit_flipped((damaged / "X" / "c.3.0").read_bytes()))
    seen: list[tuple[int, int, int]] = []
    report = check_store(damaged, lambda done, chunks, found: seen.append((done, chunks, len(found))))
    assert [found.chunk for found in report.damaged] == [0, 0, 3]
    assert seen == [(1, 5, 2), (2, 5, 0), (3, 5, 0), (4, 5, 1), (5, 5, 0)]
    assert not report.whole
    assert (report.rows, report.chunks) == (300, 5)


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
def test_check_reads_the_padding(damaged: Path) -> None:
    """A bit flipped in the unused end of the last chunk does no harm to a reader, and is found by the check."""
    file = damaged / "X" / "c.4.0"
    data = file.read_bytes()
    file.write_bytes(data[:-10] + bytes([data[-10] ^ 1]) + data[-9:])
    all_rows(Store.open(damaged))
    assert [found.chunk for found in check_store(damaged).damaged] == [4]


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
def test_swapped_chunks(damaged: Path) -> None:
    """Two chunks that changed places have good checksums of their own and are refused by the manifest."""
    one, two = (damaged / "X" / f"c.{k}.0" for k in (1, 2))
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)
    assert [found.chunk for found in check_store(damaged).damaged] == [1, 2]
    with pytest.raises(DamagedChunk, match="chunk 1 "):
        Store.open(damaged).read(1)


@pytest.mark.parametrize("damaged", ["raw", "raw, no checksum"], indirect=True)
def test_whole_store(damaged: Path) -> None:
    """A store that is whole passes the check."""
    assert check_store(damaged, workers=1).whole
    assert check_store(damaged).damaged == ()


STATISTICS = ["rows", "counts", "unlabelled", "centre", "radius", "max_norm", "low", "high", "total", "spread"]


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
@pytest.mark.parametrize("name", [*STATISTICS, "digest"])
def test_damaged_statistics(damaged: Path, name: str) -> None:
    """Statistics that are missing or altered raise when they are asked for; they never read as fill values."""
    (file,) = (damaged / "blocks" / "000000" / name).glob("c.0*")
    good = file.read_bytes()
    for bad in (one_bit_flipped(good), good[:-1], b""):
        file.write_bytes(bad)
        with pytest.raises(StoreError, match=name):
            Store.open(damaged).statistics()
    file.unlink()
    with pytest.raises(StoreError, match=name):
        Store.open(damaged).statistics()


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
@pytest.mark.parametrize("name", [name for name in STATISTICS if name != "rows"])
def test_check_recomputes_statistics(damaged: Path, name: str) -> None:
    """Statistics that are readable but not those of the rows are findings of the check."""
    from coremargin.formats.raw_array import read_raw_array

    folder = damaged / "blocks" / "000000" / name
    tail = {"counts": (2,), "unlabelled": (), "radius": (), "max_norm": ()}.get(name, (5,))
    dtype = "int64" if name in ("counts", "unlabelled") else "float64"
    values = read_raw_array(LocalStorage(damaged), f"blocks/000000/{name}", 0, 5, dtype, tail)
    values[2] = values[2] * 0.99 - 1
    _replace(folder, values)
    (found,) = check_store(damaged).damaged
    assert found.chunk == 2
    assert f"the statistics {name} are not those of its rows" in found.what


def _replace(folder: Path, values: np.ndarray) -> None:
    import shutil

    from coremargin.data.plain import write_array

    shutil.rmtree(folder)
    write_array(LocalStorage(folder.parent), folder.name, values, ("chunk", "feature")[: values.ndim])


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
def test_altered_digests(damaged: Path) -> None:
    """Digests of chunks that do not add up to the digest of the commit are refused before any chunk is trusted."""
    from coremargin.formats.raw_array import read_raw_array

    folder = damaged / "blocks" / "000000" / "digest"
    values = read_raw_array(LocalStorage(damaged), "blocks/000000/digest", 0, 5, "uint64")
    values[1] ^= np.uint64(1)
    _replace(folder, values)
    with pytest.raises(StoreError, match="the metadata was altered"):
        Store.open(damaged).read(0)


BROKEN = {
    "not JSON": (lambda path: path.write_text("{"), "cannot be read"),
    "not an object": (lambda path: path.write_text("[1]"), "expected a JSON object"),
    "empty": (lambda path: path.write_text(""), "cannot be read"),
    "not text": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "missing": (lambda path: path.unlink(), "zarr.json"),
}


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
@pytest.mark.parametrize("part", ["zarr.json", "X/zarr.json", "y/zarr.json"])
@pytest.mark.parametrize("fault", BROKEN)
def test_broken_metadata(damaged: Path, part: str, fault: str) -> None:
    """Metadata that cannot be read is a StoreError that names the file, for the root and for both arrays."""
    do, message = BROKEN[fault]
    do(damaged / part)
    with pytest.raises(StoreError, match=message):
        Store.open(damaged)
    with pytest.raises(StoreError):
        check_store(damaged)


ATTRIBUTES = {
    "newer format": ({"version": 7}, "expected a store of format 5, found 7"),
    "no version": ({"version": None}, "expected a store of format 5, found None"),
    "other data": ({"format": "anndata"}, "attribute 'format' is 'coremargin-store'"),
    "no rows": ({"rows": 0, "commits": []}, "rows: expected int >= 1"),
    "no features": ({"features": 0}, "features: expected int >= 1"),
    "rows beyond the commit": ({"rows": 301}, "expected the rows of the last commit, 300, got 301"),
    "classes beyond the commit": ({"classes": [0, 1, 2]}, "expected the classes of the last commit, 2, got 3"),
    "another dtype": ({"dtype": "complex64"}, "dtype: invalid enum value 'complex64'"),
    "classes no list": ({"classes": "ab"}, "classes: expected a list, got str"),
    "a commit that is none": ({"commits": [3]}, "commits.0: expected an object, got int"),
    "other features": ({"features": 6}, r"expected shape \(300, 6\), got \(300, 5\)"),
}


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
@pytest.mark.parametrize("case", ATTRIBUTES)
def test_attributes(damaged: Path, case: str) -> None:
    """Attributes of a newer format, another kind of data, or absurd values are refused, saying expected and found."""
    changes, message = ATTRIBUTES[case]
    edit_attributes(damaged, **changes)
    with pytest.raises(StoreError, match=message):
        Store.open(damaged)


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
def test_arrays_of_different_length(damaged: Path) -> None:
    """Labels that are fewer than the rows are refused when the store is opened."""
    edit_json(damaged / "y" / "zarr.json", lambda array: array.update(shape=[299]))
    with pytest.raises(StoreError, match="y/zarr.json.*all arrays must have what the store's rows need"):
        Store.open(damaged)


def test_weights_are_read_as_they_are_stored(tmp_path: Path, rng: np.random.Generator) -> None:
    """Weights that another tool has rewritten are read by their own description; where that is false, nothing is."""
    weights = rng.random(200)
    path = tmp_path / "s.zarr"
    ingest(rng.normal(size=(200, 3)), path, labels=rng.integers(0, 2, 200), weights=weights, chunk_bytes=64 * 24)
    rewrite_array(path, "weights", compressors=None)
    store = Store.open(path)
    read = [store.weights(chunk) for chunk in range(store.chunks)]
    np.testing.assert_array_equal(np.concatenate([part for part in read if part is not None]), weights)
    assert check_store(path).damaged == ()
    (path / "weights" / "c" / "1").unlink()
    assert [found.chunk for found in check_store(path).damaged] == [1]


def test_what_is_no_store(tmp_path: Path) -> None:
    """A path that is empty, a file, or a folder of something else is refused, saying what makes a store."""
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    for name in ("nothing", "file", "folder"):
        with pytest.raises(StoreError, match=r"expected a store.*coremargin ingest"):
            Store.open(tmp_path / name)


@pytest.mark.parametrize("damaged", ["raw"], indirect=True)
def test_leftovers_are_ignored(damaged: Path) -> None:
    """Files that a killed writer left aside do not disturb a reader or the check."""
    (damaged / "X" / ".c.9.0.aside").write_bytes(b"half")
    (damaged / "blocks" / ".000001.aside").mkdir()
    (damaged / "X" / "c.5.0").write_bytes(b"uncommitted")
    assert len(all_rows(Store.open(damaged))[0]) == 300
    assert check_store(damaged).whole


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("name", ["X/data", "X/indptr", "X", "y", "weights"])
def test_a_pipe_is_no_chunk(tmp_path: Path, name: str, compression: str) -> None:
    """Nobody waits for a pipe in the place of a chunk's file: it is damage."""
    path, X = tmp_path / "s.zarr", np.ones((40, 2), dtype=np.float32)
    options: dict[str, Any] = {"compression": compression, "sparse": "/" in name, "chunk_bytes": 4096}
    with StoreWriter.create(path, features=2, weighted=True, **options) as writer:
        writer.write(X, list("ab") * 20, np.ones(40))
    (file,) = (path / name).glob("c.*")
    file.unlink()
    os.mkfifo(file)
    store = Store.open(path)
    with pytest.raises(DamagedChunk, match=r"c\.0"):
        (store.read(0), store.weights(0))
    (found,) = check_store(path).damaged
    assert "a plain file" in found.what
    with pytest.raises(DamagedChunk, match="plain file"):
        list(Rows(path).scan(lambda chunk: None))


@pytest.mark.parametrize("code", [-2, -100])
def test_codes_of_no_class_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A code below that of rows without label is damage although every checksum is right: nobody counts from behind."""
    honest = LabelCoder.encode

    def forged(self: LabelCoder, *given: Any) -> np.ndarray:
        codes = honest(self, *given)
        codes[4] = code
        return codes

    monkeypatch.setattr(LabelCoder, "encode", forged)
    path = tmp_path / "s.zarr"
    with StoreWriter.create(path, features=2, dtype="float32", chunk_rows=3) as writer:
        writer.write(np.arange(12, dtype=np.float32).reshape(6, 2), list("ababab"))
    store = Store.open(path)
    assert store.labels(0).tolist() == [0, 1, 0]
    for use in (store.read, store.labels):
        with pytest.raises(DamagedChunk, match=rf"chunk 1 \(rows 3 to 5\).*found {code} to 1"):
            use(1)
    with pytest.raises(DamagedChunk, match=f"found {code} to 1"):
        list(Rows(path).scan(lambda chunk: None))
    assert not check_store(path).whole
