"""What the stages of a soft margin's first read know of the rows that are far from the margin, and what it proves.

A stage at hypothesis w0 sums up its far rows as if none of them could change sides: c times the slack of those that
lose there, 0 of the others. These lines never lie above the hinge. With the rows near the margin, as they are, they are
a model that underestimates the value everywhere, and the dual of its minimum is one of all rows: c or 0 by side at the
hypothesis of a row's stage, and what is best for the rows near the margin.

How far the value of another hypothesis is above its model: with s = y (dw.x + db), t = |1 - margin| at w0, and M no
less than any |s|, a row that has crossed the margin is above its line by

    c max(0, |s| - t)  <=  c s^2 / t * (M < 2 t ? (t / M) (1 - t / M) : 1 / 4)

so that the rows of a ring, t in [t0, t1), are known well enough by one matrix: sum c / t (x, 1)(x, 1)^T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import gamma

if TYPE_CHECKING:
    from coremargin.problems.soft.objective import Objective
    from coremargin.problems.soft.stage_summary import StageSummary

Array = NDArray[np.float64]

#: A row whose distance from the margin is less than so many times its rounding error may be on either side of it.
CLEAR = 1e6


@dataclass(frozen=True)
class FarRows:
    """Of each stage (s,): at (s, d + 1) its hypothesis; edges (s, r + 1) of its rings; the sums of ``StageSummary``."""

    at: Array
    edges: Array
    duals: Array
    dual_sum: Array
    rings: Array
    ring_weight: Array
    ring_spread: Array
    least: Array
    below: NDArray[np.int64]
    histogram: NDArray[np.int64]
    total_c: Array

    @classmethod
    def nothing(cls, stages: int, features: int, rings: int, bins: int) -> FarRows:
        """Before the first stage."""
        p = features + 1
        return cls(
            at=np.zeros((stages, p)), edges=np.zeros((stages, rings + 1)), duals=np.zeros((stages, 2)),
            dual_sum=np.zeros((stages, 2, p)), rings=np.zeros((stages, rings, p, p)),
            ring_weight=np.zeros((stages, rings)), ring_spread=np.zeros((stages, rings)),
            least=np.full(stages, np.inf), below=np.zeros(stages, np.int64),
            histogram=np.zeros((stages, 2, bins), np.int64), total_c=np.zeros((stages, 2)),
        )  # fmt: skip

    def record(self, stage: int, at: Array, edges: Array, found: StageSummary) -> FarRows:
        """With what a stage found at a hypothesis, in the place of what it had found before."""
        given = {f.name: getattr(found, f.name) for f in fields(self) if f.name not in ("at", "edges")}
        changed = {}
        for name, value in {"at": at, "edges": edges, **given}.items():
            changed[name] = getattr(self, name).copy()
            changed[name][stage] = value if changed[name].ndim > 1 else value[0]
        return replace(self, **changed)

    def without(self, stages: NDArray[np.bool_]) -> FarRows:
        """Of some stages (s,) nothing is known any more."""
        changed = {}
        for f in fields(self):
            changed[f.name] = getattr(self, f.name).copy()
            changed[f.name][stages] = np.inf if f.name == "least" else 0
        return replace(self, **changed)

    def losses(self, objective: Objective, at: Array) -> float:
        """Of all far rows at a hypothesis, as if none had changed sides, rounded up."""
        size = objective.magnitudes.reach(np.abs(at[:-1])) + abs(float(at[-1])) + 1.0
        total = float(self.duals.sum())
        value = total - float((self.dual_sum @ at).sum())
        return value + 16.0 * objective.magnitudes.sum_error * total * (size + 1.0)

    def crossed(self, objective: Objective, at: Array, most: Array) -> Array:
        """What far rows of each stage (s,) that have changed sides at a hypothesis add to that, at most.

        most (s,): no margin of a row of that stage has moved by more since.
        """
        found = np.zeros(len(self.at))
        for stage in range(len(self.at)):
            move = at - self.at[stage]
            if self.total_c[stage].any() and move.any():
                found[stage] = self._crossed(objective, stage, move, float(most[stage]))
        return found

    def _crossed(self, objective: Objective, stage: int, move: Array, most: float) -> float:
        edges, least = self.edges[stage], float(self.least[stage])
        at, magnitudes = self.at[stage], objective.magnitudes
        error = gamma(len(at) + 2) * (magnitudes.reach(np.abs(at[:-1])) + abs(float(at[-1])) + 1.0)
        whatever = float(self.total_c[stage].sum()) * (most + 4.0 * error)  # no row has moved farther
        if most + 4.0 * error >= edges[-1]:  # rows beyond the last edge are in no ring
            return whatever
        nearest = np.maximum(edges[:-1], min(least, edges[-1])) * (1.0 - 8.0 / CLEAR) / most
        shares = np.where(nearest > 0.5, np.maximum(nearest * (1.0 - nearest), 0.0), 0.25)
        if least < CLEAR * error and shares[0] > 0:
            return whatever
        total = 0.0
        for k in np.flatnonzero(shares):
            weight, spread = float(self.ring_weight[stage, k]), float(self.ring_spread[stage, k])
            body, edge = magnitudes.curve_errors(weight, spread)
            square = max(0.0, float(move @ self.rings[stage, k] @ move)) + (body + 2.0 * edge) * float(move @ move)
            total += float(shares[k]) * square
        total *= 1.0 + 4.0 / CLEAR  # how far a row was away is known up to its rounding error, which is little
        return min(total, whatever)

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> FarRows:
        """Inverse of ``to_arrays``."""
        return cls(**{f.name: arrays[f"{name}_{f.name}"] for f in fields(cls)})
