"""A ball in a kernel's feature space: its radius, or with nu its value, and the bound of its dual weights.

The centre is p = sum_j a_j phi(x_j) with the model's weights a >= 0 of the coreset's rows. The square of a row's
distance is q = k(x, x) - 2 sum_j a_j k(x_j, x) + a' K a, of which kernel_functions.py evaluates each part with a bound
on its error; what a square may be off by counts against the claim.

Upper bound, by a scan: the root of the largest square; with nu the value r + sum_i C_i (q_i - r)_+ of the model's r,
C_i = s_i / (nu sum_j s_j), s_i the weight of a row.

Lower bound. With t = sum a, the least of sum_i a_i ||phi(x_i) - c||^2 over c is sum_i a_i k_ii - a' K a / t, at
c = p / t. A ball that contains the coreset has a squared radius of at least 1 / t of that. With nu and
m = max(1, t) max(1, max_i a_i / C_i), a_i / m <= C_i and sum a / m <= 1: for r >= 0, which the best r is, no value is
below

    r + sum_i (a_i / m) (q_i - r) >= sum_i (a_i / m) q_i >= (sum_i a_i k_ii - a' K a / t) / m.

So any weights prove what they prove: none has to sum to 1, or to fit its C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import UNSET

from coremargin.formats.model_record import WHOLE
from coremargin.verify import values
from coremargin.verify.checks import Check, certified, same_epsilon, same_ratio, shown
from coremargin.verify.claim import any_claim
from coremargin.verify.gamma import Variance
from coremargin.verify.kernel_functions import ClosedKernel, Expansion, row_terms
from coremargin.verify.kind import Kind
from coremargin.verify.one_class import OneClassClaim, ScanOfOneClass, describe_class, same_class, status
from coremargin.verify.sums import LOST, SLAB_ROWS, TINY, UNIT, Total, gamma, rounded_sum, slabs, true_lengths

if TYPE_CHECKING:
    from coremargin.formats.kernel_ball import KernelBall
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.store import Members

_FEW = 16 * UNIT  # error of a handful of operations


@dataclass(frozen=True, kw_only=True)
class KernelBallClaim(OneClassClaim):
    """A ball around a weighted sum of the coreset's rows."""

    alpha: np.ndarray  #: (m,)
    function: ClosedKernel
    scale: bool  #: gamma is claimed to be that of "scale"
    nu: float | None  #: the share of the rows that may lie outside; None: none may
    square: float  #: r, with nu


@dataclass(frozen=True)
class KernelBallSummary:
    """The summary of one chunk."""

    farthest: float  #: the largest square, -inf: no row counts
    row: int  #: which has it
    beyond: float  #: sum of s (q - r)_+
    weight: float  #: sum of s
    outside: int  #: rows with q > r
    weights: np.ndarray  #: s of the coreset's rows, in the order of ``members``
    others: int  #: rows that do not count
    radius: float
    members: Members
    variance: Variance


