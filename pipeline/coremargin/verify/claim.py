"""What a model claims, read by ``verify`` itself: none of the code that trains or loads models is used."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from coremargin.errors import DataError
from coremargin.verify.view import View, read_view

PROBLEMS = ("hard_margin", "soft_margin", "crammer_singer", "outliers")
LOSSES = ("hinge", "squared_hinge")
COLUMN_SCALINGS = ("standard", "minmax", "maxabs")
_ARRAYS = ("w", "b", "alpha", "coreset_ids", "coreset_y")
_SPARSE_X = ("coreset_x_data", "coreset_x_indices", "coreset_x_indptr", "coreset_x_shape")
_OUTLIERS = "ledger_outliers_"
_LARGEST_JSON = 16 << 20
_LARGEST_ARRAYS = 16 << 30


@dataclass(frozen=True, kw_only=True)
class AnyClaim:
    """What every model folder claims; ``certificate`` as in ``model.json``, arrays as in ``arrays.npz``."""

    path: Path
    problem: str  #: one of PROBLEMS
    status: str
    features: int
    rows: int
    dtype: str
    epsilon: float  #: of the parameters
    intercept: bool
    kind: str
    lower: float | None
    upper: float | None
    ratio: float | None
    proven_epsilon: float  #: of the certificate
    store_digest: str
    radius: float
    soft: bool  #: a soft margin: the bounds are about a value
    cost: float  #: C, 0 for a hard margin
    ids: np.ndarray  #: (m,) int64
    x: Any  #: (m, d), an array or, of a sparse store, a csr_array; (m, 0) for a soft margin
    y: np.ndarray  #: (m,) what the model says of the rows' classes, 0 being for rows that do not count
    scaling: str  #: how rows are scaled, "" for rows as they are stored
    shift: np.ndarray  #: (d,), or (0,) where columns are not scaled
    factor: np.ndarray  #: (d,), or (0,)
    view: View  #: which rows and labels of the store it is about


@dataclass(frozen=True, kw_only=True)
class Claim(AnyClaim):
    """Of two classes; y is -1 or +1. loss "", class_weight None and reference () are those of a hard margin."""

    negative: Any  #: label
    positive: Any
    w: np.ndarray  #: (d,)
    b: float
    alpha: np.ndarray  #: (m,)
    loss: str  #: "hinge" or "squared_hinge"
    class_weight: str | tuple[float, float] | None  #: "balanced", or factors of C of the negative and positive class
    outliers: dict[str, np.ndarray]  #: of problem "outliers", the arrays about them by name
    reference: np.ndarray  #: (d + 1,) the hypothesis that the dual point belongs to


def read_claim(path: str | os.PathLike[str]) -> Claim:
    """Read a model folder. Raises DataError: nothing there, another format or version, unreadable."""
    folder = Path(os.path.abspath(path))
    record = read_record(folder / "model.json")
    soft = record["problem"] == "soft_margin"
    names = [*_ARRAYS, *(["ledger_reference"] if soft else [])]
    if scaling_of(record) in COLUMN_SCALINGS:
        names += ["shift", "factor"]
    arrays = read_arrays(folder / "arrays.npz", tuple(names))
    try:
        claim = _claim(folder, record, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{folder}: the model is incomplete or altered ({error!r}); get a whole copy of it") from error
    m, d = int(record["certificate"]["coreset_rows"]), claim.features
    _check_shapes(claim, m, d)
    return claim


def _claim(folder: Path, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Claim:
    parameters = record["parameters"]
    negative, positive = record["classes"]
    soft = record["problem"] == "soft_margin"
    return Claim(
        **any_claim(folder, record, arrays, soft=soft),
        y=np.asarray(arrays["coreset_y"], dtype=np.int64),
        view=read_view(record),
        negative=negative,
        positive=positive,
        w=np.asarray(arrays["w"], dtype=np.float64),
        b=_only(arrays["b"]),
        alpha=np.asarray(arrays["alpha"], dtype=np.float64),
        loss=one_of(parameters["loss"], LOSSES) if soft else "",
        class_weight=_class_weight(parameters["class_weight"]) if soft else None,
        outliers={name.removeprefix(_OUTLIERS): arrays[name] for name in arrays if name.startswith(_OUTLIERS)},
        reference=np.asarray(arrays["ledger_reference"] if soft else np.zeros(0), dtype=np.float64),
    )


def any_claim(folder: Path, record: dict[str, Any], arrays: dict[str, np.ndarray], *, soft: bool) -> dict[str, Any]:
    """The fields of ``AnyClaim`` but for ``y`` and ``view``. Raises KeyError, TypeError or ValueError."""
    parameters, certificate = record["parameters"], record["certificate"]
    if not isinstance(parameters["intercept"], bool):
        raise ValueError(f"parameters.intercept: expected true or false, got {parameters['intercept']!r}")
    return {
        "path": folder,
        "problem": str(record["problem"]),
        "status": str(record["status"]),
        "features": int(record["features"]),
        "rows": int(record["rows"]),
        "dtype": str(record["dtype"]),
        "epsilon": number(parameters["epsilon"]),
        "intercept": parameters["intercept"],
        "kind": str(certificate["kind"]),
        "lower": number_or_none(certificate["lower"]),
        "upper": number_or_none(certificate["upper"]),
        "ratio": number_or_none(certificate["ratio"]),
        "proven_epsilon": number(certificate["epsilon"]),
        "store_digest": str(certificate["store_digest"]),
        "radius": number(certificate["radius"]),
        "soft": soft,
        "cost": above_zero(parameters["C"]) if soft else 0.0,
        "ids": np.asarray(arrays["coreset_ids"], dtype=np.int64),
        "x": coreset_rows(arrays),
        "scaling": one_of(scaling_of(record), ("", *COLUMN_SCALINGS, "rownorm")),
        "shift": np.asarray(arrays.get("shift", np.zeros(0)), dtype=np.float64),
        "factor": np.asarray(arrays.get("factor", np.zeros(0)), dtype=np.float64),
    }


def check_shapes(claim: AnyClaim, shapes: Mapping[str, tuple[int, ...]], weights: str) -> None:
    """Raises DataError unless the arrays have these shapes, those that all claims have included, and are finite.

    weights: the array of dual weights, whose values are judged as a claim.
    """
    m, columns = len(claim.ids), claim.features if claim.scaling in COLUMN_SCALINGS else 0
    width = 0 if claim.soft else claim.features
    for name, shape in {**shapes, "x": (m, width), "y": (m,), "shift": (columns,), "factor": (columns,)}.items():
        values = getattr(claim, name)
        if values.shape != shape:
            raise DataError(
                f"{claim.path}/arrays.npz: {name}: model.json says shape {shape}, found {values.shape}; "
                f"get an unaltered copy of the model"
            )
        plain = values.data if issparse(values) else values
        if not np.isfinite(plain).all() and name != weights:
            raise DataError(f"{claim.path}/arrays.npz: {name} is not finite; get an unaltered copy of the model")


def coreset_rows(arrays: dict[str, np.ndarray]) -> Any:
    """The coreset's rows (m, d) float64: an array, or a csr_array made of its parts once these fit together."""
    if "coreset_x" in arrays:
        return np.asarray(arrays["coreset_x"], dtype=np.float64)
    data, indices, indptr, shape = (arrays[name] for name in _SPARSE_X)
    if data.ndim != 1 or [part.dtype.kind for part in (data, indices, indptr, shape)] != ["f", "i", "i", "i"]:
        raise ValueError("coreset_x: expected values, columns, row starts and a shape")
    m, d = shape.tolist()
    if indptr.shape != (m + 1,) or indices.shape != data.shape or indptr[0] != 0 or indptr[-1] != len(data):
        raise ValueError("coreset_x: the row starts do not fit the values")
    if (np.diff(indptr) < 0).any() or (len(indices) and (indices.min() < 0 or indices.max() >= d)):
        raise ValueError("coreset_x: a row start or a column is out of range")
    first = np.zeros(len(indices), dtype=bool)
    first[indptr[:-1][np.diff(indptr) > 0]] = True
    if not (first[1:] | (np.diff(indices) > 0)).all():
        raise ValueError("coreset_x: the columns of a row do not ascend")
    return csr_array((data.astype(np.float64), indices, indptr), shape=(m, d))


