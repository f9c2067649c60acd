"""What a model of several classes claims, as the scans of ``verify`` use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.crammer_singer import SeveralClasses
from coremargin.formats.model_record import WHOLE
from coremargin.verify.claim import AnyClaim, any_claim

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles


@dataclass(frozen=True, kw_only=True)
class ClassesClaim(AnyClaim):
    """Of several classes; y are their places, from 1."""

    labels: tuple[Any, ...]
    constant: float  #: last entry of every row
    v: np.ndarray  #: (K, d + 1)
    duals: np.ndarray  #: (m, K)
    balanced: bool
    reference: np.ndarray  #: (K, d + 1), zeros for a hard margin


def classes_claim_of(files: ModelFiles) -> ClassesClaim:
    """The claim in the files of a model of several classes."""
    record, arrays = files.record, files.arrays
    if not isinstance(record, SeveralClasses):
        raise TypeError(f"expected a model of several classes, got {record.problem}")
    v = arrays["hypothesis"]
    return ClassesClaim(
        **any_claim(files), y=arrays["coreset_classes"].astype(np.int64) + 1, view=WHOLE, labels=tuple(record.classes),
        constant=record.constant, v=v, duals=arrays["duals"], balanced=record.parameters.class_weight == "balanced",
        reference=arrays.get("reference", np.zeros_like(v)),
    )  # fmt: skip
