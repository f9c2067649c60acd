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

#: Fields that no summary has.
_OWN = ("at", "edges", "taken")


@dataclass(frozen=True)
class FarRows:
    """Of each stage (s,): at (s, d + 1) its hypothesis; edges (s, k + 1) of its rings; the sums of ``StageSummary``.

    Of rows that were taken out of the sums again, taken (s, 2) has their losses and their duals: these are still in the
    rounding of the sums. They are also in what bounds sums from above: total_c, ring_weight, ring_spread, the rings of
    rows that may cross, and least, from below.
    """

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
    taken: Array

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
            taken=np.zeros((stages, 2)),
        )  # fmt: skip

    def record(self, stage: int, at: Array, edges: Array, found: StageSummary) -> FarRows:
        """With what a stage found at a hypothesis, in the place of what it had found before."""
        given = {f.name: getattr(found, f.name) for f in fields(self) if f.name not in _OWN}
        changed = {}
        for name, value in {"at": at, "edges": edges, "taken": np.zeros(2), **given}.items():
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

    def less(self, stage: int, gone: StageSummary, *, curves: bool) -> FarRows:
        """Without some rows of a stage, by what they say at its hypothesis; curves: whether those of losing rows count.

        Their rings are taken out where sums are made of them: each row must be in the ring that it was in.
        """
        changed = {name: getattr(self, name).copy() for name in ("value", "duals", "dual_sum", "below", "histogram")}
        for name, value in changed.items():
            found = getattr(gone, name)
            value[stage] -= found if value.ndim > 1 else found[0]
        for name in ("below", "histogram"):  # a row may be in another bin by rounding
            changed[name] = np.maximum(changed[name], 0)
        changed["taken"] = self.taken.copy()
        changed["taken"][stage] += [gone.value[0], gone.duals.sum()]
        if curves:
            changed |= {name: getattr(self, name).copy() for name in ("rings", "ring_weight", "ring_spread")}
            losing = slice(0, self.edges.shape[1])
            changed["rings"][stage, losing] -= gone.rings[losing]
            changed["ring_weight"][stage, losing] += gone.ring_weight[losing]
            changed["ring_spread"][stage, losing] += gone.ring_spread[losing]
        return replace(self, **changed)

    def more(self, stage: int, come: StageSummary) -> FarRows:
        """With some rows more of a stage, by what they say at its hypothesis."""
        changed = {f.name: getattr(self, f.name).copy() for f in fields(self) if f.name not in _OWN}
        for name, value in changed.items():
            found = getattr(come, name)
            found = found if value.ndim > 1 else found[0]
            value[stage] = min(value[stage], found) if name == "least" else value[stage] + found
        return replace(self, **changed)

    def of_stages(self, stages: int) -> FarRows:
        """The same with room for so many stages."""
        more = stages - len(self.at)
        empty = {f.name: np.inf if f.name == "least" else 0 for f in fields(self)}
        grown = {}
        for f in fields(self):
            have = getattr(self, f.name)
            grown[f.name] = np.concatenate([have, np.full((more, *have.shape[1:]), empty[f.name], have.dtype)])
        return replace(self, **grown)

    def times(self, ratio: Array) -> FarRows:
        """The same with c so many times as large, of rows of the positive and of the negative class (2,).

        Sums of both classes are right where the two are equal, and else bounds from above.
        """
        most = float(ratio.max())
        both = ("value", "rings", "ring_weight", "ring_spread", "taken")
        changed = {name: most * getattr(self, name) for name in both}
        changed |= {"duals": ratio * self.duals, "dual_sum": ratio[:, None] * self.dual_sum}
        return replace(self, **changed, total_c=ratio * self.total_c)

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> FarRows:
        """Inverse of ``to_arrays``."""
        return cls(**{f.name: arrays[f"{name}_{f.name}"] for f in fields(cls)})
