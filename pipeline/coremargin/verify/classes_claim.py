"""What a model of several classes claims, read by ``verify`` itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coremargin.errors import DataError
from coremargin.verify.claim import (
    COLUMN_SCALINGS,
    AnyClaim,
    any_claim,
    check_shapes,
    number,
    one_of,
    read_arrays,
    read_record,
    scaling_of,
)
from coremargin.verify.view import View

PROBLEM = "crammer_singer"
_ARRAYS = ("hypothesis", "duals", "coreset_ids", "coreset_classes")


@dataclass(frozen=True, kw_only=True)
class ClassesClaim(AnyClaim):
    """Of several classes; y are their places, from 1."""

    labels: tuple[Any, ...]
    constant: float  #: last entry of every row
    v: np.ndarray  #: (K, d + 1)
    duals: np.ndarray  #: (m, K)
    balanced: bool
    reference: np.ndarray  #: (K, d + 1), zeros for a hard margin


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
    parameters, v = record["parameters"], np.asarray(arrays["hypothesis"], dtype=np.float64)
    if soft:
        one_of(parameters["loss"], ("hinge",))
    weight = parameters["class_weight"] if soft else None
    return ClassesClaim(
        **any_claim(folder, record, arrays, soft=soft), y=np.asarray(arrays["coreset_classes"], dtype=np.int64) + 1,
        view=View(), labels=tuple(record["classes"]), constant=number(record["constant"]), v=v,
        duals=np.asarray(arrays["duals"], dtype=np.float64),
        balanced=weight is not None and one_of(weight, ("balanced",)) == "balanced",
        reference=np.asarray(arrays["reference"] if soft else np.zeros_like(v), dtype=np.float64),
    )  # fmt: skip


def _check_shapes(claim: ClassesClaim, m: int) -> None:
    d, classes = claim.features, len(claim.labels)
    shapes = {"v": (classes, d + 1), "duals": (m, classes), "ids": (m,), "reference": (classes, d + 1)}
    check_shapes(claim, shapes, "duals")
    if classes < 2 or not ((claim.y >= 1) & (claim.y <= classes)).all():
        raise DataError(f"{claim.path}/arrays.npz: coreset_classes make no sense; get an unaltered copy of the model")
