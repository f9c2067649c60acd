"""What a certificate claims, as pages write it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coremargin.errors import DataError
from coremargin.formats.model_record import FILE
from coremargin.report.numbers import Precision, finite, precision_for

if TYPE_CHECKING:
    from coremargin.report.page import Json


@dataclass(frozen=True)
class Claims:
    """Both bounds, None for one that is not claimed, and the digits that tell them apart.

    ratio: the proven share of the best, never more than the bounds say; epsilon: what was asked for.
    """

    certificate: Json
    lower: float | None
    upper: float | None
    ratio: float | None
    epsilon: float
    precision: Precision

    def view(self) -> dict[str, Any]:
        """For templates."""
        return dict(vars(self))


def claims_of(model: Json, name: str) -> Claims:
    """The claims in the record of a model in the folder ``name``. Raises DataError where it has no epsilon."""
    certificate = model.get("certificate") or {}
    lower, upper = finite(certificate.get("lower")), finite(certificate.get("upper"))
    ratio = _ratio(certificate, lower, upper)
    return Claims(certificate, lower, upper, ratio, _epsilon(model, name), precision_for(lower, upper))


def _epsilon(model: Json, name: str) -> float:
    for holder in (model.get("certificate"), model.get("parameters")):
        found = finite((holder or {}).get("epsilon"))
        if found is not None and 0.0 < found < 1.0:
            return found
    raise DataError(f"{name}/{FILE}: expected an epsilon between 0 and 1, found none; is this a model's folder?")


def _ratio(certificate: Json, lower: float | None, upper: float | None) -> float | None:
    if lower is None or upper is None or upper <= 0.0:
        return None
    proven = math.nextafter(lower / upper, -math.inf) if lower < upper else 1.0
    claimed = finite(certificate.get("ratio"))
    return proven if claimed is None else min(claimed, 1.0)
