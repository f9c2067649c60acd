"""Stores written anew without what was taken out: whole or as before, and what can be said of rows stays known."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.format import read_facts
from coremargin.data.local_storage import LocalStorage
from coremargin.data.opened import open_source
from coremargin.data.store import Store
from coremargin.data.weights import weights_in
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy, UsageError
from coremargin.verify.rows import Rows


@pytest.fixture(params=["dense", "sparse", "weighted"])
def parts(request: pytest.FixtureRequest, rng: np.random.Generator) -> tuple[dict[str, bool], np.ndarray, np.ndarray]:
    """Options of a store, rows and weights."""
    X = rng.normal(size=(400, 5)).astype(np.float32) * (rng.random((400, 5)) < 0.7)
    weights = rng.integers(1, 4, 400).astype(float) if request.param == "weighted" else np.ones(400)
    return {"sparse": request.param == "sparse", "weighted": request.param == "weighted"}, X, weights


@pytest.fixture
def store(parts: tuple[dict[str, bool], np.ndarray, np.ndarray], tmp_path: Path) -> Path:
    """400 rows in two commits, of which 100 are taken out; labels b, a in order of appearance, a corrected one."""
    options, X, weights = parts
    path, y = tmp_path / "s.zarr", np.where(np.arange(400) % 2, "a", "b")
    for writer, part in (
        (lambda: StoreWriter.create(path, features=5, chunk_rows=64, **options), slice(0, 250)),
        (lambda: StoreWriter.append(path), slice(250, 400)),
    ):
        with writer() as opened:
            opened.write(X[part], y[part], weights[part] if options["weighted"] else None)
    write_labels(path, [399], ["b"])
    remove_rows(path, range(0, 400, 4))
    return path


@pytest.mark.specimens(1)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_is_left(
    store: Path, parts: tuple[dict[str, bool], np.ndarray, np.ndarray], tmp_path: Path, elsewhere: bool
) -> None:
    """Rows that count, in their order, with labels and weights; classes in the order they had; when rows came."""
    kept, old = np.setdiff1d(np.arange(400), np.arange(0, 400, 4)), Store.open(store)
    times = [entry.time for entry in old.log]
    out = tmp_path / "new.zarr" if elsewhere else None
    found = compact(store, out)
    assert (found.rows, found.removed, found.commits) == (300, 100, 2)
    new = Store.open(out or store)
    rows, codes = new.rows_at(np.arange(300))
    assert np.array_equal(rows.toarray() if new.sparse else rows, parts[1][kept])
    assert new.classes == ("b", "a")
    assert [new.classes[code] for code in codes] == ["b" if row == 399 or row % 2 == 0 else "a" for row in kept]
    assert new.weighted == parts[0]["weighted"]
    if new.weighted:
        assert np.array_equal(np.concatenate([new.weights(k) for k in range(new.chunks)]), parts[2][kept])
    assert [entry.time for entry in new.log] == times[:2]
    assert f"from commit 3, {old.digest}" in new.log[-1].note
    assert check_store(new.path).whole
    verified = Rows(new.path)
    assert sum(len(chunk.codes) for chunk, _ in verified.scan(lambda chunk: None)) == 300
    assert verified.digest == new.digest == found.digest
    assert not list(new.path.parent.glob(".*building*"))
    assert (Store.open(store).digest == old.digest) == elsewhere


@pytest.mark.specimens(1)
def test_weights_other_than_one_stay(store: Path) -> None:
    """A store whose rows came without weights has them afterwards where they count, and takes rows as it did before."""
    takes = read_facts(LocalStorage(store)).weighted
    set_weights(store, [1, 398], [0.25, 3.0])
    counted = [weight for row in range(400) if (weight := weights_in(Store.open(store), row // 64)[row % 64]) > 0]
    report = compact(store)
    found = Store.open(store)
    assert found.weighted
    assert [weights_in(found, row // 64)[row % 64] for row in range(300)] == counted
    assert check_store(store).whole
    verified = Rows(store)
    assert sum(len(chunk.codes) for chunk, _ in verified.scan(lambda chunk: None)) == 300
    assert verified.digest == found.digest == report.digest
    found.release()
    for weights in (None, np.array([7.0])):
        with StoreWriter.append(store) as writer:
            if takes == (weights is not None):
                writer.write(np.ones((1, 5)), ["a"], weights)
            else:
                with pytest.raises(UsageError, match="every row a weight or none"):
                    writer.write(np.ones((1, 5)), ["a"], weights)
    again = Store.open(store)
    assert again.rows == 301
    assert weights_in(again, again.chunks - 1)[-1] == (7.0 if takes else 1.0)
    again.release()
    assert compact(store).rows == 301
    assert weights_in(Store.open(store), 0)[0] == 0.25


def test_what_was_replaced_goes_with_the_next_commit(store: Path, tmp_path: Path) -> None:
    """Who is killed when the new store is in place leaves the old one beside it; not what others write, or own."""
    beside = tmp_path / ".s.zarr.building"
    shutil.copytree(store, beside)
    with FileLock(beside / ".lock"):
        remove_rows(store, [1])
        assert beside.is_dir()
    (beside / "notes.txt").write_text("mine")
    remove_rows(store, [2])
    assert (beside / "notes.txt").is_file()
    (beside / "notes.txt").unlink()
    remove_rows(store, [3])
    assert not beside.exists()
    beside.symlink_to(tmp_path)
    remove_rows(store, [5])
    assert beside.is_symlink()
    assert Store.open(store).rows == 400


def test_not_while_somebody_reads_or_writes(store: Path, rng: np.random.Generator) -> None:
    """A store that is open for reading or writing stays as it is; once it is let go of, it is compacted."""
    before = Store.open(store).digest
    reading = Store.open(store, commit=1)
    reading.read(0)
    with pytest.raises(Busy, match="an open Store is reading it"):
        compact(store)
    reading.release()
    with StoreWriter.append(store), pytest.raises(Busy, match="another writer is at work"):
        compact(store)
    assert Store.open(store).digest == before
    known = open_source(Store.open(store).handle())
    known.read(0)
    del known
    assert compact(store).rows == 300


def test_what_cannot_be_compacted(store: Path, tmp_path: Path) -> None:
    """Another store is not written over, and one that would have no rows is refused."""
    with pytest.raises(UsageError, match="something is there already"):
        compact(store, store)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="something is there already"):
        compact(store, tmp_path / "file")
    write_labels(store, range(400), [None] * 400)
    remove_rows(store, np.setdiff1d(np.arange(400), np.arange(0, 400, 4)))
    with pytest.raises(UsageError, match="nothing would be left"):
        compact(store)
    assert Store.open(store).rows == 400
