"""SHA-256 of chunks and of what a store holds: what they are of, who keeps them up, who notices forgeries."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp

from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.difference import difference, earlier
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, StoreError
from hashes_kit import content_of, edit_commits, edit_hashes, forge_file, renew_commit, strip_hashes

if TYPE_CHECKING:
    from pathlib import Path

ROWS, STEP = 300, 64
RNG = np.random.default_rng(5)
X = (RNG.normal(size=(ROWS, 3)) * (RNG.random((ROWS, 3)) < 0.7)).astype(np.float32)
Y = np.where(RNG.random(ROWS) < 0.5, "a", "b")
WEIGHTS = RNG.random(ROWS) + 0.5
KINDS = [(sparse, weighted) for sparse in (False, True) for weighted in (False, True)]


def write(path: Path, *stops: int, weighted: bool = False, **options: Any) -> Path:
    """A store of the rows, in commits that end at these and in one for the rest."""
    start = 0
    with StoreWriter.create(path, features=3, chunk_rows=STEP, weighted=weighted, **options) as writer:
        for stop in (*stops, ROWS):
            writer.write(X[start:stop], Y[start:stop], WEIGHTS[start:stop] if weighted else None)
            writer.commit()
            start = stop
    return path


def expected(labels: Any, weights: Any, *, sparse: bool, rows: int = ROWS, classes: Any = None) -> str:
    """The SHA-256 of the first rows with these labels and weights (None: unweighted), from the definition alone."""
    classes = classes or list(dict.fromkeys(labels.tolist()))
    codes = np.array([classes.index(label) for label in labels.tolist()], "<i4")
    spans = [slice(start, min(rows, start + STEP)) for start in range(0, rows, STEP)]
    parts: dict[str, Any] = {"x": [X[span] for span in spans]}
    if sparse:
        csr = [sp.csr_array(X[span]) for span in spans]
        parts = {
            "x": [part.data for part in csr],
            "indices": [part.indices.astype("<i4") for part in csr],
            "lengths": [np.diff(part.indptr).astype("<i8") for part in csr],
        }
    parts["y"] = [codes[span] for span in spans]
    if weights is not None:
        parts["weights"] = [weights[span].astype("<f8") for span in spans]
    return content_of(parts, features=3, dtype="float32", classes=classes, rows=rows, chunk_rows=STEP)


@pytest.mark.parametrize(("sparse", "weighted"), KINDS)
def test_a_store_has_the_sha256_of_its_rows_labels_and_weights(tmp_path: Path, *, sparse: bool, weighted: bool) -> None:
    """It follows from rows, labels and weights alone: not from commits, appends, or compression."""
    found = expected(Y, WEIGHTS if weighted else None, sparse=sparse)
    options: dict[str, Any] = {"sparse": sparse, "weighted": weighted}
    stores = [
        write(tmp_path / "one.zarr", **options),
        write(tmp_path / "many.zarr", 10, 64, 100, 290, **options),
        write(tmp_path / "packed.zarr", 100, compression="zstd", **options),
    ]
    for path in stores:
        assert Store.open(path).sha256 == found
        assert check_store(path).whole


@pytest.mark.parametrize(("sparse", "weighted"), KINDS)
def test_changed_labels_and_weights_have_theirs(tmp_path: Path, *, sparse: bool, weighted: bool) -> None:
    """Every commit's SHA-256 is that of its rows as they were then; append and compact go on with it."""
    path = write(tmp_path / "s.zarr", 150, sparse=sparse, weighted=weighted)
    labels, weights = Y.copy(), WEIGHTS.copy() if weighted else np.ones(ROWS)
    classes = list(dict.fromkeys(Y.tolist()))
    found = [expected(Y[:150], weights[:150] if weighted else None, sparse=sparse, rows=150, classes=classes)]
    found.append(expected(Y, weights if weighted else None, sparse=sparse))
    labels[[3, 70, 299]] = "c"
    write_labels(path, [3, 70, 299], ["c"] * 3)
    found.append(expected(labels, weights if weighted else None, sparse=sparse, classes=[*classes, "c"]))
    weights[[5, 200]] = 0
    remove_rows(path, [5, 200])
    found.append(expected(labels, weights, sparse=sparse, classes=[*classes, "c"]))
    weights[[5, 80]] = 2.5
    labels[70] = classes[0]
    set_weights(path, [5, 80], [2.5, 2.5])
    write_labels(path, [70], [classes[0]])
    assert [Store.open(path, commit=number).sha256 for number in range(4)] == found
    store = Store.open(path)
    assert store.sha256 == expected(labels, weights, sparse=sparse, classes=[*classes, "c"])
    for number in range(store.commits):
        Store.open(path, commit=number).chunk_hashes()  # raises where they are not those of the commit
    assert check_store(path).whole
    with StoreWriter.append(path) as writer:
        writer.write(X[:20], Y[:20], WEIGHTS[:20] if weighted else None)
    assert check_store(path).whole
    compact(path)
    assert Store.open(path).sha256
    assert check_store(path).whole


