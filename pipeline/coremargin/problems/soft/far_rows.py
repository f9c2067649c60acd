"""What the stages of a soft margin's first read know of the rows that are far from the margin: sums, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from coremargin.problems.soft.stage_summary import StageSummary

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FarRows:
    """Of each stage (s,): at (s, d + 1) its hypothesis; edges (s, k + 1) of its rings; the sums of ``StageSummary``."""

    at: Array
    edges: Array
    value: Array
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
    def nothing(cls, stages: int, features: int, edges: int, rings: int, bins: int) -> FarRows:
        """Before the first stage."""
        p = features + 1
        return cls(
            at=np.zeros((stages, p)), edges=np.zeros((stages, edges)), value=np.zeros(stages),
            duals=np.zeros((stages, 2)), dual_sum=np.zeros((stages, 2, p)), rings=np.zeros((stages, rings, p, p)),
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

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> FarRows:
        """Inverse of ``to_arrays``."""
        return cls(**{f.name: arrays[f"{name}_{f.name}"] for f in fields(cls)})
