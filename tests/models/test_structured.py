"""Models of sequences: predictions, decision values, and metrics of rows, groups and chunks."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import BadRow, DataError, LabelError, UsageError
from coremargin.models.evaluate import evaluate
from coremargin.models.paired import compare
from coremargin.models.predict import predict

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.models.structured import StructuredModel

LABELS = np.array(["B-NP", "I-NP", "O"])


class Sequences:
    """Sequences of one to eight rows whose labels follow one another as the rows do not show."""

    def __init__(self, sequences: int = 60, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, 9, sequences)
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        self.groups = np.repeat(np.arange(sequences), lengths)
        codes = np.concatenate([(rng.integers(3) + np.arange(length)) % 3 for length in lengths])
        self.y = LABELS[codes]
        centres = np.random.default_rng(7).normal(size=(3, 4))
        self.X = (centres[codes] + rng.normal(size=(len(codes), 4))).astype(np.float32)

    def store(self, path: Path, chunk_rows: int = 16, labels: Any = None) -> Path:
        """A store in chunks that groups cross."""
        with StoreWriter.create(path, features=4, grouped=True, chunk_rows=chunk_rows) as writer:
            writer.write(self.X, self.y if labels is None else labels, groups=self.groups)
        return path


@pytest.fixture(scope="module")
def sequences() -> Sequences:
    """Those that are trained on."""
    return Sequences()


@pytest.fixture(scope="module")
def model(sequences: Sequences) -> StructuredModel:
    """A chain."""
    rows, options = (sequences.X, sequences.y), {"structure": "chain", "loss": "hinge", "C": 1.0}
    found: Any = coremargin.train(*rows, groups=sequences.groups, **options)
    assert found.status == "certified"
    return found


def best_path(model: StructuredModel, rows: np.ndarray) -> tuple[int, ...]:
    """The labelling of the highest score, by trying all."""
    weights, offsets = model.planes
    scores, moves = rows.astype(float) @ weights.T + offsets, model.transitions
    assert moves is not None

    def score(path: tuple[int, ...]) -> float:
        return sum(scores[t, k] for t, k in enumerate(path)) + sum(moves[pair] for pair in itertools.pairwise(path))

    return max(itertools.product(range(3), repeat=len(rows)), key=score)


def test_labels_are_those_of_the_best_labelling(model: StructuredModel, sequences: Sequences) -> None:
    """Of each sequence, against all labellings; decision values put the predicted label first."""
    found = model.predict(sequences.X, groups=sequences.groups)
    for first, stop in itertools.pairwise(sequences.offsets.tolist()):
        np.testing.assert_array_equal(found[first:stop], LABELS[list(best_path(model, sequences.X[first:stop]))])
    values = model.decision_function(sequences.X, groups=sequences.groups)
    np.testing.assert_array_equal(np.array(model.labels)[values.argmax(axis=1)], found)
    alone = np.array(model.labels)[(sequences.X @ model.planes[0].T + model.planes[1]).argmax(axis=1)]
    assert np.mean(alone == sequences.y) < np.mean(found == sequences.y)


def test_predictions_of_a_store(model: StructuredModel, sequences: Sequences, tmp_path: Path) -> None:
    """All formats have the labels of ``model.predict``, whatever groups cross chunks, and how far they are ahead."""
    expected = model.predict(sequences.X, groups=sequences.groups).tolist()
    values = np.sort(model.decision_function(sequences.X, groups=sequences.groups), axis=1)
    store, done = sequences.store(tmp_path / "rows.zarr"), list[tuple[int, int]]()
    result = predict(model, store, tmp_path / "out.csv", on_progress=lambda *counts: done.append(counts))
    assert done[-1] == (len(expected), len(expected))
    with open(tmp_path / "out.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == expected
    assert [int(row["row"]) for row in rows] == list(range(len(expected)))
    ahead = [float(row["decision"]) for row in rows]
    np.testing.assert_allclose(ahead, values[:, -1] - values[:, -2], rtol=1e-12, atol=1e-12)
    assert result.least == min(ahead)
    predict(model, store, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == expected
    predict(model, sequences.store(tmp_path / "large.zarr", chunk_rows=1000), tmp_path / "out.zarr")
    codes = np.asarray(zarr.open_group(tmp_path / "out.zarr", mode="r")["code"])
    assert [model.labels[code] for code in codes] == expected


def test_a_chunk_in_which_no_group_begins(model: StructuredModel, tmp_path: Path) -> None:
    """A group as long as a chunk that begins in the middle of one: every row has its prediction."""
    rows, sizes = Sequences().X[:40], [5, 10, 10, 2, 10, 3]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    with StoreWriter.create(tmp_path / "rows.zarr", features=4, grouped=True, chunk_rows=10) as writer:
        writer.write(rows, None, groups=groups)
    predict(model, tmp_path / "rows.zarr", tmp_path / "out.csv")
    with open(tmp_path / "out.csv", encoding="utf-8") as file:
        assert [row["label"] for row in csv.DictReader(file)] == model.predict(rows, groups=groups).tolist()


def test_metrics_of_rows_groups_and_chunks(model: StructuredModel, sequences: Sequences, tmp_path: Path) -> None:
    """Against counts of Python, the same for arrays and for stores of any chunks."""
    fresh = Sequences(seed=1)
    given = model.predict(fresh.X, groups=fresh.groups)
    found = evaluate(model, ArraySource(fresh.X, fresh.y, groups=fresh.groups))
    assert found.accuracy == np.mean(given == fresh.y)
    pairs = list(itertools.pairwise(fresh.offsets.tolist()))
    assert found.groups is not None
    assert (found.groups.groups, found.groups.incomplete) == (60, 0)
    assert found.groups.correct == sum((given[a:b] == fresh.y[a:b]).all() for a, b in pairs)
    assert found.groups.accuracy == found.groups.correct / 60
    every, phrases = found.groups.chunks
    assert every.type is None
    assert phrases.type == "NP"

    def chunks(labels: np.ndarray) -> set[tuple[int, int]]:
        spans = set()
        for a, b in pairs:
            begin = None
            for t in range(a, b):
                if labels[t] == "B-NP" or (labels[t] == "I-NP" and begin is None):
                    spans |= {(begin, t)} if begin is not None else set()
                    begin = t
                elif labels[t] == "O":
                    spans |= {(begin, t)} if begin is not None else set()
                    begin = None
            spans |= {(begin, b)} if begin is not None else set()
        return spans

    true, predicted = chunks(fresh.y), chunks(given)
    assert (every.chunks, every.predicted, every.correct) == (len(true), len(predicted), len(true & predicted))
    for chunk_rows in (9, 1000):
        assert evaluate(model, fresh.store(tmp_path / f"{chunk_rows}.zarr", chunk_rows)) == found


def test_groups_with_missing_labels(model: StructuredModel, tmp_path: Path) -> None:
    """Labelled rows count, decoded with the rows beside them; groups with a missing label are counted apart."""
    fresh = Sequences(seed=2)
    labels = fresh.y.astype(object)
    labels[fresh.offsets[3]] = None
    whole = evaluate(model, fresh.store(tmp_path / "whole.zarr"))
    found = evaluate(model, fresh.store(tmp_path / "some.zarr", labels=labels.tolist()))
    assert found.unlabelled == 1
    assert found.rows == whole.rows - 1
    given = model.predict(fresh.X, groups=fresh.groups)
    known = np.arange(len(given)) != fresh.offsets[3]
    assert found.accuracy == np.mean((given == fresh.y)[known])
    assert found.groups is not None
    assert whole.groups is not None
    assert (found.groups.groups, found.groups.incomplete) == (59, 1)
    inner = slice(fresh.offsets[3], fresh.offsets[4])
    assert found.groups.correct == whole.groups.correct - (given[inner] == fresh.y[inner]).all()


def test_labels_that_the_model_does_not_know(model: StructuredModel, tmp_path: Path) -> None:
    """They are mistakes, of chunks too; if all labels are unknown, the first row is named."""
    fresh = Sequences(seed=3)
    labels = fresh.y.copy()
    labels = np.where(np.arange(len(labels)) == 5, "B-VP", labels)
    found = evaluate(model, fresh.store(tmp_path / "some.zarr", labels=labels))
    assert [score.label for score in found.classes] == [*model.labels, "B-VP"]
    assert (found.classes[-1].rows, found.classes[-1].predicted) == (1, 0)
    assert found.accuracy == np.mean(model.predict(fresh.X, groups=fresh.groups) == labels)
    assert found.groups is not None
    assert [(score.type, score.chunks) for score in found.groups.chunks][-1] == ("VP", 1)
    with pytest.raises(LabelError, match="which the model does not know, the first is row 0"):
        evaluate(model, fresh.store(tmp_path / "none.zarr", labels=np.full(len(labels), "x")))


def test_weights_count(model: StructuredModel) -> None:
    """Weighted accuracy is that of the groups' weights."""
    fresh = Sequences(seed=4)
    weights = (1.0 + fresh.groups % 3).astype(float)
    found = evaluate(model, ArraySource(fresh.X, fresh.y, groups=fresh.groups, weights=weights))
    given = model.predict(fresh.X, groups=fresh.groups)
    assert found.weighted is not None
    assert found.weighted.accuracy == pytest.approx(np.average(given == fresh.y, weights=weights), rel=1e-14)


