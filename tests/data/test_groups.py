"""Stores of rows in groups: what is stored, read whole, refused; the same of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array

import coremargin
from coremargin.data.amend import remove_rows, write_labels
from coremargin.data.arrays import ArraySource
from coremargin.data.check import check_store
from coremargin.data.group_parts import group_parts, groups_of
from coremargin.data.scaled import scaled
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import BadRow, DamagedChunk, StoreError, UsageError
from coremargin.verify.rows import Rows

if TYPE_CHECKING:
    from pathlib import Path

FEATURES = 3


def rows_in_groups(seed: int, groups: int, longest: int, tag: str = "s") -> tuple[Any, Any, Any, Any]:
    """Rows, labels, weights (one a group) and ids of groups of 1 to ``longest`` rows."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, longest + 1, groups)
    ids = np.repeat([f"{tag}{number}" for number in range(groups)], sizes)
    X = rng.normal(size=(len(ids), FEATURES)).astype("f4")
    return X, rng.integers(0, 3, len(ids)), np.repeat(rng.integers(1, 4, groups).astype(float), sizes), ids


def write_groups(path: Path, X: Any, y: Any, ids: Any, chunk_rows: int) -> Store:
    """A store of one commit."""
    with StoreWriter.create(path, features=X.shape[1], grouped=True, chunk_rows=chunk_rows) as writer:
        writer.write(X, y, groups=ids)
    return Store.open(path)


def groups_read(source: Any, chunks: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows of all parts, and the id of each row's group; offsets and numbers of groups are checked."""
    rows, ids, groups = [np.zeros((0, FEATURES), "f4")], list[str](), 0
    for part in group_parts(source, range(source.chunks) if chunks is None else chunks):
        assert part.offsets.dtype == np.int64
        assert part.offsets[0] == 0
        assert part.offsets[-1] == part.rows.shape[0] == len(part.codes)
        names = source.groups.ids(part.chunk)
        assert len(names) == len(part.offsets) - 1 == source.groups.counts[part.chunk]
        assert chunks is not None or part.first == groups
        groups += len(names)
        ids += np.repeat(names, np.diff(part.offsets)).tolist()
        rows.append(part.rows.toarray() if source.sparse else part.rows)
    return np.concatenate(rows), np.array(ids)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("chunk_rows", "compression"), [(7, "none"), (10, "zstd"), (4000, "none")])
def test_groups_are_whole_whatever_the_chunks_and_commits(
    tmp_path: Path, chunk_rows: int, compression: str, sparse: bool
) -> None:
    """Each commit has its groups, by this reader and by verify's; arrays have the same digest."""
    path, parts = tmp_path / "g.zarr", []
    shape = {"chunk_rows": chunk_rows, "sparse": sparse, "compression": compression}
    writer = StoreWriter.create(path, features=FEATURES, grouped=True, weighted=True, **shape)
    for commit in range(3):
        if commit == 1:
            writer.close()
            writer = StoreWriter.append(path)
        part = rows_in_groups(commit, 20, 7, f"{commit}-")
        for piece in np.array_split(np.arange(len(part[0])), 4):
            X, y, weights, ids = (values[piece] for values in part)
            writer.write(csr_array(X) if sparse else X, y, weights, groups=ids)
        writer.commit()
        parts.append(part)
    writer.close()
    X, y, weights, ids = (np.concatenate(values) for values in zip(*parts, strict=True))
    for commit in range(3):
        store = Store.open(path, commit=commit)
        rows, names = groups_read(store)
        assert np.array_equal(rows, X[: store.rows])
        assert names.tolist() == ids[: store.rows].tolist()
        reader = Rows(path, store.digest, compute_sha256=True)
        starts = [chunk.groups for chunk, _ in reader.scan(lambda chunk: None)]
        assert sum(map(len, starts)) == groups_of(store).counts.sum()
        assert reader.digest == store.digest
        assert reader.sha256_in_chunks(reader.chunk_rows) == store.sha256
    given = csr_array(X) if sparse else X
    arrays = ArraySource(given, y, weights=weights, groups=ids, classes=store.classes, chunk_rows=store.chunk_rows)
    assert arrays.digest == store.digest
    assert groups_read(arrays)[1].tolist() == ids.tolist()
    assert check_store(path).whole


