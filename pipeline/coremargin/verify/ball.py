"""A smallest enclosing ball: every row that counts is within the radius, and the coreset allows no smaller ball.

Upper bound, by a scan: the largest distance of a row from the centre. Distances are computed from differences x - c,
with a relative error below gamma_(d+4). Sparse rows are first measured by ||x||^2 - 2 x.c + ||c||^2, off by at most
2 gamma_(d+8) (||x|| + ||c||)^2: only those that may be the farthest are made dense.

Lower bound, without a scan: for weights b >= 0 that sum to 1, and any point q, no ball around the coreset has a radius
below the root of

    sum_i b_i ||x_i - q||^2 - ||sum_i b_i (x_i - q)||^2.

q is the rows' mean by these weights: then the second term is what rounding leaves of 0. The first one has terms that
are not negative. Errors of both are below 4 gamma_(m+d+8) of the first one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import UNSET
from scipy.sparse import issparse

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import CLOSE, Check, certified, in_order, same_epsilon, same_ratio, shown, typed
from coremargin.verify.claim import AnyClaim, any_claim
from coremargin.verify.kind import Kind
from coremargin.verify.store import Members, StoreFindings
from coremargin.verify.sums import SLAB_VALUES, UNIT, VANISHED, gamma, slabs

if TYPE_CHECKING:
    from coremargin.formats.ball import Ball
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows


@dataclass(frozen=True, kw_only=True)
class BallClaim(AnyClaim):
    """A ball, and the dual weights of the rows that allow no smaller one."""

    centre: np.ndarray  #: (d,)
    alpha: np.ndarray  #: (m,)
    only: Any  #: the label of the rows that count; UNSET: all rows do


@dataclass(frozen=True)
class DistanceSummary:
    """The summary of one chunk: the largest distance, and the first row that has it; -1: no row counts."""

    farthest: float
    row: int
    others: int  #: rows that do not count
    radius: float
    members: Members


class BallScan(StoreFindings):
    """The scan for the farthest row."""

    claim: BallClaim

    def __init__(self, claim: BallClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.farthest, self.row = 0.0, -1
        self.lower, self.problem = lower_bound(claim)
        same = [typed(label) == typed(claim.only) for label in rows.classes]
        self._of_class = np.array([*same, False])  # code -1 is the last: unlabelled

    @property
    def aside(self) -> str:
        """Text about the rows that do not count."""
        what = "of weight 0" if self.claim.only is UNSET else "of other classes, without label or of weight 0"
        return f", {self.unlabelled:,} {what} apart" if self.unlabelled else ""

    def probe(self, chunk: Chunk) -> DistanceSummary:
        """The summary of a chunk, in slabs of float64."""
        signs = np.ones(len(chunk.codes), np.int64)
        if self.claim.only is not UNSET:
            signs = np.where(self._of_class[chunk.codes], 1, np.where(chunk.codes < 0, 0, -1))
        if chunk.weights is not None:
            signs = np.where(chunk.weights > 0, signs, 0)
        farthest, row, radius = 0.0, -1, 0.0
        for part, x in slabs(chunk.x):
            radius = max(radius, float(self.lengths(x, chunk.start + part.start).max()))
            mine = np.flatnonzero(signs[part] > 0)
            if not len(mine):
                continue
            distance, place = farthest_of(x[mine], self.claim.centre)
            if row < 0 or not distance <= farthest:
                farthest, row = distance, chunk.start + part.start + int(mine[place])
        return DistanceSummary(farthest, row, int((signs <= 0).sum()), radius, self.members(chunk, signs))

    def add(self, summary: DistanceSummary) -> None:
        """Add a summary; in the order of chunks, so that ties are decided by the lower row."""
        if summary.row >= 0 and (self.row < 0 or not summary.farthest <= self.farthest):
            self.farthest, self.row = summary.farthest, summary.row
        self.count(summary.others, summary.radius, summary.members)

    def bounds(self) -> tuple[float | None, float | None]:
        """What the coreset and the farthest row prove."""
        return (None if self.claim.lower is None else self.lower), self.farthest

    def checks(self) -> list[Check]:
        """Whether the store is the claim's, the coreset's rows are the store's, and both bounds hold."""
        problems, claim = self.membership(), self.claim
        text = "; ".join(problems) or f"all {self.matched:,} rows are the store's, bit for bit"
        return [self.content(), Check("coreset", not problems, text), self._upper(), *self._lower(claim.lower)]

    def _upper(self) -> Check:
        claimed, found = self.claim.upper, shown(self.farthest)
        if self.row < 0:
            return Check("upper bound", ok=False, text="the store has no row that counts, nothing can be claimed")
        text = f"row {self.row} is the farthest of {self.counted}, at a distance of {found}"
        if claimed is None:
            return Check("upper bound", ok=False, text=f"model claims no radius; {text}")
        if self.farthest <= claimed:
            return Check("upper bound", ok=True, text=f"{text} (claimed: at most {shown(claimed)})")
        return Check("upper bound", ok=False, text=f"model claims {shown(claimed)}, {text}")

    def _lower(self, claimed: float | None) -> list[Check]:
        if claimed is None:
            return [Check("lower bound", ok=True, text="nothing is claimed")]
        if self.lower is None:
            return [Check("dual weights", ok=False, text=self.problem)]
        text = f"{len(self.claim.alpha):,} coreset rows allow no radius below {shown(self.lower)}"
        ok = claimed <= self.lower
        shown_text = f"{text} (claimed: {shown(claimed)})" if ok else f"model claims {shown(claimed)}, {text}"
        weights = f"{len(self.claim.alpha):,} weights >= 0 that sum to 1"
        return [Check("dual weights", ok=True, text=weights), Check("lower bound", ok, shown_text)]


