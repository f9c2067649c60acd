"""What selective block minimisation knows between two segments of a pass, beside the bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BlockPass:
    """A dual point of all rows, and how far a pass over them has come.

    duals (n,): a_i y_i of every row of the source; dual_sum (d + 1,): sum a_i y_i (x_i, 1); dual_total: sum of a_i,
    for the squared hinge of a_i - a_i^2 / (4 c_i). at (d + 1,): the minimiser about the last segment. total (d + 1,):
    sum of these minimisers over the pass, each times the rows it was about, seen of them. segment: the next one of the
    pass; as many as there are: a scan of all rows is next, the proof. values (k,): of the dual after each pass so far;
    gain: by which share the last segment raised it; wait: so many passes after the last proof there is another one, 0:
    as the gains say; waited: how many there were since. scans: passes and proofs that are done.
    """

    duals: Array
    dual_sum: Array
    dual_total: float
    at: Array
    total: Array
    seen: int
    segment: int
    values: Array
    gain: float
    wait: int
    waited: int
    scans: int

    @classmethod
    def nothing(cls, rows: int, features: int) -> BlockPass:
        """Before the first pass: all duals are zero."""
        zero = np.zeros(features + 1)
        return cls(
            duals=np.zeros(rows), dual_sum=zero, dual_total=0.0, at=zero, total=zero, seen=0, segment=0,
            values=np.zeros(0), gain=1.0, wait=0, waited=0, scans=0,
        )  # fmt: skip

    @property
    def value(self) -> float:
        """Of the dual, but for the rounding of its sums."""
        return self.dual_total - 0.5 * float(self.dual_sum[:-1] @ self.dual_sum[:-1])

    @property
    def mean(self) -> Array:
        """The mean minimiser (d + 1,) of the pass: better than any of them, each leans to its own segment."""
        return self.total / max(1, self.seen)

    def times(self, factor: float) -> BlockPass:
        """The same point where every row's C is so many times as high, which the duals and their sums are too."""
        return replace(
            self, duals=factor * self.duals, dual_sum=factor * self.dual_sum, dual_total=factor * self.dual_total
        )

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays ``NAME_duals`` and so on; exact."""
        return {f"{name}_{field}": value for field, value in state_to_arrays(self).items()}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> BlockPass | None:
        """Inverse of ``to_arrays``; None where there is none."""
        start = f"{name}_"
        mine = {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}
        return cls(**state_from_arrays(cls, mine, {})) if mine else None
