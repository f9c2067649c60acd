"""Numbers at the ends of float64, and files that promise much: what proves nothing is refused, at once."""

from __future__ import annotations

import json
import math
import os
import shutil
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.folds import fold_of
from coremargin.data.ingest import ingest
from coremargin.data.local_storage import LocalStorage
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, DataError, LabelError, StoreError
from coremargin.formats.store_record import read_store_record
from coremargin.formats.strict_json import read_object
from coremargin.models.decision import PlaneScorer
from coremargin.models.model import Model
from coremargin.verify.examine import examine
from coremargin.verify.hard_margin import HardScan
from coremargin.verify.removal import check_leaf
from coremargin.verify.rows import Rows
from coremargin.verify.sums import row_lengths, true_lengths
from coremargin.verify.written import read_sums
from model_kit import altered, store_of


def test_a_key_that_is_there_twice_among_many_is_found_at_once() -> None:
    """Hundreds of thousands of keys before the double do not take hours: a reader looks at each once."""
    text = "{" + ",".join(f'"k{i}":0' for i in range(200_000)) + ',"k7":1}'
    with pytest.raises(DataError, match="'k7' is there twice"):
        read_object(text.encode(), "m")


def test_commits_do_not_share_their_statistics(tmp_path: Path) -> None:
    """A hundred thousand commits of one group would be read a hundred thousand times."""
    path = store_of(tmp_path / "s.zarr", np.eye(4, dtype=np.float32), list("abab"), 2)
    record = json.loads((path / "zarr.json").read_text())
    first = record["attributes"]["commits"][0]
    record["attributes"]["commits"] = [first | {"rows": 2, "last": 1}, first]
    (path / "zarr.json").write_text(json.dumps(record))
    with pytest.raises(StoreError, match="expected the groups 000000, 000000, in order, found others"):
        read_store_record(LocalStorage(path))


def test_of_statistics_that_later_commits_repeat_nothing_is_kept(tmp_path: Path) -> None:
    """Commits that all cover all chunks, in links to one folder, take the memory of one and not of each."""
    path = store_of(tmp_path / "s.zarr", np.eye(4, dtype=np.float32), list("abab"), 1)
    for name, file, count in (("digest", "c.0", 1 << 16), ("sha256", "c.0.0.0", 1 << 12)):
        big = path / "blocks" / "000000" / name
        metadata = json.loads((big / "zarr.json").read_text())
        metadata["shape"][0] = metadata["chunk_grid"]["configuration"]["chunk_shape"][0] = count
        (big / "zarr.json").write_text(json.dumps(metadata))
        content = bytes(count * math.prod(metadata["shape"][1:]) * np.dtype(metadata["data_type"]).itemsize)
        (big / file).write_bytes(content + crc32c.crc32c(content).to_bytes(4, "little"))
    record = json.loads((path / "zarr.json").read_text())
    about, commits = record["attributes"], 200
    entry = about["commits"][0]
    about["rows"] = 2 * commits
    about["commits"] = [
        entry | {"rows": commits + k, "last": commits + k, "first": k, "group": f"{k:06d}", "number": k}
        for k in range(commits + 1)
    ]
    about["log"]["commits"] = commits + 1
    (path / "zarr.json").write_text(json.dumps(record))
    for k in range(1, commits + 1):
        (path / "blocks" / f"{k:06d}").symlink_to("000000")
    tracemalloc.start()
    try:
        read_sums(LocalStorage(path), read_store_record(LocalStorage(path)))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 16 * len(content)


def test_statistics_of_a_few_chunks_are_no_file_of_holes(tmp_path: Path) -> None:
    """A file of holes, that metadata say is one large chunk, is refused before there is room for it."""
    path = store_of(tmp_path / "s.zarr", np.eye(4, dtype=np.float32), list("abab"), 1)
    digest = path / "blocks" / "000000" / "digest"
    metadata = json.loads((digest / "zarr.json").read_text())
    metadata["shape"] = metadata["chunk_grid"]["configuration"]["chunk_shape"] = [1 << 28]
    (digest / "zarr.json").write_text(json.dumps(metadata))
    os.truncate(digest / "c.0", (8 << 28) + 4)
    with pytest.raises(StoreError, match="beyond what 4 rows need, found chunks of 268,435,456 rows"):
        Rows(path)
    with pytest.raises(StoreError, match="found chunks of 268,435,456 rows"):
        coremargin.train(path)


