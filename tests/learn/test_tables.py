"""Training from Python on tables and files: the model is that of the store that ``ingest`` makes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.errors import ColumnsUnclear, LabelError, SpecError, UsageError
from coremargin.learn.files import differences, provenance_of

COLUMNS = {"categorical": "auto", "missing": "median"}


@pytest.fixture
def frame(rng: np.random.Generator) -> pd.DataFrame:
    """400 rows whose class a job and an age decide, some ages missing."""
    age, job = rng.uniform(20, 70, 400), rng.choice(["clerk", "nurse"], 400)
    income = np.where(age + 20 * (job == "nurse") > 55, "high", "low")
    frame = pd.DataFrame({"age": age, "job": job, "income": income})
    frame.loc[rng.choice(400, 5, replace=False), "age"] = np.nan
    return frame


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files in which nothing else lies."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def in_file(frame: pd.DataFrame, folder: Path) -> Path:
    """The rows as CSV."""
    frame.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


GIVEN: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "DataFrame": lambda frame, _: frame,
    "Arrow": lambda frame, _: pa.Table.from_pandas(frame, preserve_index=False),
    "batches": lambda frame, _: iter([frame.iloc[:100], frame.iloc[100:]]),
    "file": in_file,
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_table_trains_the_model_of_its_store(
    frame: pd.DataFrame, tmp_path: Path, own_temporary_files: Path, kind: str
) -> None:
    """A table with the name of its label trains what the store of it trains, decides tables, and leaves nothing."""
    coremargin.ingest(frame, tmp_path / "rows.zarr", label="income", **COLUMNS)
    expected = coremargin.train(tmp_path / "rows.zarr", loss="hinge", C=1.0)
    source = GIVEN[kind](frame, tmp_path)
    model = coremargin.train(source, "income", columns=COLUMNS, loss="hinge", C=1.0)
    assert np.array_equal(model.w, expected.w)
    assert model.columns == expected.columns
    assert model.predict(frame.drop(columns="income")[["job", "age"]]).tolist() == expected.predict(frame).tolist()
    assert list(own_temporary_files.iterdir()) == []


def test_labels_may_lie_beside_a_table(frame: pd.DataFrame) -> None:
    """With words on its columns, a table becomes a store also where its labels are an array."""
    named = coremargin.train(frame, "income", columns=COLUMNS, loss="hinge", C=1.0)
    beside = coremargin.train(
        frame.drop(columns="income"), frame["income"].to_numpy(), columns=COLUMNS, loss="hinge", C=1.0
    )
    assert np.array_equal(named.w, beside.w)


def test_words_of_columns_may_be_left_out_where_there_are_none_to_say(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Batches, lists of numbers and lists of files become a store also where nothing is said of columns."""
    numbers = frame[["age"]].fillna(40.0).assign(vector=[[1.0, 2.0]] * 400)
    whole = coremargin.train(numbers, frame["income"], loss="hinge", C=1.0)
    assert whole.feature_names == ("age", "vector[0]", "vector[1]")
    for number, part in enumerate((numbers[:100], numbers[100:])):
        part.to_parquet(tmp_path / f"part-{number}.parquet")
    parts = [(numbers[:100], frame["income"][:100]), (numbers[100:], frame["income"][100:])]
    for source, y in (
        (iter(parts), None),
        ([tmp_path / "part-0.parquet", tmp_path / "part-1.parquet"], frame["income"].to_numpy()),
    ):
        assert np.array_equal(coremargin.train(source, y, loss="hinge", C=1.0).w, whole.w)


def test_gaps_of_pandas_are_gaps_of_labels(frame: pd.DataFrame) -> None:
    """NA beside the rows is a label that is missing, by its row."""
    labels = frame["income"].astype("string")
    labels[7] = pd.NA
    with pytest.raises(LabelError, match="DataFrame, row 7: found no label"):
        coremargin.train(frame.drop(columns="income"), labels, columns=COLUMNS)


def test_the_store_stays_beside_a_model_on_disk(frame: pd.DataFrame, tmp_path: Path) -> None:
    """With out the store of the table lies beside the model, for its proof to be checked, and is kept."""
    out = tmp_path / "rows.model"
    model = coremargin.train(frame, "income", columns=COLUMNS, loss="hinge", C=1.0, out=out)
    assert coremargin.verify(out, tmp_path / "rows.zarr").ok
    with pytest.raises(UsageError, match=r"rows.model: a model is there already"):
        coremargin.train(frame, "income", columns=COLUMNS, loss="hinge", C=1.0, out=out)
    again = coremargin.train(frame, "income", columns=COLUMNS, loss="hinge", C=1.0, out=out, overwrite=True)
    assert np.array_equal(again.w, model.w)


