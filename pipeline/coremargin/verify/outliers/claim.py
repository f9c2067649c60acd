"""What the model of a margin with outliers claims, for each number of outliers that was asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from coremargin.verify.claim import Claim

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Trimmed:
    """The claim for one number of outliers; leaves: which of the proof's are about it, none where it is not stored."""

    k: int
    lower: float
    upper: float
    w: np.ndarray
    b: float
    leaves: slice


@dataclass(frozen=True, kw_only=True)
class OutlierClaim(Claim):
    """Of two classes, of all rows but some; the hyperplane and the bounds are those of the most outliers."""

    outliers: Mapping[str, np.ndarray]  #: the arrays about them by name
    requested: Any  #: how many rows may be left out, as it was asked for

    def tightened(self, more: float) -> Self:
        """The same for each number of outliers, too."""
        bounds = {"lower": self.outliers["lower"] + more, "upper": self.outliers["upper"] - more}
        return replace(super().tightened(more), outliers={**self.outliers, **bounds})

    @cached_property
    def trimmed(self) -> tuple[Trimmed, ...]:
        """A claim for each k."""
        arrays = self.outliers
        counts = arrays.get("proof_leaves", np.zeros(arrays["k"].shape, np.int64)).tolist()
        ends = list(accumulate(counts))
        return tuple(
            Trimmed(
                int(k),
                float(arrays["lower"][i]),
                float(arrays["upper"][i]),
                arrays["w"][i],
                float(arrays["b"][i]),
                slice(ends[i] - counts[i], ends[i]),
            )
            for i, k in enumerate(arrays["k"])
        )
