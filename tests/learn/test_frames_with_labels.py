"""Frames and Arrow tables with labels beside them: columns by name, nullable dtypes, and gaps by row and column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import coremargin
from coremargin.errors import BadRow, DataError
from coremargin.estimators import KernelCoresetClassifier, MarginCoresetClassifier

ROWS = 40
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(ROWS, 3)).round(1)
Y = np.where(X @ [1, 2, -1] > 0, "yes", "no")
FRAME = pd.DataFrame(X, columns=list("abc"))


class Exported:
    """A table of another library, such as polars: it has Arrow's interface and no other."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame)

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(schema)

    def __len__(self) -> int:
        return len(self._table)


WAYS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "nullable": lambda frame: frame.convert_dtypes(),
    "Float64": lambda frame: frame.astype("Float64"),
    "Arrow's dtypes": lambda frame: frame.astype("double[pyarrow]"),
    "Arrow": pa.Table.from_pandas,
    "record batch": pa.RecordBatch.from_pandas,
    "exported": Exported,
    "Dask": lambda frame: dd.from_pandas(frame, npartitions=2, sort=False),
}
INDEX = pd.Index(np.arange(ROWS)[::-1] + 7, name="customer")


@pytest.mark.parametrize("way", WAYS)
def test_columns_are_found_by_name(way: str) -> None:
    """Whatever the order of the columns and the index, predictions are those of the arrays, to the last bit."""
    make = WAYS[way]
    plain = coremargin.train(X.astype("f4") if way == "Dask" else X, Y, loss="hinge")
    model = coremargin.train(make(FRAME.set_axis(INDEX)), Y, loss="hinge")
    assert model.feature_names == ("a", "b", "c")
    assert model.w.tolist() == plain.w.tolist()
    wanted = plain.decision_function(X).tolist()
    assert model.decision_function(X).tolist() == wanted
    for other in (w for w in WAYS if w != "Dask"):
        assert model.decision_function(WAYS[other](FRAME[list("cab")].set_axis(INDEX))).tolist() == wanted


@pytest.mark.parametrize("way", [way for way in WAYS if way != "Dask"])
def test_other_columns_are_refused(way: str) -> None:
    """Columns that are missing, added or renamed are named."""
    model = coremargin.train(WAYS[way](FRAME), Y, loss="hinge")
    for frame, text in (
        (FRAME[["a", "b"]], "'c' is missing"),
        (FRAME.assign(d=1.0), "'d' is not known"),
        (FRAME.rename(columns=str.upper), "'a' is missing"),
    ):
        with pytest.raises(DataError, match=text):
            model.predict(WAYS[way](frame))


@pytest.mark.parametrize("way", [way for way in WAYS if way != "Dask"])
@pytest.mark.parametrize("machine", [MarginCoresetClassifier, KernelCoresetClassifier])
def test_estimators_take_columns_as_scikit_learn_does(way: str, machine: Any) -> None:
    """Any kind of table is fitted as its array; columns in another order are refused, as scikit-learn refuses them."""
    fitted = machine(loss="hinge").fit(WAYS[way](FRAME.set_axis(INDEX)), Y)
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    wanted = machine(loss="hinge").fit(X, Y).decision_function(X).tolist()
    assert fitted.decision_function(WAYS[way](FRAME.set_axis(INDEX))).tolist() == wanted
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(WAYS[way](FRAME[list("cab")]))


@pytest.mark.parametrize("way", ["Float64", "Arrow's dtypes", "Arrow", "record batch", "exported"])
def test_gaps_are_named_by_row_and_column(way: str) -> None:
    """A missing value is refused by its place in training and prediction, by models and estimators."""
    gap = WAYS[way](FRAME.astype("Float64").mask(FRAME.index.to_numpy()[:, None] + np.arange(3) == 4, pd.NA)[3:])
    fitted, model = MarginCoresetClassifier(loss="hinge").fit(FRAME, Y), coremargin.train(FRAME, Y, loss="hinge")
    plain = coremargin.train(X, Y, loss="hinge")
    for ask in (
        lambda: coremargin.train(gap, Y[3:], loss="hinge"),
        lambda: MarginCoresetClassifier(loss="hinge").fit(gap, Y[3:]),
        lambda: MarginCoresetClassifier(loss="hinge").partial_fit(gap, Y[3:], classes=["no", "yes"]),
        lambda: fitted.predict(gap),
        lambda: model.predict(gap),
        lambda: plain.predict(gap),
    ):
        with pytest.raises(BadRow, match="row [01], column '[ab]'"):
            ask()


def test_gaps_of_plain_frames_are_named() -> None:
    """NaN in a frame of NumPy's types is refused by row and column."""
    with pytest.raises(BadRow, match="X, row 3, column 'b': found NaN, expected a finite number"):
        coremargin.train(FRAME.mask(FRAME.loc[3, "b"] == FRAME).fillna({"a": 0, "c": 0}), Y)


def test_integers_that_float64_does_not_hold_are_refused() -> None:
    """A whole number beyond 2^53 beside floats would be rounded; alone it is counted as before."""
    large = FRAME.assign(a=np.r_[2**53 + 1, np.zeros(ROWS - 1, int)])
    for frame in (large, large.convert_dtypes(), pa.Table.from_pandas(large)):
        with pytest.raises(BadRow, match=f"row 0, column 'a': found {2**53 + 1}, expected whole numbers up to 2"):
            coremargin.train(frame, Y, loss="hinge")


def test_types_are_kept() -> None:
    """The precision is that of the columns: of float32 that of float32, of booleans and small integers, too."""
    small = FRAME.round().astype(int).clip(-9, 9)
    for kind, wanted in (
        ("float32", "f4"),
        ("Int8", "i1"),
        ("int8[pyarrow]", "i1"),
        ("Float32", "f4"),
        ("Int64", "i8"),
    ):
        array = coremargin.train(small.to_numpy().astype(wanted), Y, loss="hinge")
        model = coremargin.train(small.astype(kind), Y, loss="hinge")
        assert (model.record["dtype"], model.w.tolist()) == (array.record["dtype"], array.w.tolist())
    truth = (small > 0).astype("boolean")
    assert (
        coremargin.train(truth, Y, loss="hinge").w.tolist()
        == coremargin.train(truth.to_numpy(bool), Y, loss="hinge").w.tolist()
    )
