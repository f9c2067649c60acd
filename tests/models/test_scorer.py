"""What decides is what was proven: rows to predict are scaled by the operations of training, then meet the plane."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.scaled import scaled
from coremargin.data.store import Store
from coremargin.errors import BadRow, DataError, UsageError
from coremargin.estimators import MarginCoresetClassifier
from coremargin.maths.scaling import Kind, Scaling
from coremargin.models.decision import PlaneScorer
from coremargin.models.evaluate import evaluate
from coremargin.models.fleet import FleetModel
from coremargin.models.model import Model
from coremargin.models.predict import predict
from coremargin.verify.examine import examine
from model_kit import altered, store_of

if TYPE_CHECKING:
    from pathlib import Path

BY_COLUMN: tuple[Kind, ...] = ("standard", "minmax", "maxabs")


def _far(n: int = 200, off: float = 1.5 * 2.0**52) -> tuple[np.ndarray, np.ndarray]:
    """One column of four neighbouring numbers, so large that their products with a factor are rounded together."""
    k = np.arange(n) % 4
    return (off + k)[:, None], (k >= 2).astype(int)


def _named(failures: Any) -> list[str]:
    return [check.name for check in failures]


@pytest.mark.parametrize("off", [2.0**50, 2.0**52, 1.5 * 2.0**52])
def test_a_large_shift_does_not_cancel_what_was_proven(tmp_path: Path, off: float) -> None:
    """A certified model of separable rows labels all of them right, wherever it is asked."""
    X, y = _far(off=off)
    store = store_of(tmp_path / "s.zarr", X, y, 64)
    model = coremargin.train(store, out=tmp_path / "m", scaling="minmax")
    assert model.status == "certified"
    assert examine(tmp_path / "m", store).ok
    found = evaluate(tmp_path / "m", store)
    assert found.accuracy == 1.0
    np.testing.assert_allclose(found.lowest_margin, model.certificate.lower, rtol=1e-9)
    assert (model.predict(X) == y).all()
    least = predict(tmp_path / "m", store, tmp_path / "p.zarr").least
    np.testing.assert_allclose(least, model.certificate.lower, rtol=1e-9)
    machine = MarginCoresetClassifier(loss=None, scaling="minmax").fit(X, y)
    assert (machine.predict(X) == y).all()


def test_a_graph_scales_as_training_does() -> None:
    """ONNX has the scaling as steps of its own, and loses nothing either."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    X, y = _far()
    model = coremargin.train(X, y, scaling="minmax")
    session = runtime.InferenceSession(model.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    label, decision = session.run(["label", "decision"], {"X": X})
    assert label.tolist() == y.tolist()
    np.testing.assert_allclose(decision, model.decision_function(X), rtol=1e-12)


def test_tables_of_a_fleet_are_those_of_evaluate(tmp_path: Path) -> None:
    """The accuracy that training counted on scaled rows is the one that evaluate finds."""
    y = np.arange(200) % 3
    X = np.stack([2.0**52 + 3.0 * (y == k) for k in range(3)], axis=1)
    store = store_of(tmp_path / "s.zarr", X, y, 64)
    fleet = coremargin.train(store, out=tmp_path / "m", scaling="minmax", classes="ovr")
    assert isinstance(fleet, FleetModel)
    assert examine(tmp_path / "m", store).ok
    (told,) = fleet.record["evaluations"]
    found = evaluate(tmp_path / "m", store)
    assert found.accuracy == told["accuracy"] == 1.0
    assert [list(line) for line in found.confusion] == told["confusion"]


def _constant(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Separable by the first column; the last is a constant far from 0."""
    rng, y = np.random.default_rng(0), np.arange(n) % 2
    return np.column_stack([(2 * y - 1) * (1 + rng.random(n)), rng.normal(size=n), np.full(n, 1.7e18)]), y


def test_a_constant_column_counts_nothing(tmp_path: Path) -> None:
    """A weight on a column that scales to 0 changes no row's margin for verify, and no row's label for predict."""
    X, y = _constant()
    store = store_of(tmp_path / "s.zarr", X.astype(np.float32), y, 64)
    model = coremargin.train(store, out=tmp_path / "m", scaling="standard")
    assert isinstance(model, Model)
    assert model.w[2] == 0  # what is 0 in all rows gets no weight: folding loses nothing
    share, rest = 0.03, np.sqrt(1 - 0.03**2)
    lower = model.certificate.lower * rest * (1 - 1e-6)
    place = altered(
        tmp_path / "m", tmp_path / "weighed",
        {"certificate.lower": lower, "certificate.ratio": lower / model.certificate.upper},
        w=np.append(model.w[:2] * rest, share), b=np.array([model.b * rest]),
    )  # fmt: skip
    assert "lower bound" not in _named(examine(place, store).failures)
    assert evaluate(place, store).accuracy == 1.0
    assert (Model.load(place).predict(X.astype(np.float32)) == y).all()


@pytest.mark.parametrize("classes", ["ovr", "crammer-singer"])
def test_several_classes_beside_a_constant_column(tmp_path: Path, classes: str) -> None:
    """Models of two and of several classes get no weight there, and evaluate finds what training counted."""
    X, y = _constant()
    y = y + (X[:, 1] > 0) * y
    store = store_of(tmp_path / "s.zarr", X.astype(np.float32), y, 64)
    model = coremargin.train(store, scaling="standard", classes=classes, loss="hinge", C=1.0)
    assert (model.scorer().planes()[0][:, 2] == 0).all()
    assert evaluate(model, store).accuracy > 0.9


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", BY_COLUMN)
def test_decision_values_are_those_of_scaled_rows(
    tmp_path: Path, kind: Kind, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit a store's scaled rows times the plane, for arrays and sparse rows in any format, in slabs or not."""
    rng = np.random.default_rng(1)
    X = (rng.normal(size=(90, 4)) * [1e-3, 1.0, 1e6, 0.0] + [0.0, 7.0, 1e6, 3.0]).astype(dtype)
    X[rng.random(X.shape) < 0.3] = 0.0
    y = (X[:, 1] > 7).astype(int)
    path = tmp_path / "s.zarr"
    model = coremargin.train(store_of(path, X, y, 32), scaling=kind, loss="hinge")
    assert isinstance(model, Model)
    rows = np.concatenate([np.array(scaled(Store.open(path), kind).read(chunk)[0]) for chunk in range(3)])
    plain = (X - model.shift.astype(dtype)) * model.factor.astype(dtype)  # type: ignore[union-attr]
    np.testing.assert_array_equal(rows, plain)
    assert plain.dtype == dtype
    expected = plain.astype(np.float64) @ model.w + model.b
    for given in (X, np.asfortranarray(X), csr_array(X), coo_array(X), X[:, ::-1][:, ::-1]):
        np.testing.assert_allclose(model.decision_function(given), expected, rtol=1e-14, atol=1e-14)
    monkeypatch.setattr("coremargin.models.decision._SLAB_ELEMENTS", 20)
    for given in (X, csr_array(X)):
        np.testing.assert_allclose(model.decision_function(given), expected, rtol=1e-14, atol=1e-14)
    exact = (X.astype(float) - model.shift) * model.factor @ model.w + model.b
    np.testing.assert_allclose(model.decision_function(X.astype(float)), exact, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["standard", "maxabs", "rownorm"])
def test_sparse_models_serve_rows_of_either_kind(kind: Kind, dtype: str) -> None:
    """Zeros of sparse rows are not shifted; dense rows get the same values."""
    rng = np.random.default_rng(2)
    X = (rng.normal(size=(90, 5)) * [1e-3, 1.0, 1e6, 1.0, 2.0]).astype(dtype)
    X[rng.random(X.shape) < 0.5] = 0.0
    X[0, 0], X[1, 0] = 1.0, -1.0
    y = (np.arange(90) + (X[:, 1] > 0)) % 2
    model = coremargin.train(csr_array(X), y, scaling=kind, loss="hinge")
    assert isinstance(model, Model)
    if kind == "rownorm":
        length = np.linalg.norm(X.astype(float), axis=1)
        rows = (X / np.where(length > 0, length, 1)[:, None]).astype(dtype)
    else:
        rows = X * model.factor.astype(dtype)  # type: ignore[union-attr]
    assert rows.dtype == dtype
    expected = rows.astype(np.float64) @ model.w + model.b
    for given in (X, csr_array(X)):
        np.testing.assert_allclose(model.decision_function(given), expected, rtol=1e-13, atol=1e-13)


def _by_length(X: np.ndarray, dtype: str) -> np.ndarray:
    """Rows divided by their lengths one number after the other, as the format defines it."""
    rows = np.zeros(X.shape, dtype)
    for row, values in zip(rows, X.astype(np.float64).tolist(), strict=True):
        squares = 0.0
        for value in values:
            squares += value * value
        row[:] = [value / math.sqrt(squares) if squares else value for value in values]
    return rows


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lengths_are_divided_by_to_the_bit_of_the_store(dtype: str, sparse: bool) -> None:
    """Rows over their lengths meet the plane with the bits that training read and that verify repeats."""
    rng = np.random.default_rng(4)
    X = rng.integers(-99, 99, (90, 7)).astype(dtype)
    X[5] = 0.0
    y = (X[:, 1] > 7).astype(int)
    source = ArraySource(csr_array(X) if sparse else X, y, chunk_rows=32)
    model = coremargin.train(source, scaling="rownorm", loss="hinge")
    assert isinstance(model, Model)
    expected = _by_length(X, dtype).astype(np.float64)
    read = [scaled(source, "rownorm").read(chunk)[0] for chunk in range(source.chunks)]
    rows = np.concatenate([part.toarray() if sparse else part.copy() for part in read])
    np.testing.assert_array_equal(rows, expected)
    scorer = PlaneScorer(tuple(np.eye(7)), (0.0,) * 7, model.row_scaling)  # decision values are the scaled rows
    for given in (
        X,
        np.asfortranarray(X),
        csr_array(X),
        coo_array(X),
        X.astype(np.int16),
        csr_array(X.astype(np.int8)),
    ):
        np.testing.assert_array_equal(scorer.values(given), expected)
    exact = _by_length(X, "float64")
    for rows_of_more_digits in (X.astype(np.float64), csr_array(X.astype(np.float64)), X.astype(np.int64)):
        np.testing.assert_array_equal(scorer.values(rows_of_more_digits), exact)


@pytest.mark.parametrize("size", [1e-170, 1e-150, 1e150, 1e200])
def test_a_row_without_a_length_gets_no_label(size: float) -> None:
    """Squares that vanish or overflow in float64 say nothing: dense or sparse, such a row is named, and which it is."""
    X = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, -1.0], [-1.0, -2.0]])
    model = coremargin.train(X, [1, 0, 1, 0], scaling="rownorm", loss="hinge")
    X[2] = [0.0, size]
    for given in (X, csr_array(X)):
        with pytest.raises(BadRow, match="X, row 2: expected zeros or a length from"):
            model.predict(given)
    X[2] = [np.inf, 1.0]
    for given in (X, csr_array(X)):
        with pytest.raises(BadRow, match="X, row 2: expected finite numbers"):
            model.predict(given)