def test_rows_without_groups_are_refused(model: StructuredModel, sequences: Sequences, tmp_path: Path) -> None:
    """By every way to predictions, and nothing is written."""
    with pytest.raises(UsageError, match="groups: expected the id of each row's sequence"):
        model.predict(sequences.X)
    with StoreWriter.create(tmp_path / "rows.zarr", features=4) as writer:
        writer.write(sequences.X, sequences.y)
    with pytest.raises(UsageError, match="expected rows in groups"):
        predict(model, tmp_path / "rows.zarr", tmp_path / "out.csv")
    with pytest.raises(UsageError, match="in groups"):
        evaluate(model, Store.open(tmp_path / "rows.zarr"))
    assert not (tmp_path / "out.csv").exists()
    with pytest.raises(UsageError, match="labels the rows of a group together"):
        model.to_sklearn()
    with pytest.raises(UsageError, match="labels the rows of a group together"):
        model.to_onnx()


def test_bad_groups_are_refused(model: StructuredModel, sequences: Sequences) -> None:
    """A group that comes again, too few ids, rows of other features, rows that are not finite."""
    groups = sequences.groups.copy()
    groups[-1] = 0
    with pytest.raises(BadRow, match="found group '0' again"):
        model.predict(sequences.X, groups=groups)
    with pytest.raises(UsageError, match="groups: expected an id for each of"):
        model.predict(sequences.X, groups=groups[:-1])
    with pytest.raises(UsageError, match="expected rows of 4 features"):
        model.predict(sequences.X[:, :3], groups=sequences.groups)
    bad = sequences.X.copy()
    bad[7, 2] = np.nan
    with pytest.raises(BadRow, match="X, row 7: expected finite numbers"):
        model.predict(bad, groups=sequences.groups)
    other = ArraySource(sequences.X[:, :3], sequences.y, groups=sequences.groups)
    with pytest.raises(DataError, match="expected rows of 4 features"):
        evaluate(model, other)