def test_zarr_reads_offsets_and_ids(tmp_path: Path) -> None:
    """Others need nothing of this project."""
    X, y, _, ids = rows_in_groups(1, 20, 5)
    write_groups(tmp_path / "g.zarr", X, y, ids, 1000)
    group = zarr.open_group(tmp_path / "g.zarr", mode="r")
    offsets = group["groups"][:]
    assert offsets.dtype == np.int64
    assert offsets.shape == (21,)
    names = group["group_ids"][:].tobytes().decode().split("\n")[:-1]
    assert np.repeat(names, np.diff(offsets)).tolist() == ids.tolist()


@pytest.mark.parametrize("stored", [True, False])
def test_blocks_of_some_chunks_have_the_groups_that_begin_there(tmp_path: Path, stored: bool) -> None:
    """Whole, also where they end in a chunk that is not among them."""
    X, y, _, ids = rows_in_groups(3, 60, 9)
    source: Any = ArraySource(X, y, groups=ids, chunk_rows=10)
    if stored:
        source = write_groups(tmp_path / "g.zarr", X, y, ids, 10)
    firsts = {name: int(np.argmax(ids == name)) for name in dict.fromkeys(ids.tolist())}
    for chunks in ([0], [3], [1, 2, 5], [source.chunks - 1], [7, 4]):
        rows, names = groups_read(source, chunks)
        begun = [name for chunk in chunks for name, first in firsts.items() if first // 10 == chunk]
        assert list(dict.fromkeys(names.tolist())) == begun
        assert np.array_equal(rows, np.concatenate([X[:0], *(X[ids == name] for name in begun)]))


def test_views_show_the_groups_of_their_base() -> None:
    """Scaled rows of the same groups."""
    X, y, _, ids = rows_in_groups(4, 12, 5)
    source = ArraySource(X, y, groups=ids, chunk_rows=8)
    view = scaled(source, "standard")
    assert view.groups is source.groups
    rows, names = groups_read(view)
    assert names.tolist() == ids.tolist()
    assert np.array_equal(rows, np.concatenate([view.read(chunk)[0] for chunk in range(view.chunks)]))


def test_ids_are_texts_or_whole_numbers() -> None:
    """7 and the text "7" are one id; the digest depends on groups and on ids."""
    X, y = np.eye(4), [0, 1, 0, 1]
    source = ArraySource(X, y, groups=np.array([7, 7, 8, 8]))
    assert groups_of(source).ids(0) == ["7", "8"]
    assert source.digest == ArraySource(X, y, groups=np.array(["7", 7, "8", 8.0], object)).digest
    for other in (["7", "7", "7", "8"], ["7", "7", "9", "9"], None):
        assert source.digest != ArraySource(X, y, groups=other).digest


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a", "b", "a"], r"groups: row 2: found group 'a' again, which began at row 0"),
        (["a", None, "b"], r"groups: row 1: found no group"),
        (["a", "", "b"], r"groups: row 1: found no group"),
        ([1.5, 1.5, 2.0], r"groups: row 0: found the group 1.5, expected a whole number or a text"),
        (["a", "b\nc", "d"], r"groups: row 1: found the group 'b\\nc', expected one line"),
        (["a", "a"], r"groups: expected an id for each of 3 rows, got shape \(2,\)"),
    ],
)
def test_ids_of_arrays_that_are_refused(groups: Any, message: str) -> None:
    """With the row."""
    with pytest.raises((BadRow, UsageError), match=message):
        ArraySource(np.eye(3), [0, 1, 0], groups=groups)


def test_a_group_has_one_weight_and_fits_into_a_chunk(tmp_path: Path) -> None:
    """What is refused leaves nothing."""
    X, y, ids = np.eye(4, 3), [0, 1, 0, 1], ["a", "a", "b", "b"]
    with pytest.raises(BadRow, match=r"row 3: found weight 2.0 in group 'b', whose row before has 1.0"):
        ArraySource(X, y, weights=[3, 3, 1, 2], groups=ids)
    with pytest.raises(BadRow, match=r"row 0: group 'a' has 3 rows or more, expected at most 2"):
        ArraySource(X, y, groups=["a", "a", "a", "b"], chunk_rows=2)
    writer = StoreWriter.create(tmp_path / "g.zarr", features=3, grouped=True, weighted=True, chunk_rows=2)
    writer.write(X[:1], y[:1], [3.0], groups=["a"])
    with pytest.raises(BadRow, match=r"rows: row 1: found weight 2.0 in group 'a', whose row before has 3.0"):
        writer.write(X[1:2], y[1:2], [2.0], groups=["a"])
    with pytest.raises(BadRow, match=r"rows: row 0: group 'a' has 3 rows or more, expected at most 2"):
        writer.write(X[1:3], y[1:3], [3.0, 3.0], groups=["a", "a"])
    writer.write(X[1:3], y[1:3], [3.0, 1.0], groups=["a", "b"])
    assert writer.commit() == 3
    writer.close()


