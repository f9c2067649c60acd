"""The guaranteed risk of the models of a fleet: bounds on the error on new rows; the least chooses C and gamma.

For N rows of two classes that are drawn independently, with confidence 1 - d over them and for all w and b at once, the
share of new rows that sign(w.x + b) puts on the wrong side is at most

    V = e + 2 a / N (1 + sqrt(1 + N e / a)),    a = h ln(2 e N / h) + ln(4 / d),    h = features + 1 (Vapnik 1995),

e being the share of errors on the N rows (in the logarithm Euler's number), and at most

    M = l + 2 s (A r + B) / sqrt(N) + 3 sqrt(ln(2 / (d p q)) / (2 N))    (Mohri, Rostamizadeh, Talwalkar 2018, 3.3),

l being the mean loss, s = 1 for the hinge and 2 for its square, r the length of the longest row, A and B ||w|| and |b|
rounded up to powers 2^(j/4), and p, q = 1 / (2.3 (1 + |j|)^2). Without an intercept h = features, B = 0 and q = 1. A
machine with a kernel has no V, and its r is the largest sqrt(k(x, x)). The g values of gamma share d: each has
d / g, and V and M half of that. The bound is about functions that are fixed before the rows are seen: scalings, maps,
kernels and weights that depend on them are rejected. Whether random numbers of a map do is not checked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.checks import Check
from coremargin.verify.compression import ENCODED
from coremargin.verify.kernel import KernelClaim, KernelScan
from coremargin.verify.kernel_functions import ClosedKernel
from coremargin.verify.soft_margin import SoftClaim
from coremargin.verify.sums import length
from coremargin.verify.values import guaranteed_risk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.formats.fleet_record import FleetRecord
    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.examination import ModelExamination
    from coremargin.verify.kernel_functions import Kernel

DELTA = 0.05
_CLOSE = 1e-6  # relative: of ||w||, whose rounding up may jump, and of risks, computed in another order


def risk_check(record: FleetRecord, examinations: Sequence[ModelExamination], *, weighted: bool) -> Check:
    """Whether the claimed risks follow from the numbers that the members claim, each of which is checked elsewhere.

    weighted: the store's rows have weights.
    """
    risks, evaluations = record.risk or [], record.evaluations or []
    if not risks:
        return Check("risk", ok=True, text="nothing is claimed")
    ensembles, counted = record.ensembles(), {entry.ensemble: entry for entry in evaluations}
    deciders = {entry.setting: examinations[ensembles[None, *entry.setting][0]] for entry in risks}
    problems = [] if counted else ["no training errors are claimed that it could follow from"]
    problems += ["the rows have weights"] if weighted else []
    problems += ["there are more than two classes"] if len(record.classes) != 2 else []
    problems += [text for text in (_dependence(one.claim) for one in deciders.values()) if text][:1]
    if problems:
        return Check("risk", ok=False, text=f"a guaranteed risk is claimed, but {'; '.join(problems)}")
    delta = DELTA / len({entry.setting[1] for entry in risks})
    for entry in risks:
        table = counted[None, *entry.setting]
        wrong = table.rows - int(np.trace(np.array(table.confusion)))
        low, high = (_risk(deciders[entry.setting], table.rows, wrong, delta, 1 + k * _CLOSE) for k in (-1, 1))
        if not low * (1 - _CLOSE) <= entry.risk <= high * (1 + _CLOSE):
            text = f"C {entry.C}: model claims {entry.risk:.9g}, its numbers give {high:.9g}"
            return Check("risk", ok=False, text=text)
    least = min(entry.risk for entry in risks)
    says = f"is {least:.6g} (95 %)" if least < 0.5 else "bounds nothing"
    encoded = ENCODED.replace(" and", ", if") if any(one.claim.columns for one in deciders.values()) else ""
    return Check("risk", ok=True, text=f"the bounds on the error on new rows are as claimed; the least {says}{encoded}")


def _dependence(claim: AnyClaim) -> str:
    """What makes the space of functions depend on the rows; "" if nothing does."""
    if claim.scaling not in ("", "rownorm"):
        return f"scaling {claim.scaling!r} depends on the rows"
    if claim.map is not None and (claim.map.kind == "nystroem" or claim.map.scale):
        return "the map depends on the rows"
    if isinstance(claim, KernelClaim):
        if claim.scale or not isinstance(claim.function, ClosedKernel):
            return "the kernel depends on the rows, or is a function"
        return "costs depend on the class" if claim.weight is not None else ""
    if not isinstance(claim, SoftClaim):
        return "there is no loss"
    return "costs depend on the class" if claim.class_weight is not None else ""


def _risk(one: ModelExamination, rows: int, wrong: int, delta: float, stretch: float) -> float:
    """The smaller of V and M; stretch: a factor of ||w||."""
    claim = one.claim
    if isinstance(claim, KernelClaim) and isinstance(one.scan, KernelScan):
        square, radius = one.scan.square_of_first(), _reach(claim.function, claim.radius)
        return _margin_risk(claim, square, stretch, float(claim.offsets[0]), radius, rows, delta)
    if not isinstance(claim, SoftClaim):
        return math.inf
    size = length(claim.w)
    by_margin = _margin_risk(claim, size * size, stretch, claim.b, claim.radius, rows, delta / 2)
    return min(by_margin, guaranteed_risk(rows, len(claim.w) + claim.intercept, wrong / rows, delta / 2))


def _margin_risk(
    claim: KernelClaim | SoftClaim,
    square: float,
    stretch: float,
    offset: float,
    radius: float,
    rows: int,
    delta: float,
) -> float:
    """M, with the mean loss from the claimed value, which the member's own check compares with the rows.

    square: ||w||^2.
    """
    if claim.upper is None or not math.isfinite(square + offset):
        return math.inf
    loss = min(1.0, max(0.0, claim.upper - max(0.0, square) / 2) / claim.cost / rows)
    capacity, share = 0.0, 1.0
    for size, times in ((stretch * math.sqrt(max(0.0, square)), radius), (abs(offset), 1.0))[: 1 + claim.intercept]:
        j = -200 if size == 0 else max(-200, math.ceil(4 * math.log2(size)))
        capacity += float(np.exp2(j / 4)) * times
        share /= 2.3 * (1 + abs(j)) ** 2
    slope = 1 if claim.loss == "hinge" else 2
    return loss + 2 * slope * capacity / math.sqrt(rows) + 3 * math.sqrt(math.log(2 / (delta * share)) / (2 * rows))


def _reach(kernel: Kernel, longest: float) -> float:
    """sqrt(k(x, x)) of a row of this length."""
    return math.sqrt(float(kernel.bound(longest, longest))) if isinstance(kernel, ClosedKernel) else math.inf