def scaling_of(record: dict[str, Any]) -> str:
    """How rows are scaled, "" for rows as they are."""
    parameters = record.get("parameters")
    return str(parameters.get("scaling") or "") if isinstance(parameters, dict) else ""


def _class_weight(value: Any) -> str | tuple[float, float] | None:
    if value is None or value == "balanced":
        return None if value is None else "balanced"
    negative, positive = value
    return above_zero(negative), above_zero(positive)


def _check_shapes(claim: Claim, m: int, d: int) -> None:
    shapes = {"w": (d,), "alpha": (m,), "ids": (m,), "reference": (d + 1 if claim.soft else 0,)}
    check_shapes(claim, shapes, "alpha")
    if not math.isfinite(claim.b) or not np.isin(claim.y, (-1, 1)).all():
        raise DataError(f"{claim.path}/arrays.npz: b or coreset_y make no sense; get an unaltered copy of the model")


def number(value: Any) -> float:
    """A finite number. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value!r}")
    return float(value)


def above_zero(value: Any) -> float:
    """A number above 0. Raises ValueError."""
    if number(value) <= 0:
        raise ValueError(f"expected a number above 0, got {value!r}")
    return float(value)


def _only(values: np.ndarray) -> float:
    if values.shape != (1,):
        raise ValueError(f"b: expected one number, got shape {values.shape}")
    return float(values[0])


def one_of(value: Any, words: tuple[str, ...]) -> str:
    """One of some words. Raises ValueError."""
    if value not in words:
        raise ValueError(f"expected one of {', '.join(words)}, got {value!r}")
    return str(value)


def number_or_none(value: Any) -> float | None:
    """A finite number, or None. Raises ValueError."""
    return None if value is None else number(value)


def read_record(path: Path) -> dict[str, Any]:
    """The record of a model. Raises DataError: nothing there, of another kind or version, unreadable."""
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise DataError(f"{path}: expected at most {_LARGEST_JSON:,} bytes; this is not a model")
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: expected a model, cannot be read: {error.strerror}; give a model's folder") from error
    except RecursionError as error:
        raise DataError(f"{path}: expected a model's record, found JSON nested too deep; get a whole copy") from error
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: expected JSON, cannot be read ({error}); get a whole copy of the model") from error
    if not isinstance(record, dict) or record.get("format") != "coremargin-model":
        raise DataError(f"{path}: expected the record of a model, found other JSON; give a model's folder")
    if record.get("version") != 1:
        raise DataError(
            f"{path}: expected version 1, found {record.get('version')!r}; made by a newer coremargin: verify with that"
        )
    if record.get("problem") not in PROBLEMS:
        known = " or ".join(map(repr, PROBLEMS))
        raise DataError(f"{path}: expected problem {known}, found {record.get('problem')!r}; it cannot be verified")
    return record


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """These arrays, and the coreset's rows. Raises DataError."""
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            promised = sum(member.file_size for member in archive.infolist())
        if size > _LARGEST_ARRAYS or promised > size:
            raise DataError(f"{path}: {size:,} bytes that promise {promised:,}; get an unaltered copy of the model")
        with np.load(path, allow_pickle=False) as archive_arrays:
            rows = ["coreset_x"] if "coreset_x" in archive_arrays.files else _SPARSE_X
            about = [name for name in archive_arrays.files if name.startswith(_OUTLIERS)]
            return {name: archive_arrays[name] for name in (*names, *rows, *about)}
    except DataError:
        raise
    except (OSError, ValueError, KeyError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: truncated or altered ({error}); get a whole copy of the model") from error