def test_files_of_stored_values_are_as_large_as_chunks_at_the_most(tmp_path: Path) -> None:
    """Many features allow no file of values beyond a GiB: the limit is one of bytes, not of values."""
    path = tmp_path / "s.zarr"
    ingest(csr_array(np.eye(4, dtype=np.float32)), path, labels=list("abab"))
    record = json.loads((path / "zarr.json").read_text())
    record["attributes"] |= {"features": 1 << 26, "file_entries": (1 << 30) // 8}
    (path / "zarr.json").write_text(json.dumps(record))
    assert read_store_record(LocalStorage(path)).file_entries == 1 << 27
    record["attributes"]["file_entries"] += 1
    (path / "zarr.json").write_text(json.dumps(record))
    with pytest.raises(StoreError, match="expected files of at most 134,217,728 stored values"):
        read_store_record(LocalStorage(path))


def test_commits_leave_no_chunk_out(tmp_path: Path) -> None:
    """Chunks that no commit describes are refused before anything is read, by all who read stores."""
    path = store_of(tmp_path / "s.zarr", np.eye(4, dtype=np.float32), list("abab"), 1)
    record = json.loads((path / "zarr.json").read_text())
    entry = record["attributes"]["commits"][0]
    commits = [entry | {"rows": 2, "last": 2}, entry | {"first": 3, "group": "000001", "number": 1}]
    record["attributes"]["log"]["commits"] = 2
    record["attributes"]["commits"] = commits
    (path / "zarr.json").write_text(json.dumps(record))
    with pytest.raises(StoreError, match="no commit covers chunk 2"):
        read_store_record(LocalStorage(path))


def test_the_store_says_what_it_holds(tmp_path: Path) -> None:
    """A digest in the root that is not the content's is refused by verify as by all others who read the store."""
    path = store_of(tmp_path / "s.zarr", np.array([[1.0], [-1.0], [2.0], [-2.0]]), list("abab"), 2)
    model = coremargin.train(path, out=tmp_path / "m")
    record = json.loads((path / "zarr.json").read_text())
    record["attributes"]["commits"][-1]["digest"] = "sha256:" + "ab" * 32
    (path / "zarr.json").write_text(json.dumps(record))
    with pytest.raises(StoreError, match="expected the content sha256:abab"):
        coremargin.train(path)
    with pytest.raises(StoreError, match=f"expected the content sha256:abab.*, found {model.certificate.store_digest}"):
        examine(tmp_path / "m", path)


def test_what_a_leaf_names_is_counted_with_repetitions() -> None:
    """Rows left out meet at most as many as the row that is in most of them, however often they are named."""
    rows = frozenset(range(1000))
    with pytest.raises(ValueError, match="10,000 certificates at a leaf, where the 3 rows .* can meet 30,000"):
        check_leaf((), [(rows, 10_000)], 3)
    check_leaf((~0, ~1), [(rows, 1), (frozenset({0, 1}), 1)], 3)  # all rows of one stay: no choice is left here
    triangle = [frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 0})]
    check_leaf((), [(pair, 1) for pair in triangle], 1)  # each row is in two of three: one row left out is not enough
    with pytest.raises(ValueError, match="3 certificates at a leaf, where the 2 rows .* can meet 4"):
        check_leaf((), [(pair, 1) for pair in triangle], 2)
    with pytest.raises(ValueError, match="4 certificates at a leaf, where the 1 rows .* can meet 4"):
        check_leaf((), [(triangle[0], 3), (triangle[1], 1)], 1)
    check_leaf((~1,), [(pair, 1) for pair in triangle[:2]], 1)  # a row that stays is not counted
    with pytest.raises(ValueError, match="a removed row"):
        check_leaf((0,), [(pair, 1) for pair in triangle], 1)