def farthest_of(x: Any, centre: np.ndarray) -> tuple[float, int]:
    """The largest distance of rows x (n, d) float64 from a point (d,), rounded up, and the row that has it."""
    d = len(centre)
    near = np.arange(x.shape[0])
    if issparse(x):
        squares = np.asarray(x.multiply(x).sum(axis=1)).ravel()
        fast = squares - 2 * (x @ centre) + centre @ centre
        error = 2 * gamma(d + 8) * (np.sqrt(squares) + np.linalg.norm(centre)) ** 2 + d * VANISHED**2
        near = np.flatnonzero(~(fast + error < (fast - error).max()))  # what overflows is among them
    best, place, step = -1.0, 0, max(1, SLAB_VALUES // d)
    for start in range(0, len(near), step):
        rows = near[start : start + step]
        part = x[rows]
        off = (part.toarray() if issparse(part) else part) - centre
        distances = np.sqrt(np.einsum("ij,ij->i", off, off))
        distances = np.where(np.isnan(distances), np.inf, distances) + off.any(axis=1) * math.sqrt(d) * VANISHED
        k = int(distances.argmax())
        if distances[k] > best:
            best, place = float(distances[k]), int(rows[k])
    return best * (1 + gamma(d + 8)), place


def lower_bound(claim: BallClaim) -> tuple[float | None, str]:
    """The radius below which no ball contains the coreset, rounded down; None, and why, if the weights are none."""
    a, total = claim.alpha, float(claim.alpha.sum())
    if not ((a >= 0).all() and abs(total - 1) <= CLOSE):
        return None, f"expected weights >= 0 that sum to 1, found {shown(total)} in all"
    x, share = claim.x, a / total
    middle = share @ x
    square, moved = 0.0, np.zeros(claim.features)
    step = max(1, SLAB_VALUES // claim.features)
    for start in range(0, len(a), step):
        part = x[start : start + step]
        off = (part.toarray() if issparse(part) else part) - middle
        square += float(share[start : start + step] @ np.einsum("ij,ij->i", off, off))
        moved += share[start : start + step] @ off
    found = square * (1 - 4 * gamma(len(a) + claim.features + 8)) - float(moved @ moved)
    return math.sqrt(found) * (1 - 2 * UNIT) if found > 0 else 0.0, ""


class BallKind(Kind[BallClaim]):
    """Every row that counts is within the radius, and the coreset allows no smaller ball."""

    def claim(self, files: ModelFiles) -> BallClaim:
        """The ball, and the dual weights of its coreset."""
        arrays = files.arrays
        shared = any_claim(files, WHOLE, soft=False) | {"y": np.ones(len(arrays["alpha"]), np.int64)}
        only = cast("Ball", files.record).only
        return BallClaim(**shared, centre=arrays["centre"], alpha=arrays["alpha"], only=only)

    def same_classes(self, claim: BallClaim, rows: Rows) -> Check:
        """Whether the store has the class whose rows count."""
        if claim.only is UNSET:
            return super().same_classes(claim, rows)
        ok = typed(claim.only) in {typed(label) for label in rows.classes}
        text = f"the rows of class {claim.only!r} count"
        known = ", ".join(map(repr, rows.classes)) or "none"
        return Check("classes", ok, text if ok else f"model claims {text}, the store has {known}")

    def consistency(self, claim: BallClaim) -> list[Check]:
        """Epsilon, ratio, status."""
        zero = claim.lower == claim.upper == 0
        ratio = same_ratio(claim) if not (zero and claim.ratio == 1) else []
        return [*same_epsilon(claim), *ratio, self._status(claim)]

    def _status(self, claim: BallClaim) -> Check:
        bounds = f"lower {shown(claim.lower)}, upper {shown(claim.upper)}, epsilon {claim.proven_epsilon}"
        if claim.status == "stopped" and in_order(claim):
            return Check("status", ok=True, text=f"stopped before epsilon was proven: {bounds}")
        if claim.status == "certified" and in_order(claim):
            if self.certifies(claim, claim.lower, claim.upper):
                text = f"certified: lower / upper is at least 1 - {claim.proven_epsilon}"
                return Check("status", ok=True, text=text)
            return Check(
                "status", ok=False, text=f"model claims to be certified, its own numbers do not say so: {bounds}"
            )
        return Check("status", ok=False, text=f"model claims status {claim.status!r}, which contradicts {bounds}")

    def certifies(self, claim: BallClaim, lower: float | None, upper: float | None) -> bool:
        """A radius of 0 needs no share: all rows are equal."""
        return (upper == 0 and lower == 0) or certified(lower, upper, claim.proven_epsilon)

    def scan(self, claim: BallClaim, rows: Rows) -> BallScan:
        """The distance of each row."""
        return BallScan(claim, rows)

    def terms(self, claim: BallClaim) -> str:
        """Which rows count."""
        return "" if claim.only is UNSET else f", of the rows of class {claim.only!r}"

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the radius."""
        return f"no ball that contains the rows has a radius below (1 - {epsilon}) of this one's"


KIND = BallKind()