def test_rows_in_memory_may_be_others(frame: pd.DataFrame, tmp_path: Path) -> None:
    """A frame cannot be told from another: without a model its store is made anew, with one it is somebody's."""
    out, words = tmp_path / "rows.model", {"columns": COLUMNS, "loss": "hinge"}
    with pytest.raises(LabelError):
        coremargin.train(frame[frame["income"] == "low"], "income", out=out, **words)
    model = coremargin.train(frame, "income", out=out, **words)
    assert coremargin.train(frame, "income", out=out, begin="resume", **words).store_digest == model.store_digest
    with pytest.raises(UsageError, match="label was income, now job"):
        coremargin.train(frame, "job", out=out, begin="resume", **words)
    shutil.rmtree(out)
    with pytest.raises(UsageError, match="it was made from a DataFrame in memory, which may have had other rows"):
        coremargin.train(frame, "income", out=out, **words)


def test_a_model_that_is_there_is_said_before_files_are_read(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Hours of reading do not come before a refusal that was certain."""
    out = tmp_path / "rows.model"
    coremargin.train(frame, "income", columns=COLUMNS, out=out, loss="hinge")
    shutil.rmtree(tmp_path / "rows.zarr")
    with pytest.raises(UsageError, match=r"rows.model: a model is there already"):
        coremargin.train(frame, "income", columns=COLUMNS, out=out, loss="hinge")
    assert not (tmp_path / "rows.zarr").exists()


@pytest.mark.parametrize("change", ["touched", "another size", "another file", "labels"])
def test_files_are_known_by_path_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Any of these, of any file, of labels beside too, tells that a source has changed; another spelling does not."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x,label\n1,u\n2,v\n")
    np.save(tmp_path / "X.npy", np.arange(4.0).reshape(2, 2))
    np.save(tmp_path / "y.npy", np.arange(2))
    given = "X.npy" if change == "labels" else "*.csv"
    then = provenance_of(given, {})
    assert differences(then, provenance_of(str(tmp_path / given), {"drop": (), "label": None})) == []
    if change == "touched":
        os.utime(tmp_path / "a.csv", ns=(1, 1))
    elif change == "another size":
        (tmp_path / "b.csv").write_text("x,label\n1,u\n2,vv\n")
    elif change == "another file":
        (tmp_path / "b.csv").rename(tmp_path / "c.csv")
    else:
        np.save(tmp_path / "y.npy", np.arange(2)[::-1])
    (said,) = differences(then, provenance_of(given, {}))
    assert said.startswith("it was made from ")
    assert ("now one of them has changed" in said) == (change in ("touched", "another file"))


def test_what_is_unclear_is_said_before_training(frame: pd.DataFrame, own_temporary_files: Path) -> None:
    """Columns that need a word, words that there are not, and wrong parameters end at once, and nothing is left."""
    with pytest.raises(ColumnsUnclear, match=r"DataFrame: these columns need a decision on how to encode them"):
        coremargin.train(frame, "income", loss="hinge", C=1.0)
    with pytest.raises(ColumnsUnclear) as caught:
        coremargin.train(frame[["age", "job"]], frame["income"], columns={"missing": None}, loss="hinge", C=1.0)
    assert caught.value.__notes__ == ["for instance: columns={'categorical': 'job', 'missing': 'median'}"]
    with pytest.raises(UsageError, match=r"columns: unknown option 'category', expected some of categorical, dates"):
        coremargin.train(frame, "income", columns={"category": "job"})
    with pytest.raises(SpecError, match="epsilon"):
        coremargin.train(iter([frame]), "income", columns=COLUMNS, epsilon=-1.0)
    assert list(own_temporary_files.iterdir()) == []


def test_a_store_has_its_own_columns(frame: pd.DataFrame, tmp_path: Path) -> None:
    """The label's column cannot be chosen for a store, and that is said."""
    coremargin.ingest(frame, tmp_path / "rows.zarr", label="income", **COLUMNS)
    with pytest.raises(UsageError, match=r"y: a store has its own labels and weights"):
        coremargin.train(tmp_path / "rows.zarr", "income")
    with pytest.raises(UsageError, match=r"columns: a store has its own; pass columns with tables and files only"):
        coremargin.train(tmp_path / "rows.zarr", columns=COLUMNS)


def test_groups_of_tables_and_arrays() -> None:
    """A column of a frame, ids of arrays; a store has its own."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X, groups = rng.normal(size=(60, 2)) + 6 * y[:, None], np.arange(60) // 6
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "group": groups})
    of_table = coremargin.train(frame, "y", groups="group")
    of_arrays = coremargin.train(X.astype("f4"), y, groups=groups)
    assert of_table.status == of_arrays.status == "certified"
    assert of_table.store_digest == of_arrays.store_digest != coremargin.train(X.astype("f4"), y).store_digest
    source = ArraySource(X, y, groups=groups)
    for given in (groups, "group"):
        with pytest.raises(UsageError, match="groups: a store has its own groups; pass groups with arrays only"):
            coremargin.train(source, groups=given)
