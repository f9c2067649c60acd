"""Where a chunk lies: what ``Store.files`` names is all that reading the chunk takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from coremargin.data import writer
from coremargin.data.amend import write_labels
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.maths.rows import as_float64

ROWS, FEATURES, CHUNK_ROWS = 200, 12, 30
FILE_ENTRIES = 100


def stored(path: Path, rng: np.random.Generator, *, sparse: bool, weighted: bool, compression: str) -> Store:
    """Seven chunks, the last one short."""
    X: Any = rng.normal(size=(ROWS, FEATURES)).astype(np.float32) * (rng.random((ROWS, FEATURES)) < 0.4)
    weights = rng.random(ROWS) if weighted else None
    with StoreWriter.create(
        path, features=FEATURES, chunk_rows=CHUNK_ROWS, sparse=sparse, weighted=weighted, compression=compression
    ) as new:  # fmt: skip
        new.write(scipy.sparse.csr_array(X) if sparse else X, np.arange(ROWS) % 2, weights=weights)
    return Store.open(path, map_bytes=0)


def spoil_all_but(store: Store, chunk: int) -> None:
    """Write over every byte of rows, labels and weights that is not named."""
    named: dict[Path, np.ndarray] = {}
    for part in store.objects(chunk):
        file = store.path / part.key
        data = np.frombuffer(file.read_bytes(), np.uint8)
        keep = named.setdefault(file, np.zeros(len(data), bool))
        keep[part.start : part.start + part.nbytes] = True
    for name in store.arrays:
        for file in (store.path / name).glob("c[./]*"):
            if file.is_file():
                data = np.frombuffer(file.read_bytes(), np.uint8)
                file.write_bytes(np.where(named.get(file, np.zeros(len(data), bool)), data, ~data).tobytes())


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a sparse chunk lie in one or two files, and those of others beside them."""
    monkeypatch.setattr(writer, "most_file_entries", lambda *_: FILE_ENTRIES)


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("chunk", [0, 3, 6])
def test_a_chunk_is_read_from_the_files_that_are_named(
    tmp_path: Path, rng: np.random.Generator, sparse: bool, weighted: bool, compression: str, chunk: int
) -> None:
    """Everything else may be spoilt."""
    store = stored(tmp_path / "s.zarr", rng, sparse=sparse, weighted=weighted, compression=compression)
    rows, codes = store.read(chunk)
    before = as_float64(rows).copy(), codes.copy(), store.weights(chunk)
    spoil_all_but(store, chunk)
    again = Store.open(store.path, map_bytes=0)
    rows, codes = again.read(chunk)
    assert (as_float64(rows) != before[0]).sum() == 0
    np.testing.assert_array_equal(codes, before[1])
    if weighted:
        np.testing.assert_array_equal(again.weights(chunk), before[2])
    if sparse:
        assert len(list((store.path / "X" / "data").glob("c*"))) > 1


def test_labels_that_were_changed_lie_elsewhere(tmp_path: Path, rng: np.random.Generator) -> None:
    """The files named are those of the commit that the store was opened at."""
    first = stored(tmp_path / "s.zarr", rng, sparse=False, weighted=False, compression="none")
    write_labels(first.path, [70], [7])
    second = Store.open(first.path, map_bytes=0)
    assert first.objects(0) == second.objects(0)
    (x1, y1), (x2, y2) = first.objects(2), second.objects(2)
    assert (x1, y1.key.rpartition("/")[2]) == (x2, y2.key.rpartition("/")[2])
    assert y1.key != y2.key
    spoil_all_but(second, 2)
    assert Store.open(first.path, map_bytes=0).read(2)[1].tolist()[10] == 2
