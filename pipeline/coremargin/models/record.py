"""Records as text: what ``model.json``, ``fleet.json`` and ``run.json`` are written with."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from coremargin.formats.model_record import StoreHash


@dataclass(frozen=True)
class Certificate:
    """The claims about the store: ``lower`` and ``upper`` bound the optimum, None: nothing is claimed.

    A margin is maximised, and the hypothesis has ``lower``; the objective of a soft margin is minimised, and the
    hypothesis has ``upper``. formats/model_record.py has the ranges.
    """

    kind: str  #: "margin", "not_separable" or "duality_gap"
    lower: float | None  #: margin of the hypothesis over all rows, or bound of the dual point, rounded down
    upper: float | None  #: from the dual weights of the coreset, or value of the hypothesis over all rows, rounded up
    ratio: float | None  #: lower / upper
    epsilon: float  #: the requested precision: lower >= (1 - epsilon) upper
    coreset_rows: int
    store_digest: str  #: identity of the rows that the claim is about
    radius: float  #: largest row norm, rounded up
    store_sha256: StoreHash | None = None  #: SHA-256 of the same rows; None for rows in memory, and for older stores

    @property
    def is_margin(self) -> bool:
        """Whether a margin is bounded."""
        return self.kind == "margin"

    @property
    def is_value(self) -> bool:
        """Whether the value of an objective is bounded."""
        return self.kind == "duality_gap"


def plain(value: Any) -> Any:
    """The value for JSON: NumPy scalars and arrays become plain, numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_text(value: Mapping[str, Any]) -> str:
    """Deterministic text: sorted keys, shortest floats that read back to the bit, newline at the end."""
    return json.dumps(plain(value), indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
