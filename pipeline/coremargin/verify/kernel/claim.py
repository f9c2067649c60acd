"""What the model of a machine with a kernel claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.claim import AnyClaim

if TYPE_CHECKING:
    from coremargin.verify.kernel.values import Function


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """What is claimed of functions on fewer rows than the whole coreset, in whose place they decide."""

    weights: np.ndarray  #: (m, k), 0 of rows that do not carry them
    rows: int
    distance: float  #: of any of them from its whole one, on any row, at most
    changed: int  #: rows whose class may be another one, at most


@dataclass(frozen=True, kw_only=True)
class KernelClaim(AnyClaim):
    """Of k columns; y are the places of the rows' classes, from 1."""

    labels: tuple[Any, ...]
    function: Function
    scale: bool  #: gamma is said to be the one of "scale"
    duals: np.ndarray  #: (m, k)
    offsets: np.ndarray  #: (k,)
    lowers: np.ndarray  #: (k,) NaN where nothing is claimed
    uppers: np.ndarray  #: (k,)
    loss: str  #: "" for a hard margin
    cost: float  #: C, 0 for a hard margin
    weight: str | tuple[float, float] | None  #: class_weight
    kept: np.ndarray  #: (s, s) of a function its values of some coreset rows, (0, 0) of other kernels
    reduced: Reduction | None  #: None: what decides is what the dual weights carry

    @property
    def signs(self) -> np.ndarray:
        """Sides (m, k) of the coreset's rows."""
        return sides(self.y, len(self.labels))

    @property
    def deciding(self) -> np.ndarray:
        """Weights (m, k) of the coreset's rows in what decides."""
        return self.signs * self.duals if self.reduced is None else self.reduced.weights


def sides(places: np.ndarray, classes: int) -> np.ndarray:
    """1 and -1 (n, k) for rows whose classes have these places (n,), from 1: of two classes 1 for the second."""
    own = np.array([2]) if classes == 2 else np.arange(1, classes + 1)
    return np.where(places[:, None] == own[None, :], 1.0, -1.0)
