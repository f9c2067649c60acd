"""Tables in the place of rows: a model finds its columns by their names, and makes of them what training made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import coremargin
from coremargin.errors import BadRow, DataError, UsageError
from coremargin.models.model import Model

pandas = pytest.importorskip("pandas")
ROWS = """age,job,seen,w,label
31,baker,2024-01-05,1,no
,miner,2024-02-06,1,no
52,nurse,2024-03-07,1,yes
47,nurse,2024-04-08,2,yes
38,baker,2024-05-09,1,no
60,,2024-06-10,1,yes
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with numbers, categories, dates, gaps, labels and weights."""
    path = tmp_path_factory.mktemp("raw") / "rows.csv"
    path.write_text(ROWS)
    return path


@pytest.fixture(scope="module")
def rows(table: Path) -> np.ndarray:
    """The features of the file, as a store has them, in float64."""
    options: dict[str, Any] = {"categorical": "job", "dates": "seen", "missing": "indicator", "weights": "w"}
    coremargin.ingest(table, table.with_suffix(".zarr"), dtype="float64", **options)
    return np.asarray(coremargin.Store.open(table.with_suffix(".zarr")).read(0)[0])


@pytest.fixture(scope="module")
def model(table: Path, rows: np.ndarray) -> Model:
    """A model of that store."""
    assert len(rows) == 6
    found = coremargin.train(table.with_suffix(".zarr"), loss="hinge", scaling="standard")
    assert isinstance(found, Model)
    return found


def exported(frame: Any) -> Any:
    """A table of a kind that nobody knows, which speaks Arrow."""

    class Theirs:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return pa.Table.from_pandas(frame).__arrow_c_stream__(requested_schema)

    return Theirs()


@pytest.mark.parametrize(
    "kind", [lambda frame: frame, pa.Table.from_pandas, pa.RecordBatch.from_pandas, exported, "turned", "views"]
)
def test_a_table_gives_the_decisions_of_its_rows(
    model: Model, table: Path, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Whatever the kind of table, the order of its columns, and how many rows are encoded at a time."""
    frame = pandas.read_csv(table)
    if kind == "turned":
        given = frame[["seen", "label", "job", "w", "age"]].set_index(np.arange(6)[::-1])
        given["job"], given["seen"] = given["job"].astype("category"), pandas.to_datetime(given["seen"])
    elif kind == "views":
        plain = pa.Table.from_pandas(frame)
        given = plain.set_column(1, "job", plain["job"].cast(pa.string_view()))
    else:
        given = kind(frame)
    expected = model.decision_function(rows)
    np.testing.assert_allclose(model.decision_function(given), expected, rtol=1e-12)
    assert model.predict(given).tolist() == model.predict(rows).tolist()
    monkeypatch.setattr("coremargin.models.raw_rows._SLAB_ELEMENTS", 30)
    np.testing.assert_allclose(model.decision_function(given), expected, rtol=1e-12)


@pytest.mark.slow
def test_sparse_features_of_a_table_stay_sparse(tmp_path: Path) -> None:
    """Prose has features by the hundred thousand, of which a row has few; decisions are those of the store's rows."""
    path = tmp_path / "t.csv"
    words = ["good fine day", "fine and good", "bad sad night", "sad and bad"]
    path.write_text("\n".join(["prose,label", *(f"{text},{k // 2}" for k, text in enumerate(words))]) + "\n")
    coremargin.ingest(path, tmp_path / "t.zarr", text="prose", dtype="float64")
    model = coremargin.train(tmp_path / "t.zarr", loss="hinge")
    frame = pandas.DataFrame({"prose": words})
    expected = model.decision_function(coremargin.Store.open(tmp_path / "t.zarr").read(0)[0])
    np.testing.assert_allclose(model.decision_function(frame), expected, rtol=1e-12)
    assert model.predict(frame).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop(columns="age"), "'age' is missing"),
        (lambda frame: frame.rename(columns={"age": "Age"}), r"'age' is missing \(is it 'Age' here\?\), 'Age' is not"),
        (lambda frame: frame.assign(more=1), "'more' is not known"),
    ],
)
def test_other_columns_are_refused_with_the_difference(model: Model, table: Path, change: Any, said: str) -> None:
    """What is missing is named with what is near it, and what is more than the model, its labels and weights have."""
    with pytest.raises(DataError, match=f"^X: other columns than those of the model: .*{said}"):
        model.predict(change(pandas.read_csv(table)))


def test_a_column_that_is_there_twice_is_refused(model: Model, table: Path) -> None:
    """Which of two is meant, nobody can say."""
    found = pa.Table.from_pandas(pandas.read_csv(table))
    with pytest.raises(DataError, match="X: columns 0 and 5 are both named 'age', expected a name for each"):
        model.predict(found.append_column("age", found["age"]))


def test_values_that_do_not_fit_are_named(model: Model, table: Path) -> None:
    """Row and column of a value that is none of the column's; a mixture of objects is no column."""
    frame = pandas.read_csv(table).assign(age=["31", "x", "52", "47", "38", "60"])
    with pytest.raises(BadRow, match=r"X, row 1, column 'age': found 'x', expected a number"):
        model.predict(frame)
    with pytest.raises(BadRow, match="X, row 1, column 'job': found 'a', expected values of one kind, here int64"):
        model.predict(frame.assign(job=[1, "a", 2.0, None, object(), 3]))
    with pytest.raises(UsageError, match="X: found no table of columns, expected one"):
        model.predict(frame["age"])


def test_no_rows_have_no_decisions(model: Model, table: Path) -> None:
    """A table without rows gives an empty array."""
    assert model.predict(pandas.read_csv(table)[:0].astype({"job": str, "seen": str})).shape == (0,)


def test_columns_without_names_go_by_position(tmp_path: Path) -> None:
    """Of a file without a header any table with as many columns will do, and no other."""
    path = tmp_path / "bare.csv"
    path.write_text("1,red,a\n2,blue,b\n3,red,a\n5,blue,b\n")
    coremargin.ingest(path, tmp_path / "s.zarr", categorical="1")
    model = coremargin.train(tmp_path / "s.zarr", loss="hinge")
    frame = pandas.DataFrame({"p": [1.0, 5.0], "q": ["red", "blue"]})
    assert model.predict(frame).tolist() == model.predict([[1.0, 0.0, 1.0], [5.0, 1.0, 0.0]]).tolist() == ["a", "b"]
    with pytest.raises(DataError, match="X: found 3 columns, expected 2 as the model was trained on"):
        model.predict(frame.assign(r=1.0))


def test_a_model_without_columns_takes_frames_as_arrays(rng: np.random.Generator) -> None:
    """Rows of an array had no names: a frame is the numbers in it, by position, whatever its names."""
    X = rng.normal(size=(20, 2))
    model = coremargin.train(X, X[:, 0] > 0)
    frame = pandas.DataFrame(X, columns=["u", "v"])
    np.testing.assert_array_equal(model.decision_function(frame), model.decision_function(X))


def test_no_rows_of_lists_are_none(tmp_path: Path) -> None:
    """A frame without rows has no types either: it gets no decisions, and no complaint."""
    frame = pandas.DataFrame({"v": [[0.0, 1.0], [1.0, 0.0]] * 4, "label": [0, 1] * 4})
    frame.to_parquet(tmp_path / "rows.parquet")
    coremargin.ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr")
    found = coremargin.train(tmp_path / "rows.zarr")
    assert isinstance(found, Model)
    assert found.predict(frame[["v"]]).tolist() == frame["label"].tolist()
    assert found.predict(frame[["v"]][:0]).shape == (0,)