def forge(path: Path, part: str) -> None:
    """Other rows, labels or weights of chunk 1, with the same CRC-32C."""
    file, values, itemsize = {
        "rows": ("X/c.1.0", 3 * STEP, 4),
        "labels": ("y/c.1", STEP, 4),
        "weights": ("weights/c.1", STEP, 8),
        "values": ("X/data/c.0", 0, 4),
    }[part]
    first = 0
    if part == "values":
        first, stop = np.cumsum([0, *(np.count_nonzero(X[k * STEP : (k + 1) * STEP]) for k in range(2))])[1:].tolist()
        values = stop - first
    forge_file(path / file, values, itemsize, first)


@pytest.mark.parametrize("part", ["rows", "labels", "weights", "values"])
def test_a_chunk_with_the_same_crc_is_found(tmp_path: Path, part: str) -> None:
    """Rows, labels and weights that only the SHA-256 tell from the real ones: `check` does."""
    path = write(tmp_path / "s.zarr", weighted=True, sparse=part == "values")
    before = Store.open(path)
    contents = [before.read(1)[0], before.labels(1), before.weights(1)]
    contents = [np.array(one.toarray() if sp.issparse(one) else one) for one in contents]
    forge(path, part)
    store = Store.open(path, map_bytes=0)
    forged = [store.read(1)[0], store.labels(1), store.weights(1)]  # CRC-32C hold
    same = [
        np.array_equal(one.toarray() if sp.issparse(one) else one, old)
        for one, old in zip(forged, contents, strict=True)
    ]
    assert same == [part not in ("rows", "values"), part != "labels", part != "weights"]
    assert store.digest == before.digest
    found = [(damage.chunk, "SHA-256" in damage.what) for damage in check_store(path).damaged]
    assert (1, True) in found
    name = "rows" if part == "values" else part
    assert any(f"SHA-256 of its {name} is not" in damage.what for damage in check_store(path).damaged)


def test_earlier_labels_with_the_same_crc_are_found(tmp_path: Path) -> None:
    """Labels that only an earlier commit has are checked by their SHA-256, too."""
    path = write(tmp_path / "s.zarr")
    write_labels(path, [STEP, STEP + 1], ["a", "b"])
    write_labels(path, [STEP, STEP + 1], ["b", "a"])
    assert check_store(path).whole
    forge(path, "labels")
    assert any("as of the commit" in damage.what and "SHA-256" in damage.what for damage in check_store(path).damaged)


@pytest.mark.parametrize("part", ["rows", "labels", "weights", "values"])
def test_no_commit_gives_forged_chunks_a_new_hash(tmp_path: Path, part: str) -> None:
    """Whoever writes a chunk again, with more rows or other labels, checks that what it has is what was recorded."""
    path = write(tmp_path / "s.zarr", weighted=True, sparse=part == "values")
    forge(path, part)
    before = (path / "zarr.json").read_bytes()
    with pytest.raises(DamagedChunk, match="SHA-256"):
        compact(path)
    if part == "labels":
        with pytest.raises(DamagedChunk, match="SHA-256 of its labels"):
            write_labels(path, [STEP + 9], ["c"])
    if part == "weights":
        with pytest.raises(DamagedChunk, match="SHA-256 of its weights"):
            remove_rows(path, [STEP + 9])
    assert (path / "zarr.json").read_bytes() == before
    write_labels(path, [0], ["c"])  # of another chunk


def test_append_does_not_give_a_forged_chunk_a_new_hash(tmp_path: Path) -> None:
    """The last chunk grows, so its SHA-256 is computed again: it has to be the recorded one before."""
    path = write(tmp_path / "s.zarr")
    last = ROWS // STEP
    forge_file(path / f"X/c.{last}.0", 3 * (ROWS - last * STEP), 4)
    with pytest.raises(DamagedChunk, match=f"chunk {last}: the SHA-256 of its rows"):
        StoreWriter.append(path)
    assert Store.open(path).rows == ROWS
    with pytest.raises(DamagedChunk, match=f"chunk {last}: the SHA-256 of its rows"):  # no lock is left
        StoreWriter.append(path)