@pytest.mark.parametrize("kind", ["i4", "i8"])
def test_row_starts_that_wrap_around_are_no_row_starts(tmp_path: Path, kind: str) -> None:
    """Differences of the smallest and the largest number are small again; the starts are not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) * (rng.random((40, 3)) < 0.7)
    X[:, 0] = np.where(np.arange(40) % 2, 3.0, -3.0) + rng.normal(size=40)
    with StoreWriter.create(tmp_path / "s.zarr", features=3, dtype="float64", chunk_rows=10, sparse=True) as writer:
        writer.write(csr_array(X), ["ab"[i % 2] for i in range(40)])
    model = tmp_path / "m"
    coremargin.train(tmp_path / "s.zarr", out=model)
    ends = np.iinfo(kind)

    def wrapped(starts: np.ndarray) -> np.ndarray:
        starts = starts.astype(kind)
        starts[1:-1] = [ends.max, ends.min, -1, *starts[4:-1]][: len(starts) - 2]
        return starts

    place = altered(model, tmp_path / "bad", coreset_x_indptr=wrapped)
    for use in (lambda: examine(place, tmp_path / "s.zarr"), lambda: Model.load(place)):
        with pytest.raises(DataError, match="coreset_x_indptr: expected row starts"):
            use()


def test_short_rows_have_margins_too(tmp_path: Path) -> None:
    """Rows whose squares vanish beside longer ones: a margin below the claim is found, as in exact arithmetic."""
    X = np.zeros((20, 2))
    X[0] = [1.0, 0.0]
    X[1:] = np.random.default_rng(1).normal(size=(19, 2)) * 1e-162
    labels = ["b"] * 10 + ["a"] * 10
    store = store_of(tmp_path / "s.zarr", X, labels, 20)
    y = np.where(np.array(labels) == "b", 1, -1)
    honest = coremargin.train(store, out=tmp_path / "m", intercept=False)
    w = np.array([0.0, 1.0])
    claims = {"status": "stopped", "certificate.lower": 1e-170, "certificate.upper": None, "certificate.ratio": None}
    place = altered(tmp_path / "m", tmp_path / "bad", claims | {"certificate.kind": "margin"}, w=w)
    assert min(int(s) * Fraction(float(row[1])) for row, s in zip(X, y, strict=True)) < 0
    failures = {check.name for check in examine(place, store).failures}
    assert "lower bound" in failures
    assert honest.classes == ("a", "b")


def test_lengths_are_never_below_the_truth() -> None:
    """Squares that underflow count as what they may hide."""
    X = np.array([[1e-170, 1e-160], [3.0, 4.0]])
    assert row_lengths(X)[0] >= 1e-160
    assert row_lengths(X)[1] == 5.0


@pytest.mark.parametrize("sparse", [False, True])
def test_a_huge_row_does_not_take_the_others_lengths(*, sparse: bool) -> None:
    """Beside a row whose squares overflow the others are as long as they are: one scale for all makes them nothing."""
    X = np.array([[1e200, 0.0], [3.0, 4.0], [0.0, 1e160]])
    found = row_lengths(csr_array(X) if sparse else X)
    assert found == pytest.approx([1e200, 5.0, 1e160], rel=1e-12)


def test_beside_a_huge_row_margins_are_known_as_well(tmp_path: Path) -> None:
    """Rows whose margin is above 0 only by what a plain sum loses are below a claim, whatever lies beside them."""
    rng = np.random.default_rng(3)
    w = rng.normal(size=4)
    w[0] = 0.0
    w /= np.linalg.norm(w)
    w[0] = 1e-150
    X = rng.normal(size=(4000, 4)) * 1e6
    X[:, 0] = 0.0
    X[:, 3] = -(X[:, 1] * w[1] + X[:, 2] * w[2]) / w[3]
    sums = [sum(Fraction(a) * Fraction(b) for a, b in zip(row, w.tolist(), strict=True)) for row in X.tolist()]
    sides = np.sign(X @ w)
    lost = [k for k in range(len(X)) if abs(X[k] @ w) > 3e-11 and sums[k] * int(sides[k]) < -1e-12][:20]
    few = np.array([[1e200, 0, 0, 0], 2e-11 * w * [0, 1, 1, 1], -2e-11 * w * [0, 1, 1, 1]])
    labels = ["ba"[int(side < 0)] for side in (1, 1, -1, *sides[lost])]
    store = store_of(tmp_path / "s.zarr", np.concatenate([few, X[lost]]), labels, 64)
    small = store_of(tmp_path / "small.zarr", np.concatenate([few[1:], 2 * few[1:]]) * 1e11, list("baba"), 4)
    coremargin.train(small, out=tmp_path / "m", intercept=False)
    claims = {"status": "stopped", "rows": len(labels), "certificate.lower": 1e-12, "certificate.upper": None}
    claims |= {"certificate.ratio": None, "certificate.coreset_rows": 0, "certificate.radius": 1e200 * (1 + 1e-9)}
    claims |= {"certificate.store_digest": read_store_record(LocalStorage(store)).commits[-1].digest}
    nothing = {name: lambda rows: rows[:0] for name in ("coreset_ids", "coreset_x", "coreset_y", "alpha")}
    place = altered(tmp_path / "m", tmp_path / "bad", claims, w=w, b=np.zeros(1), **nothing)
    assert {check.name for check in examine(place, store).failures} == {"lower bound"}


@pytest.mark.parametrize("sparse", [False, True])
def test_lengths_that_a_tolerance_is_a_share_of_are_not_above_the_truth(*, sparse: bool) -> None:
    """Nor are they zero where squares vanish, or infinite where they overflow."""
    X = np.array([[3e-170, 4e-170], [3e200, 4e200], [0.0, 0.0], [0.0, 5e-320], [3.0, 4.0]])
    found = true_lengths(csr_array(X) if sparse else X)
    assert found == pytest.approx([5e-170, 5e200, 0.0, 5e-320, 5.0], rel=1e-12)


@pytest.mark.parametrize("several", [False, True])
def test_the_shortest_rows_are_separable_too(tmp_path: Path, *, several: bool) -> None:
    """Rows whose squares vanish are as far apart as others: a margin of their size is not called zero."""
    y = np.arange(40) % 2
    X = np.column_stack([(2 * y - 1) * (1 + np.random.default_rng(0).random(40)), np.zeros(40)])
    labels = ["ab"[k] for k in y]
    options: Any = {"classes": "crammer-singer", "intercept": False} if several else {}
    coremargin.train(store_of(tmp_path / "s.zarr", X, labels, 40), out=tmp_path / "m", **options)
    store = store_of(tmp_path / "short.zarr", X * 1e-170, labels, 40)
    digest = json.loads((store / "zarr.json").read_text())["attributes"]["commits"][-1]["digest"]
    claims = {"status": "not_separable", "certificate.kind": "not_separable", "certificate.radius": 2e-154}
    claims |= {"certificate.lower": None, "certificate.upper": 1e-160, "certificate.ratio": None}
    claims |= {"certificate.coreset_rows": 2, "certificate.store_digest": digest}
    arrays: dict[str, Any] = {"coreset_ids": np.array([0, 1]), "coreset_x": X[:2] * 1e-170}
    if several:
        arrays |= {"coreset_classes": np.array([0, 1], np.int32), "duals": np.array([[0.0, 0.5], [0.5, 0.0]])}
    else:
        arrays |= {"coreset_y": np.array([-1, 1], np.int8), "alpha": np.ones(2)}
    place = altered(tmp_path / "m", tmp_path / "bad", claims, **arrays)
    assert {check.name for check in examine(place, store).failures} == {"overlap"}


@pytest.mark.parametrize("several", [False, True])
def test_the_least_float_times_a_weight_is_not_nothing(tmp_path: Path, *, several: bool) -> None:
    """Rows at 5e-324 and -5e-324 are separable, although a third of either is 0 in float64."""
    X = np.array([[-1.0], [1.0]] * 3)
    options: Any = {"classes": "crammer-singer", "intercept": False} if several else {}
    coremargin.train(store_of(tmp_path / "s.zarr", X, list("ab" * 3), 6), out=tmp_path / "m", **options)
    store = store_of(tmp_path / "least.zarr", X * 5e-324, list("ab" * 3), 6)
    claims = {"status": "not_separable", "certificate.kind": "not_separable", "certificate.radius": 5e-324}
    claims |= {"certificate.lower": None, "certificate.upper": 0.0, "certificate.ratio": None}
    claims |= {
        "certificate.coreset_rows": 6,
        "certificate.store_digest": read_store_record(LocalStorage(store)).commits[-1].digest,
    }
    arrays: dict[str, Any] = {"coreset_ids": np.arange(6), "coreset_x": X * 5e-324}
    if several:
        duals = np.tile([[0.0, 1 / 6], [1 / 6, 0.0]], (3, 1))
        arrays |= {"coreset_classes": np.array([0, 1] * 3, np.int32), "duals": duals}
    else:
        arrays |= {"coreset_y": np.array([-1, 1] * 3, np.int8), "alpha": np.full(6, 1 / 3)}
    place = altered(tmp_path / "m", tmp_path / "bad", claims, **arrays)
    assert {check.name for check in examine(place, store).failures} == {"upper bound", "overlap"}


def test_margins_that_overflow_are_below_every_claim(tmp_path: Path) -> None:
    """A hyperplane whose products are no numbers has no margin: the reason says so, and not that there are no rows."""
    X = np.array([[-2.0, 3.0], [2.0, -3.0], [-1.0, 5.0], [1.0, 5.0]])
    store = store_of(tmp_path / "s.zarr", X, list("abab"), 2)
    coremargin.train(store, out=tmp_path / "m")
    place = altered(tmp_path / "m", tmp_path / "bad", w=np.array([1.7e308, 1.7e308]))
    failures = {check.name: check.text for check in examine(place, store).failures}
    assert "has margin -inf" in failures["lower bound"]
    with pytest.raises(DataError, match="the model's numbers overflow"):
        PlaneScorer((np.full(2, 1.7e308), np.full(2, -1.7e308)), (0.0, 0.0), difference=True)


@pytest.mark.parametrize("weight", [np.nan, -1.0, 1e300])
def test_weights_are_looked_at_before_they_are_added(tmp_path: Path, weight: float) -> None:
    """Prices of balanced classes are sums of weights: what is no weight is damage, right checksums or not."""
    rng = np.random.default_rng(2)
    X, labels = rng.normal(size=(30, 2)), ["abc"[i % 3] for i in range(30)]
    path = tmp_path / "s.zarr"
    with StoreWriter.create(path, features=2, dtype="float64", chunk_rows=10, weighted=True) as writer:
        writer.write(X, labels, np.ones(30))
    _put_weight(path, weight)
    with pytest.raises(DamagedChunk, match=r"chunk 0 \(rows 0 to 9\)"):
        list(Rows(path).labels())


def _put_weight(path: Path, weight: float) -> None:
    """Write a weight into the first chunk, its checksum made right, and that of the statistics with it."""
    chunk = path / "weights" / "c.0"
    values = np.frombuffer(chunk.read_bytes()[:-4], "<f8").copy()
    values[3] = weight
    chunk.write_bytes(values.tobytes() + crc32c.crc32c(values.tobytes()).to_bytes(4, "little"))
    marks = path / "blocks" / "000000" / "marks" / "c.0.0"
    table = np.frombuffer(marks.read_bytes()[:-4], "<u4").copy().reshape(-1, 3)
    table[0, 2] = crc32c.crc32c(values[:10].tobytes())
    marks.write_bytes(table.tobytes() + crc32c.crc32c(table.tobytes()).to_bytes(4, "little"))


def _tied_fleet(tmp_path: Path) -> tuple[Path, Path]:
    """A stopped fleet whose members decide nothing, and its store: every row is given the first class."""
    rng = np.random.default_rng(3)
    X, labels = rng.normal(size=(60, 2)), ["abc"[i % 3] for i in range(60)]
    store = store_of(tmp_path / "s.zarr", X, labels, 20)
    coremargin.train(store, out=tmp_path / "f", classes="ovr", loss="hinge", C=1.0)
    place = tmp_path / "bad"
    shutil.copytree(tmp_path / "f", place)
    nothing = {"status": "stopped", "certificate.lower": None, "certificate.upper": None, "certificate.ratio": None}
    for member in sorted((place / "members").iterdir()):
        spare = tmp_path / f"spare-{member.name}"
        altered(member, spare, nothing, w=np.zeros_like, b=np.zeros_like)
        shutil.rmtree(member)
        spare.rename(member)
    return place, store


def test_members_that_are_all_alike_decide_for_the_first_class(tmp_path: Path) -> None:
    """Ties are not left open: who claims that members that decide nothing get every row right is refused."""
    place, store = _tied_fleet(tmp_path)
    record = json.loads((place / "fleet.json").read_text())

    def claimed(confusion: list[list[int]]) -> Any:
        rows = sum(map(sum, confusion))
        accuracy = sum(confusion[i][i] for i in range(3)) / rows
        entry = {"C": 1.0, "fold": None, "rows": rows, "accuracy": accuracy, "confusion": confusion}
        lines = [
            line | {"status": "stopped", "lower": None, "upper": None, "ratio": None} for line in record["members"]
        ]
        forged = record | {"status": "stopped", "evaluations": [entry], "members": lines}
        (place / "fleet.json").write_text(json.dumps(forged))
        return examine(place, store)

    assert "evaluations" in {check.name for check in claimed([[20, 0, 0], [0, 20, 0], [0, 0, 20]]).failures}
    assert claimed([[20, 0, 0], [20, 0, 0], [20, 0, 0]]).ok


def _undecided_folds(place: Path, labels: np.ndarray, folds: int, seed: int, better: int = 0) -> Path:
    """A fleet of two classes (0, 1) with one C, made one of stopped members without a plane, in folds of another seed.

    All rows are given class 0, and the tables say so, but for ``better`` rows of class 1 in each fold.
    """
    nothing = {"status": "stopped", "certificate.lower": None, "certificate.upper": None, "certificate.ratio": None}
    for member in sorted((place / "members").iterdir()):
        spare = place.parent / f"{place.name}-{member.name}"
        changed = nothing | ({"view.fold_seed": seed} if "fold" in member.name else {})
        altered(member, spare, changed, w=np.zeros_like, b=np.zeros_like)
        shutil.rmtree(member)
        spare.rename(member)
    record = json.loads((place / "fleet.json").read_text())
    for line in record["members"]:
        line.update(status="stopped", lower=None, upper=None, ratio=None)
    fold_of_row = fold_of(np.arange(len(labels)), folds, seed)
    for entry in record["evaluations"]:
        mine = labels if entry["fold"] is None else labels[fold_of_row == entry["fold"]]
        zeros, ones = int((mine == 0).sum()), int((mine == 1).sum())
        right = 0 if entry["fold"] is None else better
        matrix = [[zeros, 0], [ones - right, right]]
        entry.update(rows=len(mine), accuracy=(zeros + right) / len(mine), confusion=matrix)
    found = [entry["accuracy"] for entry in record["evaluations"] if entry["fold"] is not None]
    table = record["validation"][0] | {"mean": float(np.mean(found)), "std": float(np.std(found)), "accuracies": found}
    record["parameters"]["fold_seed"] = seed
    (place / "fleet.json").write_text(json.dumps(record | {"status": "stopped", "validation": [table]}))
    return place


def _fleet_in_folds(tmp_path: Path, labels: np.ndarray, folds: int) -> tuple[Path, Path]:
    """An honest fleet of one C, and its store."""
    X = np.random.default_rng(3).normal(size=(len(labels), 2))
    store = store_of(tmp_path / "s.zarr", X, labels.tolist(), 20)
    coremargin.train(store, out=tmp_path / "f", loss="hinge", C=1.0, folds=folds)
    return tmp_path / "f", store


def test_rows_that_rounding_leaves_open_are_few_over_all_folds(tmp_path: Path) -> None:
    """A row in each fold makes a table up; members without a plane leave none open: they give the first class."""
    labels, folds = np.arange(60) % 2, 6
    honest, store = _fleet_in_folds(tmp_path, labels, folds)
    assert examine(honest, store).ok
    for better in (0, 1):
        place = shutil.copytree(honest, tmp_path / f"better-{better}")
        failures = examine(_undecided_folds(place, labels, folds, 0, better), store).failures
        assert {check.name for check in failures} == ({"evaluations"} if better else set())


def test_rows_in_doubt_count_together(tmp_path: Path) -> None:
    """Rounding may decide about a row of all folds, and not about one of each."""
    w = np.array([1.0, -1.0])
    X = np.concatenate([np.full((40, 2), 0.1), np.random.default_rng(3).normal(size=(20, 2))])  # many on the plane
    labels, folds = np.arange(60) % 2, 6
    store = store_of(tmp_path / "s.zarr", X, labels.tolist(), 20)
    coremargin.train(store, out=tmp_path / "f", loss="hinge", C=1.0, folds=folds)
    place = _undecided_folds(tmp_path / "f", labels, folds, 0)
    for member in sorted((place / "members").iterdir()):
        spare = tmp_path / f"plane-{member.name}"
        altered(member, spare, w=w)
        shutil.rmtree(member)
        spare.rename(member)
    record = json.loads((place / "fleet.json").read_text())
    fold_of_row, given = fold_of(np.arange(60), folds, 0), (X @ w > 0).astype(int)

    def told(moved: int) -> list[str]:
        """What verify finds when a row of class 1 on the plane counts for class 1 in so many folds."""
        for entry in record["evaluations"]:
            mine = np.ones(60, bool) if entry["fold"] is None else fold_of_row == entry["fold"]
            matrix = np.zeros((2, 2), int)
            np.add.at(matrix, (labels[mine], given[mine]), 1)
            if entry["fold"] is not None and entry["fold"] < moved:
                matrix[1] += [-1, 1]
            rows = int(mine.sum())
            entry.update(rows=rows, accuracy=float(np.trace(matrix)) / rows, confusion=matrix.tolist())
        found = [entry["accuracy"] for entry in record["evaluations"] if entry["fold"] is not None]
        record["validation"][0].update(mean=float(np.mean(found)), std=float(np.std(found)), accuracies=found)
        (place / "fleet.json").write_text(json.dumps(record))
        return [check.text for check in examine(place, store).failures]

    assert told(0) == told(1) == []
    assert "all folds: 2 rows are given another class" in told(2)[0]


def test_every_fold_has_rows_of_every_class(tmp_path: Path) -> None:
    """Folds that lack a class are refused, as training refuses them; their accuracies would count as the others'."""
    labels = np.where(np.arange(60) % 15 == 7, 1, 0)
    by_seed = [fold_of(np.flatnonzero(labels), 2, seed) for seed in range(100)]
    good, bad = (next(k for k, fold in enumerate(by_seed) if len(set(fold)) == many) for many in (2, 1))
    store = store_of(tmp_path / "s.zarr", np.random.default_rng(3).normal(size=(60, 2)), labels.tolist(), 20)
    coremargin.train(store, out=tmp_path / "f", loss="hinge", C=1.0, folds=2, fold_seed=good)
    assert examine(tmp_path / "f", store).ok
    with pytest.raises(LabelError):
        coremargin.train(store, out=tmp_path / "g", loss="hinge", C=1.0, folds=2, fold_seed=bad)
    for seed in (good, bad):
        place = _undecided_folds(shutil.copytree(tmp_path / "f", tmp_path / f"bad-{seed}"), labels, 2, seed)
        texts = [check.text for check in examine(place, store).failures]
        assert any(text.endswith("has no row of class 1") for text in texts) == (seed == bad)
        assert seed == bad or not texts


