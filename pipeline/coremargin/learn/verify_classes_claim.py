"""What a model of several classes claims, read by ``verify`` itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from coremargin.errors import DataError
from coremargin.learn.verify_claim import (
    COLUMN_SCALINGS,
    above_zero,
    coreset_rows,
    number,
    number_or_none,
    one_of,
    read_arrays,
    read_record,
    scaling_of,
)
from coremargin.learn.verify_view import View

PROBLEM = "crammer_singer"
_ARRAYS = ("hypothesis", "duals", "coreset_ids", "coreset_classes")


@dataclass(frozen=True)
class ClassesClaim:
    """The claims of a model folder; names as in ``Claim`` where they mean the same."""

    path: Path
    status: str
    labels: tuple[Any, ...]
    features: int
    rows: int
    dtype: str
    epsilon: float
    intercept: bool
    constant: float  #: last entry of every row
    kind: str
    lower: float | None
    upper: float | None
    ratio: float | None
    proven_epsilon: float
    store_digest: str
    radius: float
    v: np.ndarray  #: (K, d + 1)
    duals: np.ndarray  #: (m, K)
    ids: np.ndarray  #: (m,) int64
    x: Any  #: (m, d); (m, 0) for a soft margin
    y: np.ndarray  #: (m,) places of classes, from 1: 0 is for rows that do not count
    soft: bool
    cost: float
    balanced: bool
    reference: np.ndarray  #: (K, d + 1), zeros for a hard margin
    scaling: str
    shift: np.ndarray
    factor: np.ndarray
    view: View

    @property
    def problem(self) -> str:
        """As in ``model.json``."""
        return PROBLEM


def is_several(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a model of several classes. Raises DataError."""
    return bool(read_record(Path(os.path.abspath(path)) / "model.json")["problem"] == PROBLEM)


def read_classes_claim(path: str | os.PathLike[str]) -> ClassesClaim:
    """Read a model folder. Raises DataError: nothing there, another format or version, unreadable."""
    folder = Path(os.path.abspath(path))
    record = read_record(folder / "model.json")
    try:
        soft = "loss" in record["parameters"]
        names = [*_ARRAYS, *(["reference"] if soft else [])]
        names += ["shift", "factor"] if scaling_of(record) in COLUMN_SCALINGS else []
        claim = _claim(folder, record, read_arrays(folder / "arrays.npz", tuple(names)), soft=soft)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{folder}: the model is incomplete or altered ({error!r}); get a whole copy of it") from error
    _check_shapes(claim, int(record["certificate"]["coreset_rows"]))
    return claim


def _claim(folder: Path, record: dict[str, Any], arrays: dict[str, np.ndarray], *, soft: bool) -> ClassesClaim:
    parameters, certificate = record["parameters"], record["certificate"]
    v = np.asarray(arrays["hypothesis"], dtype=np.float64)
    if not isinstance(parameters["intercept"], bool):
        raise ValueError(f"parameters.intercept: expected true or false, got {parameters['intercept']!r}")
    if soft:
        one_of(parameters["loss"], ("hinge",))
    weight = parameters["class_weight"] if soft else None
    return ClassesClaim(
        path=folder, status=str(record["status"]), labels=tuple(record["classes"]), features=int(record["features"]),
        rows=int(record["rows"]), dtype=str(record["dtype"]), epsilon=number(parameters["epsilon"]),
        intercept=parameters["intercept"], constant=number(record["constant"]), kind=str(certificate["kind"]),
        lower=number_or_none(certificate["lower"]), upper=number_or_none(certificate["upper"]),
        ratio=number_or_none(certificate["ratio"]), proven_epsilon=number(certificate["epsilon"]),
        store_digest=str(certificate["store_digest"]), radius=number(certificate["radius"]), v=v,
        duals=np.asarray(arrays["duals"], dtype=np.float64), ids=np.asarray(arrays["coreset_ids"], dtype=np.int64),
        x=coreset_rows(arrays), y=np.asarray(arrays["coreset_classes"], dtype=np.int64) + 1, soft=soft,
        cost=above_zero(parameters["C"]) if soft else 0.0,
        balanced=weight is not None and one_of(weight, ("balanced",)) == "balanced",
        reference=np.asarray(arrays["reference"] if soft else np.zeros_like(v), dtype=np.float64),
        scaling=one_of(scaling_of(record), ("", *COLUMN_SCALINGS, "rownorm")),
        shift=np.asarray(arrays.get("shift", np.zeros(0)), dtype=np.float64),
        factor=np.asarray(arrays.get("factor", np.zeros(0)), dtype=np.float64), view=View(),
    )  # fmt: skip


def _check_shapes(claim: ClassesClaim, m: int) -> None:
    d, classes = claim.features, len(claim.labels)
    columns = d if claim.scaling in COLUMN_SCALINGS else 0
    expected = {
        "v": (classes, d + 1), "duals": (m, classes), "ids": (m,), "x": (m, 0 if claim.soft else d), "y": (m,),
        "reference": (classes, d + 1), "shift": (columns,), "factor": (columns,),
    }  # fmt: skip
    for name, shape in expected.items():
        values = getattr(claim, name)
        if values.shape != shape:
            raise DataError(
                f"{claim.path}/arrays.npz: {name}: model.json says shape {shape}, found {values.shape}; "
                f"get an unaltered copy of the model"
            )
        if not np.isfinite(values.data if issparse(values) else values).all() and name != "duals":  # judged as a claim
            raise DataError(f"{claim.path}/arrays.npz: {name} is not finite; get an unaltered copy of the model")
    if classes < 2 or not ((claim.y >= 1) & (claim.y <= classes)).all():
        raise DataError(f"{claim.path}/arrays.npz: coreset_classes make no sense; get an unaltered copy of the model")