class KernelBallScan(ScanOfOneClass):
    """The scan for the distances of all rows, and what it proves."""

    claim: KernelBallClaim

    def __init__(self, claim: KernelBallClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        with np.errstate(over="ignore", invalid="ignore"):
            self.expansion = Expansion(claim.function, claim.x, claim.alpha[:, None])
            self.norm = self._norm()
        self.farthest, self.row, self.outside = -math.inf, -1, 0
        self.beyond, self.weight = Total(), Total()
        self.weights = np.ones(len(claim.ids))
        self.variance = Variance()

    def _norm(self) -> tuple[float, float]:
        """a' K a, and a bound on its error."""
        total, lost = 0.0, 0.0
        for first in range(0, len(self.claim.alpha), SLAB_ROWS):
            part = slice(first, first + SLAB_ROWS)
            found, error = self.expansion.values(self.claim.x[part])
            own = self.claim.alpha[part]
            total += rounded_sum((own * found[:, 0]).tolist())
            lost += float(own @ (error[:, 0] + 2 * UNIT * np.abs(found[:, 0]))) * (1 + _FEW)
        return total, (lost + _FEW * abs(total)) * (1 + gamma(len(self.claim.alpha) + 4))

    def _squares(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances (n,) of rows x (n, d) float64, and bounds on their errors; NaN where they overflow."""
        own, off = own_values(self.claim.function, x)
        found, error = self.expansion.values(x)
        squares = own - 2.0 * found[:, 0] + self.norm[0]
        rounded = _FEW * (own + 2.0 * np.abs(found[:, 0]) + abs(self.norm[0]))
        return squares, off + 2.0 * error[:, 0] + self.norm[1] + rounded

    def probe(self, chunk: Chunk) -> KernelBallSummary:
        """The summary of a chunk, in slabs of float64."""
        claim, signs = self.claim, self.signs(chunk)
        members = self.members(chunk, signs)
        weights = np.ones(len(signs)) if chunk.weights is None else chunk.weights
        farthest, row, outside, radius = -math.inf, -1, 0, 0.0
        beyond, weight = Total(), Total()
        for part, x in slabs(chunk.x, SLAB_ROWS):
            radius = max(radius, float(self.lengths(x, chunk.start + part.start).max()))
            counted = np.flatnonzero(signs[part] > 0)
            if not len(counted):
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                squares, error = self._squares(x[counted])
                most = squares + error
                most = np.where(np.isnan(most), np.inf, most)  # what overflows proves nothing
                s = weights[part][counted]
                beyond.add(np.asarray(s @ np.maximum(most - claim.square, 0.0)))
            weight.add(np.asarray(rounded_sum(s.tolist())))
            outside += int(np.count_nonzero(squares > claim.square))
            place = int(most.argmax())
            if row < 0 or not most[place] <= farthest:
                farthest, row = float(most[place]), chunk.start + part.start + int(counted[place])
        return KernelBallSummary(
            farthest,
            row,
            float(beyond.value),
            float(weight.value),
            outside,
            weights[claim.ids[members.places] - chunk.start],
            int((signs <= 0).sum()),
            radius,
            members,
            Variance.of(chunk.x),
        )

    def add(self, summary: KernelBallSummary) -> None:
        """Add a summary; in the order of chunks, so that ties are decided by the lower row."""
        if summary.row >= 0 and (self.row < 0 or not summary.farthest <= self.farthest):
            self.farthest, self.row = summary.farthest, summary.row
        self.beyond.add(np.asarray(summary.beyond))
        self.weight.add(np.asarray(summary.weight))
        self.outside += summary.outside
        self.weights[summary.members.places] = summary.weights
        self.variance = self.variance.merge(summary.variance)
        self.count(summary.others, summary.radius, summary.members)

    @property
    def box(self) -> float:
        """C of a row of weight 1, after the scan; infinite if no row counts."""
        total = (self.claim.nu or 1.0) * float(self.weight.value)
        return 1.0 / total if total > 0 else math.inf

    @cached_property
    def _found(self) -> tuple[float, float]:
        """The bounds that hold, of the radius or with nu of the value; after all chunks."""
        claim = self.claim
        if claim.nu is None:
            upper = math.sqrt(max(0.0, self.farthest)) * (1 + _FEW)
            return math.sqrt(self._dual()) * (1 - _FEW), upper
        error = gamma(SLAB_ROWS + 16) + _FEW
        upper = claim.square + self.box * (float(self.beyond.value) + self.rows.rows * LOST) * (1 + error)
        return self._dual(), (upper * (1 + _FEW) if math.isfinite(upper) else math.inf)

    def _dual(self) -> float:
        """The value, or squared radius, that no ball is below; 0 if the weights prove nothing."""
        claim, a = self.claim, self.claim.alpha
        used = np.flatnonzero(a)
        total = rounded_sum(a.tolist())
        if not len(used) or not math.isfinite(total):
            return 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            own, off = own_values(claim.function, claim.x[used])
            spread, norm = rounded_sum((a[used] * own).tolist()), self.norm[0] / total
            lost = float(a[used] @ (off + 2 * UNIT * own)) * (1 + gamma(len(used) + 8)) + self.norm[1] / total
            lost += _FEW * (spread + abs(norm)) + len(used) * TINY
            scale = total
            if claim.nu is not None:
                boxes = self.box * self.weights[used]
                # A box that underflows, or a row of weight 0, has no room for any weight.
                over = np.divide(a[used], boxes, where=boxes >= TINY, out=np.full(len(used), np.inf))
                scale = max(1.0, total) * max(1.0, float(over.max()) * (1 + _FEW)) * (1 + _FEW)
            found = (spread - norm - lost) / scale * (1 - _FEW)
        return found if 0 < found < math.inf else 0.0

    def bounds(self) -> tuple[float | None, float | None]:
        """What the weights and the scan prove."""
        return self._found

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        claim, problems = self.claim, self.membership()
        text = "; ".join(problems) or f"all {self.matched:,} rows are the store's, bit for bit"
        checks = [self.content(), Check("coreset", not problems, text)]
        if claim.scale:
            checks.append(self.variance.scale_check(claim.function.scale, claim.features, claim.shift * claim.factor))
        lower, upper = self._found
        if self.row < 0:
            return [*checks, Check("upper bound", ok=False, text="the store has no row that counts")]
        if claim.nu is None:
            return [*checks, self._radius_check(upper), self._radius_bound_check(lower)]
        rows = self.rows.rows - self.unlabelled
        share = f"{self.outside:,} of {self.counted}, {self.outside / rows:.6g} of them, nu {claim.nu!r}"
        text = f"beyond the radius: {share}"
        if claim.nu < 1 / rows:
            text = f"model claims nu {claim.nu!r}, less than one of {rows:,} rows"
        checks.append(Check("nu", claim.nu >= 1 / rows, text))
        return [
            *checks,
            values.value_reached(claim, upper, self.counted, "ball"),
            values.value_bounded(claim, lower, "ball"),
        ]

    def _radius_check(self, found: float) -> Check:
        claimed = self.claim.upper
        text = f"row {self.row} is the farthest of {self.counted}, at a distance of at most {shown(found)}"
        ok = claimed is not None and found <= claimed
        return Check("upper bound", ok, f"{text} (claimed: at most {shown(claimed)})")

    def _radius_bound_check(self, found: float) -> Check:
        claimed = self.claim.lower
        if claimed is None:
            return Check("lower bound", ok=True, text="nothing is claimed")
        text = f"{len(self.claim.alpha):,} coreset rows allow no radius below {shown(found)}"
        return Check("lower bound", claimed <= found, f"{text} (claimed: {shown(claimed)})")


def own_values(function: ClosedKernel, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """k(x, x) (n,) of rows x (n, d), and bounds on their errors; of rbf 1, exactly."""
    if function.name == "rbf":
        return np.ones(x.shape[0]), np.zeros(x.shape[0])
    lengths, terms = true_lengths(x), row_terms(x)
    squares = lengths * lengths
    if function.name == "linear":
        return squares, function.product_error(lengths, lengths, terms + 8)
    found = (function.scale * squares + function.constant) ** function.degree
    return np.asarray(found), function.product_error(lengths, lengths, terms + 8)  # lengths are rounded, too


class KernelBallKind(Kind[KernelBallClaim]):
    """The radius of a ball in feature space, or its value, and the dual weights of its coreset."""

    def claim(self, files: ModelFiles) -> KernelBallClaim:
        """The kernel, the ball, and nu."""
        record, arrays = cast("KernelBall", files.record), files.arrays
        kernel, parameters = record.kernel, record.parameters
        function = ClosedKernel(
            kernel.name,
            0.0 if kernel.gamma is UNSET else kernel.gamma,
            1 if kernel.degree is UNSET else kernel.degree,
            0.0 if kernel.coef0 is UNSET else kernel.coef0,
        )
        return KernelBallClaim(
            **any_claim(files, WHOLE, soft=record.soft),
            y=np.ones(len(arrays["alpha"]), np.int64),
            alpha=arrays["alpha"],
            only=record.only,
            function=function,
            scale=parameters.gamma == "scale",
            nu=None if parameters.nu is UNSET else float(parameters.nu),
            square=float(arrays["square"][0]) if record.soft else 0.0,
        )

    def same_classes(self, claim: KernelBallClaim, rows: Rows) -> Check:
        """Whether the store has the class whose rows count."""
        return same_class(claim, rows)

    def consistency(self, claim: KernelBallClaim) -> list[Check]:
        """Epsilon, ratio, status."""
        proves = certified(claim.lower, claim.upper, claim.proven_epsilon)
        found = values.status(claim) if claim.soft else status(claim, "lower / upper", proves=proves)
        return [*same_epsilon(claim), *same_ratio(claim), found]

    def scan(self, claim: KernelBallClaim, rows: Rows) -> KernelBallScan:
        """The distance of each row."""
        return KernelBallScan(claim, rows)

    def terms(self, claim: KernelBallClaim) -> str:
        """The kernel, which rows count, and nu."""
        nu = "" if claim.nu is None else f", with nu {claim.nu:g}"
        return f"{describe_class(claim)}, in the feature space of the kernel {claim.function.name}{nu}"

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the radius, or with nu of the value."""
        if soft:
            return f"no ball has a value below (1 - {epsilon}) of this one's"
        return f"no ball that contains the rows has a radius below (1 - {epsilon}) of this one's"


KIND = KernelBallKind()
