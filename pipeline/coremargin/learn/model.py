"""A trained model: the hypothesis, its certificate and what is needed to check it again.

On disk a model is a folder. ``model.json`` (the record: problem, classes, certificate) and ``arrays.npz`` (hypothesis,
dual weights, coreset, ledger) are the same bytes for the same job: no clock, no host. ``run.json``, ``rounds.jsonl``
and ``report.html`` tell how this run went. Loading runs no code; folder.py says how a model appears
whole or not at all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from coremargin.errors import DataError
from coremargin.learn.decision import decision_values
from coremargin.learn.folder import opened, read_arrays, read_folder, write_arrays
from coremargin.learn.model_files import read_json, save_folder
from coremargin.learn.record import Certificate, check_record, json_text, plain
from coremargin.maths.rows import Rows, from_arrays, frozen_rows, is_sparse, to_arrays
from coremargin.maths.scaling import Kind, folded

_LEDGER = "ledger_"


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A hypothesis with its certificate. ``record`` is the content of ``model.json``; arrays are read-only.

    w (d,) float64, b; decision value of a row x: w.x + b, positive towards ``classes[1]``. alpha (m,) float64 dual
    weights of the rows coreset_ids (m,) int64 with signs coreset_y (m,) int8 in {-1, +1}.
    Hard margin: ||w|| = 1; each class's weights sum to 1 with an intercept, all sum to 1 without; coreset_x (m, d)
    float64, exact copies of the store's rows, a csr_array where these are sparse; ledger: name -> array, what the scans
    proved about each chunk.
    Soft margin: alpha in [0, c], of the hinge's rows near the margin (none for squared hinge); coreset_x is (m, 0);
    ledger: "reference" (d + 1,), the hypothesis that gives all other rows their dual weights.
    Scaled rows (``scaling``): w, b, coreset_x and the certificate are about rows scaled by shift and factor (d,), both
    None for "rownorm"; ``coef`` and ``intercept`` are for rows as they are, and so are all methods.
    Raises DataError when the record is incomplete or does not fit the arrays.
    """

    record: Mapping[str, Any]
    w: np.ndarray
    b: float
    alpha: np.ndarray
    coreset_ids: np.ndarray
    coreset_x: Rows
    coreset_y: np.ndarray
    ledger: Mapping[str, np.ndarray] = field(default_factory=dict)
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None

    def __post_init__(self) -> None:
        record = plain(dict(self.record))
        check_record(record)
        d, m = record["features"], record["certificate"]["coreset_rows"]
        width = 0 if self.certificate.kind == "duality_gap" else d
        shapes = {"w": (d,), "alpha": (m,), "coreset_ids": (m,), "coreset_x": (m, width), "coreset_y": (m,)}
        dtypes = {"coreset_ids": np.int64, "coreset_y": np.int8}
        columns = record["parameters"].get("scaling") not in (None, "rownorm")
        if (self.shift is not None, self.factor is not None) != (columns, columns):
            raise DataError("shift, factor: expected both with a scaling of columns, else none; get an unaltered copy")
        shapes |= {"shift": (d,), "factor": (d,)} if columns else {}
        for name, shape in shapes.items():
            values = getattr(self, name)
            values = frozen_rows(values) if is_sparse(values) else _frozen(values, dtypes.get(name, np.float64))
            if values.shape != shape:
                raise DataError(
                    f"{name}: expected shape {shape} as the record says, found {values.shape}; get an unaltered copy"
                )
            if values.dtype.kind == "f" and not np.isfinite(values.data if is_sparse(values) else values).all():
                raise DataError(f"{name}: expected finite numbers, found NaN or infinity; get an unaltered copy")
            object.__setattr__(self, name, values)
        if not math.isfinite(self.b):
            raise DataError(f"b: expected a finite number, found {self.b}; get an unaltered copy")
        object.__setattr__(self, "record", record)
        object.__setattr__(self, "b", float(self.b))
        object.__setattr__(self, "ledger", {name: _frozen(values) for name, values in sorted(self.ledger.items())})

    @property
    def problem(self) -> str:
        """Which problem was solved, e.g. "hard_margin"."""
        return str(self.record["problem"])

    @property
    def status(self) -> str:
        """How training ended: "certified", "not_separable" or "stopped"."""
        return str(self.record["status"])

    @property
    def classes(self) -> tuple[Any, Any]:
        """The labels: (negative, positive)."""
        negative, positive = self.record["classes"]
        return negative, positive

    @property
    def parameters(self) -> dict[str, Any]:
        """What was asked for: epsilon, intercept, strategy; with a loss also loss, C, class_weight."""
        return dict(self.record["parameters"])

    @property
    def scaling(self) -> Kind | None:
        """How rows are scaled before w and b: "standard", "minmax", "maxabs", "rownorm", or None."""
        kind: Kind | None = self.record["parameters"].get("scaling")
        return kind

    @cached_property
    def _folded(self) -> tuple[np.ndarray, float]:
        if self.shift is None or self.factor is None:
            return self.w, self.b
        coef, intercept = folded(self.w, self.b, self.shift, self.factor)
        coef.flags.writeable = False
        return coef, intercept

    @property
    def coef(self) -> np.ndarray:
        """Weights (d,) for rows as they are: of "rownorm", for rows divided by their lengths."""
        return self._folded[0]

    @property
    def intercept(self) -> float:
        """The decision value of a row of zeros as it is; it goes with ``coef``."""
        return self._folded[1]

    @property
    def certificate(self) -> Certificate:
        """What is claimed, typed."""
        return Certificate.from_record(self.record["certificate"])

    @property
    def ended(self) -> bool:
        """False when training stopped at a limit: more scans may prove more."""
        return self.status != "stopped"

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

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision value of each row as it is, (n,) float64, positive towards ``classes[1]``.

        X (n, d): numbers, an array or a SciPy sparse matrix.

        coef.x + intercept, in float64: that of the scaled row, w.z + b, up to rounding.
        Raises UsageError when X has another shape or kind, BadRow when a row is not finite.
        """
        return decision_values(X, self.coef, self.intercept, unit=self.scaling == "rownorm")

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row: ``classes[1]`` where the decision value is positive, else ``classes[0]``; (n,)."""
        return np.asarray(label_array(self.classes)[decided(self.decision_function(X))])

    def to_sklearn(self) -> Any:
        """A fitted ``sklearn.svm.LinearSVC`` that predicts the same; nothing of coremargin is needed to use it."""
        from coremargin.learn.export import as_sklearn, linear_of

        return as_sklearn(linear_of(self))

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ``onnx.ModelProto`` that predicts the same; see ``learn.export.as_onnx``. Needs the extra "onnx"."""
        from coremargin.learn.export import as_onnx, linear_of

        return as_onnx(linear_of(self), precision)

    def __repr__(self) -> str:
        c = self.certificate
        bounds = ", ".join(
            f"{name} {value:.6g}" for name, value in (("lower", c.lower), ("upper", c.upper)) if value is not None
        )
        negative, positive = self.classes
        return (
            f"Model({self.status}: {negative!r} | {positive!r}, {self.rows:,} rows x {self.features:,} features, "
            f"{bounds or 'no bounds'}, {c.coreset_rows:,} coreset rows)"
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """The content of ``arrays.npz``."""
        names = ("w", "alpha", "coreset_ids", "coreset_y")
        arrays = {name: getattr(self, name) for name in names} | {"b": np.array([self.b])}
        arrays |= to_arrays("coreset_x", self.coreset_x)
        if self.shift is not None and self.factor is not None:
            arrays |= {"shift": self.shift, "factor": self.factor}
        return arrays | {_LEDGER + name: values for name, values in self.ledger.items()}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """The model in a folder. Raises DataError: nothing there, a newer version, truncated or altered files."""
        place = Path(os.path.abspath(path))
        return read_folder(place, lambda folder: cls.read(folder, place))

    @classmethod
    def read(cls, folder: int, path: Path, below: str = "") -> Model:
        """From an open folder, or a folder ``below`` it; path: of the open one, for messages."""
        path = path / below
        with opened(folder, str(Path(below, "model.json"))) as file:
            record = read_json(file, f"{path}/model.json")
        try:
            check_record(record)
        except DataError as error:
            raise DataError(f"{path}/model.json: {error}") from None
        with opened(folder, str(Path(below, "arrays.npz"))) as file:
            arrays = read_arrays(file, f"{path}/arrays.npz")
        ledger = {name.removeprefix(_LEDGER): arrays.pop(name) for name in list(arrays) if name.startswith(_LEDGER)}
        parts = {name: arrays.pop(name) for name in list(arrays) if name.startswith("coreset_x")}
        expected = {"w", "b", "alpha", "coreset_ids", "coreset_y"}
        if set(arrays) - {"shift", "factor"} != expected or arrays["b"].shape != (1,) or not parts:
            names = (", ".join(sorted(found)) for found in (expected | {"coreset_x"}, arrays | parts))
            raise DataError("{}/arrays.npz: expected {}, found {}".format(path, *names))
        offset = float(arrays.pop("b")[0])
        try:
            return cls(record=record, b=offset, ledger=ledger, coreset_x=from_arrays("coreset_x", parts), **arrays)
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
        """Write the folder, whole or not at all.

        run, rounds: how the run went, where that is known. report: called with the folder, adds ``report.html`` to it.
        An existing model is replaced only with ``overwrite``; a folder that is not a model never is.
        Raises OutputError: something is there, no room, no permission. The caller holds the lock on ``path``.
        """
        save_folder(path, self.write, run, rounds, report, overwrite=overwrite)

    def write(self, folder: Path) -> None:
        """Write ``model.json`` and ``arrays.npz`` into an empty folder."""
        write_arrays(folder / "arrays.npz", self.arrays())
        (folder / "model.json").write_text(json_text(self.record), encoding="utf-8")


def decided(decisions: np.ndarray) -> np.ndarray:
    """Places (n,) of the classes that decision values name: (n,) positive or not, (n, k) the largest, ties first."""
    return np.asarray(decisions > 0 if decisions.ndim == 1 else decisions.argmax(axis=1), np.intp)


def label_array(classes: Sequence[Any]) -> np.ndarray:
    """The labels as an array that keeps their kind; kinds that differ stay as they are, in an object array."""
    same = len({type(label) for label in classes}) == 1
    return np.array(list(classes), dtype=None if same else object)


def _frozen(values: np.ndarray, dtype: Any = None) -> np.ndarray:
    copy = np.array(values, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy
