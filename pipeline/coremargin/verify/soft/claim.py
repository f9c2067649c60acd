"""What the model of a soft margin claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coremargin.verify.claim import Claim

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class SoftClaim(Claim):
    """Of two classes, with a loss."""

    loss: str  #: "hinge" or "squared_hinge"
    cost: float  #: C
    class_weight: str | tuple[float, float] | None  #: "balanced", or factors of C of the negative and positive class
    reference: np.ndarray  #: (d + 1,) the hypothesis that the dual point belongs to
