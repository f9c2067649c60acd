"""A version of a coremargin model as MLflow loads it: NumPy is all that this file needs, coremargin is not.

It lies beside the model as ``code/coremargin_version.py``, and reads ``planes.npz``: hyperplanes, or functions of a
kernel, of scaled rows, with what scales them and the labels. What it predicts is what ``coremargin predict`` says, up
to rounding of rows that lie on a boundary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

_ROWS = 4096  # at a time


class Predictor:
    """What ``mlflow.pyfunc.load_model`` wraps: rows (n, d) to labels (n,)."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = arrays
        self._about = json.loads(bytes(arrays["about"]).decode("utf-8"))
        self.classes = self._about["classes"]
        self.feature_names = self._about["features"]

    def predict(self, model_input: Any, params: Any = None) -> np.ndarray:
        """Labels (n,): of numbers or texts as they are, else of objects. model_input: a data frame, an array, lists."""
        values = self.decision_function(model_input)
        places = (values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)
        kinds = {type(label) for label in self.classes}
        dtype: Any = None if kinds in ({int}, {float}, {bool}, {str}) else object
        return np.asarray(np.array(self.classes, dtype=dtype)[places])

    def decision_function(self, model_input: Any) -> np.ndarray:
        """Decision values (n,) of two classes, positive towards the second one, else (n, k)."""
        rows = self._numbers(model_input)
        parts = [self._values(self._scaled(rows[k : k + _ROWS])) for k in range(0, max(1, len(rows)), _ROWS)]
        values = np.concatenate(parts)
        return np.asarray(values[:, 0] if values.shape[1] == 1 else values)

    def _numbers(self, given: Any) -> np.ndarray:
        """Rows (n, d); of a data frame with named columns those of the features, in whatever order."""
        if hasattr(given, "toarray"):
            given = given.toarray()
        names = self.feature_names
        if hasattr(given, "columns") and hasattr(given, "to_numpy"):
            if names is not None:
                lacking = [name for name in names if name not in given.columns]
                if lacking:
                    raise ValueError(f"expected a column for each feature of the model, {lacking[0]!r} is missing")
                given = given[names]
            given = given.to_numpy()
        rows = np.asarray(given)
        if rows.ndim == 1 and rows.dtype.kind in "fiub":
            rows = rows[None, :]
        if rows.dtype.kind not in "fiub":
            rows = rows.astype(np.float64)
        if rows.ndim != 2 or rows.shape[1] != self._about["width"]:
            raise ValueError(f"expected rows of {self._about['width']} features, found an array of shape {rows.shape}")
        return rows

    def _scaled(self, rows: np.ndarray) -> np.ndarray:
        kind = self._about["scaling"]
        if kind is None:
            return rows.astype(np.float64)
        dtype = np.result_type(rows.dtype, np.dtype(self._about["dtype"]))
        rows = rows.astype(np.float32 if dtype == np.float32 else np.float64)
        if kind == "rownorm":
            exact = rows.astype(np.float64)
            length = np.sqrt((exact * exact).sum(axis=1))
            return (exact / np.where(length > 0, length, 1.0)[:, None]).astype(rows.dtype).astype(np.float64)
        return np.asarray((rows - self._arrays["shift"]) * self._arrays["factor"], dtype=np.float64)

    def _values(self, rows: np.ndarray) -> np.ndarray:
        """Decision values (n, k) of scaled rows."""
        about, arrays = self._about, self._arrays
        if about["kernel"] is None:
            return np.asarray(rows @ arrays["weights"].T + arrays["offsets"])
        centre = arrays.get("centre", 0.0)
        x, z = rows - centre, arrays["rows"] - centre
        values = x @ z.T
        if about["kernel"] == "rbf":
            squares = (x * x).sum(axis=1)[:, None] + (z * z).sum(axis=1)[None, :] - 2.0 * values
            values = np.exp(-about["gamma"] * np.maximum(squares, 0.0))
        elif about["kernel"] == "poly":
            values = (about["gamma"] * values + about["coef0"]) ** about["degree"]
        return np.asarray(values @ arrays["weights"] + arrays["offsets"])


def _load_pyfunc(path: str) -> Predictor:
    """The predictor in the file that MLmodel names."""
    with np.load(path, allow_pickle=False) as arrays:
        return Predictor({name: arrays[name] for name in arrays.files})
