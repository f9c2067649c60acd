"""What the model of several classes at once claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coremargin.verify.claim import AnyClaim

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class ClassesClaim(AnyClaim):
    """Of several classes; y are their places, from 1."""

    labels: tuple[Any, ...]
    constant: float  #: last entry of every row
    v: np.ndarray  #: (K, d + 1)
    duals: np.ndarray  #: (m, K)
    cost: float  #: C, 0 for a hard margin
    balanced: bool
    reference: np.ndarray  #: (K, d + 1), zeros for a hard margin
