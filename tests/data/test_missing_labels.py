"""What a missing label is, in whatever it comes; and labels of several kinds."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

import coremargin
from coremargin.active.array_learner import ActiveLearner
from coremargin.active.stream_learner import StreamLearner
from coremargin.data.labels import all_labels, is_missing
from coremargin.errors import LabelError
from coremargin.estimators import KernelCoresetClassifier, MarginCoresetClassifier
from coremargin.learn.published import outlier_svm

MISSING = [None, np.nan, np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), np.ma.masked, "", "  ", "nan", "<NA>"]
NUMBERS, TEXTS = [0] * 10 + [1] * 10, ["a"] * 10 + ["b"] * 10
GAP = np.isin(np.arange(20), [0, 7])


def holed(values: list[Any], gap: Any = None) -> list[Any]:
    """The labels with gaps in rows 0 and 7."""
    return [gap if missing else value for value, missing in zip(values, GAP, strict=True)]


LABELS = {
    "list of numbers": holed(NUMBERS),
    "list with NA": holed(NUMBERS, pd.NA),
    "floats": np.array(holed(NUMBERS, np.nan)),
    "half precision": np.array(holed(NUMBERS, np.nan), np.float16),
    "objects": np.array(holed(TEXTS), object),
    "texts": np.array(holed(TEXTS, np.nan)),
    "blank texts": np.array(holed(TEXTS, "")),
    "masked numbers": np.ma.array(NUMBERS, mask=GAP),
    "masked texts": np.ma.array(TEXTS, mask=GAP),
    "Int64": pd.Series(holed(NUMBERS), dtype="Int64"),
    "boolean": pd.Series(holed([bool(one) for one in NUMBERS]), dtype="boolean"),
    "string": pd.Series(holed(TEXTS), dtype="string"),
    "Categorical": pd.Categorical(holed(TEXTS)),
    "categories": pd.Series(pd.Categorical(holed(NUMBERS))),
    "Series of Arrow": pd.Series(holed(NUMBERS), dtype="int64[pyarrow]"),
    "Index": pd.Index(holed(TEXTS)),
    "Arrow": pa.array(holed(NUMBERS)),
    "Arrow's texts": pa.array(holed(TEXTS)),
    "dictionary": pa.array(holed(TEXTS)).dictionary_encode(),
    "chunks of Arrow": pa.chunked_array([holed(TEXTS)]),
    "Dask": da.from_array(np.array(holed(NUMBERS, np.nan)), chunks=5),
}


@pytest.fixture
def points(rng: np.random.Generator) -> np.ndarray:
    """20 rows, of which the first ten lie apart."""
    return np.concatenate([rng.normal(size=(10, 3)) + 5.0, rng.normal(size=(10, 3)) - 5.0])


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_values_that_stand_for_nothing_are_missing(value: Any) -> None:
    """Values of Python, NumPy and pandas, and the texts that they make of them."""
    assert is_missing(value)
    assert not any(map(is_missing, [0, 0.0, False, "None", "NA", "a", b"", np.inf]))


@pytest.mark.parametrize("kind", LABELS)
def test_rows_without_a_label_are_named(kind: str) -> None:
    """Both of them, and how many there are, whatever the labels come in."""
    with pytest.raises(LabelError, match=r"^y: rows 0, 7 have no label \(2 of 20 rows; found .*\)"):
        all_labels(LABELS[kind], "y")


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("form", ["array", "sparse", "Dask", "frame", "columns", "Arrow"])
def test_training_refuses_missing_labels(kind: str, form: str, points: np.ndarray) -> None:
    """Whatever the rows come in: an estimator and ``train`` name the first row without a label."""
    frame = pd.DataFrame(points, columns=["p", "q", "r"])
    rows = {
        "array": points, "sparse": sparse.csr_array(points), "Dask": da.from_array(points, chunks=(5, 3)),
        "frame": frame, "columns": frame, "Arrow": pa.Table.from_pandas(frame),
    }[form]  # fmt: skip
    columns: Any = {} if form == "columns" else None
    with pytest.raises(LabelError, match=r"rows? 0\b.* no label"):
        coremargin.train(rows, LABELS[kind], columns=columns)
    with pytest.raises(LabelError, match=r"rows? 0\b.* no label"):
        MarginCoresetClassifier(columns=columns).fit(rows, LABELS[kind])


@pytest.mark.parametrize("kind", ["list of numbers", "texts", "masked numbers", "Categorical", "Arrow", "Dask"])
def test_every_entry_refuses_missing_labels(kind: str, points: np.ndarray, tmp_path: Any) -> None:
    """Kernels, folds, batches, stores, batches of ``partial_fit`` and the published algorithm name the row."""
    labels = LABELS[kind]
    entries: list[Any] = [
        lambda: coremargin.train(points, labels, kernel="rbf", loss="hinge"),
        lambda: coremargin.train(points, labels, loss="hinge", C=[0.1, 1.0], folds=3),
        lambda: coremargin.train(iter([(points, labels)])),
        lambda: coremargin.ingest(points, tmp_path / "s.zarr", labels=labels),
        lambda: KernelCoresetClassifier().fit(points, labels),
        lambda: MarginCoresetClassifier().partial_fit(points, labels),
        lambda: MarginCoresetClassifier().partial_fit(points, NUMBERS).partial_fit(points, labels),
        lambda: MarginCoresetClassifier().partial_fit(points, NUMBERS, classes=[0, None]),
        lambda: outlier_svm(points, labels, 1),
    ]
    for entry in entries:
        with pytest.raises(LabelError, match=r"rows? [01]\b.* no label"):
            entry()


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_missing_answers_are_refused(value: Any, points: np.ndarray, tmp_path: Any) -> None:
    """``teach`` takes no missing label, an oracle of a stream may say None only, and None alone takes a label away."""
    learner = ActiveLearner(points, classes=[0, 1])
    with pytest.raises(LabelError, match="row 3: expected 0 or 1, found"):
        learner.teach([3], [value])
    if value is not None:
        with pytest.raises(LabelError, match="row 0 of the stream: expected a label, found"):
            StreamLearner().learn(points, lambda row: value)
        coremargin.ingest(points, tmp_path / "s.zarr", labels=NUMBERS)
        with pytest.raises(LabelError, match="row 1 has no label .*None takes a label away"):
            coremargin.write_labels(tmp_path / "s.zarr", [3, 4], [1, value])


@pytest.mark.parametrize("odd", [True, np.True_, "1", b"1"], ids=["bool", "NumPy's bool", "text", "bytes"])
@pytest.mark.parametrize("form", [list, lambda labels: np.array([*labels, None], object)[:-1]])
def test_labels_of_several_kinds_are_refused(odd: Any, form: Any, points: np.ndarray) -> None:
    """1 is neither True nor "1": such labels are not made one, and not split, in silence."""
    labels = form([*NUMBERS[:-1], odd])
    for entry in (coremargin.train, MarginCoresetClassifier().fit, KernelCoresetClassifier().fit):
        with pytest.raises((LabelError, TypeError, ValueError), match="row 19|bytes"):
            entry(points, labels)


def test_a_column_of_several_kinds_is_refused(points: np.ndarray) -> None:
    """A column of objects, too, in which Arrow would make 1.0 of True."""
    frame = pd.DataFrame(points, columns=["p", "q", "r"]).assign(y=[*map(float, NUMBERS[:-1]), True])
    with pytest.raises(LabelError, match="row 19, column 'y': found the label True, expected one of the same kind"):
        coremargin.train(frame, "y")


def test_one_number_is_one_label(points: np.ndarray) -> None:
    """1 and 1.0, NumPy's or Python's, are the same class."""
    labels = [0, np.int8(0), 0.0, *NUMBERS[3:-2], np.float32(1.0), 1.0]
    assert MarginCoresetClassifier().fit(points, labels).classes_.tolist() == [0, 1]
    assert list(coremargin.train(points, labels).linear().classes) == [0, 1]
