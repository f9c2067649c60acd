"""What ``verify`` says about a model of several classes at once.

With z of a row (x, s) of class y and a rival r the vector of K blocks with (x, s) in block y and -(x, s) in block r,
the margin of V against that rival is <V, z>. For weights a >= 0 that sum to 1 no V of length 1 has margins above
|| sum a z || (Kesler; Har-Peled, Roth, Zimak 2006, section 6); for a >= 0 with sum_r a_r <= c for each row no V
has a value 1/2 ||V||^2 + sum c max(0, 1 - margin) below sum a - 1/2 || sum a z ||^2 (Lagrange).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from coremargin.formats.limits import C_LIMITS
from coremargin.verify import margins, values
from coremargin.verify.checks import CLOSE, Check, same_epsilon, same_ratio, shown, typed
from coremargin.verify.classes.scan import ClassesScan
from coremargin.verify.sums import SLAB_ROWS, UNIT, gamma, length, nearest, rounded_sum
from coremargin.verify.values import value_bounded, value_reached

if TYPE_CHECKING:
    from coremargin.verify.classes.claim import ClassesClaim
    from coremargin.verify.rows import Rows

_FEW = 16 * UNIT  # of a handful of operations


def same_classes(claim: ClassesClaim, rows: Rows) -> Check:
    """Whether the store's labels are the model's."""
    text, store = ", ".join(map(repr, claim.labels)), ", ".join(map(repr, rows.classes))
    ok = sorted(map(repr, map(typed, claim.labels))) == sorted(map(repr, map(typed, rows.classes)))
    return Check("classes", ok, text if ok else f"model claims {text}, the store has {store or 'none'}")


def consistency(claim: ClassesClaim) -> list[Check]:
    """What the claims say about each other."""
    size, text = length(claim.v.ravel()), f"{len(claim.labels)} classes, ||V|| = {length(claim.v.ravel()):.12g}"
    constant = _constant(claim.radius) if claim.intercept else 0.0
    ok = claim.constant == constant and (claim.soft or claim.lower is None or abs(size - 1) <= CLOSE)
    text += f", every row ends in {claim.constant:g}" if claim.intercept else ", no intercepts"
    if not ok:
        text += f": expected {'' if claim.soft else '||V|| = 1, '}a last entry of {constant:g}"
    checks = [Check("hypothesis", ok, text), *same_epsilon(claim), *same_ratio(claim)]
    return [*checks, values.status(claim) if claim.soft else margins.status(claim)]


def _constant(longest: float) -> float:
    """What the last entry of every row has to be: the least power of two that no row is longer than."""
    if longest >= 2.0**1023:
        return math.inf
    return 2.0 ** math.ceil(math.log2(longest)) if longest > 0 else 1.0


def _class_c(claim: ClassesClaim, rows: Rows) -> np.ndarray:
    """c (K,) of a row of weight 1 of each class: C, or "balanced": C n / (K n_class), counts being sums of weights."""
    classes = len(claim.labels)
    if not claim.balanced:
        return np.full(classes, claim.cost)
    place = {typed(label): k for k, label in enumerate(claim.labels)}
    sums = [Fraction(0)] * classes
    for codes, weights in rows.labels():
        for code, label in enumerate(rows.classes):
            mine = weights[codes == code]
            sums[place[typed(label)]] += Fraction(rounded_sum(mine.tolist()))
    return np.array([nearest(Fraction(claim.cost) * sum(sums) / (classes * k)) if k else 0.0 for k in sums])


class ClassesProof(ClassesScan):
    """The scan of a claim about several classes, and what it shows."""

    def __init__(self, claim: ClassesClaim, rows: Rows) -> None:
        super().__init__(claim, rows, _class_c(claim, rows))

    def bounds(self) -> tuple[float | None, float | None]:
        """(lower, upper) as found here; the upper bound of a margin is not found by a scan."""
        if self.claim.soft:
            return self._values()
        return (self.lowest[0] if self.claim.lower is not None and self.lowest[1] >= 0 else None), None

    def checks(self) -> list[Check]:
        """What the store's rows say about the claims."""
        found = [self.content(), self._coreset()]
        if self.claim.soft:
            dual, value = self._values()
            reached, bounded = value_reached(self.claim, value, self.counted), value_bounded(self.claim, dual)
            found += [self._c_check(), self._weighed(), reached, bounded]
        else:
            found.append(self._lowest())
        return found

    def _coreset(self) -> Check:
        """Whether the rows with duals are rows of the store."""
        problems = self.membership()
        bits = "" if self.claim.soft else ", bit for bit"
        text = f"all {self.matched:,} rows are the store's{bits}, with its labels"
        return Check("coreset", not problems, "; ".join(problems) or text)

    def _lowest(self) -> Check:
        """Whether every row has at least the claimed margin."""
        margin, row, place = self.lowest
        claim, count = self.claim, self.rows.rows - self.unlabelled
        if row < 0:
            return Check("lower bound", ok=False, text="the store has no labelled row, nothing can be claimed about it")
        if claim.lower is None:
            return Check("lower bound", ok=True, text="nothing is claimed")
        claimed, found = shown(claim.lower), shown(margin)
        lowest = f"row {row} (class {claim.labels[place]!r}) has margin {found}"
        if self.below:
            text = f"model claims {claimed}, {lowest}; {self.below:,} of {count:,} rows are below{self.aside}"
            return Check("lower bound", ok=False, text=text)
        text = f"all {count:,} rows{self.aside} have at least {claimed}; lowest: {lowest}"
        return Check("lower bound", ok=True, text=text)

    def _excess(self) -> float:
        """What float64 may put the sum of a row's duals above its c by, as a share."""
        return (len(self.claim.labels) + 16) * UNIT

    def _c_check(self) -> Check:
        """Whether float64 can bound sums of such c."""
        (low, high), found = C_LIMITS, self["total_c"]
        text = f"the rows of a class cost {found.min():.6g} to {found.max():.6g} in all"
        if ((found >= low) & (found <= high)).all():
            return Check("per-sample C", ok=True, text=text)
        return Check("per-sample C", ok=False, text=f"{text}: expected from {low:g} to {high:g}")

    def _infeasible(self) -> np.ndarray:
        """Which rows (m,) have duals that no dual point has, up to rounding."""
        duals = self.claim.duals
        own = duals[np.arange(len(duals)), self.claim.y - 1]
        within = duals.sum(axis=1) <= self.limits * (1 + self._excess())
        return np.asarray(~((duals >= 0).all(axis=1) & (own == 0) & within))

    def _weighed(self) -> Check:
        """Whether the duals are feasible, where anything rests on them."""
        claim, duals = self.claim, self.claim.duals
        if claim.lower is None or claim.lower <= 0:
            return Check("dual weights", ok=True, text="none are needed: no value is below 0")
        wrong = self._infeasible()
        if wrong.any():
            k = int(np.argmax(wrong))
            text = f"those of row {claim.ids[k]} sum to {duals[k].sum():.12g}, expected from 0 to {self.limits[k]:.12g}"
            return Check("dual weights", ok=False, text=f"{text}, none below 0, none at its own class")
        text = f"{len(duals):,} rows with weights of their own, up to their c; all others at their worst class"
        return Check("dual weights", ok=True, text=text)

    def _values(self) -> tuple[float, float]:
        """(dual bound rounded down, value of the hypothesis rounded up), as found here."""
        claim, error = self.claim, gamma(min(SLAB_ROWS, self.rows.chunk_rows) + 16 + len(self.claim.labels))
        with np.errstate(over="ignore", invalid="ignore"):
            size = length(claim.v.ravel())
            value = (0.5 * size * size + float(self["loss"])) * (1 + error)
            total = (float(self["far_c"]) + rounded_sum(claim.duals.ravel().tolist())) * (1 - error)
            longest = length(self["dual_sum"].ravel()) * (1 + _FEW) + error * float(self["reach"])
            longest += 2 * claim.moved * (float(self["far_c"]) + rounded_sum(np.abs(claim.duals).ravel().tolist()))
            dual = total * (1 - 2 * self._excess()) - 0.5 * longest * longest * (1 + _FEW)
        proves = dual > 0 and not self._infeasible().any()  # no weights at all prove 0
        return (dual if proves else 0.0), (value if math.isfinite(value) else math.inf)
