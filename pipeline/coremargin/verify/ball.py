"""A smallest enclosing ball: every row that counts is within the radius, and the coreset allows no smaller ball.

Upper bound, by a scan: the largest distance of a row from the centre. Distances are computed from differences x - c,
with a relative error below gamma_(d+4). Sparse rows are first measured by ||x||^2 - 2 x.c + ||c||^2, off by at most
2 gamma_(d+8) (||x|| + ||c||)^2: only those that may be the farthest are made dense.

Lower bound, without a scan: for weights b >= 0 that sum to 1, and any point q, no ball around the coreset has a radius
below the root of

    sum_i b_i ||x_i - q||^2 - ||sum_i b_i (x_i - q)||^2.

q is the rows' mean by these weights: then the second term is what rounding leaves of 0. The first one has terms that
are not negative. Errors of both are below 4 gamma_(m+d+8) of the first one, underflow apart.

With k outliers the rows that the model names, at most k, may lie outside. The lower bound is the least of several such
certificates, each of some coreset rows, which a tree makes a proof: see removal.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import UNSET
from scipy.sparse import issparse

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import CLOSE, Check, certified, same_epsilon, same_ratio, shown
from coremargin.verify.claim import any_claim
from coremargin.verify.kind import Kind
from coremargin.verify.one_class import OneClassClaim, ScanOfOneClass, describe_class, same_class, status
from coremargin.verify.removal import check_left_out, most_left_out, proving_certificates, stored_proof
from coremargin.verify.sums import SLAB_VALUES, TINY, UNIT, VANISHED, gamma, slabs

if TYPE_CHECKING:
    from coremargin.formats.ball import Ball
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.store import Members


@dataclass(frozen=True, kw_only=True)
class BallClaim(OneClassClaim):
    """A ball, and the dual weights of the rows that allow no smaller one."""

    centre: np.ndarray  #: (d,)
    alpha: np.ndarray  #: (m,)
    outliers: Any  #: how many rows may lie outside, as in the parameters; UNSET: none
    outside: np.ndarray  #: (k,) ids of rows that may lie outside
    proof: Mapping[str, list[np.ndarray]]  #: with outliers: rows, weights, paths and numbers of the proof


@dataclass(frozen=True)
class DistanceSummary:
    """The summary of one chunk: the largest distance, and the first row that has it; -1: no row counts."""

    farthest: float
    row: int
    others: int  #: rows that do not count
    outside: int  #: rows that count, and may lie outside
    radius: float
    members: Members


class BallScan(ScanOfOneClass):
    """The scan for the farthest row."""

    claim: BallClaim

    def __init__(self, claim: BallClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.farthest, self.row, self.outside_counted = 0.0, -1, 0

    def probe(self, chunk: Chunk) -> DistanceSummary:
        """The summary of a chunk, in slabs of float64."""
        signs = self.signs(chunk)
        farthest, row, radius = 0.0, -1, 0.0
        for part, x in slabs(chunk.x):
            radius = max(radius, float(self.lengths(x, chunk.start + part.start).max()))
            here = chunk.start + np.arange(part.start, part.stop)
            mine = np.flatnonzero((signs[part] > 0) & ~np.isin(here, self.claim.outside))
            if not len(mine):
                continue
            distance, place = farthest_of(x[mine], self.claim.centre)
            if row < 0 or not distance <= farthest:
                farthest, row = distance, chunk.start + part.start + int(mine[place])
        named = self.claim.outside[
            (self.claim.outside >= chunk.start) & (self.claim.outside < chunk.start + len(signs))
        ]
        outside = int((signs[named - chunk.start] > 0).sum())
        return DistanceSummary(farthest, row, int((signs <= 0).sum()), outside, radius, self.members(chunk, signs))

    def add(self, summary: DistanceSummary) -> None:
        """Add a summary; in the order of chunks, so that ties are decided by the lower row."""
        if summary.row >= 0 and (self.row < 0 or not summary.farthest <= self.farthest):
            self.farthest, self.row = summary.farthest, summary.row
        self.outside_counted += summary.outside
        self.count(summary.others, summary.radius, summary.members)

    @cached_property
    def _proven(self) -> tuple[float | None, str]:
        """The lower bound that the coreset proves; None, and why, if it proves none. After all chunks."""
        claim = self.claim
        try:
            k = 0 if claim.outliers is UNSET else most_left_out(claim.outliers, self.rows.rows - self.unlabelled)
            if claim.lower == 0 and k:
                return 0.0, "no radius is below 0"
            return (trimmed_bound(claim, k) if k else lower_bound(claim, np.arange(len(claim.alpha)), claim.alpha)), ""
        except ValueError as error:
            return None, str(error)

    def bounds(self) -> tuple[float | None, float | None]:
        """What the coreset and the farthest row prove."""
        return (None if self.claim.lower is None else self._proven[0]), self.farthest

    def checks(self) -> list[Check]:
        """Whether the store is the claim's, the coreset's rows are the store's, and both bounds hold."""
        problems, claim = self.membership(), self.claim
        text = "; ".join(problems) or f"all {self.matched:,} rows are the store's, bit for bit"
        coreset = Check("coreset", not problems, text)
        return [self.content(), coreset, *self._outside(), self._upper(), *self._lower(claim.lower)]

    def _outside(self) -> list[Check]:
        """Whether the rows that may lie outside are rows that count, each once, and no more than were asked for."""
        claim, rows = self.claim, self.rows.rows - self.unlabelled
        if claim.outliers is UNSET:
            return []
        return [check_left_out(claim.outliers, claim.outside, self.outside_counted, rows, "may lie outside")]

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
        found, problem = self._proven
        if found is None:
            return [Check("dual weights", ok=False, text=problem)]
        text = f"{len(self.claim.alpha):,} coreset rows allow no radius below {shown(found)}"
        ok = claimed <= found
        shown_text = f"{text} (claimed: {shown(claimed)})" if ok else f"model claims {shown(claimed)}, {text}"
        return [Check("lower bound", ok, shown_text)]


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


