"""A trained model of several classes at once (Crammer, Singer; Kesler): hypothesis, certificate, what checks it again.

On disk it is a folder as ``Model`` has it, with problem "crammer_singer" in ``model.json`` and, in ``arrays.npz``,

    hypothesis          (K, d + 1) float64, V: a row a class; the last column times ``constant`` are the intercepts
    duals               (m, K) of the rows coreset_ids (m,), coreset_classes (m,): nothing at a row's own class
    coreset_x           (m, d) exact copies of the rows for a hard margin, (m, 0) for a soft one
    reference           (K, d + 1), soft margin only: the hypothesis that gives all other rows their duals
    shift, factor       (d,) where columns are scaled
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from coremargin.errors import DataError
from coremargin.learn.decision import decision_values
from coremargin.learn.folder import opened, read_arrays, write_arrays
from coremargin.learn.model import decided, label_array
from coremargin.learn.model_files import read_json, save_folder
from coremargin.learn.record import Certificate, check_record, json_text, plain
from coremargin.maths.rows import Rows, from_arrays, frozen_rows, is_sparse, to_arrays
from coremargin.maths.scaling import Kind, folded

PROBLEM = "crammer_singer"
_DTYPES = {"coreset_ids": np.int64, "coreset_classes": np.int32}


@dataclass(frozen=True, eq=False, repr=False)
class MulticlassModel:
    """Several classes at once. ``record`` is the content of ``model.json``; arrays as the module says, read-only.

    Hard margin: ||V||_F = 1 and the duals sum to 1. Soft margin: each row's duals sum to c at most. Rows that are
    scaled, and rows as they are: as for ``Model``. Raises DataError when the record does not fit the arrays.
    """

    record: Mapping[str, Any]
    hypothesis: np.ndarray
    duals: np.ndarray
    coreset_ids: np.ndarray
    coreset_x: Rows
    coreset_classes: np.ndarray
    reference: np.ndarray | None = None
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None

    def __post_init__(self) -> None:
        record = plain(dict(self.record))
        check_record(record)
        if record["problem"] != PROBLEM:
            raise DataError(f"problem: expected {PROBLEM!r}, found {record['problem']!r}; get an unaltered copy")
        d, m, classes = record["features"], record["certificate"]["coreset_rows"], len(record["classes"])
        soft, columns = "loss" in record["parameters"], record["parameters"].get("scaling") not in (None, "rownorm")
        shapes = {
            "hypothesis": (classes, d + 1), "duals": (m, classes), "coreset_ids": (m,),
            "coreset_x": (m, 0 if soft else d), "coreset_classes": (m,),
        }  # fmt: skip
        optional = {"reference": (soft, (classes, d + 1)), "shift": (columns, (d,)), "factor": (columns, (d,))}
        for name, (wanted, shape) in optional.items():
            if (getattr(self, name) is not None) != wanted:
                raise DataError(f"{name}: there where it has no place, or missing; get an unaltered copy")
            shapes |= {name: shape} if wanted else {}
        for name, shape in shapes.items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), shape))
        if not ((self.coreset_classes >= 0) & (self.coreset_classes < classes)).all():
            raise DataError("coreset_classes: expected places of classes, found others; get an unaltered copy")
        object.__setattr__(self, "record", record)

    @property
    def problem(self) -> str:
        """Always "crammer_singer"."""
        return str(self.record["problem"])

    @property
    def status(self) -> str:
        """How training ended: "certified", "not_separable" or "stopped"."""
        return str(self.record["status"])

    @property
    def ended(self) -> bool:
        """False when training stopped at a limit: more scans may prove more."""
        return self.status != "stopped"

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels, in order."""
        return tuple(self.record["classes"])

    @property
    def parameters(self) -> dict[str, Any]:
        """What was asked for: epsilon, intercept, strategy, classes; with a loss also loss, C, class_weight."""
        return dict(self.record["parameters"])

    @property
    def constant(self) -> float:
        """The last entry of every row, 0 without intercepts."""
        return float(self.record["constant"])

    @property
    def scaling(self) -> Kind | None:
        """How rows are scaled before the hypothesis: as of ``Model``."""
        kind: Kind | None = self.record["parameters"].get("scaling")
        return kind

    @property
    def certificate(self) -> Certificate:
        """What is claimed, typed."""
        return Certificate.from_record(self.record["certificate"])

    @property
    def store_digest(self) -> str:
        """Identity of the rows that the certificate is about."""
        return self.certificate.store_digest

    @property
    def features(self) -> int:
        """Features per row, d."""
        return int(self.record["features"])

    @property
    def rows(self) -> int:
        """Rows of the store that the certificate is about."""
        return int(self.record["rows"])

    @cached_property
    def _folded(self) -> tuple[np.ndarray, np.ndarray]:
        weights, offsets = self.hypothesis[:, :-1], self.constant * self.hypothesis[:, -1]
        if self.shift is None or self.factor is None:
            return weights, offsets
        pairs = [folded(w, float(b), self.shift, self.factor) for w, b in zip(weights, offsets, strict=True)]
        return np.stack([w for w, _ in pairs]), np.array([b for _, b in pairs])

    @property
    def coef(self) -> np.ndarray:
        """Weights (K, d) for rows as they are: of "rownorm", for rows divided by their lengths."""
        return self._folded[0]

    @property
    def intercept(self) -> np.ndarray:
        """Scores (K,) of a row of zeros as it is; they go with ``coef``."""
        return self._folded[1]

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores (n, K) of rows X (n, d); of two classes (n,), that of ``classes[1]`` less that of ``classes[0]``.

        Raises UsageError when X has another shape or kind, BadRow when a row is not finite.
        """
        unit = self.scaling == "rownorm"
        pairs = zip(self.coef, self.intercept, strict=True)
        scores = [decision_values(X, coef, float(intercept), unit=unit) for coef, intercept in pairs]
        return scores[1] - scores[0] if len(scores) == 2 else np.stack(scores, axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row, that of the largest score, (n,)."""
        return np.asarray(label_array(self.classes)[decided(self.decision_function(X))])

    def to_sklearn(self) -> Any:
        """A fitted ``sklearn.svm.LinearSVC`` that predicts the same; see ``Model.to_sklearn``."""
        from coremargin.learn.export import as_sklearn, linear_of

        return as_sklearn(linear_of(self))

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ``onnx.ModelProto`` that predicts the same; see ``Model.to_onnx``."""
        from coremargin.learn.export import as_onnx, linear_of

        return as_onnx(linear_of(self), precision)

    def __repr__(self) -> str:
        c = self.certificate
        bounds = [
            f"{name} {value:.6g}" for name, value in (("lower", c.lower), ("upper", c.upper)) if value is not None
        ]
        return (
            f"MulticlassModel({self.status}: {len(self.classes)} classes, {self.rows:,} rows x {self.features:,} "
            f"features, {', '.join(bounds) or 'no bounds'}, {c.coreset_rows:,} coreset rows)"
        )

    @classmethod
    def read(cls, folder: int, path: Path) -> MulticlassModel:
        """From an open folder; path: for messages. Raises DataError."""
        with opened(folder, "model.json") as file:
            record = read_json(file, f"{path}/model.json")
        with opened(folder, "arrays.npz") as file:
            arrays = read_arrays(file, f"{path}/arrays.npz")
        parts = {name: arrays.pop(name) for name in list(arrays) if name.startswith("coreset_x")}
        needed = {"hypothesis", "duals", "coreset_ids", "coreset_classes"}
        if set(arrays) - {"reference", "shift", "factor"} != needed or not parts:
            raise DataError(f"{path}/arrays.npz: expected {', '.join(sorted(needed))}, found {', '.join(arrays)}")
        try:
            return cls(record=record, coreset_x=from_arrays("coreset_x", parts), **arrays)
        except (DataError, KeyError, ValueError) as error:
            raise DataError(f"{path}: {error}") from None

    def save(
        self,
        path: str | os.PathLike[str],
        run: Mapping[str, Any] | None = None,
        rounds: Sequence[Mapping[str, Any]] = (),
        report: Callable[[Path], object] | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        """Write the folder, whole or not at all; see ``Model.save``."""
        save_folder(path, self.write, run, rounds, report, overwrite=overwrite)

    def write(self, folder: Path) -> None:
        """Write ``model.json`` and ``arrays.npz`` into an empty folder."""
        names = ("hypothesis", "duals", "coreset_ids", "coreset_classes", "reference", "shift", "factor")
        arrays = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        write_arrays(folder / "arrays.npz", arrays | to_arrays("coreset_x", self.coreset_x))
        (folder / "model.json").write_text(json_text(self.record), encoding="utf-8")


def _checked(name: str, values: Any, shape: tuple[int, ...]) -> Any:
    """The array, read-only. Raises DataError unless it has this shape and is finite."""
    if is_sparse(values):
        values = frozen_rows(values)
    else:
        values = np.array(values, dtype=_DTYPES.get(name, np.float64), order="C")
        values.flags.writeable = False
    if values.shape != shape:
        raise DataError(f"{name}: expected shape {shape} as the record says, found {values.shape}; get a whole copy")
    if values.dtype.kind == "f" and not np.isfinite(values.data if is_sparse(values) else values).all():
        raise DataError(f"{name}: expected finite numbers, found NaN or infinity; get an unaltered copy")
    return values
