"""A relative margin: the hinge loss of a hypothesis within a bound B, and the bound of its dual point.

    f(w, b) = 1/2 ||w||^2 + sum_i c_i max(0, 1 - y_i (w.x_i + b))     subject to |w.x_i + b| <= B for all rows

c_i is C times the weights of the row and its class. For any numbers g, with a free intercept sum_i g_i y_i = 0, and v =
sum_i g_i y_i x_i, no hypothesis within the bound has a value below

    sum_i phi_i(g_i) - 1/2 ||v||^2,    phi_i(g) = min over |m| <= B of c_i max(0, 1 - m) + g m

    phi_i(g) = B g (g < 0),    g (0 <= g <= c_i),    c_i - B (g - c_i) (g > c_i)        as B > 1

(Lagrange; Shivaswamy and Jebara 2010.)

Bound. A decision value in float64 is off by at most e, that of margins in soft_margin.py. No row may have |w.x + b| + e
above B.

Value. That of the hinge in soft_margin.py.

Dual. A row that the model does not name has g = c if its margin at the reference is below 1, else 0, as there: then
phi(g) = g. Others have the g that the model names, of either sign and any size: all of these are dual weights. Only the
balance holds up to rounding. Changing one g by the missing M changes phi by at most B M, and ||v|| by at most R M, R
being the longest row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import CLOSE, Check, same_two_classes, shown
from coremargin.verify.claim import two_classes
from coremargin.verify.kind import Kind
from coremargin.verify.soft_margin import SoftClaim, SoftScan, SoftSummary, margins_within, value_consistency
from coremargin.verify.sums import LOST, SLAB_ROWS, UNIT, gamma, length, rounded_sum, slabs

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.relative_margin import RelativeMargin
    from coremargin.verify.rows import Chunk, Rows

_FEW = 16 * UNIT  # error of a handful of operations


@dataclass(frozen=True, kw_only=True)
class RelativeMarginClaim(SoftClaim):
    """The claim of a hinge loss within a bound; alpha (m,): g of the rows that the model names."""

    bound: float  #: B


@dataclass(frozen=True)
class RelativeMarginSummary(SoftSummary):
    """The summary of one chunk."""

    largest: float  #: no row that counts has a larger |w.x + b|


class RelativeMarginScan(SoftScan):
    """The scan for the largest decision value, the value of a hypothesis and that of a dual point."""

    claim: RelativeMarginClaim

    def __init__(self, claim: RelativeMarginClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.largest = 0.0

    def probe(self, chunk: Chunk) -> RelativeMarginSummary:
        """The summary of a chunk, in slabs of float64."""
        found, signs, largest = super().probe(chunk), self.signs(chunk), 0.0
        for part, x in slabs(chunk.x, SLAB_ROWS):
            lengths = self.lengths(x, chunk.start + part.start)
            with np.errstate(over="ignore", invalid="ignore"):  # NaN is above every bound
                margins, error = margins_within(x, signs[part], lengths, self.claim.w, self.claim.b)
                most = np.where(signs[part] != 0, np.abs(margins) + error + self.claim.moved * self._size, 0.0)
                largest = float(np.maximum(largest, most.max()))
        return RelativeMarginSummary(**{f.name: getattr(found, f.name) for f in fields(found)}, largest=largest)

    def add(self, summary: Any) -> None:
        """Add a summary, in the order of chunks."""
        super().add(summary)
        self.largest = float(np.maximum(self.largest, summary.largest))

    def _hinge_dual(self) -> float:
        """sum phi(g) - 1/2 ||v||^2 of the given g, minus what their balance may cost; rounded down."""
        claim, c, sums = self.claim, self.class_c(), self.sums
        g, limits = np.where(self.found != 0, self.duals, 0.0), np.where(self.found != 0, self._limits(), 0.0)
        sides = float(c @ sums["slack"])
        inner, outer = np.clip(g, 0.0, limits), np.maximum(np.maximum(g - limits, -g), 0.0)
        total = sides + rounded_sum(inner) - claim.bound * rounded_sum(outer)
        beyond = (g < 0) | (g > limits * (1 - CLOSE))  # where rounding is multiplied by the bound
        sizes = sides + rounded_sum(inner) + claim.bound * rounded_sum((np.abs(g) + limits)[beyond])
        total -= len(g) * LOST + _FEW * sizes
        move = abs(self.imbalance()) * (1 + _FEW) if claim.intercept else 0.0
        v = c[0] * sums["dual_sum"][0] - c[1] * sums["dual_sum"][1] + sums["near_dual_sum"]
        spread = self.error * (float(c @ sums["reach"]) + float(sums["near_reach"]))
        each = self.error * (c @ sums["spread"] + sums["near_spread"])
        radius = self.radius * (1 + gamma(claim.features + 4))
        moved = claim.moved * (sides + rounded_sum(np.abs(g)) + move) * (1 + 4 * self.error)
        longest = length(np.abs(v) + each) * (1 + _FEW) + spread + radius * move + moved
        return total - claim.bound * move * (1 + _FEW) - 0.5 * longest * longest * (1 + _FEW)

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        return [*super().checks(), self._bound_check()]

    def _bound_check(self) -> Check:
        bound = shown(self.claim.bound)
        if self.claim.upper is None:
            return Check("relative margin", ok=True, text="nothing is claimed")
        text = f"the decision values of all {self.counted} are within {shown(self.largest)}"
        if self.largest <= self.claim.bound:
            return Check("relative margin", ok=True, text=f"{text} (claimed: {bound})")
        text = f"model claims decision values within {bound}, those of {self.counted} may reach {shown(self.largest)}"
        return Check("relative margin", ok=False, text=text)

    def _dual_weights_check(self) -> Check:
        if self.claim.lower is None or self.claim.lower <= 0:
            return Check("dual weights", ok=True, text="none are needed: no value is below 0")
        others, total = int(self.sums["slack"].sum()), float(self.class_c() @ self.sums["slack"])
        total += rounded_sum(np.abs(self.duals))
        if self.claim.intercept and not abs(self.imbalance()) <= 1e-9 * total:
            text = f"the classes' weights differ by {self.imbalance():.6g} of {total:.6g}, expected 0"
            return Check("dual weights", ok=False, text=text)
        balance = ", in balance" * self.claim.intercept
        text = f"{len(self.duals):,} rows with weights of their own, {others:,} others at c{balance}"
        return Check("dual weights", ok=True, text=text)


class RelativeMarginKind(Kind[RelativeMarginClaim]):
    """The claims of a relative margin."""

    def claim(self, files: ModelFiles) -> RelativeMarginClaim:
        """A hyperplane, its bound, C for each class, and a dual point."""
        parameters = cast("RelativeMargin", files.record).parameters
        return RelativeMarginClaim(
            **two_classes(files, WHOLE, soft=True),
            tried=None,
            loss=parameters.loss,
            cost=float(parameters.C),
            class_weight=parameters.class_weight,
            reference=np.atleast_2d(files.arrays["reference"]),
            reference_of=np.zeros(0, np.int64),
            ramp=0.0,
            bound=float(parameters.relative_margin),
        )

    def same_classes(self, claim: RelativeMarginClaim, rows: Rows) -> Check:
        """Two."""
        return same_two_classes(claim, rows)

    def consistency(self, claim: RelativeMarginClaim) -> list[Check]:
        """Intercept, epsilon, ratio, status."""
        return value_consistency(claim)

    def scan(self, claim: RelativeMarginClaim, rows: Rows) -> RelativeMarginScan:
        """The decision value and the loss of each row, and its dual weight."""
        return RelativeMarginScan(claim, rows)

    def terms(self, claim: RelativeMarginClaim) -> str:
        """The bound."""
        return f", of those with all decision values within {claim.bound:g}"


KIND = RelativeMarginKind()
