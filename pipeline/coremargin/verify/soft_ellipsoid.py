"""A soft ellipsoid: the value of its centre, axes and radius, and the bound of its dual point, both sums over all rows.

Of a lower triangle F (``axes``) and a centre c, a row x has the square q = ||F (x - c)||^2. With weights s_i of rows,
and C_i = s_i / (nu sum_j s_j),

    m = r + sum_i C_i (q_i - r)_+

is, for any r, at least the sum of u_i q_i for all u with 0 <= u_i <= C_i, sum_i u_i = 1. The value is the volume radius
of the level sqrt(m), which is sqrt(m) det(F)^(-1/d). For such a u, with S the covariance by these weights, any F and c
have m >= tr(F S F') >= d det(F S F')^(1/d), so that no value is below sqrt(d) det(S)^(1/2d).

Squares. With rho = 2 gamma_(d+8) (1 + the norm of |F| |F^-1|) (Skeel), q is off by a share of at most 4 rho, which
counts against the claim, row by row.

Dual. A row that the model does not name has the weight C_i if, in float64, it is outside of the reference's surface;
else 0. Others have the weight that the model names. All are divided by 1 plus the share by which one exceeds its C_i,
if it is rounding, and are then weights in their boxes, but for their sum t. If t > 1 they are divided by it. If t < 1,
others are raised, for which there is room as sum_i C_i = 1 / nu > 1; that adds a positive semidefinite matrix to the
moments M = sum u (z, 1)(z, 1)', z = F (x - c).
As det S = det M for weights that sum to 1, det S >= t det(Q - v v' / t), Q and v being sums of z z' and z. Eigenvalues
are off by at most the norm of the errors of these sums (Weyl).

Rows in a flat: see ellipsoid.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from coremargin.verify.checks import CLOSE, Check, shown
from coremargin.verify.ellipsoid import (
    MOST_ROUNDING,
    EllipsoidClaim,
    EllipsoidKind,
    condition,
    ellipsoid_fields,
    flat_checks,
    off_flat,
    volume_radius,
)
from coremargin.verify.one_class import ScanOfOneClass
from coremargin.verify.sums import LOST, SLAB_ROWS, TINY, UNIT, Total, gamma, quiet, slabs
from coremargin.verify.values import value_bounded, value_reached

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.soft_ellipsoid import SoftEllipsoidParameters
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.store import Members

_FEW = 16 * UNIT  # error of a handful of operations


@dataclass(frozen=True, kw_only=True)
class SoftEllipsoidClaim(EllipsoidClaim):
    """An ellipsoid, and what gives rows their dual weights: alpha those of ``ids``, others follow from a surface."""

    nu: float
    square: float  #: r
    reference_centre: np.ndarray  #: (r,)
    reference_axes: np.ndarray  #: (r, r)
    threshold: float  #: the squared level of the reference's surface


@dataclass(frozen=True)
class SoftEllipsoidSummary:
    """The summary of one chunk.

    sums: weight: sum s; beyond: sum s (q - r)_+, q rounded up; outside: sum s of rows beyond the radius by more than
    rounding; lengths: sum 1 + ||z||; moments (r + 1, r + 1): sum h (z, 1)(z, 1)', with h = s for rows outside of the
    reference's surface that the model does not name; named: the same with the weights that the model names.
    """

    sums: dict[str, np.ndarray]
    weights: np.ndarray  #: of the coreset's rows, in the order of ``members``
    outside: int  #: rows beyond the radius by more than rounding
    off: int  #: the first row that is farther off the flat than the model claims; -1: none is
    others: int  #: rows that do not count
    radius: float
    members: Members
    low: np.ndarray  #: (d,) the least value of each column in rows that count; (0,) unless the rows lie in a flat
    high: np.ndarray  #: the largest


class SoftEllipsoidScan(ScanOfOneClass):
    """The scan for the value of an ellipsoid and of a dual point, and what it proves."""

    claim: SoftEllipsoidClaim

    def __init__(self, claim: SoftEllipsoidClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.sums, self.outside, self.off = _totals(claim), 0, -1
        self.weights = np.ones(len(claim.ids))
        wide = claim.features if claim.rank < claim.features else 0
        self.low, self.high = np.full(wide, np.inf), np.full(wide, -np.inf)
        #: Error of levels, as a share of them, and of sums over rows, relative to the sizes of their terms.
        self.rounding = 2 * gamma(claim.rank + 8) * (1 + condition(claim.axes))
        self.error = gamma(min(SLAB_ROWS, rows.chunk_rows) + 16)

    def probe(self, chunk: Chunk) -> SoftEllipsoidSummary:
        """The summary of a chunk, in slabs of float64."""
        claim, signs = self.claim, self.signs(chunk)
        members = self.members(chunk, signs)
        local = claim.ids[members.places] - chunk.start
        named, alpha = np.zeros(len(signs), bool), np.zeros(len(signs))
        named[local], alpha[local] = True, claim.alpha[members.places]
        weights = np.ones(len(signs)) if chunk.weights is None else chunk.weights
        sums, outside, off_row, radius = _totals(claim), 0, -1, 0.0
        low, high = np.full_like(self.low, np.inf), np.full_like(self.high, -np.inf)
        for part, x in slabs(chunk.x, SLAB_ROWS):
            radius = max(radius, float(self.lengths(x, chunk.start + part.start).max()))
            for start, wide in claim.dense_slabs(x):
                here = np.arange(part.start + start, part.start + start + len(wide))
                counted = signs[here] > 0
                if not counted.any():
                    continue
                here, wide = here[counted], wide[counted]
                mine, s = wide[:, claim.span_columns], weights[here]
                if len(low):
                    low, high = np.minimum(low, wide.min(axis=0)), np.maximum(high, wide.max(axis=0))
                    wrong = np.flatnonzero(off_flat(claim, wide, mine))
                    off_row = chunk.start + int(here[wrong[0]]) if len(wrong) and off_row < 0 else off_row
                with quiet():  # what overflows proves nothing
                    z = (mine - claim.centre) @ claim.axes.T
                    q = np.einsum("ij,ij->i", z, z)
                    far = q * (1 - 4 * self.rounding) > claim.square
                    outside += int(np.count_nonzero(far))
                    y = (mine - claim.reference_centre) @ claim.reference_axes.T
                    away = np.einsum("ij,ij->i", y, y) > claim.threshold
                    most = q * (1 + 4 * self.rounding) + claim.rank * TINY
                    lifted = np.column_stack([z, np.ones(len(z))])
                    sums["weight"].add(np.asarray(math.fsum(s.tolist())))
                    sums["beyond"].add(np.asarray(s @ np.maximum(most - claim.square, 0.0)))
                    sums["outside"].add(np.asarray(s[far].sum()))
                    sums["lengths"].add(np.asarray(len(q) + np.sqrt(q).sum()))
                    h = np.where(away & ~named[here], s, 0.0)
                    sums["moments"].add((lifted * h[:, None]).T @ lifted)
                    if named[here].any():
                        sums["named"].add((lifted * alpha[here][:, None]).T @ lifted)
        values = {name: total.value for name, total in sums.items()}
        others = int((signs <= 0).sum())
        return SoftEllipsoidSummary(values, weights[local], outside, off_row, others, radius, members, low, high)

    def add(self, summary: SoftEllipsoidSummary) -> None:
        """Add a summary, in the order of chunks."""
        self.count(summary.others, summary.radius, summary.members)
        self.weights[summary.members.places] = summary.weights
        self.outside += summary.outside
        self.off = summary.off if self.off < 0 else self.off
        self.low, self.high = np.minimum(self.low, summary.low), np.maximum(self.high, summary.high)
        for name, value in summary.sums.items():
            self.sums[name].add(value)

    def box(self) -> float:
        """C of a row of weight 1; known after the scan. Infinite if no row counts."""
        total = self.claim.nu * float(self.sums["weight"].value)
        return 1.0 / total if total > 0 else math.inf

    def bounds(self) -> tuple[float, float]:
        """The dual bound, rounded down, and the value of the ellipsoid, rounded up."""
        claim, box = self.claim, self.box()
        error = self.error + _FEW
        square = (claim.square + box * (float(self.sums["beyond"].value) + self.rows.rows * TINY)) * (1 + error)
        value = math.inf
        if self.off < 0 and math.isfinite(square) and self.rounding < MOST_ROUNDING:
            value = math.sqrt(square) * volume_radius(claim.axes) * (1 + 16 * gamma(claim.rank + 8))
        return self._dual(box, error), value

    def _over(self, box: float) -> float:
        """By which share a named weight exceeds its box, at most; infinite if a row without one has a weight."""
        alpha, boxes = self.claim.alpha, box * self.weights
        shares = np.divide(alpha, boxes, where=boxes >= TINY, out=np.where(alpha > 0, np.inf, 0.0))
        return max(0.0, float(shares.max(initial=0.0)) - 1.0) + _FEW

    def _dual(self, box: float, error: float) -> float:
        claim, r, over = self.claim, self.claim.rank, self._over(box)
        if not (over <= CLOSE and math.isfinite(box) and self.rounding < MOST_ROUNDING):
            return 0.0
        with quiet():
            moments = box * self.sums["moments"].value + self.sums["named"].value
            moments = moments / ((1 + over) * max(1.0, float(moments[-1, -1])))
            mass, mean = float(moments[-1, -1]), moments[:-1, -1]
            lost = 4 * (self.rounding + error) * (float(np.trace(moments)) + 1.0)
            lost += (1 + box) * LOST * float(self.sums["lengths"].value)  # by underflow
            size = float(np.linalg.norm(mean))
            if not (math.isfinite(lost) and mass > 0.5):
                return 0.0
            spread = moments[:-1, :-1] - np.outer(mean, mean) / mass
            lost += (2 * size * lost + lost * lost + 4 * gamma(r + 8) * size * size) / mass
            eigenvalues = np.linalg.eigvalsh(spread)
            eigenvalues = eigenvalues - lost - 16 * gamma(r * r + 8) * float(np.abs(eigenvalues).max())
        if not (eigenvalues > 0).all():
            return 0.0
        log_det = math.fsum(np.log(eigenvalues).tolist()) + math.log(max(0.5, min(1.0, mass) - error))
        found = math.sqrt(r) * math.exp(log_det / (2 * r)) * volume_radius(claim.axes)
        return found * (1 - 16 * gamma(r + 8)) if math.isfinite(found) else 0.0

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        problems, claim, (dual, value) = self.membership(), self.claim, self.bounds()
        text = "; ".join(problems) or f"all {self.matched:,} rows that are named count in the store"
        found = [self.content(), Check("coreset", not problems, text)]
        rows = self.rows.rows - self.unlabelled
        if rows:
            found += flat_checks(claim, self.low, self.high, self.rows.dtype)
        if self.off >= 0:
            text = f"row {self.off} is farther off the flat than the model claims"
            found.append(Check("flat", ok=False, text=text))
        found.append(value_reached(claim, value, self.counted, "ellipsoid"))
        if not (rows > 0 and claim.nu >= 1 / rows):
            found.append(Check("nu", ok=False, text=f"model claims nu {claim.nu!r}, less than one of {rows:,} rows"))
        else:
            share = float(self.sums["outside"].value) / float(self.sums["weight"].value)
            text = f"{self.outside:,} of {self.counted}, {share:.6g} of their weight; nu {claim.nu!r}"
            found.append(Check("outside", ok=True, text=f"beyond the radius by more than rounding: {text}"))
        if claim.lower is not None:
            over = self._over(self.box())
            text = "named weights are from 0 to C times the weight of their row"
            if not over <= CLOSE:
                text = f"a named weight exceeds C times the weight of its row by {shown(over)} of it"
            found.append(Check("dual weights", over <= CLOSE, text))
        return [*found, value_bounded(claim, dual, "ellipsoid")]


def _totals(claim: SoftEllipsoidClaim) -> dict[str, Total]:
    """The sums of a summary, all 0."""
    shape = (claim.rank + 1, claim.rank + 1)
    numbers = {name: Total() for name in ("weight", "beyond", "outside", "lengths")}
    return numbers | {name: Total(shape) for name in ("moments", "named")}


class SoftEllipsoidKind(EllipsoidKind):
    """The value of an ellipsoid outside of which a share nu of the rows may lie, and the dual weights of all rows."""

    def claim(self, files: ModelFiles) -> SoftEllipsoidClaim:
        """The ellipsoid, nu, and what gives all rows their dual weights."""
        arrays, parameters = files.arrays, cast("SoftEllipsoidParameters", files.record.parameters)
        return SoftEllipsoidClaim(
            **ellipsoid_fields(files, soft=True),
            nu=float(parameters.nu),
            square=float(arrays["square"][0]),
            reference_centre=arrays["reference_centre"],
            reference_axes=arrays["reference_axes"],
            threshold=float(arrays["threshold"][0]),
        )

    def scan(self, claim: EllipsoidClaim, rows: Rows) -> SoftEllipsoidScan:  # type: ignore[override]
        """The level of each row."""
        return SoftEllipsoidScan(cast("SoftEllipsoidClaim", claim), rows)

    def terms(self, claim: EllipsoidClaim) -> str:
        """Which rows count, in which dimension, and nu."""
        return f"{super().terms(claim)}, with nu {cast('SoftEllipsoidClaim', claim).nu:g}"

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the volume."""
        return f"no ellipsoid has a volume below (1 - {epsilon}) of this one's, at the farthest share nu of the rows"


KIND = SoftEllipsoidKind()