@pytest.mark.parametrize("how", ["swapped", "other", "commit"])
def test_recorded_hashes_that_do_not_agree_are_damage(tmp_path: Path, how: str) -> None:
    """Two chunks' hashes swapped, one of them another, or that of the commit: `check` and writers refuse these."""
    path = write(tmp_path / "s.zarr")
    if how == "commit":
        edit_commits(path, lambda commit: commit.update(sha256="sha256:" + "0" * 64))
    else:
        edit_hashes(path, lambda found: found.__setitem__(*(([0, 1], found[[1, 0]]) if how == "swapped" else (2, 7))))
    assert "SHA-256" in check_store(path).damaged[0].what
    before = Store.open(path).commits
    with pytest.raises(StoreError, match="metadata was altered"):
        write_labels(path, [3], ["a" if Y[3] == "b" else "b"])
    with pytest.raises(StoreError, match="metadata was altered"), StoreWriter.append(path) as writer:
        writer.write(X[:9], Y[:9])
    assert Store.open(path).commits == before


def test_a_store_some_of_whose_commits_have_none_is_refused(tmp_path: Path) -> None:
    """All commits have their SHA-256 or none: one that lacks it cannot hide among others."""
    path = write(tmp_path / "s.zarr")
    write_labels(path, [3], ["c"])
    edit_commits(path, lambda commit: commit.pop("sha256") if commit["number"] == 1 else None)
    with pytest.raises(StoreError, match="SHA-256 of each commit or of none"):
        Store.open(path)


@pytest.mark.parametrize("others", [False, True])
def test_the_log_has_the_sha256_of_each_commit_or_of_none(tmp_path: Path, *, others: bool) -> None:
    """Commits that the root no longer lists are opened and checked by the log's account of them."""
    path = write(tmp_path / "s.zarr", 100)
    write_labels(path, [3], ["c"])
    if others:
        strip_hashes(path)

    def change(commit: dict[str, Any]) -> None:
        if commit["number"] == 0 and others:
            commit["sha256"] = "sha256:" + "0" * 64
        elif commit["number"] == 0:
            del commit["sha256"]

    edit_commits(path, change, in_root=False)
    for read in (lambda: Store.open(path, commit=0), lambda: check_store(path)):
        with pytest.raises(StoreError, match="SHA-256 of each commit or of none, found .* of commit 0"):
            read()


@pytest.mark.parametrize(("sparse", "weighted"), KINDS)
def test_older_stores_go_on_without(tmp_path: Path, *, sparse: bool, weighted: bool) -> None:
    """A store without SHA-256 is read, checked, changed and appended to as before; compacted it has them."""
    path = write(tmp_path / "s.zarr", 150, sparse=sparse, weighted=weighted)
    labels = Y.copy()
    labels[[3, 299]] = labels[[299, 3]]
    strip_hashes(path)
    assert Store.open(path).sha256 == ""
    assert check_store(path).whole
    write_labels(path, [3, 299], labels[[3, 299]].tolist())
    with StoreWriter.append(path) as writer:
        writer.write(X[:20], Y[:20], WEIGHTS[:20] if weighted else None)
    remove_rows(path, range(ROWS, ROWS + 20))
    store = Store.open(path)
    assert store.sha256 == ""
    assert not list(path.glob("blocks/*/sha256"))
    with pytest.raises(StoreError, match="coremargin compact"):
        store.chunk_hashes()
    assert check_store(path).whole
    compact(path)
    classes = list(dict.fromkeys(labels.tolist()))
    found = expected(labels, WEIGHTS if weighted else None, sparse=sparse, classes=list(Store.open(path).classes))
    assert set(classes) == set(Store.open(path).classes)
    assert Store.open(path).sha256 == found


def test_rows_replaced_between_two_commits_are_found(tmp_path: Path) -> None:
    """Retraining compares two commits: rows with the same CRC-32C and another SHA-256 are those of another store."""
    path = write(tmp_path / "s.zarr")
    other = tmp_path / "other.zarr"
    shutil.copytree(path, other)
    assert renew_commit(other) == Store.open(path).sha256  # the forger makes what cannot be told from the real one
    forge(other, "rows")
    rows = Store.open(other, map_bytes=0).read(1)[0]
    edit_hashes(other, lambda found: found.__setitem__((1, 0), np.frombuffer(hashlib.sha256(rows).digest(), np.uint8)))
    renew_commit(other)
    assert ["statistics" in damage.what for damage in check_store(other).damaged] == [True]  # these were not forged
    old, forged = Store.open(path), Store.open(other)
    assert forged.digest == old.digest
    assert forged.sha256 != old.sha256
    with pytest.raises(StoreError, match="the store was rewritten"):
        difference(old, forged)
    claimed = {"chunk_rows": STEP, "digest": old.sha256}
    assert earlier(old, old.digest, claimed).sha256 == old.sha256
    with pytest.raises(StoreError, match="some were replaced"):
        earlier(forged, old.digest, claimed)
