"""Models of mapped rows for those who have no coremargin: the same decisions from scikit-learn and from ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

import coremargin
from coremargin.errors import UsageError
from coremargin.models.export import export

ASKED: list[dict[str, Any]] = [
    {"map": "nystroem", "components": 20}, {"map": "nystroem", "components": 20, "gamma": 0.5, "scaling": "standard"},
    {"map": "fourier", "components": 30, "scaling": "maxabs"}, {"map": "polynomial", "degree": 3, "coef0": 0.7},
    {"map": "polynomial", "degree": 2, "gamma": 2.0, "scaling": "rownorm"},
    {"map": "polynomial", "degree": 4, "coef0": 1.0, "components": 16},
]  # fmt: skip


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("several", [False, True])
def test_others_decide_alike(asked: dict[str, Any], several: bool) -> None:
    """Labels and decision values, of two classes and of three, and of a sketch from scikit-learn alone."""
    import onnxruntime

    X, y = load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"])[y] if several else y == 2
    model = coremargin.train(X, labels, loss="hinge", **asked, **({"classes": "ovr"} if several else {}))
    values, machine = model.decision_function(X), model.to_sklearn()
    close = 1e-9 * np.abs(values).max()
    np.testing.assert_allclose(machine.decision_function(X), values, rtol=0, atol=close)
    if asked.get("scaling") != "standard":  # which would fill sparse rows
        np.testing.assert_allclose(machine.decision_function(sp.csr_matrix(X)), values, rtol=0, atol=close)
    assert (machine.predict(X) == model.predict(X)).all()
    if asked["map"] == "polynomial" and "components" in asked:
        with pytest.raises(UsageError, match="graphs have no operation for a sketch"):
            model.to_onnx()
        return
    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString())
    label, decision = session.run(None, {"X": X})
    np.testing.assert_allclose(decision, values, rtol=0, atol=close)
    assert (label == model.predict(X)).all()


@pytest.mark.parametrize("kind", ["nystroem", "fourier"])
def test_of_several_gammas_the_one_that_is_said_is_exported(tmp_path: Path, kind: Any) -> None:
    """With its own map; where none is said and none was chosen, nothing is written."""
    import onnxruntime

    X, y = load_iris(return_X_y=True)
    fleet = coremargin.train(X, y == 2, loss="hinge", map=kind, components=12, gamma=[0.1, 2.0], epsilon=0.1)
    with pytest.raises(UsageError, match="no gamma is chosen"):
        export(fleet, tmp_path / "none.onnx")
    for gamma in (0.1, 2.0):
        export(fleet, tmp_path / f"{gamma}.onnx", gamma=gamma)
        (model,) = (one for one in fleet.members.values() if one.parameters["gamma"] == gamma)
        label, decision = onnxruntime.InferenceSession(tmp_path / f"{gamma}.onnx").run(None, {"X": X})
        np.testing.assert_allclose(decision, model.decision_function(X), rtol=0, atol=1e-9)
        assert (label == model.predict(X)).all()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["0.1.onnx", "2.0.onnx"]


def test_features_of_mapped_rows_have_no_weights() -> None:
    """Weights are of mapped features, and said to be."""
    X, y = load_iris(return_X_y=True)
    model = coremargin.train(X, y == 2, loss="hinge", map="fourier", components=8)
    assert model.linear().coef.shape == (1, 8)
    with pytest.raises(UsageError, match="its weights are of 8 mapped features"):
        model.coefficients()
