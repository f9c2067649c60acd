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

    loss: str  #: a name in losses.py
    cost: float  #: C
    class_weight: str | tuple[float, float] | None  #: "balanced", or factors of C of the negative and positive class
    reference: np.ndarray  #: (r, d + 1) the hypotheses that the dual point belongs to
    reference_of: np.ndarray  #: (chunks,) int64: which of them is that of a chunk; (0,): there is one for all
    ramp: float  #: of the squared hinge's corrected dual point (correction.py), 0: slacks in proportion
    tried: Claim | None  #: that there is no hard margin, where one was tried; without its rows
