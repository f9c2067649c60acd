"""The worker's part of a scan: rows near the margin and near the bound are sent, the others summed up.

A row far from the margin has the dual weight of its side: c if its margin y (w.x + b) is below 1, else 0. A few of the
far rows are sent, too, each of which stands for others: they show where such a row would cross the margin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import kept_of, parts_of
from coremargin.maths.exact import exact_decisions
from coremargin.maths.margin import gamma
from coremargin.maths.rows import products, take, weighted_sum
from coremargin.problems.common.sent import SentRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.common.zone import smallest_positions

if TYPE_CHECKING:
    from coremargin.data.parts import Part
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ProjectionSummary:
    """The summary of the rows of some blocks, f = w.x + b being their decision values.

    losses (k,): sum c max(0, 1 - t y f) for each scale t. lowest, highest (1,): of f. sent: rows; of each, costs (m,)
    its c, near (m,) whether it is near the margin, so that its dual weight is to be solved, by_side (m,) the weight
    that a far row has in the sums, and far_c (m,) the c of all far rows that it stands for. far_total (1,): sum c over
    the far rows with margins below 1; far_linear (d + 1,): sum c y (x, 1) over these. wrong, below (1,): rows with
    margins of at most 0, and below 1. histogram (2, bins): of f, of the positive and the negative class.
    """

    losses: Array
    lowest: Array
    highest: Array
    sent: SentRows
    costs: Array
    near: NDArray[np.bool_]
    by_side: Array
    far_c: Array
    far_total: Array
    far_linear: Array
    wrong: NDArray[np.int64]
    below: NDArray[np.int64]
    histogram: NDArray[np.int64]

    def merge(self, later: ProjectionSummary) -> ProjectionSummary:
        """This summary and that of later blocks."""
        joined = ("costs", "near", "by_side", "far_c")
        found: dict[str, Any] = {
            f.name: getattr(self, f.name) + getattr(later, f.name)
            for f in fields(self)
            if f.name not in ("lowest", "highest", "sent", *joined)
        }
        found |= {name: np.concatenate([getattr(self, name), getattr(later, name)]) for name in joined}
        return ProjectionSummary(
            lowest=np.minimum(self.lowest, later.lowest),
            highest=np.maximum(self.highest, later.highest),
            sent=self.sent.merge(later.sent),
            **found,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class ProjectionProbe:
    """The probe of a scan about the hypothesis ``newest`` (d + 1,).

    codes: label codes of the positive and the negative class; class_c (2,): c of their rows of weight 1. scales (k,):
    see ``ProjectionSummary``. near, extreme, few: how many rows a chunk sends that are nearest to the margin, that have
    the largest and smallest decision values (of each), and that stand for far rows. high: the histogram is from -high
    to high; rows beyond are in the outermost bins.
    """

    newest: Array
    codes: tuple[int, int]
    class_c: Array
    scales: Array
    near: int
    extreme: int
    few: int
    high: float
    bins: int
    dtype: str
    sparse: bool

    def narrow(self, block: Block) -> ProjectionProbe:
        """The same probe."""
        return self

    def empty(self) -> ProjectionSummary:
        """The summary of no rows."""
        return ProjectionSummary(
            losses=np.zeros(len(self.scales)),
            lowest=np.full(1, np.inf),
            highest=np.full(1, -np.inf),
            sent=SentRows.nothing(len(self.newest) - 1, np.dtype(self.dtype), sparse=self.sparse),
            costs=np.zeros(0),
            near=np.zeros(0, bool),
            by_side=np.zeros(0),
            far_c=np.zeros(0),
            far_total=np.zeros(1),
            far_linear=np.zeros(len(self.newest)),
            wrong=np.zeros(1, np.int64),
            below=np.zeros(1, np.int64),
            histogram=np.zeros((2, self.bins), np.int64),
        )

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> ProjectionSummary:
        """A summary from a checkpoint."""
        return ProjectionSummary(**state_from_arrays(ProjectionSummary, arrays, {"sent": SentRows.from_arrays}))

    def __call__(self, source: Source, block: Block) -> ProjectionSummary:
        """The summary of one block, chunk by chunk."""
        summary, longest = self.empty(), source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                summary = summary.merge(self._part(part, float(longest[chunk])))
        return summary

    def _part(self, part: Part, longest: float) -> ProjectionSummary:
        signs = (part.codes == self.codes[0]).astype(np.int8) - (part.codes == self.codes[1])
        costs = np.where(signs > 0, self.class_c[0], self.class_c[1])
        if part.weights is not None:
            costs = costs * part.weights
        mine = np.flatnonzero((signs != 0) & (costs > 0))
        if not len(mine):
            return self.empty()
        rows = part.rows if len(mine) == len(signs) else take(part.rows, mine)
        signs, costs = signs[mine], costs[mine]
        w, b = self.newest[:-1], float(self.newest[-1])
        decisions = np.asarray(products(rows, w[:, None])[0] + b)
        margins = decisions * signs
        near = np.zeros(len(mine), bool)
        near[smallest_positions(np.abs(margins - 1.0), kept_of(self.near, part.share))] = True
        # The verifier has to find the same sides, even if many rows lie at the margin, as equal rows may.
        error = gamma(len(w) + 3) * (longest * float(np.linalg.norm(w)) + abs(b) + 1.0)
        unclear = np.flatnonzero(~near & (np.abs(margins - 1.0) <= 2.0 * error))
        margins[unclear] = signs[unclear] * exact_decisions(take(rows, unclear), w, b)
        losing = np.where(~near & (margins < 1.0), costs * signs, 0.0)
        chosen, extreme, far_c = near.copy(), kept_of(self.extreme, part.share), np.zeros(len(mine))
        for values in (decisions, -decisions):
            chosen[smallest_positions(values, extreme)] = True
        far = np.flatnonzero(~near)
        if len(far):
            few = far[np.unique(np.linspace(0, len(far) - 1, max(1, kept_of(self.few, part.share))).astype(np.intp))]
            chosen[few], far_c[few] = True, costs[far].sum() / len(few)
        sent = np.flatnonzero(chosen)
        place = (decisions + self.high) * (self.bins / (2.0 * self.high))
        place = np.clip(np.nan_to_num(place), 0, self.bins - 1).astype(np.intp)
        sides = [np.bincount(place[signs == sign], minlength=self.bins) for sign in (1, -1)]
        return replace(
            self.empty(),
            losses=np.array([costs @ np.maximum(1.0 - scale * margins, 0.0) for scale in self.scales]),
            lowest=np.array([decisions.min()]),
            highest=np.array([decisions.max()]),
            sent=SentRows.one_part(part.start + mine[sent], take(rows, sent), signs[sent]),
            costs=costs[sent],
            near=near[sent],
            by_side=np.abs(losing[sent]),
            far_c=far_c[sent],
            far_total=np.array([np.abs(losing).sum()]),
            far_linear=np.append(weighted_sum(rows, losing), losing.sum()),
            wrong=np.array([np.count_nonzero(margins <= 0.0)]),
            below=np.array([np.count_nonzero(margins < 1.0)]),
            histogram=np.stack(sides),
        )