def test_other_models_on_rows_in_groups(sequences: Sequences) -> None:
    """A model that labels each row for itself has metrics of groups and chunks as well."""
    model = coremargin.train(sequences.X, sequences.y, loss="hinge", C=1.0, classes="crammer-singer")
    found = evaluate(model, ArraySource(sequences.X, sequences.y, groups=sequences.groups))
    alone = evaluate(model, ArraySource(sequences.X, sequences.y))
    assert alone.groups is None
    assert found.groups is not None
    assert found.confusion == alone.confusion
    assert found.groups.chunks[0].chunks == 1 * sum(
        label == "B-NP" or (label == "I-NP" and t in sequences.offsets) for t, label in enumerate(sequences.y)
    )


def test_coefficients_name_each_label(model: StructuredModel) -> None:
    """A list of features for each label, as the hypothesis has them."""
    planes = model.coefficients(top=2)
    assert [plane.label for plane in planes] == list(model.labels)
    for k, plane in enumerate(planes):
        assert abs(plane.coefficients[0].weight) == np.abs(model.planes[0][k]).max()


def test_commands_on_files(run_cli: Callable[..., Result], sequences: Sequences, tmp_path: Path) -> None:
    """From a file with groups to chunk F1 of another file, and to labels of rows that have none."""

    def write(name: str, rows: Sequences, *, labelled: bool = True) -> Path:
        head = ["group", "a", "b", "c", "d", *(["tag"] if labelled else [])]
        values = zip(rows.groups.tolist(), *rows.X.T.tolist(), *([rows.y.tolist()] if labelled else []), strict=True)
        lines = [",".join(head), *(",".join(map(str, line)) for line in values)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path / name

    store, out = tmp_path / "rows.zarr", tmp_path / "rows.model"
    run_cli("ingest", write("train.csv", sequences), store, "--label", "tag", "--group", "group")
    run_cli("train", store, "--out", out, "--structure", "chain", "--loss", "hinge", "--C", "1")
    fresh = Sequences(seed=5)
    text = run_cli("evaluate", out, write("test.csv", fresh)).stdout
    found = evaluate(out, fresh.store(tmp_path / "fresh.zarr"))
    assert found.groups is not None
    assert f"groups correct  {found.groups.accuracy:.6f} (all labels of a group)" in text
    assert f"chunk F1        {found.groups.chunks[0].f1:.6f}" in text
    run_cli("predict", out, write("new.csv", fresh, labelled=False), tmp_path / "labels.csv")
    with open(tmp_path / "labels.csv", encoding="utf-8") as file:
        given = [row["label"] for row in csv.DictReader(file)]
    assert np.mean(np.array(given) == fresh.y) == found.accuracy
    refused = run_cli("predict", out, _without_groups(tmp_path, fresh), tmp_path / "none.csv", exit_code=None)
    assert refused.exit_code in (2, 3)
    assert "group" in refused.stderr


def _without_groups(folder: Path, rows: Sequences) -> Path:
    lines = ["a,b,c,d", *(",".join(map(str, line)) for line in rows.X.tolist())]
    (folder / "alone.csv").write_text("\n".join(lines) + "\n")
    return folder / "alone.csv"


def test_two_models_on_the_same_sequences(model: StructuredModel, sequences: Sequences) -> None:
    """Each labels whole sequences; rows without a label are not counted."""
    other: Any = coremargin.train(sequences.X, sequences.y, loss="hinge", C=1.0, classes="crammer-singer")
    fresh = Sequences(seed=6)
    given = model.predict(fresh.X, groups=fresh.groups) == fresh.y, other.predict(fresh.X) == fresh.y
    found = compare(model, other, ArraySource(fresh.X, fresh.y, groups=fresh.groups))
    assert found.rows == len(fresh.y)
    assert found.first.accuracy == given[0].mean()
    assert found.second.accuracy == given[1].mean()
    assert (found.only_first, found.only_second) == ((given[0] & ~given[1]).sum(), (given[1] & ~given[0]).sum())
