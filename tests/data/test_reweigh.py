"""Rows that are taken out, or given weights, after they came: a commit of its own that reads no rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.check import check_store
from coremargin.data.expire import expire
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import BadRow, Busy, LabelError, StoreError, UsageError
from coremargin.verify.examine import examine
from store_kit import write_store

ROWS = 300


@pytest.fixture
def store(tmp_path: Path, rng: np.random.Generator) -> Path:
    """300 rows in chunks of 64, of classes a and b; the first two rows alone are of class c."""
    X = rng.normal(size=(ROWS, 4)).astype(np.float32)
    y = np.where(X[:, 0] > 0, "a", "b")
    y[:2] = "c"
    return write_store(tmp_path / "s.zarr", X, y).path


def weights_of(store: Store) -> np.ndarray:
    """The weight of each row."""
    return np.concatenate([store.weights(chunk) for chunk in range(store.chunks)])


def test_only_weights_of_changed_chunks_are_written(store: Path) -> None:
    """A row that is taken out costs the weights of its chunk, a group of small arrays, a line and the root."""
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    found = remove_rows(store, [70, 71], note="withdrawn")
    assert (found.given, found.changed, found.removed, found.returned) == (2, 2, 2, 0)
    assert [path.name for path, time in sorted(before.items()) if path.stat().st_mtime_ns != time] == [
        "log.jsonl", "zarr.json"
    ]  # fmt: skip
    assert [path.name for path in (store / "changes").rglob("c.*")] == ["c.1"]
    opened = Store.open(store)
    assert np.flatnonzero(weights_of(opened) == 0).tolist() == [70, 71]
    entry = opened.log[-1]
    assert (entry.did, entry.note, dict(entry.counts)) == ("remove", "withdrawn", {"removed": 2})
    assert Store.open(store, commit=0).weights(1) is None
    assert check_store(store).whole


def test_what_is_refused_changes_nothing(store: Path) -> None:
    """Rows that are not there, twice, or gone already, the last rows of a class, weights that are none."""
    remove_rows(store, [70])
    files = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    for ids, kind, message in (
        ([ROWS], UsageError, "expected row ids from 0 to 299, got 300"),
        ([4, 2, 4], UsageError, "expected each row once, found row 4 twice"),
        ([5, 70], UsageError, "row 70 has been taken out already"),
        ([0, 1], LabelError, "these are the last rows of class 'c'"),
        ([0.5], UsageError, "expected row ids as a vector of whole numbers"),
    ):
        with pytest.raises(kind, match=message):
            remove_rows(store, ids)
    for weight in (-1.0, np.nan, np.inf, 1e300):
        with pytest.raises(BadRow, match="row 1: found weight"):
            set_weights(store, [3, 4], [1.0, weight])
    with pytest.raises(UsageError, match="expected as many weights as rows, 2, got 1"):
        set_weights(store, [3, 4], [1.0])
    with pytest.raises(UsageError, match="weights: expected one for each row, found None"):
        set_weights(store, [3, 4], None)
    with pytest.raises(StoreError, match="expected a commit with the content sha256:0"):
        remove_rows(store, [3], after="sha256:0")
    with pytest.raises(UsageError, match="row 70 was taken out"):
        write_labels(store, [70], ["a"], counting=True)
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == files


def test_the_same_weights_are_no_commit(store: Path) -> None:
    """Weights that all rows have already change no byte; 1 is what rows have that came without."""
    before = Store.open(store).digest
    assert set_weights(store, [3, 200], [1.0, 1.0]).digest == before
    assert Store.open(store).commits == 1


def test_a_row_comes_back(store: Path) -> None:
    """A weight above 0 brings a row back; that of the row before it was taken out can be looked up."""
    remove_rows(store, [5, 6])
    found = set_weights(store, [5], [2.0])
    assert (found.returned, found.removed) == (1, 0)
    assert weights_of(Store.open(store))[[5, 6, 7]].tolist() == [2.0, 0.0, 1.0]


def test_two_writers_at_once(store: Path) -> None:
    """One of them is refused, and loses nothing."""
    with StoreWriter.append(store) as writer:
        with pytest.raises(Busy, match="another writer is at work"):
            remove_rows(store, [3])
        writer.write(np.ones((1, 4)), ["a"])
    assert remove_rows(store, [3]).removed == 1
    assert Store.open(store).rows == ROWS + 1


def test_models_are_of_the_rows_that_count(store: Path, tmp_path: Path) -> None:
    """A store whose rows were taken out gives the model of one that never had them, and is verified; the model from
    before is verified against the commit that it was trained on.
    """  # fmt: skip
    options = {"loss": "squared_hinge", "epsilon": 1e-6}
    remove_rows(store, [0, *range(50, 90)])
    set_weights(store, [1], [1e-30])  # the last of its class
    before = coremargin.train(store, out=tmp_path / "before", classes="ovr", loss="squared_hinge")
    assert examine(tmp_path / "before", store).ok, before
    set_weights(store, [200], [3.0])
    X, codes = Store.open(store).rows_at(np.arange(ROWS))
    labels, weights = np.array(Store.open(store).classes)[codes], weights_of(Store.open(store))
    kept = np.flatnonzero((weights > 0) & (labels != "c"))
    fresh = tmp_path / "fresh.zarr"
    with StoreWriter.create(fresh, features=4, weighted=True) as writer:
        writer.write(X[kept], labels[kept], weights[kept])
    copy = shutil.copytree(store, tmp_path / "copy.zarr")
    write_labels(copy, [0, 1], [None, None])
    models = [coremargin.train(path, out=tmp_path / name, **options) for path, name in ((copy, "a"), (fresh, "b"))]
    assert models[0].certificate.upper == pytest.approx(models[1].certificate.upper, rel=1e-5)
    assert examine(tmp_path / "a", copy).ok
    assert examine(tmp_path / "before", store).ok


def test_rows_expire_by_when_they_came(store: Path, rng: np.random.Generator) -> None:
    """Rows are taken out by the age of the commit that brought them, once; younger ones stay."""
    with StoreWriter.append(store) as writer:
        writer.write(rng.normal(size=(60, 4)), ["a", "b", "c"] * 20)
    first, second = (entry.time for entry in Store.open(store).log)
    edit_log = second + 100.0
    assert expire(store, 1000.0, now=edit_log).changed == 0
    assert Store.open(store).commits == 2
    found = expire(store, edit_log - (first + second) / 2, now=edit_log)
    assert found.removed == ROWS
    assert np.flatnonzero(weights_of(Store.open(store))).tolist() == list(range(ROWS, ROWS + 60))
    assert Store.open(store).log[-1].did == "expire"
    assert expire(store, edit_log - (first + second) / 2, now=edit_log).changed == 0
    with pytest.raises(LabelError, match="the last rows of class"):
        expire(store, 1.0, now=edit_log)
    with pytest.raises(UsageError, match="expected seconds above 0"):
        expire(store, 0.0)


def test_a_lost_or_altered_log_is_named(store: Path) -> None:
    """Who needs the log is told what is wrong with it; the last commit is read without."""
    remove_rows(store, [3])
    log = store / "log.jsonl"
    whole = log.read_bytes()
    for harm, message in (
        (whole[:-9], "the log was altered"),
        (whole.replace(b"remove", b"labels"), "the log was altered"),
        (None, "found no file"),
    ):
        log.unlink() if harm is None else log.write_bytes(harm)
        assert Store.open(store).rows == ROWS
        with pytest.raises(StoreError, match=message):
            Store.open(store, commit=0)
    log.write_bytes(whole + b"what a killed writer left")
    assert len(Store.open(store).log) == 2
    remove_rows(store, [4])
    assert log.read_bytes().startswith(whole)
    assert [entry.did for entry in Store.open(store).log] == ["ingest", "remove", "remove"]


def test_rows_come_after_others_went(store: Path) -> None:
    """Rows without weights are appended to a store some of whose rows were taken out; rows with weights are refused."""
    remove_rows(store, [5])
    coremargin.ingest(np.ones((3, 4)), store, labels=["a", "b", "b"], append=True)
    opened = Store.open(store)
    assert opened.rows == ROWS + 3
    assert np.flatnonzero(weights_of(opened) != 1).tolist() == [5]
    with pytest.raises(UsageError, match="has none: leave weights out"):
        coremargin.ingest(np.ones((1, 4)), store, labels=["a"], weights=[2.0], append=True)
    assert check_store(store).whole


@pytest.mark.parametrize("out", [[5], [5, ROWS - 1]], ids=["elsewhere", "in the last chunk"])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_last_chunk_grows_after_rows_went(sparse: bool, out: list[int], tmp_path: Path) -> None:
    """It is filled up, and others follow: rows that are out stay out, all others weigh 1."""
    path, X = tmp_path / "grows.zarr", np.arange(1.0, 4 * ROWS + 1).reshape(-1, 4)
    with StoreWriter.create(path, features=4, dtype="float64", chunk_rows=16, sparse=sparse) as writer:
        writer.write(csr_array(X) if sparse else X, ["a", "b"] * (ROWS // 2), origin="test")
    remove_rows(path, out)
    with StoreWriter.append(path) as writer:
        writer.write(csr_array(X) if sparse else X, ["a", "b"] * (ROWS // 2), origin="test")
    found = Store.open(path)
    assert np.flatnonzero(weights_of(found) != 1).tolist() == out
    rows = found.rows_at(np.arange(2 * ROWS))[0]
    assert np.array_equal(rows.toarray() if sparse else rows, np.concatenate([X, X]))
    assert check_store(path).whole