@pytest.mark.parametrize("outliers", [0, 3, "0..4"])
def test_rows_of_zeros_are_no_false_alarm(tmp_path: Path, outliers: int | str) -> None:
    """Products of zeros lose nothing: what the trainer gives away for rounding is enough."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(40, 2)) + np.where(np.arange(40) % 2, 2.0, -2.0)[:, None]
    X[::7] = 0.0
    store = store_of(tmp_path / "s.zarr", X, ["ab"[i % 2] for i in range(40)], 40)
    coremargin.train(store, out=tmp_path / "m", outliers=outliers)
    assert examine(tmp_path / "m", store).failures == ()


@pytest.mark.parametrize("scaling", ["minmax", "standard", "maxabs"])
def test_negative_zeros_are_zeros(tmp_path: Path, scaling: Any) -> None:
    """Rows with -0.0 are scaled to the same bits by trainer and verifier."""
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(40, 3)) + np.where(np.arange(40) % 2, 1.0, 0.0)[:, None]
    X[[3, 9, 11], [0, 1, 2]] = -0.0
    X[[4, 8], [0, 1]] = 0.0
    store = store_of(tmp_path / "s.zarr", X, ["ab"[i % 2] for i in range(40)], 40)
    coremargin.train(store, out=tmp_path / "m", scaling=scaling, outliers=2)
    assert examine(tmp_path / "m", store).failures == ()


def test_a_fleet_decides_among_all_classes_of_the_store(tmp_path: Path) -> None:
    """A class that no member stands for can never be given: leaving it out is refused."""
    rng = np.random.default_rng(7)
    labels = ["abcd"[i % 4] for i in range(80)]
    X = rng.normal(size=(80, 3)) + 6 * np.array([[np.cos(k), np.sin(k), k] for k in range(4)])[np.arange(80) % 4]
    store = store_of(tmp_path / "s.zarr", X, labels, 40)
    coremargin.train(store, out=tmp_path / "f", classes="ovr", loss="hinge", C=1.0)
    place = tmp_path / "f"
    record = json.loads((place / "fleet.json").read_text())
    entry = record["evaluations"][0]
    confusion = [line[:3] for line in entry["confusion"][:3]]
    rows = sum(map(sum, confusion))
    right = sum(confusion[i][i] for i in range(3)) / rows
    record["evaluations"] = [entry | {"confusion": confusion, "rows": rows, "accuracy": right}]
    record |= {"classes": record["classes"][:3], "members": record["members"][:3]}
    (place / "fleet.json").write_text(json.dumps(record))
    assert "classes" in {check.name for check in examine(place, store).failures}


def test_a_margin_of_many_features_is_not_called_zero(tmp_path: Path) -> None:
    """A certified store stays separable whatever a forger says, be there thousands of features."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(40, 2000))
    X[:, 0] = np.where(np.arange(40) % 2, 1e-9, -1e-9)
    X[1::2, 1:] = X[::2, 1:]
    store = store_of(tmp_path / "s.zarr", X, ["ab"[i % 2] for i in range(40)], 40)
    found = coremargin.train(store, out=tmp_path / "m")
    assert found.status == "certified"
    claims = {"status": "not_separable", "certificate.kind": "not_separable", "certificate.lower": None}
    place = altered(tmp_path / "m", tmp_path / "bad", claims | {"certificate.ratio": None})
    assert "overlap" in {check.name for check in examine(place, store).failures}


