"""The loader with which MLflow predicts from a coremargin model. It needs NumPy only, not coremargin.

A version contains it as ``code/coremargin_version.py``, with the arrays in ``planes.npz``: hyperplanes or kernel
expansions of scaled rows, the scaling, and the labels. Predictions equal those of ``coremargin predict``, except for
rounding of rows on a boundary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

_BATCH = 4096  # rows


class Predictor:
    """The object that ``mlflow.pyfunc.load_model`` wraps."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = arrays
        self._about = json.loads(bytes(arrays["about"]).decode("utf-8"))
        self.classes = self._about["classes"]
        self.feature_names = self._about["features"]

    def predict(self, model_input: Any, params: Any = None) -> np.ndarray:
        """Labels (n,) of a data frame, an array or lists; an object array if labels are of different types."""
        values = self.decision_function(model_input)
        places = (values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)
        kinds = {type(label) for label in self.classes}
        dtype: Any = None if kinds in ({int}, {float}, {bool}, {str}) else object
        return np.asarray(np.array(self.classes, dtype=dtype)[places])

    def decision_function(self, model_input: Any) -> np.ndarray:
        """Decision values (n,), positive for the second of two classes; (n, k) for more classes."""
        rows = self._to_array(model_input)
        parts = [self._decision_values(self._scale(rows[k : k + _BATCH])) for k in range(0, max(1, len(rows)), _BATCH)]
        values = np.concatenate(parts)
        return np.asarray(values[:, 0] if values.shape[1] == 1 else values)

    def _to_array(self, data: Any) -> np.ndarray:
        """Rows (n, d); columns of a data frame are selected by the names of the features."""
        if hasattr(data, "toarray"):
            data = data.toarray()
        names = self.feature_names
        if hasattr(data, "columns") and hasattr(data, "to_numpy"):
            if names is not None:
                missing = [name for name in names if name not in data.columns]
                if missing:
                    raise ValueError(f"expected a column for each feature of the model, {missing[0]!r} is missing")
                data = data[names]
            data = data.to_numpy()
        rows = np.asarray(data)
        if rows.ndim == 1 and rows.dtype.kind in "fiub":
            rows = rows[None, :]
        if rows.dtype.kind not in "fiub":
            rows = rows.astype(np.float64)
        if rows.ndim != 2 or rows.shape[1] != self._about["width"]:
            raise ValueError(f"expected rows of {self._about['width']} features, found an array of shape {rows.shape}")
        return rows

    def _scale(self, rows: np.ndarray) -> np.ndarray:
        kind = self._about["scaling"]
        if kind is None:
            return rows.astype(np.float64)
        dtype = np.result_type(rows.dtype, np.dtype(self._about["dtype"]))
        rows = rows.astype(np.float32 if dtype == np.float32 else np.float64)
        if kind == "rownorm":
            exact = rows.astype(np.float64)
            length = np.sqrt((exact * exact).sum(axis=1))
            return (exact / np.where(length > 0, length, 1.0)[:, None]).astype(rows.dtype).astype(np.float64)
        if kind == "ellipsoid":
            scaled = (rows.astype(np.float64) - self._arrays["shift"]) @ self._arrays["matrix"]
            return np.asarray(scaled.astype(rows.dtype), dtype=np.float64)
        return np.asarray((rows - self._arrays["shift"]) * self._arrays["factor"], dtype=np.float64)

    def _decision_values(self, rows: np.ndarray) -> np.ndarray:
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
    """Called by MLflow with the path of ``data`` in MLmodel."""
    with np.load(path, allow_pickle=False) as arrays:
        return Predictor({name: arrays[name] for name in arrays.files})
