"""What ``verify`` says about a soft margin: the value of the hypothesis, the bound that its dual point proves.

    f(w, b) = 1/2 ||w||^2 + sum_i c_i loss(1 - y_i (w.x_i + b)),    c_i = C times the weights of the row and its class

For a >= 0 (hinge: a_i <= c_i too), with a free intercept sum_i a_i y_i = 0, and v = sum_i a_i y_i x_i, no hypothesis
has a value below

    hinge          sum_i a_i - 1/2 ||v||^2
    squared hinge  sum_i a_i - sum_i a_i^2 / (4 c_i) - 1/2 ||v||^2

(Lagrange). Those of the squared hinge follow from the slacks at a hypothesis, in proportion or by correction.py. Given
duals are floats: they sum to zero, and keep to their box, up to rounding only. Moving them into place takes a total of
M (``_hinge_dual``), and there is always room: it costs M in the sum and R M in ||v||, R being the longest row. So what
is claimed is compared with a bound that holds whatever was given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from coremargin.formats.limits import C_LIMITS
from coremargin.verify.checks import Check, same_epsilon, same_ratio
from coremargin.verify.soft.correction import Slopes
from coremargin.verify.soft.scan import SoftScan
from coremargin.verify.sums import SLAB_ROWS, UNIT, exact_products, gamma, length, nearest, rounded_sum
from coremargin.verify.values import status, value_bounded, value_reached

if TYPE_CHECKING:
    from coremargin.verify.rows import Rows
    from coremargin.verify.soft.claim import SoftClaim

_FEW = 16 * UNIT  # of a handful of operations


def consistency(claim: SoftClaim) -> list[Check]:
    """What the claims say about each other."""
    size = length(claim.w)
    text = f"||w|| = {size:.12g}, b = {claim.b:.6g}"
    ok = claim.intercept or claim.b == 0
    checks = [Check("hypothesis", ok, text if ok else f"{text}: expected b = 0 (no intercept)")]
    checks += same_epsilon(claim)
    return [*checks, *same_ratio(claim), status(claim)]


@dataclass(frozen=True)
class ClassC:
    """c of a row of the positive class (0) and of the negative one (1), as the float64 nearest to its definition."""

    positive: float
    negative: float

    @classmethod
    def of(cls, claim: SoftClaim, counts: np.ndarray) -> ClassC:
        """C times the weights of the classes; "balanced": n / (2 n_class), counts being sums of sample weights (2,)."""
        if claim.class_weight == "balanced":
            sums = [Fraction(float(count)) for count in counts]
            return cls(*(nearest(Fraction(claim.cost) * sum(sums) / (2 * k)) if k else 0.0 for k in sums))
        negative, positive = claim.class_weight if isinstance(claim.class_weight, tuple) else (1.0, 1.0)
        return cls(claim.cost * positive, claim.cost * negative)

    @property
    def pair(self) -> np.ndarray:
        """(2,)."""
        return np.array([self.positive, self.negative])


class GapScan(SoftScan):
    """One scan, and what it says about the claims of a soft margin."""

    def __init__(self, claim: SoftClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self._bounds: tuple[float, float] | None = None
        #: Error of every sum over rows, relative to the sizes of its terms.
        self.error = gamma(min(SLAB_ROWS, rows.chunk_rows) + 16)

    def class_c(self) -> ClassC:
        """Known after the scan: they depend on how many rows each class has."""
        return ClassC.of(self.claim, self.sums["count"])

    def bounds(self) -> tuple[float, float]:
        """(dual bound rounded down, value of the hypothesis rounded up), as found here."""
        if self._bounds is None:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                named = self.loss.names_duals
                dual = self._hinge_dual() if named else max(self._squared_dual(), self._corrected())
                self._bounds = (dual if dual > 0 else 0.0), self._value()  # no weights at all prove 0
        return self._bounds

    def _value(self) -> float:
        losses = float(self.class_c().pair @ self.sums["loss"])
        size = length(self.claim.w)
        value = (0.5 * size * size + losses) * (1 + self.error)
        return value if math.isfinite(value) else math.inf

    def _hinge_dual(self) -> float:
        """sum a - 1/2 ||v||^2 of the duals as given, less what moving them into place may cost."""
        c, sums, given = self.class_c().pair, self.sums, np.where(self.found != 0, self.duals, 0.0)
        total = (float(c @ sums["slack"]) + rounded_sum(given)) * (1 - _FEW) - _FEW * rounded_sum(np.abs(given))
        outside = rounded_sum(np.maximum(given - self._limits(), 0.0)) + rounded_sum(np.maximum(-given, 0.0))
        move = (2 * outside + (abs(self.imbalance()) if self.claim.intercept else 0.0)) * (1 + _FEW)
        v = c[0] * sums["dual_sum"][0] - c[1] * sums["dual_sum"][1] + sums["near_dual_sum"]
        spread = self.error * (float(c @ sums["reach"]) + float(sums["near_reach"]))
        radius = self.radius * (1 + gamma(self.claim.features + 4))
        each = self.error * (c @ sums["spread"] + sums["near_spread"])
        moved = self.claim.moved * (float(c @ sums["slack"]) + rounded_sum(np.abs(given)) + move) * (1 + 4 * self.error)
        longest = length(np.abs(v) + each) * (1 + _FEW) + spread + radius * move + moved
        return total - move - 0.5 * longest * longest * (1 + _FEW)

    def _limits(self) -> np.ndarray:
        """c (m,) of the near-margin rows."""
        return self.weights * np.where(self.found > 0, self.class_c().positive, self.class_c().negative)

    def imbalance(self) -> float:
        """sum a y over all rows, rounded once."""
        products, errors = exact_products(self.class_c().pair * np.array([1.0, -1.0]), self.sums["slack"])
        return rounded_sum([*products.tolist(), *errors.tolist(), *(self.duals * self.found).tolist()])

    def _squared_dual(self) -> float:
        """The best multiple of c xi (of each class, with an intercept) in closed form, rounded down."""
        c, sums = self.class_c().pair, self.sums
        slack = c * sums["slack"]
        if not (slack > 0).all() if self.claim.intercept else not slack.sum() > 0:
            return 0.0
        unit = slack if self.claim.intercept else np.full(2, slack.sum())
        dual_sum = c[:, None] * sums["dual_sum"] / unit[:, None]
        error = 2 * self.error * float((c * sums["reach"] / unit).sum()) + 2 * self.claim.moved * (1 + 4 * self.error)
        each = 2 * self.error * (c / unit) @ sums["spread"]
        longest = length(np.abs(dual_sum[0] - dual_sum[1]) + each) * (1 + _FEW) + error
        spread = float((c / unit * sums["squares"] / unit).sum()) * (1 + 4 * self.error)
        square = longest * longest  # overflows to infinity
        curve = 0.5 * square + 0.25 * spread if self.claim.intercept else 2.0 * square + spread
        return (1 - _FEW) / curve if 0 < curve < math.inf else 0.0

    def _corrected(self) -> float:
        """The dual of the corrected point, rounded down; none without a ramp."""
        if not self.ramp:
            return 0.0
        c, sums, claim = self.class_c().pair, self.sums, self.claim
        slack, side = c * sums["slack"], c * np.array([1.0, -1.0])
        slopes = Slopes(
            losses=float(slack.sum()),
            squares=float(c @ sums["squares"]),
            least=float(slack.min()),
            q=np.append(side @ sums["dual_sum"], side @ sums["slack"]),
            t=side @ sums["turn"],
            curve=np.tensordot(c, sums["curve"], axes=1),
            low=self.low,
            high=self.high,
            radius=self.radius,
            reach=float(c @ sums["reach"]),
            spread=c @ sums["spread"],
            error=self.error,
            moved=claim.moved,
            curve_error=gamma(self.rows.chunk_rows + 16),
        )
        return slopes.dual(claim.reference[0], self.ramp, intercept=claim.intercept)

    def checks(self) -> list[Check]:
        """What the scan says about the claims."""
        dual, value = self.bounds()
        reached, bounded = value_reached(self.claim, value, self.counted), value_bounded(self.claim, dual)
        tried = [] if self.tried is None else self.tried.checks()
        return [self.content(), self._c_check(), self._near_margin(), self._weighed(), reached, bounded, *tried]

    def _c_check(self) -> Check:
        c, claim = self.class_c(), self.claim
        positive, negative = (int(count) for count in self.sums["rows"])
        text = (
            f"{claim.loss}, C = {claim.cost:g}: a row costs{' its weight times' * self.rows.weighted} {c.negative:.6g} "
            f"({negative:,} of class {claim.negative!r}) or {c.positive:.6g} ({positive:,} of class {claim.positive!r})"
        )
        low, high = C_LIMITS
        if not all(
            low <= value * count <= high for value, count in zip(c.pair, self.sums["count"], strict=True) if count
        ):
            return Check(
                "per-sample C", ok=False, text=f"{text}: expected from {low:g} to {high:g} for the rows of a class"
            )
        if positive and negative:
            return Check("per-sample C", ok=True, text=text)
        return Check("per-sample C", ok=False, text=f"{text}: expected rows of both classes")

    def _near_margin(self) -> Check:
        problems = self.membership()
        if not self.loss.names_duals and len(self.ids):
            problems.append(
                f"{self.claim.loss.replace('_', ' ')} has no rows with weights of their own, found {len(self.ids):,}"
            )
        text = f"all {self.matched:,} rows near the margin are the store's, with its labels"
        return Check(
            "coreset", not problems, "; ".join(problems) or (text if self.loss.names_duals else "none is needed")
        )

    def _weighed(self) -> Check:
        chunks = len(self.claim.reference_of)
        if chunks not in (0, self.rows.chunks):
            text = f"references for {chunks:,} chunks, the store has {self.rows.chunks:,}: expected one for each"
            return Check("dual weights", ok=False, text=text)
        if not self.loss.names_duals:
            how = "c xi at the reference, corrected" if self.ramp else "in proportion to c xi at the reference"
            return Check("dual weights", ok=True, text=f"{how}: >= 0 and in balance")
        if self.claim.lower is None or self.claim.lower <= 0:
            return Check("dual weights", ok=True, text="none are needed: no value is below 0")
        alpha, limits, problems = self.claim.alpha, self._limits() * (1 + _FEW), []
        bad = np.flatnonzero(~((alpha >= 0) & ((self.found == 0) | (alpha <= limits))))
        if len(bad):
            k = int(bad[0])
            known = f" and at most {self._limits()[k]:.12g}" if self.found[k] else ""
            problems.append(f"the weight of row {self.claim.ids[k]} is {alpha[k]:.12g}, expected at least 0{known}")
        total = float(self.class_c().pair @ self.sums["slack"]) + rounded_sum(self.duals)
        if self.claim.intercept and not abs(self.imbalance()) <= 1e-9 * total:
            problems.append(f"the classes' weights differ by {self.imbalance():.6g} of {total:.6g}, expected 0")
        others = int(self.sums["slack"].sum())
        text = f"{len(alpha):,} weights from 0 to c, {others:,} other rows at c, {'in balance' * self.claim.intercept}"
        return Check("dual weights", not problems, "; ".join(problems) or text.removesuffix(", "))