def test_appended_groups_are_new_ones(tmp_path: Path) -> None:
    """None goes on from an earlier commit, none comes again; what is refused changes nothing."""
    path = tmp_path / "g.zarr"
    before = write_groups(path, np.eye(3), [0, 1, 0], ["a", "a", "b"], 2).digest
    for ids, message in (
        (["b", "b", "c"], r"more.csv: row 0: group 'b' goes on from an earlier commit, where it begins at row 2 of "),
        (["c", "d", "a"], r"more.csv: row 2: found a group that is there already, from row 0 of .*g.zarr on"),
        (["c", "d", "c"], r"more.csv: row 2: found a group again, which began at more.csv: row 0"),
    ):
        with pytest.raises(BadRow, match=message), StoreWriter.append(path) as writer:
            writer.write(np.eye(3), [0, 1, 0], groups=ids, origin="more.csv")
    writer = StoreWriter.append(path)
    with pytest.raises(UsageError, match="the store has groups, got rows without"):
        writer.write(np.eye(3), [0, 1, 0])
    writer.close()
    assert Store.open(path).digest == before
    assert check_store(path).whole


@pytest.mark.parametrize("name", ["groups", "group_ids"])
@pytest.mark.parametrize("damage", ["altered", "missing", "truncated"])
def test_damaged_groups_are_found(tmp_path: Path, name: str, damage: str) -> None:
    """With chunk and file; who needs no groups reads on."""
    path = tmp_path / "g.zarr"
    X, y, _, ids = rows_in_groups(5, 40, 5)
    store = write_groups(path, X, y, ids, 16)
    file = path / name / "c.0"
    data = bytearray(file.read_bytes())
    data[8] ^= 1
    file.write_bytes(data[: 100 if damage == "truncated" else None])
    if damage == "missing":
        file.unlink()
    with pytest.raises(DamagedChunk, match=rf"chunk 0 \(rows 0 to 15\).*{name}"):
        groups_read(store)
    with pytest.raises((DamagedChunk, StoreError), match=name):
        list(Rows(path).scan(lambda chunk: None))
    assert sum(len(store.read(chunk)[1]) for chunk in range(store.chunks)) == len(X)


def test_groups_stay_when_labels_change(tmp_path: Path) -> None:
    """And when rows are appended after that."""
    path = tmp_path / "g.zarr"
    X, y, _, ids = rows_in_groups(6, 30, 5)
    write_groups(path, X, y, ids, 16)
    write_labels(path, [3], [int(y[3] + 1) % 3])
    with StoreWriter.append(path) as writer:
        writer.write(X, y, groups=[f"more {one}" for one in ids])
    store = Store.open(path)
    assert groups_read(store)[1].tolist() == [*ids, *(f"more {one}" for one in ids)]
    reader = Rows(path, compute_sha256=True)
    assert len(list(reader.scan(lambda chunk: None))) == store.chunks
    assert reader.digest == store.digest
    assert check_store(path).whole


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_id_in_a_list_is_refused(tmp_path: Path, missing: Any) -> None:
    """NumPy would make the text "nan" of it; ids that differ by a zero byte are two."""
    X, y = np.arange(12.0).reshape(6, 2), [0, 1] * 3
    ids: list[Any] = ["a", "a", missing, "b", "b", "b"]
    with pytest.raises(BadRow, match="row 2: found no group"):
        coremargin.ingest(X, tmp_path / "s.zarr", labels=y, group=ids)
    with pytest.raises(BadRow, match="row 2: found no group"):
        coremargin.train(X, y, groups=ids)
    coremargin.ingest(X, tmp_path / "t.zarr", labels=y, group=["a", "a", "a\0", "b", "b", "b"])
    groups = Store.open(tmp_path / "t.zarr").groups
    assert groups is not None
    assert list(groups.ids(0)) == ["a", "a\0", "b"]
    remove_rows(tmp_path / "t.zarr", groups=[])
    assert Store.open(tmp_path / "t.zarr").rows == 6
    assert Store.open(tmp_path / "t.zarr").weights(0) is None
