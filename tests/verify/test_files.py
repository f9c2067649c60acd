"""The verifier's own reader: sparse rows and weights through plain zarr-python, with every checksum redone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, StoreError
from coremargin.verify.rows import Rows
from forge_stores import with_checksum

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 300


@pytest.fixture(params=["none", "lz4"])
def data(request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator) -> tuple[Path, Any, Any, Any]:
    """A sparse store with weights, in two commits; its rows, labels and weights."""
    X = sp.csr_array((rng.normal(size=(ROWS, 9)) * (rng.random((ROWS, 9)) < 0.3)).astype(np.float32))
    y, weights, path = rng.integers(0, 2, ROWS), rng.random(ROWS), tmp_path / "s.zarr"
    options: dict[str, Any] = {"chunk_rows": 64, "chunk_bytes": 512, "compression": request.param}
    with StoreWriter.create(path, features=9, sparse=True, weighted=True, **options) as writer:
        writer.write(X[:100], y[:100], weights[:100])
    with StoreWriter.append(path) as writer:
        writer.write(X[100:], y[100:], weights[100:])
    return path, X, y, weights


def test_rows_are_the_stores(data: tuple[Path, Any, Any, Any]) -> None:
    """Every chunk comes as CSR rows with labels and weights, and the digest is the store's."""
    path, X, _, weights = data
    rows = Rows(path)
    store = Store.open(path)
    found = [chunk for chunk, _ in rows.scan(lambda chunk: None, threads=2)]
    assert [chunk.start for chunk in found] == list(range(0, ROWS, 64))
    assert (rows.sparse, rows.weighted) == (True, True)
    for chunk in found:
        assert isinstance(chunk.x, sp.csr_array)
        assert chunk.x.dtype == np.float32
    np.testing.assert_array_equal(np.vstack([chunk.x.toarray() for chunk in found]), X.toarray())
    np.testing.assert_array_equal(np.concatenate([chunk.weights for chunk in found]), weights)
    codes = np.concatenate([store.read(k)[1].copy() for k in range(store.chunks)])
    np.testing.assert_array_equal(np.concatenate([chunk.codes for chunk in found]), codes)
    assert rows.digest == store.digest


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_all_kinds_of_stores(tmp_path: Path, rng: np.random.Generator, *, sparse: bool, weighted: bool) -> None:
    """Dense or sparse, weighted or not, in one chunk or many: the digest that the verifier makes is the store's."""
    X = rng.normal(size=(50, 4)) * (rng.random((50, 4)) < 0.5)
    X[10:20] = 0.0
    weights = rng.random(50) if weighted else None
    for chunk_rows in (7, 50, 1000):
        path = tmp_path / f"{chunk_rows}.zarr"
        options: dict[str, Any] = {"sparse": sparse, "weighted": weighted, "chunk_rows": chunk_rows, "chunk_bytes": 64}
        with StoreWriter.create(path, features=4, dtype="float64", **options) as writer:
            writer.write(X, np.arange(50) % 3, weights)
        rows = Rows(path)
        for chunk, _ in rows.scan(lambda chunk: None):
            assert (chunk.weights is not None) == weighted
        assert rows.digest == Store.open(path).digest


def flipped(raw: bytes) -> bytes:
    """The same file with one bit turned near its beginning."""
    return raw[:20] + bytes([raw[20] ^ 2]) + raw[21:]


@pytest.mark.specimens(16)
@pytest.mark.faults
@pytest.mark.parametrize("name", ["X/data", "X/indices", "X/indptr", "y", "weights"])
@pytest.mark.parametrize("fault", [lambda raw: None, lambda raw: raw[:-1], flipped], ids=["missing", "cut", "flipped"])
def test_damage_is_named(data: tuple[Path, Any, Any, Any], name: str, fault: Callable[[bytes], bytes | None]) -> None:
    """A file that is missing, cut or altered ends the scan with its chunk and rows."""
    path = data[0]
    file = path / name / "c.1"
    new = fault(file.read_bytes())
    if new is None:
        file.unlink()
    else:
        file.write_bytes(new)
    with pytest.raises(DamagedChunk, match=r"chunk \d \(rows \d+ to \d+\)"):
        list(Rows(path).scan(lambda chunk: None))


@pytest.mark.faults
@pytest.mark.parametrize("index", [-1, 9, 2**31 - 1])
def test_indices_are_checked(data: tuple[Path, Any, Any, Any], index: int) -> None:
    """An index beyond the features is refused before anybody multiplies by it."""
    group = zarr.open_group(data[0], mode="r+")
    indices: Any = group["X/indices"]
    indices[40] = index
    with pytest.raises(DamagedChunk, match=r"chunk 0 \(rows 0 to 63\).*not those of rows of 9 features"):
        list(Rows(data[0]).scan(lambda chunk: None))