def test_no_direction_is_left_of_hulls_that_meet(tmp_path: Path) -> None:
    """Outliers of the corners of a square, opposite ones alike: no sample has a direction, and training goes on."""
    X = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    store = store_of(tmp_path / "s.zarr", X, list("aabb"), 4)
    found = coremargin.train(store, out=tmp_path / "m", outliers=0)
    assert found.status == "not_separable"
    assert examine(tmp_path / "m", store).ok


def test_several_classes_of_zeros(tmp_path: Path) -> None:
    """Rows of zeros without intercepts have nothing to go by; training ends, and verify agrees."""
    store = store_of(tmp_path / "s.zarr", np.zeros((9, 3)), ["abc"[i % 3] for i in range(9)], 9)
    coremargin.train(store, out=tmp_path / "m", classes="crammer-singer", loss="hinge", intercept=False)
    assert examine(tmp_path / "m", store).ok


def test_an_ulp_of_a_score_is_no_margin(tmp_path: Path) -> None:
    """Two scores that were each rounded, one up and one down, differ where no hypothesis tells the rows apart."""
    far, small = 2.0**26 + 1, 2.0**-100
    X = np.array([[far, small], [far, -small]] * 3)
    store = store_of(tmp_path / "s.zarr", X, list("ababab"), 6)
    coremargin.train(store, out=tmp_path / "m", classes="crammer-singer", intercept=False)
    u = _halfway(far)
    c = math.sqrt(0.5 - u * u)
    v = np.array([[u, 2.0**-60, c], [u, -(2.0**-60), c]])
    lower = float(np.nextafter(math.ulp(u * far) / np.sqrt((v**2).sum()), 0))
    claims = {"status": "certified", "certificate.kind": "margin", "certificate.ratio": 1.0}
    claims |= {"certificate.lower": lower, "certificate.upper": lower, "certificate.coreset_rows": 2}
    arrays = {"coreset_ids": np.array([0, 1]), "coreset_x": X[:2], "coreset_classes": np.array([0, 1], np.int32)}
    duals = np.array([[0.0, 0.5], [0.5, 0.0]])
    place = altered(tmp_path / "m", tmp_path / "bad", claims, hypothesis=v, duals=duals, **arrays)
    assert {check.name for check in examine(place, store).failures} == {"lower bound"}


def _halfway(far: float) -> float:
    """A number near sqrt(1/2) whose product with ``far`` lies in the middle between two floats."""
    first = int(math.sqrt(0.5) * 2**28) | 1
    products = ((n / 2**28, Fraction(n, 2**28) * Fraction(far)) for n in range(first, first - 2000, -2))
    return next(u for u, product in products if (product / Fraction(math.ulp(float(product)))).denominator == 2)


def test_bounds_that_contradict_each_other_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a scan find a margin above the one that the coreset rows allow, then one of both is wrong."""
    X = np.array([[-2.0, 3.0], [2.0, -3.0], [-1.0, 5.0], [1.0, 5.0]])
    store = store_of(tmp_path / "s.zarr", X, list("abab"), 2)
    upper = coremargin.train(store, out=tmp_path / "m").certificate.upper
    monkeypatch.setattr(HardScan, "bounds", lambda _: (upper * (1 + 1e-9), None))
    assert "the bounds contradict each other" in " ".join(
        check.text for check in examine(tmp_path / "m", store).failures
    )
