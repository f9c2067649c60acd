from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from sklearn import metrics

from coremargin.data.arrays import ArraySource
from coremargin.data.store import Store
from coremargin.engine import calls
from coremargin.errors import Busy, DataError, LabelError, UsageError
from coremargin.models import predict as predict_module
from coremargin.models.evaluate import evaluate
from coremargin.models.predict import predict
from coremargin.models.predictions import zarr_group
from model_kit import plane

if TYPE_CHECKING:
    from coremargin.models.model import Model

MakeStore = Callable[..., Store]


def make_model(classes: tuple[Any, Any] = ("no", "yes"), features: int = 3) -> Model:
    """A plane in a direction of no importance."""
    w = np.arange(1.0, features + 1)
    return plane(w / np.linalg.norm(w), 0.1, classes, "float32")


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    """150 rows of 3 features."""
    return rng.normal(size=(150, 3)).astype(np.float32)


@pytest.fixture
def labels(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels that agree with the model on most rows."""
    truth = make_model().predict(rows)
    turned = rng.random(len(rows)) < 0.2
    return np.where(turned, np.where(truth == "no", "yes", "no"), truth)


@pytest.mark.parametrize("name", ["p.zarr", "p.parquet", "p.csv", "p.jsonl"])
def test_one_writer_at_a_time(tmp_path: Path, make_store: MakeStore, rows: np.ndarray, name: str) -> None:
    """While predictions are written, another run on the same output is refused, under any name; no lock stays."""
    store, out = make_store(rows, None, chunk_rows=16), tmp_path / "out" / name
    (tmp_path / "link").symlink_to(tmp_path / "out")
    refused: list[str] = []

    def meanwhile(done: int, total: int) -> None:
        for other in (out, tmp_path / "link" / name):
            with pytest.raises(Busy, match="another job is writing these predictions") as found:
                predict(make_model(), store, other, overwrite=True)
            refused.append(str(found.value))
        predict(make_model(), store, tmp_path / "out" / f"{done}{name}", overwrite=True)

    predict(make_model(), store, out, on_progress=meanwhile)
    assert len(refused) == 2 * store.chunks
    predict(make_model(), store, out, overwrite=True)
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == []


def test_predictions_in_a_zarr_group(tmp_path: Path, make_store: MakeStore, rows: np.ndarray) -> None:
    """Codes and decision values of all rows lie in a Zarr group whose attributes decode them."""
    store = make_store(rows, None, chunk_rows=16)
    seen: list[tuple[int, int]] = []
    result = predict(make_model(), store, tmp_path / "p.zarr", on_progress=lambda *done: seen.append(done))
    group = zarr.open_group(tmp_path / "p.zarr", mode="r")
    decisions = make_model().decision_function(rows)
    np.testing.assert_allclose(group["decision"][:], decisions, rtol=1e-15)
    codes = group["code"][:]
    assert codes.dtype == np.int32
    attributes = dict(group.attrs)
    assert [attributes["classes"][code] for code in codes] == make_model().predict(rows).tolist()
    assert attributes["source"]["digest"] == store.digest
    assert attributes["format"] == "coremargin-predictions"
    assert "label" not in group
    assert result.rows == 150 == sum(result.counts.values())
    assert result.counts["yes"] == codes.sum()
    assert result.least == np.abs(decisions).min()
    assert seen[0] == (16, 150)
    assert seen[-1] == (150, 150)
    assert json.dumps(result.to_dict())


@pytest.mark.parametrize(("classes", "kind"), [((3, 7), "int64"), ((False, True), "bool"), ((0.5, 1.5), "float64")])
def test_numeric_labels_are_written_decoded(
    tmp_path: Path, rows: np.ndarray, classes: tuple[Any, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels that are numbers have an array of their own, whatever the chunks of rows and of predictions."""
    monkeypatch.setattr(zarr_group, "_CHUNK_ROWS", 40)
    monkeypatch.setattr(predict_module, "_BATCH_ROWS", 30)
    model = make_model(classes)
    predict(model, ArraySource(rows, chunk_rows=7), tmp_path / "p.zarr")
    labels = zarr.open_group(tmp_path / "p.zarr", mode="r")["label"][:]
    assert labels.dtype == kind
    assert labels.tolist() == model.predict(rows).tolist()
    fill = json.loads((tmp_path / "p.zarr" / "label" / "zarr.json").read_text())["fill_value"]
    assert (fill is False) == (kind == "bool")  # the format asks for a boolean, not for 0


@pytest.mark.parametrize("classes", [("no", "yes"), (3, 7)])
def test_predictions_in_parquet(
    tmp_path: Path, make_store: MakeStore, rows: np.ndarray, classes: tuple[Any, Any]
) -> None:
    """A Parquet file holds row, decoded label, code and decision value."""
    pq = pytest.importorskip("pyarrow.parquet")
    model = make_model(classes)
    store = make_store(rows, None, chunk_rows=16)
    model.save(tmp_path / "m", {}, [])
    predict(tmp_path / "m", store.path, tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table["row"].to_pylist() == list(range(150))
    expected = model.predict(rows).tolist()
    assert table["label"].to_pylist() == (expected if classes[0] != 1 else [str(label) for label in expected])
    assert json.loads(table.schema.metadata[b"coremargin"])["source"]["digest"] == store.digest
    np.testing.assert_allclose(table["decision"], model.decision_function(rows), rtol=1e-15)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m", "p.parquet", "rows.zarr"]


@pytest.mark.parametrize("classes", [(2**63, 2**64 - 1), (3, 2**64 - 1), (-1, 2**64 - 1), ("a", "a\0")])
def test_labels_of_any_size_are_kept_exactly(tmp_path: Path, rows: np.ndarray, classes: tuple[Any, Any]) -> None:
    """Whole numbers up to 64 bits are no floats; of a range that no type has they are texts in Parquet."""
    pq = pytest.importorskip("pyarrow.parquet")
    model = make_model(classes)
    labels = model.predict(rows).tolist()
    assert set(labels) == set(classes)
    assert {type(label) for label in labels} == {type(classes[0])}
    predict(model, ArraySource(rows), tmp_path / "p.parquet")
    mixed = classes[0] == -1
    found = pq.read_table(tmp_path / "p.parquet")["label"].to_pylist()
    assert found == ([str(label) for label in labels] if mixed else labels)
    predict(model, ArraySource(rows), tmp_path / "p.zarr")
    group = zarr.open_group(tmp_path / "p.zarr", mode="r")
    assert [group.attrs["classes"][code] for code in group["code"][:]] == labels
    if "label" in group:
        assert group["label"].dtype == np.uint64
        assert group["label"][:].tolist() == labels


@pytest.mark.parametrize("name", ["p.zarr", "p.parquet", "p.csv", "p.jsonl"])
def test_old_predictions_are_replaced_only_when_asked(tmp_path: Path, rows: np.ndarray, name: str) -> None:
    """Without `overwrite` what is there stays; a folder of other things stays always."""
    source = ArraySource(rows)
    predict(make_model(), source, tmp_path / name)
    with pytest.raises(UsageError, match="of predictions is there already"):
        predict(make_model(), source, tmp_path / name)
    predict(make_model(), ArraySource(rows[:9]), tmp_path / name, overwrite=True)
    if name == "p.zarr":
        assert zarr.open_group(tmp_path / name, mode="r")["code"].shape == (9,)
    (tmp_path / "other.parquet").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "zarr.json").write_text("{}")
    for other in ("other.parquet", "other"):
        with pytest.raises(UsageError, match="expected a (group|file) of predictions or nothing"):
            predict(make_model(), source, tmp_path / other, overwrite=True)


def test_a_parquet_file_of_other_data_is_never_replaced(tmp_path: Path, rows: np.ndarray) -> None:
    """Somebody's table stays, and so does what only has the name of one."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table, noise = tmp_path / "table.parquet", tmp_path / "noise.parquet"
    pq.write_table(pa.table({"x": [1, 2]}), table)
    noise.write_bytes(b"not a table")
    for path in (table, noise):
        before = path.read_bytes()
        with pytest.raises(UsageError, match="expected a (group|file) of predictions or nothing"):
            predict(make_model(), ArraySource(rows), path, overwrite=True)
        assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["p.zarr", "p.parquet", "p.csv", "p.jsonl"])
def test_a_broken_run_leaves_nothing(tmp_path: Path, rows: np.ndarray, name: str) -> None:
    """When a chunk cannot be read, no output appears and no leftover stays."""

    class Broken(ArraySource):
        def read(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
            if chunk == 9 and reading:
                raise DataError("chunk 9 is damaged")
            return super().read(chunk)

    reading = False
    source = Broken(rows, chunk_rows=10)
    reading = True
    with pytest.raises(DataError, match="chunk 9"):
        predict(make_model(), source, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_in_the_store_is_refused(tmp_path: Path, make_store: MakeStore, rows: np.ndarray) -> None:
    """Predictions are not written into the store that they are about."""
    store = make_store(rows, None)
    with pytest.raises(UsageError, match="lies in a store"):
        predict(make_model(), store, Path(store.name) / "labels.zarr")
    assert not (Path(store.name) / "labels.zarr").exists()


def test_other_features_are_refused(tmp_path: Path, rows: np.ndarray) -> None:
    """Rows of another width are named with both numbers, for predictions and for metrics."""
    for call in (lambda m, s: predict(m, s, tmp_path / "p.zarr"), evaluate):
        with pytest.raises(DataError, match="expected rows of 3 features as the model was trained on, found 2"):
            call(make_model(), ArraySource(rows[:, :2]))


@pytest.mark.parametrize("chunk_rows", [7, 150])
def test_metrics_equal_those_of_scikit_learn(rows: np.ndarray, labels: np.ndarray, chunk_rows: int) -> None:
    """Accuracy, precision, recall, F1, the confusion matrix and ROC AUC agree with sklearn.metrics, ties included."""
    rounded = np.round(rows, 0)  # many equal decision values
    model = make_model()
    found = evaluate(model, ArraySource(rounded, labels, chunk_rows=chunk_rows))
    given, decisions = model.predict(rounded), model.decision_function(rounded)
    assert found.rows == 150
    assert found.accuracy == pytest.approx(metrics.accuracy_score(labels, given))
    assert found.balanced_accuracy == pytest.approx(metrics.balanced_accuracy_score(labels, given))
    assert found.f1 == pytest.approx(metrics.f1_score(labels, given, average="macro"))
    assert found.roc_auc == pytest.approx(metrics.roc_auc_score(labels == "yes", decisions), abs=1e-12)
    assert found.roc_auc_error == 0
    np.testing.assert_array_equal(found.confusion, metrics.confusion_matrix(labels, given, labels=["no", "yes"]))
    expected = metrics.precision_recall_fscore_support(labels, given, labels=["no", "yes"])
    got = [[getattr(score, name) for score in found.classes] for name in ("precision", "recall", "f1", "rows")]
    np.testing.assert_allclose(got, expected)
    assert [score.label for score in found.classes] == ["no", "yes"]
    assert found.lowest_margin == (decisions * np.where(labels == "yes", 1, -1)).min()
    assert json.dumps(found.to_dict())


def test_many_rows_are_counted_in_bins(rng: np.random.Generator) -> None:
    """Beyond the limit the area is right within the error that is said, and the error is small."""
    rows = rng.normal(size=(20_000, 3))
    labels = np.where(rows @ [1, 2, 3] + rng.normal(size=20_000) * 3 > 0, "yes", "no")
    source = ArraySource(rows, labels, chunk_rows=3000)
    exact = evaluate(make_model(), source)
    binned = evaluate(make_model(), source, exact_rows=5000)
    assert exact.roc_auc_error == 0
    assert 0 < binned.roc_auc_error < 1e-3
    assert binned.roc_auc == pytest.approx(exact.roc_auc, abs=binned.roc_auc_error)
    assert binned.accuracy == exact.accuracy


def test_rows_without_label_are_left_out(rows: np.ndarray, labels: np.ndarray) -> None:
    """Unlabelled rows are counted and do not enter any metric."""
    some = [label if k % 3 else None for k, label in enumerate(labels)]
    found = evaluate(make_model(), ArraySource(rows, some, chunk_rows=10))
    keep = np.arange(150) % 3 > 0
    alone = evaluate(make_model(), ArraySource(rows[keep], labels[keep]))
    assert (found.rows, found.unlabelled) == (100, 50)
    assert found.lowest_margin == pytest.approx(alone.lowest_margin)
    assert found == replace(alone, unlabelled=50, lowest_margin=found.lowest_margin)


def test_labels_that_cannot_be_compared(rows: np.ndarray) -> None:
    """No labels at all, and a class that the model does not know, are refused."""
    with pytest.raises(LabelError, match="all 150 are without label"):
        evaluate(make_model(), ArraySource(rows))
    with pytest.raises(LabelError, match="class 'perhaps'"):
        evaluate(make_model(), ArraySource(rows, ["no"] * 149 + ["perhaps"], chunk_rows=20))


def test_one_class_has_no_roc_curve(rows: np.ndarray) -> None:
    """With rows of one class only there is no area, the other metrics are those of that class."""
    found = evaluate(make_model(), ArraySource(rows, ["yes"] * 150))
    assert found.roc_auc is None
    assert found.balanced_accuracy == found.accuracy == found.classes[1].recall
    assert found.classes[0].recall == 0


@pytest.mark.specimens(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["p.zarr", "p.parquet", "p.csv", "p.jsonl"])
def test_predictions_are_the_same_bits_wherever_they_are_made(
    tmp_path: Path, make_store: MakeStore, rng: np.random.Generator, embedded: Any, name: str, dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One thread, several, and the workers of a cluster write the same files, whatever the order they end in."""
    monkeypatch.setattr(predict_module, "_BATCH_ROWS", 100)
    monkeypatch.setattr(calls, "BLOCK_BYTES", 3000)
    rows = rng.normal(size=(1500, 7)).astype(dtype)
    store, model = make_store(rows, None, chunk_rows=30), make_model(features=7)
    threads = tmp_path / "threads.toml"
    threads.write_text('kind = "threads"\nthreads = 3\n')
    places = {"one": None, "three": threads, "workers": embedded.client.scheduler.address}
    written = {}
    for place, cluster in places.items():
        seen: list[tuple[int, int]] = []
        (tmp_path / place).mkdir()
        out = tmp_path / place / name
        result = predict(model, store, out, cluster=cluster, on_progress=lambda *done, seen=seen: seen.append(done))
        assert seen == [(store.span(chunk)[1], 1500) for chunk in range(store.chunks)]
        files = sorted(path for path in [out, *out.rglob("*")] if path.is_file())
        written[place] = result.to_dict() | {"out": ""}, [(str(f.relative_to(out)), f.read_bytes()) for f in files]
    assert written["one"] == written["three"] == written["workers"]


def test_arrays_are_not_sent_to_a_cluster(tmp_path: Path, rows: np.ndarray) -> None:
    """Rows in memory are read in this process; a cluster for them is refused, and nothing is written."""
    with pytest.raises(UsageError, match="ingest them into a store"):
        predict(make_model(), ArraySource(rows), tmp_path / "p.zarr", cluster="embedded")
    with pytest.raises(UsageError, match="ingest them into a store"):
        evaluate(make_model(), ArraySource(rows, ["no"] * 150), cluster="embedded")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exact_rows", [10**6, 100])
def test_weights_count_as_scikit_learn_counts_them(
    make_store: MakeStore, rows: np.ndarray, labels: np.ndarray, rng: np.random.Generator, exact_rows: int
) -> None:
    """Of a store with weights there are both: metrics of rows, and those of sklearn.metrics with sample_weight."""
    rounded = np.round(rows, 0)
    weights = np.where(rng.random(150) < 0.1, 0.0, rng.gamma(1.0, size=150))
    source = make_store(rounded, labels, weights=weights, chunk_rows=16)
    model = make_model()
    found = evaluate(model, source, exact_rows=exact_rows)
    plain = evaluate(model, ArraySource(rounded, labels, chunk_rows=16), exact_rows=exact_rows)
    assert plain.weighted is None
    assert replace(found, weighted=None) == plain
    given, decisions, w = model.predict(rounded), model.decision_function(rounded), weights
    ours = found.weighted
    assert ours is not None
    assert ours.weight == pytest.approx(w.sum())
    assert ours.accuracy == pytest.approx(metrics.accuracy_score(labels, given, sample_weight=w))
    assert ours.balanced_accuracy == pytest.approx(metrics.balanced_accuracy_score(labels, given, sample_weight=w))
    assert ours.f1 == pytest.approx(metrics.f1_score(labels, given, average="macro", sample_weight=w))
    table = metrics.confusion_matrix(labels, given, labels=["no", "yes"], sample_weight=w)
    np.testing.assert_allclose(ours.confusion, table)
    area = metrics.roc_auc_score(labels == "yes", decisions, sample_weight=w)
    assert ours.roc_auc == pytest.approx(area, abs=1e-12 + ours.roc_auc_error)
    assert (ours.roc_auc_error == 0) == (exact_rows > 150)
    assert json.dumps(found.to_dict())


def test_a_weight_is_so_many_rows(make_store: MakeStore, rows: np.ndarray, labels: np.ndarray) -> None:
    """Whole weights give the metrics of a store that holds each row as often; rows without label weigh nothing."""
    counts = np.arange(150) % 4
    some = [label if k % 7 else None for k, label in enumerate(labels)]
    found = evaluate(make_model(), make_store(rows, some, weights=counts.astype(float), chunk_rows=16)).weighted
    repeated = np.repeat(np.arange(150), counts)
    wanted = evaluate(make_model(), ArraySource(rows[repeated], [some[k] for k in repeated]))
    assert found is not None
    assert (found.weight, found.confusion) == (wanted.rows, wanted.confusion)
    assert (found.accuracy, found.f1, found.roc_auc) == pytest.approx((wanted.accuracy, wanted.f1, wanted.roc_auc))


def test_metrics_are_the_same_bits_wherever_they_are_counted(
    tmp_path: Path, make_store: MakeStore, rng: np.random.Generator, embedded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of weights too come out the same from one thread, from several and from workers."""
    monkeypatch.setattr(calls, "BLOCK_BYTES", 2000)
    rows = rng.normal(size=(900, 3))
    labels = np.where(rows @ [1, 2, 3] + rng.normal(size=900) > 0, "yes", "no")
    store = make_store(rows, labels, weights=rng.gamma(1.0, size=900), chunk_rows=30)
    (tmp_path / "threads.toml").write_text('kind = "threads"\nthreads = 3\n')
    places = [None, tmp_path / "threads.toml", embedded.client.scheduler.address]
    found = [evaluate(make_model(), store, cluster=cluster) for cluster in places]
    assert found[0] == found[1] == found[2]


def test_classes_that_cannot_be_compared_are_refused_before_a_row_is_read(
    make_store: MakeStore, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store counted at ingest tells; a class that has no rows left is no matter."""
    store = make_store(rows, ["no"] * 100 + ["perhaps"] * 50)
    monkeypatch.setattr(type(store), "read", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(LabelError, match="class 'perhaps'"):
        evaluate(make_model(), store)
