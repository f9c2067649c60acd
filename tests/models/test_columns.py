"""Models and the columns of their rows: matched by name, whatever their order, or refused with the difference."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coremargin
from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import DataError, LabelError
from coremargin.models.evaluate import evaluate
from coremargin.models.predict import predict
from coremargin.verify.examine import examine

WORDS: dict[str, Any] = {"categorical": "job", "missing": "median"}


@pytest.fixture
def frame() -> pd.DataFrame:
    """200 rows that age and job nearly separate, on scales that a mix-up of columns would show."""
    rng = np.random.default_rng(2)
    age, job = rng.integers(18, 80, 200), rng.choice(["a", "b", "c"], 200)
    pay = np.round(1000 * rng.random(200), 2)
    pay[::9] = np.nan
    label = np.where(age + 20 * (job == "b") + rng.normal(0, 3, 200) > 55, "yes", "no")
    return pd.DataFrame({"age": age, "job": job, "pay": pay, "label": label})


@pytest.fixture(params=["one", "fleet", "several"])
def model_path(request: pytest.FixtureRequest, frame: pd.DataFrame, tmp_path: Path) -> Path:
    """A model of each kind, trained on the frame."""
    frame.to_csv(tmp_path / "rows.csv", index=False)
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", **WORDS)
    kind: dict[str, dict[str, Any]] = {
        "one": {}, "fleet": {"classes": "ovr", "C": [0.1, 1.0], "folds": 2}, "several": {"classes": "crammer-singer"},
    }  # fmt: skip
    loss = "hinge" if request.param == "several" else "squared_hinge"
    coremargin.train(
        tmp_path / "rows.zarr", out=tmp_path / "m", loss=loss, scaling="standard", epsilon=1e-2, **kind[request.param]
    )
    return tmp_path / "m"


@pytest.mark.specimens(1)
def test_columns_in_another_order_mean_the_same(model_path: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    """A file whose columns are reversed, and a store made of one, get the accuracy of the first one."""
    first = evaluate(model_path, tmp_path / "rows.zarr")
    frame[list(frame.columns[::-1])].to_parquet(tmp_path / "reversed.parquet")
    ingest(tmp_path / "reversed.parquet", tmp_path / "reversed.zarr", label="label", **WORDS)
    assert Store.open(tmp_path / "reversed.zarr").columns != Store.open(tmp_path / "rows.zarr").columns
    for source in (tmp_path / "reversed.parquet", tmp_path / "reversed.zarr", tmp_path / "rows.csv"):
        found = evaluate(model_path, source)
        assert found.confusion == first.confusion
        assert found.lowest_margin == pytest.approx(first.lowest_margin, rel=1e-6)


def test_files_without_labels_are_predicted(model_path: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    """Rows to be predicted need no label; what a store of them gets, the file gets, and nothing else is left behind."""
    frame.drop(columns="label").to_csv(tmp_path / "new.csv", index=False)
    predict(model_path, tmp_path / "rows.zarr", tmp_path / "a.parquet")
    before = {path.name for path in tmp_path.iterdir()}
    predict(model_path, tmp_path / "new.csv", tmp_path / "b.parquet")
    a, b = (pd.read_parquet(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert a.equals(b)
    assert {path.name for path in tmp_path.iterdir()} - before <= {"b.parquet", ".b.parquet.lock"}
    with pytest.raises(DataError, match="found no column 'label', which holds the labels"):
        evaluate(model_path, tmp_path / "new.csv")


@pytest.mark.specimens(1)
def test_other_columns_are_refused(model_path: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    """A column that is missing, renamed or more is refused with the difference, in files and in stores."""
    for change, message in (
        (frame.drop(columns="age"), "'age' is missing"),
        (frame.rename(columns={"age": "Age"}), r"'age' is missing \(is it 'Age' here\?\), 'Age' is not known"),
        (frame.assign(id=range(200))[["id", *frame.columns]], "'id' is not known"),
    ):
        change.to_csv(tmp_path / "other.csv", index=False)
        ingest(tmp_path / "other.csv", tmp_path / "other.zarr", overwrite=True, **WORDS)
        for source in (tmp_path / "other.csv", tmp_path / "other.zarr"):
            with pytest.raises(DataError, match=f"other columns than those of the model: {message}"):
                evaluate(model_path, source)
    assert evaluate(model_path, tmp_path / "other.csv", drop=["id"]).rows == 200


def test_columns_that_became_other_features_are_refused(model_path: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    """A store of the same columns with other categories is not what the model knows; made with its columns it is."""
    part = frame[frame["job"] != "c"]
    part.to_csv(tmp_path / "part.csv", index=False)
    ingest(tmp_path / "part.csv", tmp_path / "part.zarr", **WORDS)
    with pytest.raises(DataError, match=r"column 'job' became categories of 2 features \('job=a', 'job=b'\), in the"):
        evaluate(model_path, tmp_path / "part.zarr")
    known = coremargin.load(model_path).columns
    ingest(tmp_path / "part.csv", tmp_path / "part.zarr", columns=known, overwrite=True)
    assert evaluate(model_path, tmp_path / "part.zarr").rows == len(part)


def test_labels_of_other_classes_are_refused(model_path: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    """Rows of a class that the model does not know are no rows to be evaluated."""
    frame.assign(label="maybe").to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(LabelError, match="has rows of class 'maybe', which the model does not know"):
        evaluate(model_path, tmp_path / "other.csv")


def test_columns_are_among_the_claims(model_path: Path, tmp_path: Path) -> None:
    """The verifier compares what the model says of its columns with what the store says, to the byte."""
    good = examine(model_path, tmp_path / "rows.zarr")
    assert good.ok
    assert "columns" in {check.name for check in good.listed}
    forged = tmp_path / "forged"
    shutil.copytree(model_path, forged)
    record = forged / "columns.json"
    text = record.read_text()
    for old, new in (('"age"', '"pay"'), ('"job"', '"bob"'), ('"a",', '"d",')):
        renamed = text.replace(old, "NEW").replace(new, old).replace("NEW", new)
        assert renamed != text
        record.write_text(renamed)
        assert [check.name for check in examine(forged, tmp_path / "rows.zarr").failures] == ["columns"]
    record.unlink()  # as older models: nothing is claimed
    assert examine(forged, tmp_path / "rows.zarr").ok
    for broken in ("{}", text.replace('"version": 1', '"version": 9'), text[:-30], text.replace('"age"', '"job"')):
        record.write_text(broken)
        with pytest.raises(DataError, match=r"columns\.json"):
            examine(forged, tmp_path / "rows.zarr")
        with pytest.raises(DataError, match=r"columns\.json"):
            coremargin.load(forged)


def test_models_keep_their_columns(model_path: Path, tmp_path: Path) -> None:
    """The columns are the store's, byte for byte, in the model's folder and in what is loaded or copied of it."""
    import copy

    store = Store.open(tmp_path / "rows.zarr")
    assert (model_path / "columns.json").read_bytes() == (tmp_path / "rows.zarr" / "columns.json").read_bytes()
    model = coremargin.load(model_path)
    for one in (model, copy.deepcopy(model)):
        assert one.columns == store.columns
        assert one.feature_names == ("age", "job=a", "job=b", "job=c", "pay")
    model.save(tmp_path / "again")
    assert coremargin.load(tmp_path / "again").columns == store.columns


def test_labels_are_not_read_where_rows_are_predicted(model_path: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    """A column of labels that is empty, or holds what is no label, hinders no prediction, dropped or not."""
    predict(model_path, tmp_path / "rows.csv", tmp_path / "a.parquet")
    for label in ("", 1.5, np.arange(200) / 7):
        frame.assign(label=label).to_csv(tmp_path / "new.csv", index=False)
        for drop in ([], ["label"]):
            predict(model_path, tmp_path / "new.csv", tmp_path / "b.parquet", drop=drop, overwrite=True)
            assert pd.read_parquet(tmp_path / "b.parquet").equals(pd.read_parquet(tmp_path / "a.parquet"))


def test_only_what_is_called_a_label_is_taken_for_one(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Where the model's labels had no column, another column of predicted rows is refused, the last one too."""
    rows, words = frame.drop(columns="label"), {**WORDS, "labels": frame["label"].to_numpy()}
    ingest(rows, tmp_path / "rows.zarr", **words)
    coremargin.train(tmp_path / "rows.zarr", out=tmp_path / "m", loss="squared_hinge", epsilon=1e-2)
    for places in (["age", "job", "pay", "more"], ["more", "age", "job", "pay"]):
        rows.assign(more="x")[places].to_csv(tmp_path / "more.csv", index=False)
        with pytest.raises(DataError, match="other columns than those of the model: 'more' is not known;"):
            predict(tmp_path / "m", tmp_path / "more.csv", tmp_path / "p.csv")
    frame.to_csv(tmp_path / "labelled.csv", index=False)
    assert predict(tmp_path / "m", tmp_path / "labelled.csv", tmp_path / "p.csv").rows == len(frame)


def test_what_a_killed_prediction_left_is_removed_by_the_next(model_path: Path, tmp_path: Path) -> None:
    """Rows of a process that was killed lie beside its output until another one comes; those of one at work stay."""
    import os

    from coremargin.data.locked import Locked

    left, held, new = (tmp_path / f".coremargin-rows-{name}" for name in ("left", "held", "new"))
    for folder in (left, held, new):
        (folder / "rows.zarr").mkdir(parents=True)
    for folder in (left, held):
        os.utime(folder, (0, 0))
    with Locked(held / "rows", "rows"):
        os.utime(held, (0, 0))
        predict(model_path, tmp_path / "rows.csv", tmp_path / "a.parquet")
    assert [folder.exists() for folder in (left, held, new)] == [False, True, True]