def lower_bound(claim: BallClaim, places: np.ndarray, weights: np.ndarray) -> float:
    """The radius below which no ball contains coreset rows, by their weights (m,), rounded down.

    Raises ValueError if the weights are none.
    """
    total = float(weights.sum())
    if not ((weights >= 0).all() and abs(total - 1) <= CLOSE):
        raise ValueError(f"expected weights >= 0 that sum to 1, found {shown(total)} in all")
    x, share = claim.x[places], weights / total
    middle = share @ x
    square, moved = 0.0, np.zeros(claim.features)
    step = max(1, SLAB_VALUES // claim.features)
    for start in range(0, len(share), step):
        part = x[start : start + step]
        off = (part.toarray() if issparse(part) else part) - middle
        square += float(share[start : start + step] @ np.einsum("ij,ij->i", off, off))
        moved += share[start : start + step] @ off
    found = square * (1 - 4 * gamma(len(share) + claim.features + 8)) - float(moved @ moved)
    found -= (len(share) + claim.features) * TINY  # what squares and products may have gained by underflow
    return math.sqrt(found) * (1 - 2 * UNIT) if found > 0 else 0.0


def trimmed_bound(claim: BallClaim, k: int) -> float:
    """The radius below which no ball contains all coreset rows but k, by the tree of certificates.

    Raises ValueError if the tree is no proof.
    """
    used = proving_certificates(claim.proof, claim.ids, k)
    return min(lower_bound(claim, claim.proof["rows"][number], claim.proof["weights"][number]) for number in used)


def ball_fields(files: ModelFiles, *, soft: bool) -> dict[str, Any]:
    """The fields of a ``BallClaim``; soft: as in ``AnyClaim``."""
    record, arrays = cast("Ball", files.record), files.arrays
    return {
        **any_claim(files, WHOLE, soft=soft),
        "y": np.ones(len(arrays["alpha"]), np.int64),
        "centre": arrays["centre"],
        "alpha": arrays["alpha"],
        "only": record.only,
        "outliers": record.parameters.outliers,
        "outside": arrays.get("outliers_ids", np.zeros(0, np.int64)),
        "proof": stored_proof(arrays),
    }


class BallKind(Kind[BallClaim]):
    """Every row that counts is within the radius, and the coreset allows no smaller ball."""

    def claim(self, files: ModelFiles) -> BallClaim:
        """The ball, and the dual weights of its coreset."""
        return BallClaim(**ball_fields(files, soft=False))

    def same_classes(self, claim: BallClaim, rows: Rows) -> Check:
        """Whether the store has the class whose rows count."""
        return same_class(claim, rows)

    def consistency(self, claim: BallClaim) -> list[Check]:
        """Epsilon, ratio, status."""
        zero = claim.lower == claim.upper == 0
        ratio = same_ratio(claim) if not (zero and claim.ratio == 1) else []
        return [
            *same_epsilon(claim),
            *ratio,
            status(claim, "lower / upper", proves=self.certifies(claim, claim.lower, claim.upper)),
        ]

    def certifies(self, claim: BallClaim, lower: float | None, upper: float | None) -> bool:
        """A radius of 0 needs no share: all rows are equal."""
        return (upper == 0 and lower == 0) or certified(lower, upper, claim.proven_epsilon)

    def scan(self, claim: BallClaim, rows: Rows) -> BallScan:
        """The distance of each row."""
        return BallScan(claim, rows)

    def terms(self, claim: BallClaim) -> str:
        """Which rows count, and how many may lie outside."""
        only = describe_class(claim)
        return only if claim.outliers is UNSET else f"{only}, whatever {claim.outliers} rows are left out"

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the radius."""
        return f"no ball that contains the rows has a radius below (1 - {epsilon}) of this one's"


KIND = BallKind()