@pytest.mark.faults
def test_arrays_are_checked(data: tuple[Path, Any, Any, Any]) -> None:
    """Row starts of another kind are refused when the store is opened."""
    group = zarr.open_group(data[0], mode="r+")
    starts: Any = group["X/indptr"]
    values = starts[:]
    del group["X/indptr"]
    group.create_array("X/indptr", data=values.astype(np.int32), chunks=(64,), compressors=None)
    with pytest.raises(StoreError, match="X/indptr: expected int64 for 301 rows"):
        Rows(data[0])


@pytest.mark.faults
@pytest.mark.parametrize("starts", [{5: 10**9}, {5: -1}, {3: 20, 4: 19}, {3: 0, 4: 30}], ids=str)
def test_row_starts_are_checked_before_values_are_read(
    data: tuple[Path, Any, Any, Any], starts: dict[int, int]
) -> None:
    """Starts that descend, leave the chunk, or give a row more values than features: no file of values is opened."""
    group = zarr.open_group(data[0], mode="r+")
    array: Any = group["X/indptr"]
    for row, start in starts.items():
        array[row] = start
    for file in (*data[0].glob("X/data/c.*"), *data[0].glob("X/indices/c.*")):
        file.unlink()
    with pytest.raises(DamagedChunk, match=r"chunk 0 .*the row starts"):
        list(Rows(data[0]).scan(lambda chunk: None))


def both_refuse(path: Path, match: str) -> None:
    """The verifier and all other readers refuse a store."""
    with pytest.raises(StoreError, match=match):
        Rows(path)
    with pytest.raises(StoreError, match=match):
        Store.open(path).scalars()


@pytest.mark.faults
@pytest.mark.parametrize(
    ("chunk", "stored", "most"), [(0, -1, 576), (0, 577, 576), (-1, 397, 396), (1, 2**62, 576), (1, -(2**63), 576)]
)
def test_no_chunk_stores_more_than_its_rows_have(
    data: tuple[Path, Any, Any, Any], chunk: int, stored: int, most: int
) -> None:
    """So many values as rows times features is all that a chunk may claim, the last one of fewer rows too."""
    for file in data[0].glob("blocks/*/nonzeros/c.0"):
        counts = np.frombuffer(file.read_bytes()[:-4], "<i8").copy()
        if len(counts) == 5 or chunk == 0:
            counts[chunk] = stored
        file.write_bytes(with_checksum(counts.tobytes()))
    both_refuse(data[0], rf"expected 0 to {most} stored values in a chunk of \d+ rows, found {stored:,}")


@pytest.mark.faults
@pytest.mark.parametrize("name", ["X/data", "X/indices"])
def test_chunks_store_no_more_than_there_is(data: tuple[Path, Any, Any, Any], name: str) -> None:
    """What all chunks claim fits the arrays of values."""
    file = data[0] / name / "zarr.json"
    record = json.loads(file.read_text())
    record["shape"][0] -= 1
    file.write_text(json.dumps(record))
    length, stored = record["shape"][0], data[1].nnz
    both_refuse(data[0], f"expected at most {length:,} stored values, as many as {name} has, found {stored:,}")


@pytest.mark.faults
@pytest.mark.parametrize("data", ["lz4"], indirect=True)
def test_a_packed_chunk_ends_where_it_says(data: tuple[Path, Any, Any, Any]) -> None:
    """Bytes behind a packed chunk are damage for everybody, be the metadata such that nobody expects a checksum."""
    file = data[0] / "y" / "zarr.json"
    record = json.loads(file.read_text())
    assert record["codecs"].pop() == {"name": "crc32c"}
    file.write_text(json.dumps(record))
    for read in (lambda: Store.open(data[0]).labels(0), lambda: list(Rows(data[0]).scan(lambda chunk: None))):
        with pytest.raises(DamagedChunk, match="the header promises"):
            read()


@pytest.mark.faults
@pytest.mark.parametrize(("sparse", "weighted", "column"), [(False, True, 0), (False, True, 1), (True, False, 2)])
def test_checksums_of_nothing(tmp_path: Path, column: int, *, sparse: bool, weighted: bool) -> None:
    """Dense rows have no checksums of indices, rows without weights none of weights."""
    path, X = tmp_path / "s.zarr", np.ones((40, 2), dtype=np.float32)
    with StoreWriter.create(path, features=2, sparse=sparse, weighted=weighted) as writer:
        writer.write(X, list("ab") * 20, np.ones(40) if weighted else None)
    file = path / "blocks/000000/marks/c.0.0"
    marks = np.frombuffer(file.read_bytes()[:-4], "<u4").copy()
    marks[column] = 1
    file.write_bytes(with_checksum(marks.tobytes()))
    with pytest.raises(StoreError, match="checksums of what the rows do not have"):
        Rows(path)