def test_rows_of_a_store_are_named_by_their_number_in_it(tmp_path: Path) -> None:
    """A row that has no decision value is named by store and number, rows without label before it counted."""
    X = np.array([[-1.0, 1.0], [1.0, 0.0]] * 50, np.float32) * np.float32(1e-10)
    model = coremargin.train(X, [0, 1] * 50, scaling="maxabs")
    X[71] = 3e38
    path, labels = tmp_path / "s.zarr", [None, *[0, 1] * 50][:100]
    store = store_of(path, X, labels, 16)
    with pytest.raises(BadRow, match=r"s\.zarr, row 71: expected finite numbers"):
        predict(model, store, tmp_path / "p.zarr")
    with pytest.raises(BadRow, match=r"s\.zarr, row 71: expected finite numbers"):
        evaluate(model, store)


def test_values_that_are_not_there_decide_nothing() -> None:
    """Masked values and ragged lists are refused as training refuses them; a mask that hides nothing is none."""
    X = np.array([[1.0, 2.0], [-1.0, -2.0]])
    model = coremargin.train(X, [1, 0])
    with pytest.raises(UsageError, match="X: some values are masked"):
        model.predict(np.ma.masked_array(X, X == 2.0))
    with pytest.raises(UsageError, match="X: expected an array, found a list that is none"):
        model.predict([[1.0, 2.0], [3.0]])
    assert model.predict(np.ma.masked_array(X, X == 9.0)).tolist() == [1, 0]


def test_rows_that_cannot_be_scaled_are_named() -> None:
    """A value beyond what the precision holds once it is scaled has no decision value; nor has a plane beyond it."""
    scaling = Scaling("maxabs", np.dtype(np.float32), np.zeros(2, np.float32), np.array([1e30, 1], np.float32))
    scorer = PlaneScorer((np.ones(2),), (0.0,), scaling)
    with pytest.raises(BadRow, match="row 1"):
        scorer.values(np.array([[1, 0], [1e9, 0]], np.float32))
    np.testing.assert_allclose(scorer.values(np.array([[1e9, 0]])), [1e39], rtol=1e-6)
    with pytest.raises(DataError, match="overflow"):
        PlaneScorer((np.ones(1),), (0.0,), Scaling("maxabs", np.dtype(np.float64), np.zeros(1), np.array([np.inf])))
