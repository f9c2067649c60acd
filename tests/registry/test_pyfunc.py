"""A version is a folder that MLflow loads without coremargin, with what NumPy alone can do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import coremargin
from coremargin.registry.add_version import add
from coremargin.registry.registry import Registry

#: Loads a version as MLflow does: the code's folder on the path, the module by its name, the data's path to the loader.
LOAD = """
import importlib, json, os, sys
import numpy as np
folder, code, module, data = sys.argv[1:5]
sys.path.insert(0, os.path.join(folder, code))
model = importlib.import_module(module)._load_pyfunc(os.path.join(folder, data))
rows = np.load(sys.argv[5])
foreign = sorted({name.split(".")[0] for name in sys.modules} & {"coremargin", "scipy", "sklearn", "msgspec", "yaml"})
print(json.dumps([model.predict(rows).tolist(), model.decision_function(rows).tolist(), foreign]))
"""
SLOW = pytest.mark.slow
X = np.random.default_rng(8).standard_normal((240, 3)).astype(np.float32) * [1.0, 20.0, 0.1] + [5.0, 0.0, 0.0]
BLUE = np.where(X[:, 0] > 5.0, "blue", "red")
THREE = np.array(["a", "b", "c"])[np.digitize(X[:, 1], [-8.0, 8.0])]


@pytest.mark.parametrize(
    ("labels", "asked"),
    [
        (BLUE, {"loss": "squared_hinge", "C": 1.0, "scaling": "standard"}),
        pytest.param(np.where(BLUE == "blue", 1, 0), {"loss": "hinge", "C": 0.5, "scaling": "rownorm"}, marks=SLOW),
        pytest.param(THREE, {"classes": "ovr", "loss": "squared_hinge", "C": 1.0, "scaling": "maxabs"}, marks=SLOW),
        (BLUE, {"kernel": "rbf", "loss": "hinge", "C": 5.0, "scaling": "minmax"}),
        pytest.param(THREE, {"kernel": "poly", "loss": "hinge", "C": 1.0, "classes": "ovr"}, marks=SLOW),
    ],
    ids=["standard", "rownorm", "ovr", "rbf", "poly"],
)
def test_it_predicts_the_same_alone(tmp_path: Path, labels: np.ndarray, asked: dict[str, Any]) -> None:
    """In an interpreter that has no coremargin, and loads nothing but NumPy: labels and decision values."""
    store = tmp_path / "rows.zarr"
    coremargin.ingest(X, store, labels=labels)
    coremargin.train(store, out=tmp_path / "m", **asked)
    registry = Registry.create(tmp_path / "registry")
    folder = registry.folder(add(registry, tmp_path / "m"))
    rows = np.random.default_rng(9).standard_normal((5000, 3)) * [1.0, 20.0, 0.1] + [5.0, 0.0, 0.0]
    np.save(tmp_path / "rows.npy", rows)
    flavour = yaml.safe_load((folder / "MLmodel").read_text())["flavors"]["python_function"]
    words = [str(folder), flavour["code"], flavour["loader_module"], flavour["data"], str(tmp_path / "rows.npy")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD, *words],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=60,
    )
    given, values, foreign = json.loads(done.stdout)
    model = coremargin.load(folder)
    expected = model.decision_function(rows)
    assert np.allclose(values, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    clear = np.abs(expected) > 1e-5 if expected.ndim == 1 else np.ptp(np.sort(expected, axis=1)[:, -2:], axis=1) > 1e-5
    assert (np.array(given)[clear] == model.predict(rows)[clear]).all()
    assert clear.mean() > 0.99
    assert foreign == []


def test_rows_come_in_many_forms(tmp_path: Path) -> None:
    """Data frames by the names of their columns, in any order; sparse matrices, lists; others are refused."""
    import pandas as pd
    from scipy.sparse import csr_matrix

    frame = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "u": X[:, 2], "label": BLUE})
    coremargin.ingest(frame, tmp_path / "rows.zarr", label="label")
    coremargin.train(tmp_path / "rows.zarr", out=tmp_path / "m", loss="hinge", C=1.0)
    registry = Registry.create(tmp_path / "registry")
    folder = registry.folder(add(registry, tmp_path / "m"))
    from coremargin.registry import pyfunc_loader

    assert (folder / "code" / "coremargin_version.py").read_bytes() == Path(pyfunc_loader.__file__).read_bytes()
    model = pyfunc_loader._load_pyfunc(str(folder / "planes.npz"))
    expected = coremargin.load(folder).predict(frame[["x", "z", "u"]])
    assert (model.predict(frame[["u", "x", "z"]]) == expected).all()
    assert (model.predict(csr_matrix(X)) == expected).all()
    assert (model.predict(X.tolist()) == expected).all()
    assert model.predict(X[0]).tolist() == [expected[0]]
    with pytest.raises(ValueError, match="'z' is missing"):
        model.predict(frame[["x", "u"]])
    with pytest.raises(ValueError, match="expected rows of 3 features"):
        model.predict(X[:, :2])


def test_the_graph_lies_beside_it(registry: Registry) -> None:
    """ONNX, where its package is there; it gives the same labels."""
    runtime = pytest.importorskip("onnxruntime")
    folder = registry.folder(1)
    rows = np.random.default_rng(3).standard_normal((50, 3))
    session = runtime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    assert (session.run(["label"], {"X": rows})[0] == coremargin.load(folder).predict(rows)).all()


@pytest.mark.slow
def test_mlflow_loads_and_scores_it(registry: Registry) -> None:
    """Where MLflow is installed, it takes the folder as a model."""
    pyfunc = pytest.importorskip("mlflow.pyfunc")
    rows = np.random.default_rng(3).standard_normal((50, 3))
    model = pyfunc.load_model(str(registry.folder(1)))
    assert (model.predict(rows) == coremargin.load(registry.folder(1)).predict(rows)).all()
