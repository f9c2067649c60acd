"""Machines with kernels for those who have no coremargin: the same decisions from scikit-learn and from ONNX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

import coremargin
from coremargin.errors import CoremarginError

ASKED: list[dict[str, Any]] = [
    {"kernel": "rbf"}, {"kernel": "rbf", "scaling": "standard"}, {"kernel": "poly", "degree": 2, "coef0": 1.0},
    {"kernel": "linear", "scaling": "maxabs"}, {"kernel": "rbf", "gamma": 1.0, "scaling": "rownorm"},
    {"kernel": "rbf", "relative_margin": 1.2}, {"kernel": "poly", "scaling": "standard", "relative_margin": 2.0},
]  # fmt: skip


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("several", [False, True])
def test_others_decide_alike(asked: dict[str, Any], several: bool) -> None:
    """Labels and decision values, of two classes and of three."""
    import onnxruntime

    X, y = load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"])[y] if several else y == 2
    model = coremargin.train(X, labels, loss="hinge", **asked, **({"classes": "ovr"} if several else {}))
    machine = model.to_sklearn()
    np.testing.assert_allclose(machine.decision_function(X), model.decision_function(X), atol=1e-9)
    assert (machine.predict(X) == model.predict(X)).all()
    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString())
    label, decision = session.run(None, {"X": X})
    np.testing.assert_allclose(decision, model.decision_function(X), atol=1e-9)
    assert (label == model.predict(X)).all()


def test_sparse_rows_are_exported_too() -> None:
    """Which scikit-learn takes as such, and ONNX as dense ones."""
    import onnxruntime

    X, y = load_iris(return_X_y=True)
    model = coremargin.train(sp.csr_array(X), y == 1, kernel="rbf", loss="hinge")
    found = model.to_sklearn().decision_function(sp.csr_matrix(X))
    np.testing.assert_allclose(found, model.decision_function(X), atol=1e-9)
    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString())
    np.testing.assert_allclose(session.run(None, {"X": X})[1], model.decision_function(X), atol=1e-9)


def test_a_kernel_of_a_newer_version_is_named(tmp_path: Path) -> None:
    """Whoever opens such a model is told what is known here."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    coremargin.train(X, np.arange(20) % 2, out=tmp_path / "m", kernel="rbf", loss="hinge")
    record = json.loads((tmp_path / "m" / "model.json").read_text())
    record["kernel"]["name"] = record["parameters"]["kernel"] = "laplacian"
    (tmp_path / "m" / "model.json").write_text(json.dumps(record))
    with pytest.raises(
        CoremarginError, match="knows the kernels linear, poly, rbf, callable, found 'laplacian': made by a newer"
    ):
        coremargin.load(tmp_path / "m")
