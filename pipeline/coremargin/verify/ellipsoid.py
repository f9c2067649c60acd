"""An ellipsoid of least volume: it contains every row that counts, and the coreset allows none of less volume.

Of a lower triangle F (``axes``) and a centre c, a row x has the level ||F (x - c)||, and the points of level l fill an
ellipsoid of *volume radius* l det(F)^(-1/r), the radius of the ball of the same volume.

Upper bound, by a scan: the largest level of a row. Its error is below gamma_(r+8) || |F| |x - c| ||, so as a share of
the level below that times the norm of |F| |F^-1|. Axes for which this share is not small prove no upper bound.

Lower bound, without a scan: for weights u >= 0 that sum to 1, and S the covariance of the coreset by them, no
ellipsoid around the coreset has a volume radius below sqrt(r) det(S)^(1/2r). S is summed for z = F (x - c), where it is
near I: det S = det(I + N) / det(F)^2, and log det(I + N) >= trace N - ||N||^2 for ||N|| <= 1/2. If the weights belong
to another ellipsoid, F is first replaced by C^-1 F with I + N = C C'.

If the rows lie in a flat, all of this is about r of the columns, and the scan checks that the others are the linear
functions of them that the model has, to within the residuals that it claims. These may be no more than rounding: a
share of the column's range, and some units of the precision of the store at the sizes of the columns. Slopes are
limited, as what they multiply would be a tolerance of the claim's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import issparse

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import CLOSE, Check, same_epsilon, shown
from coremargin.verify.claim import any_claim
from coremargin.verify.kind import Kind
from coremargin.verify.one_class import OneClassClaim, ScanOfOneClass, describe_class, same_class, status
from coremargin.verify.sums import SLAB_VALUES, gamma, quiet, slabs

if TYPE_CHECKING:
    from coremargin.formats.ellipsoid import Ellipsoid
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.store import Members

_REFINED = 3  # evaluations of the coreset: of one ellipsoid, of that of the weights, and once more for rounding
_NEAR = 0.025  # largest ||N|| that a bound is computed of
#: Rows are in a flat if they are off it by at most this share of a column's range, and so many units of rounding.
_FLAT, _UNITS = 1e-9, 64.0
#: Bounds of rounding are of first order: their factors of safety cover the rest up to this share of a level.
MOST_ROUNDING = 1e-2
_STEEP = 100.0  # most that a function of columns may move within their ranges, in ranges of its own column


@dataclass(frozen=True, kw_only=True)
class EllipsoidClaim(OneClassClaim):
    """An ellipsoid, and the weights of the rows that allow none of less volume."""

    centre: np.ndarray  #: (r,)
    axes: np.ndarray  #: (r, r), lower triangular, above 0 on its diagonal
    alpha: np.ndarray  #: (m,)
    span_columns: np.ndarray  #: (r,), those that the ellipsoid is about
    slopes: np.ndarray  #: (d - r, r), the other columns as functions of these
    offsets: np.ndarray  #: (d - r,)
    residuals: np.ndarray  #: (d - r,), how far rows are from these functions at most

    @property
    def rank(self) -> int:
        """The dimension of the rows' span."""
        return len(self.span_columns)

    @property
    def others(self) -> np.ndarray:
        """The columns (d - r,) that are functions."""
        return np.setdiff1d(np.arange(self.features), self.span_columns)

    def dense_slabs(self, x: Any) -> Iterator[tuple[int, np.ndarray]]:
        """Rows x (n, d) as dense ones, a slab at a time: the first of each, and its rows."""
        step = max(1, SLAB_VALUES // self.features)
        for start in range(0, x.shape[0], step):
            part = x[start : start + step]
            yield start, np.asarray(part.toarray() if issparse(part) else part, np.float64)


@dataclass(frozen=True)
class LevelSummary:
    """The summary of one chunk: the largest volume radius, and the first row that has it; -1: no row counts."""

    outermost: float
    row: int
    others: int  #: rows that do not count
    radius: float
    members: Members
    low: np.ndarray  #: (d,) the least value of each column in rows that count; (0,) unless the rows lie in a flat
    high: np.ndarray  #: the largest


class LevelScan(ScanOfOneClass):
    """The scan for the outermost row and, of rows in a flat, for those that are off it."""

    claim: EllipsoidClaim

    def __init__(self, claim: EllipsoidClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.outermost_radius, self.row = 0.0, -1
        self.lower, self.problem = lower_bound(claim)
        self._scale = volume_radius(claim.axes)
        wide = claim.features if claim.rank < claim.features else 0
        self.low, self.high = np.full(wide, np.inf), np.full(wide, -np.inf)
        self._rounding = 2 * gamma(claim.rank + 8) * (1 + condition(claim.axes))

    def probe(self, chunk: Chunk) -> LevelSummary:
        """The summary of a chunk, in slabs of float64."""
        signs = self.signs(chunk)
        outermost, row, radius = 0.0, -1, 0.0
        low, high = np.full_like(self.low, np.inf), np.full_like(self.high, -np.inf)
        for part, x in slabs(chunk.x):
            radius = max(radius, float(self.lengths(x, chunk.start + part.start).max()))
            mine = np.flatnonzero(signs[part] > 0)
            if not len(mine):
                continue
            found, place = self.outermost(x[mine])
            if len(low):
                for _, dense in self.claim.dense_slabs(x[mine]):
                    low, high = np.minimum(low, dense.min(axis=0)), np.maximum(high, dense.max(axis=0))
            if row < 0 or not found <= outermost:
                outermost, row = found, chunk.start + part.start + int(mine[place])
        return LevelSummary(outermost, row, int((signs <= 0).sum()), radius, self.members(chunk, signs), low, high)

    def add(self, summary: LevelSummary) -> None:
        """Add a summary; in the order of chunks, so that ties are decided by the lower row."""
        if summary.row >= 0 and (self.row < 0 or not summary.outermost <= self.outermost_radius):
            self.outermost_radius, self.row = summary.outermost, summary.row
        self.low, self.high = np.minimum(self.low, summary.low), np.maximum(self.high, summary.high)
        self.count(summary.others, summary.radius, summary.members)

    def bounds(self) -> tuple[float | None, float | None]:
        """What the coreset and the outermost row prove."""
        return (None if self.claim.lower is None else self.lower), self.outermost_radius

    def checks(self) -> list[Check]:
        """Whether the store is the claim's, the coreset's rows are the store's, and both bounds hold."""
        problems, claim = self.membership(), self.claim
        text = "; ".join(problems) or f"all {self.matched:,} rows are the store's, bit for bit"
        return [
            self.content(),
            Check("coreset", not problems, text),
            *(flat_checks(claim, self.low, self.high, self.rows.dtype) if self.row >= 0 else ()),
            self._upper(),
            *self._lower(claim.lower),
        ]

    def outermost(self, x: Any) -> tuple[float, int]:
        """The volume radius at the largest level, rounded up, infinite for a row off the flat; and the row."""
        claim, best, place = self.claim, -1.0, 0
        for start, part in claim.dense_slabs(x):
            with quiet():
                mine = part[:, claim.span_columns]
                z = (mine - claim.centre) @ claim.axes.T
                levels = np.sqrt(np.einsum("ij,ij->i", z, z)) * (1 + self._rounding)
                unknown = np.isnan(levels) | (not self._rounding < MOST_ROUNDING)
                levels = np.where(unknown | off_flat(claim, part, mine), np.inf, levels)
            k = int(levels.argmax())
            if levels[k] > best:
                best, place = float(levels[k]), start + k
        return best * self._scale * (1 + 16 * gamma(claim.rank + 8)), place

    def _upper(self) -> Check:
        claimed, found = self.claim.upper, shown(self.outermost_radius)
        if self.row < 0:
            return Check("upper bound", ok=False, text="the store has no row that counts, nothing can be claimed")
        if claimed is None:
            return Check("upper bound", ok=True, text="nothing is claimed")
        if math.isinf(self.outermost_radius):
            text = f"row {self.row} is farther off the flat than the model claims, or too far outside to be measured"
            if not self._rounding < MOST_ROUNDING:
                text = f"rounding is {shown(self._rounding)} of a distance: in float64 these axes measure none"
            return Check("upper bound", ok=False, text=text)
        text = f"row {self.row} is the outermost of {self.counted}, at a volume radius of {found}"
        if self.outermost_radius <= claimed:
            return Check("upper bound", ok=True, text=f"{text} (claimed: at most {shown(claimed)})")
        return Check("upper bound", ok=False, text=f"model claims {shown(claimed)}, {text}")

    def _lower(self, claimed: float | None) -> list[Check]:
        if claimed is None:
            return [Check("lower bound", ok=True, text="nothing is claimed")]
        if self.lower is None:
            return [Check("weights", ok=False, text=self.problem)]
        text = f"{len(self.claim.alpha):,} coreset rows allow no volume radius below {shown(self.lower)}"
        ok = claimed <= self.lower
        weights = f"{len(self.claim.alpha):,} weights >= 0 that sum to 1"
        shown_text = f"{text} (claimed: {shown(claimed)})" if ok else f"model claims {shown(claimed)}, {text}"
        return [Check("weights", ok=True, text=weights), Check("lower bound", ok, shown_text)]


def flat_checks(claim: EllipsoidClaim, low: np.ndarray, high: np.ndarray, dtype: Any) -> list[Check]:
    """Whether what is claimed to be a function of other columns is one, but for rounding; columns from low to high."""
    columns, others = claim.span_columns, claim.others
    if not len(others):
        return []
    with quiet():
        ranges, sizes = high - low, np.maximum(np.abs(low), np.abs(high))
        slopes = np.abs(claim.slopes)
        size = sizes[others] + slopes @ sizes[columns]
        rounding = _UNITS * float(np.finfo(dtype).eps) / 2 + 16 * gamma(claim.rank + 8)
        limits = _FLAT * ranges[others] + rounding * size
        steep = ~(slopes @ ranges[columns] <= _STEEP * ranges[others] + limits)
        wrong = np.flatnonzero(~(claim.residuals <= limits) | steep)
    if len(wrong):
        k = int(wrong[0])
        text = f"model claims column {others[k]} to be a function of others to within {shown(claim.residuals[k])}"
        found = f"rounding is at most {shown(limits[k])}"
        return [Check("flat", ok=False, text=f"{text}, {'with too steep slopes' if steep[k] else found}")]
    text = f"{len(others):,} columns are linear functions of {len(columns):,} others, but for rounding"
    return [Check("flat", ok=True, text=text)]


def off_flat(claim: EllipsoidClaim, part: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """Which rows (n,) are farther from the flat than is claimed; mine (n, r): their columns that determine others."""
    with quiet():
        other = part[:, claim.others]
        size = np.abs(other) + np.abs(mine) @ np.abs(claim.slopes.T) + np.abs(claim.offsets)
        away = np.abs(other - (mine @ claim.slopes.T + claim.offsets)) + 2 * gamma(claim.rank + 4) * size
        return np.asarray(~(away <= claim.residuals).all(axis=1))


def volume_radius(axes: np.ndarray) -> float:
    """det(F)^(-1/r) of a triangle (r, r), to a few units, however large or small it is; infinite if it overflows."""
    mantissas, exponents = np.frexp(np.diag(axes))
    whole, rest = divmod(-int(exponents.sum()), len(axes))
    with quiet():
        return float(np.ldexp(math.exp((math.log(2) * rest - float(np.log(mantissas).sum())) / len(axes)), whole))


def condition(axes: np.ndarray) -> float:
    """The norm of |F| |F^-1| of a triangle (r, r): what rounding is multiplied by (Skeel)."""
    with quiet():
        inverse = solve_triangular(axes, np.eye(len(axes)), lower=True, check_finite=False)
        found = float(np.linalg.norm(np.abs(axes) @ np.abs(inverse)))
    return found if math.isfinite(found) else math.inf


def lower_bound(claim: EllipsoidClaim) -> tuple[float | None, str]:
    """The volume radius below which no ellipsoid contains the coreset, rounded down; None, and why, without weights."""
    u, total, r = claim.alpha, float(claim.alpha.sum()), claim.rank
    if not ((u >= 0).all() and abs(total - 1) <= CLOSE):
        return None, f"expected weights >= 0 that sum to 1, found {shown(total)} in all"
    share, axes, identity = u / total, claim.axes, np.eye(r)
    middle = claim.centre
    for _ in range(_REFINED):
        spread, mean, lost = np.zeros((r, r)), np.zeros(r), 0.0
        with quiet():
            for start, part in claim.dense_slabs(claim.x):
                mine = share[start : start + len(part)]
                off = part[:, claim.span_columns] - middle
                z = off @ axes.T
                error = gamma(r + 8) * (np.abs(off) @ np.abs(axes).T)
                spread += (z * mine[:, None]).T @ z
                mean += mine @ z
                lost += float(mine @ np.einsum("ij,ij->i", error, error))
            size = float(np.trace(spread))
            error_of_sum = 2 * (math.sqrt(lost * size) + lost + gamma(len(u) + r + 16) * size)
            covariance = spread - np.outer(mean, mean)
            norm = float(np.linalg.norm(covariance - identity)) + error_of_sum
        if not math.isfinite(norm):
            return 0.0, ""
        if norm <= _NEAR:
            log_det = float(np.trace(covariance - identity)) - math.sqrt(r) * error_of_sum - norm * norm
            found = math.sqrt(r) * math.exp(log_det / (2 * r)) * volume_radius(axes)
            return found * (1 - 16 * gamma(r + 8)), ""
        try:
            root = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return 0.0, ""
        axes = np.tril(solve_triangular(root, axes, lower=True, check_finite=False))
    return 0.0, ""


def ellipsoid_fields(files: ModelFiles, *, soft: bool) -> dict[str, Any]:
    """The fields of an ``EllipsoidClaim``; soft: as in ``AnyClaim``."""
    arrays, r = files.arrays, len(files.arrays["centre"])
    return {
        **any_claim(files, WHOLE, soft=soft),
        "y": np.ones(len(arrays["alpha"]), np.int64),
        "centre": arrays["centre"],
        "axes": arrays["axes"],
        "alpha": arrays["alpha"],
        "only": cast("Ellipsoid", files.record).only,
        "span_columns": arrays.get("span_columns", np.arange(r)),
        "slopes": arrays.get("span_slopes", np.zeros((0, r))),
        "offsets": arrays.get("span_offsets", np.zeros(0)),
        "residuals": arrays.get("span_residuals", np.zeros(0)),
    }


class EllipsoidKind(Kind[EllipsoidClaim]):
    """Every row that counts is within the ellipsoid, and the coreset allows none of less volume."""

    def claim(self, files: ModelFiles) -> EllipsoidClaim:
        """The ellipsoid, the weights of its coreset, and the flat of its rows."""
        return EllipsoidClaim(**ellipsoid_fields(files, soft=False))

    def same_classes(self, claim: EllipsoidClaim, rows: Rows) -> Check:
        """Whether the store has the class whose rows count."""
        return same_class(claim, rows)

    def consistency(self, claim: EllipsoidClaim) -> list[Check]:
        """Epsilon, ratio, status."""
        return [
            *same_epsilon(claim),
            *self._same_ratio(claim),
            status(claim, "the ratio of volumes", proves=self.certifies(claim, claim.lower, claim.upper)),
        ]

    def _same_ratio(self, claim: EllipsoidClaim) -> list[Check]:
        """A failed check unless the ratio is that of the volumes."""
        lower, upper, ratio, claimed = claim.lower, claim.upper, None, claim.ratio
        if lower is not None and upper is not None:
            ratio = min(1.0, lower / upper) ** claim.rank if lower > 0 and upper > 0 else 0.0
        if claimed == ratio or (claimed is not None and ratio is not None and abs(claimed - ratio) <= CLOSE):
            return []
        return [Check("ratio", ok=False, text=f"model claims {shown(claimed)}, its own bounds give {shown(ratio)}")]

    def certifies(self, claim: EllipsoidClaim, lower: float | None, upper: float | None) -> bool:
        """Of volumes, in exact numbers: (lower / upper)^r >= 1 - epsilon."""
        if lower is None or upper is None or not (0 < lower < math.inf and 0 < upper < math.inf):
            return False
        least = (1 - Fraction(claim.proven_epsilon)) * Fraction(upper) ** claim.rank
        return Fraction(lower) ** claim.rank >= least

    def scan(self, claim: EllipsoidClaim, rows: Rows) -> LevelScan:
        """The level of each row."""
        return LevelScan(claim, rows)

    def terms(self, claim: EllipsoidClaim) -> str:
        """Which rows count, and in which dimension."""
        only = describe_class(claim)
        flat = f", in {claim.rank} of {claim.features} columns, of which the others are linear functions"
        return only + (flat if claim.rank < claim.features else "")

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the volume."""
        return f"no ellipsoid that contains the rows has a volume below (1 - {epsilon}) of this one's"


KIND = EllipsoidKind()
