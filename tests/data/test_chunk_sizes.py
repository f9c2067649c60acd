"""Chunks and files of a store are no larger than its rows need, beyond a fixed padding: written so, and held to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp

from coremargin.data.check import check_store
from coremargin.data.format import read_facts
from coremargin.data.local_storage import LocalStorage
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import StoreError, UsageError
from coremargin.formats import store_record
from coremargin.formats.limits import LARGEST_CHUNK_BYTES, MOST_PADDING_BYTES
from coremargin.formats.store_record import most_chunk_rows, most_file_entries, read_store_record
from coremargin.verify.rows import Rows
from store_kit import edit_attributes

if TYPE_CHECKING:
    from pathlib import Path

FEATURES = 4
LARGE: dict[str, dict[str, Any]] = {
    "bytes": {"chunk_bytes": LARGEST_CHUNK_BYTES},
    "rows": {"chunk_rows": LARGEST_CHUNK_BYTES // 32, "chunk_bytes": 4096},
    "one whole chunk": {"chunk_rows": 10, "chunk_bytes": LARGEST_CHUNK_BYTES},
    "both": {"chunk_rows": LARGEST_CHUNK_BYTES // 32, "chunk_bytes": LARGEST_CHUNK_BYTES},
}


def read_by_all(path: Path) -> np.ndarray:
    """All rows, dense, of a store that is whole for train, check and verify."""
    assert check_store(path).whole
    rows = Rows(path)
    found = [chunk.x for chunk, _ in rows.scan(lambda chunk: None)]
    assert rows.digest == Store.open(path).digest
    return np.vstack([x if isinstance(x, np.ndarray) else x.toarray() for x in found])


@pytest.mark.specimens(10)
@pytest.mark.parametrize("asked", LARGE)
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("sparse", [False, True])
def test_few_rows_in_large_chunks(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, asked: str, compression: str,
    *, sparse: bool,
) -> None:  # fmt: skip
    """Whatever size of chunks is asked for, the writer makes what readers take; the store grows on from there."""
    padding = 1 << 16  # less to write than 64 MiB
    monkeypatch.setattr(store_record, "MOST_PADDING_BYTES", padding)
    X, path = rng.normal(size=(30, FEATURES)), tmp_path / "s.zarr"
    kept: Any = sp.csr_array(X) if sparse else X
    options = {"sparse": sparse, "compression": compression, **LARGE[asked]}
    with StoreWriter.create(path, features=FEATURES, dtype="float64", weighted=True, **options) as writer:
        writer.write(kept[:13], ["a"] * 13, np.ones(13))
    np.testing.assert_array_equal(read_by_all(path), X[:13])
    facts = read_facts(LocalStorage(path))
    if "chunk_rows" in options and asked != "one whole chunk":
        assert facts.chunk_rows == 13 + padding // (8 if sparse else 32)
    assert facts.file_entries * 12 <= 13 * FEATURES * 12 + max(padding, 1 << 20 if asked == "bytes" else 0)
    with StoreWriter.append(path) as writer:
        writer.write(kept[13:], ["b"] * 17, np.ones(17))
    np.testing.assert_array_equal(read_by_all(path), X)


@pytest.mark.parametrize("sparse", [False, True])
def test_chunks_that_no_reader_takes(tmp_path: Path, *, sparse: bool) -> None:
    """More rows than a gigabyte holds are refused before anything is made."""
    for chunk_rows in (0, LARGEST_CHUNK_BYTES // (8 if sparse else 32) + 1, 1 << 70):
        with pytest.raises(UsageError, match="chunk_rows: expected 1 to"):
            StoreWriter.create(
                tmp_path / "s.zarr", features=FEATURES, dtype="float64", sparse=sparse, chunk_rows=chunk_rows
            )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.faults
@pytest.mark.parametrize("sparse", [False, True])
def test_sizes_beyond_the_rows_are_refused(tmp_path: Path, rng: np.random.Generator, *, sparse: bool) -> None:
    """The last size that a record may have, and the first that it may not."""
    X, path = rng.normal(size=(30, FEATURES)).astype(np.float32), tmp_path / "s.zarr"
    with StoreWriter.create(path, features=FEATURES, sparse=sparse, chunk_rows=40, chunk_bytes=4096) as writer:
        writer.write(sp.csr_array(X) if sparse else X)
    row_bytes = 8 if sparse else 16
    limits = {"chunk_rows": 30 + MOST_PADDING_BYTES // row_bytes}
    assert limits["chunk_rows"] == most_chunk_rows(FEATURES, "float32", sparse=sparse, rows=30)
    if sparse:
        limits["file_entries"] = 30 * FEATURES + MOST_PADDING_BYTES // 8
        assert limits["file_entries"] == most_file_entries(FEATURES, "float32", 30)
    for name, most in limits.items():
        before = getattr(read_store_record(LocalStorage(path)), name)
        edit_attributes(path, **{name: most})
        read_store_record(LocalStorage(path))
        edit_attributes(path, **{name: most + 1})
        for reader in (Store.open, Rows, check_store):
            with pytest.raises(StoreError, match=f"expected .* at most {most:,} .*30 rows, found .*{most + 1:,}"):
                reader(path)
        edit_attributes(path, **{name: before})


def test_a_gigabyte_is_the_most_for_many_rows() -> None:
    """However many rows there are; a single row may always be a chunk."""
    assert most_chunk_rows(2, "float64", sparse=False, rows=1 << 50) == LARGEST_CHUNK_BYTES // 16
    assert most_chunk_rows(2, "float64", sparse=True, rows=1 << 50) == LARGEST_CHUNK_BYTES // 8
    assert most_chunk_rows(1 << 26, "float64", sparse=False, rows=1) == 1
