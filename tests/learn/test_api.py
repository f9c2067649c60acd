"""The Python door: ``coremargin.train``, models, and what they say about mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.errors import BadRow, LabelError, SpecError, StoreError, UsageError

if TYPE_CHECKING:
    from coremargin.data.store import Store

Rows = tuple[np.ndarray, np.ndarray]


def test_arrays_path_and_store_give_the_same_model(
    tmp_path: Path, separable: Rows, make_store: Callable[..., Store]
) -> None:
    """Rows in memory, a path as text or Path, and an open store are trained to the same hypothesis, to the bit."""
    X, y = separable
    store = make_store(X, y)
    models = [coremargin.train(source) for source in (str(store.path), store.path, store)]
    models += [coremargin.train(X, y), coremargin.train(ArraySource(X, y)), coremargin.train(X.tolist(), y.tolist())]
    for model in models:
        assert model.status == "certified"
        assert model.certificate.ratio >= 0.999
        assert (model.rows, model.features, model.classes) == (600, 5, (-1, 1))
    for model in models[1:3]:
        assert np.array_equal(model.w, models[0].w)
    for model in models[3:]:
        np.testing.assert_allclose(model.w, models[0].w, atol=1e-9)
    assert not list(tmp_path.glob("model*"))


def test_what_a_model_does(separable: Rows) -> None:
    """Decision values have the sign of the class, the smallest margin is the certified one, labels come back."""
    X, y = separable
    labels = np.where(y > 0, "spam", "ham")
    model = coremargin.train(X, labels)
    assert model.classes == ("ham", "spam")
    margins = y * model.decision_function(X)
    assert margins.min() == pytest.approx(model.certificate.lower, rel=1e-9)
    assert margins.min() >= model.certificate.lower
    assert (model.predict(X) == labels).all()


def test_out_keeps_the_model_with_its_report(tmp_path: Path, separable: Rows, make_store: Callable[..., Store]) -> None:
    """With out the model is on disk with a report, loads as the same model, and verifies."""
    store = make_store(*separable)
    model = coremargin.train(store, out=tmp_path / "m")
    loaded = coremargin.Model.load(tmp_path / "m")
    assert np.array_equal(loaded.w, model.w)
    assert loaded.record == model.record
    assert (tmp_path / "m" / "report.html").stat().st_size > 1000
    assert coremargin.verify(tmp_path / "m", store.path).ok
    with pytest.raises(UsageError, match="a model is there already"):
        coremargin.train(store, out=tmp_path / "m")
    assert coremargin.train(store, out=tmp_path / "m", overwrite=True, epsilon=0.1).parameters["epsilon"] == 0.1


def test_on_round(separable: Rows) -> None:
    """on_round hears every stage of the read and every scan, with bounds that close."""
    heard: list[dict[str, Any]] = []
    coremargin.train(*separable, on_round=heard.append)
    assert [(record["kind"], record["stage"], record["stages"]) for record in heard] == [("stage", 1, 1)]
    assert heard[-1]["lower"] <= heard[-1]["upper"]


def test_an_interrupted_run_goes_on(tmp_path: Path, separable: Rows, make_store: Callable[..., Store]) -> None:
    """A run that was interrupted needs a word to go on or to begin again; in memory Ctrl-C is Ctrl-C."""
    store = make_store(*separable)

    def interrupt(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(coremargin.CoremarginError, match="interrupted; continue with"):
        coremargin.train(store.path, out=tmp_path / "m", strategy="paper", on_round=interrupt)
    with pytest.raises(UsageError, match="an interrupted run left a checkpoint"):
        coremargin.train(store.path, out=tmp_path / "m", strategy="paper")
    model = coremargin.train(store.path, out=tmp_path / "m", strategy="paper", begin="resume")
    assert np.array_equal(model.w, coremargin.train(store.path, strategy="paper").w)
    with pytest.raises(KeyboardInterrupt):
        coremargin.train(store.path, strategy="paper", on_round=interrupt)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": 0}, SpecError, "epsilon: expected a number between 0 and 1"),
        ({"epsilon": float("nan")}, SpecError, "epsilon: expected a number between 0 and 1"),
        ({"epsilon": "small"}, SpecError, "epsilon: expected float"),
        ({"epsilom": 0.1}, TypeError, "unexpected keyword argument 'epsilom'"),
        ({"memory": "much"}, SpecError, "memory"),
        ({"begin": "again"}, UsageError, "begin: expected 'new', 'resume' or 'restart', got 'again'"),
        ({"cluster": "embedded"}, UsageError, "arrays are read in this process"),
    ],
)
def test_wrong_arguments(separable: Rows, options: dict[str, Any], error: type[Exception], message: str) -> None:
    """Wrong arguments are refused by name."""
    with pytest.raises(error, match=message):
        coremargin.train(*separable, **options)


def test_wrong_rows(tmp_path: Path, separable: Rows, make_store: Callable[..., Store]) -> None:
    """Rows and labels that cannot be trained are refused with what was expected."""
    X, y = separable
    with pytest.raises(UsageError, match="y: expected labels"):
        coremargin.train(X)
    with pytest.raises(UsageError, match="a store has its own labels"):
        coremargin.train(make_store(X, y).path, y)
    with pytest.raises(LabelError, match="600.*599|599.*600"):
        coremargin.train(X, y[:-1])
    with pytest.raises(LabelError, match="found only 1"):
        coremargin.train(X, np.ones(600, int))
    with pytest.raises(LabelError, match="found 3"):
        coremargin.train(X, np.arange(600) % 3)
    with pytest.raises(StoreError, match="at least one row and one feature"):
        coremargin.train(X[:, :0], y)
    with pytest.raises(StoreError, match="at least one row and one feature"):
        coremargin.train(X[:0], y[:0])
    with pytest.raises(StoreError, match="nothing.zarr"):
        coremargin.train(tmp_path / "nothing.zarr")
    broken = X.copy()
    broken[17, 2] = np.nan
    with pytest.raises(BadRow, match="row 17"):
        coremargin.train(broken, y)


@pytest.mark.parametrize("kind", ["bool", "int", "float", "text"])
def test_labels_of_any_two_kinds(separable: Rows, kind: str) -> None:
    """Two labels of any kind will do; the larger one is the positive side, whichever came first."""
    X, y = separable
    pairs = {"bool": (False, True), "int": (3, 7), "float": (-0.5, 0.5), "text": ("a", "b")}
    low, high = pairs[kind]
    for order in (slice(None), slice(None, None, -1)):
        model = coremargin.train(X[order], [high if side > 0 else low for side in y[order]])
        assert model.classes == (low, high)
        assert ((model.decision_function(X) > 0) == (y > 0)).all()


def test_two_rows_and_one_feature() -> None:
    """The smallest problem there is has the margin that one can see."""
    model = coremargin.train([[1.0], [4.0]], [0, 1])
    assert model.certificate.upper == pytest.approx(1.5)
    assert model.b == pytest.approx(-2.5)
