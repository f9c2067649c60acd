"""Records as text: what ``model.json``, ``fleet.json`` and ``run.json`` are written with."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Certificate:
    """What is claimed about the store; ``lower`` and ``upper`` bound what is best possible, None: nothing is claimed.

    A margin is to be large, and the hypothesis has ``lower``; the value of a soft margin is to be small, and the
    hypothesis has ``upper``. formats/model_record.py says what each may be.
    """

    kind: str  #: "margin", "not_separable" or "duality_gap"
    lower: float | None  #: margin of the hypothesis over all rows, or bound of the dual point, rounded down
    upper: float | None  #: from the dual weights of the coreset, or value of the hypothesis over all rows, rounded up
    ratio: float | None  #: lower / upper
    epsilon: float  #: what was asked for: lower >= (1 - epsilon) upper
    coreset_rows: int
    store_digest: str  #: identity of the rows that the claim is about
    radius: float  #: largest row norm, rounded up

    @property
    def is_margin(self) -> bool:
        """Whether a margin is bounded."""
        return self.kind == "margin"

    @property
    def is_value(self) -> bool:
        """Whether the value of an objective is bounded."""
        return self.kind == "duality_gap"


def plain(value: Any) -> Any:
    """The value as JSON has it: NumPy scalars and arrays become plain, what is not finite becomes null."""
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
