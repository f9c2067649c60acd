"""What ``verify`` says about a model of several classes at once.

With z of a row (x, s) of class y and a rival r the vector of K blocks with (x, s) in block y and -(x, s) in block r,
the margin of V against that rival is <V, z>. For weights a >= 0 that sum to 1 no V of length 1 has margins above
|| sum a z || (Kesler; Har-Peled, Roth, Zimak 2006, section 6); for a >= 0 with sum_r a_r <= c for each row no V
has a value 1/2 ||V||^2 + sum c max(0, 1 - margin) below sum a - 1/2 || sum a z ||^2 (Lagrange).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coremargin.learn.verify_checks import Check, apart, close, same_epsilon, same_shape, shown, typed
from coremargin.learn.verify_checks import status as margin_status
from coremargin.learn.verify_classes_scan import ClassesScan
from coremargin.learn.verify_gap import status as value_status
from coremargin.learn.verify_one import UNCHECKED_GAP, Verification
from coremargin.learn.verify_scaling import Columns, Scaler
from coremargin.learn.verify_store import listed
from coremargin.learn.verify_sums import SLAB_ROWS, UNIT, combination, gamma, length, normalised_weights

if TYPE_CHECKING:
    from coremargin.learn.verify_classes_claim import ClassesClaim
    from coremargin.learn.verify_rows import Chunk, Rows

_FEW = 16 * UNIT  # of a handful of operations
_CLOSE = 1e-9  # for numbers that are said to be 1: not for bounds


class ClassesInquiry:
    """A claim about several classes, and what is known about it so far; as ``Inquiry``."""

    def __init__(self, claim: ClassesClaim, rows: Rows) -> None:
        self.claim, self.rows = claim, rows
        like: Any = claim  # of a claim about two classes these look at nothing that is not here too
        self._checks = [same_shape(like, rows), _same_classes(claim, rows)]
        self.comparable = claim.features == rows.features and self._checks[1].ok
        self._checks += _consistency(claim)
        self._upper, dual_checks = (None, []) if claim.soft else _hull(claim)
        self._checks += dual_checks
        self.scaler: Scaler | None = None
        self.scan: ClassesScan | None = None
        if self.comparable:
            self.scaler = Scaler(like, rows)
            self.scan = ClassesScan(claim, rows, _prices(claim, rows))

    def columns(self, chunk: Chunk) -> Columns | None:
        """What a chunk as it is stored says about the scaling."""
        return self.scaler.columns(chunk) if self.scaler else None

    def scaled(self, chunk: Chunk) -> Chunk:
        """A chunk as the claim is about it."""
        return self.scaler.scaled(chunk) if self.scaler else chunk

    def ask(self, scaled: Chunk) -> Any:
        """What a scaled chunk says about the claim."""
        return self.scan.ask(scaled) if self.scan else None

    def add_columns(self, columns: Columns | None) -> None:
        """Take what ``columns`` said."""
        if self.scaler:
            self.scaler.add(columns)

    def add(self, answer: Any) -> None:
        """Take what ``ask`` said."""
        if self.scan:
            self.scan.add(answer)

    def result(self) -> Verification:
        """The outcome, after all chunks."""
        claim, scan, checks = self.claim, self.scan, list(self._checks)
        lower, upper = None, self._upper
        if scan and self.scaler:
            found = [scan.content(), _coreset(scan)]
            if claim.soft:
                lower, upper = _bounds(scan)
                found += [_priced(scan), _above(scan, upper), _below(scan, lower)]
            else:
                lower = scan.lowest[0] if claim.lower is not None and scan.lowest[1] >= 0 else None
                found.append(_lowest(scan))
            checks += [*found, scan.norms(), *self.scaler.checks()]
        return Verification(
            model=str(claim.path), store=str(self.rows.path), status=claim.status, epsilon=claim.proven_epsilon,
            claimed_lower=claim.lower, claimed_upper=claim.upper, lower=lower, upper=upper, rows=self.rows.rows,
            unlabelled=scan.unlabelled if scan else 0, features=self.rows.features, checks=tuple(checks),
            unchecked=UNCHECKED_GAP, problem=claim.problem, soft=claim.soft,
        )  # fmt: skip


def _same_classes(claim: ClassesClaim, rows: Rows) -> Check:
    text, store = ", ".join(map(repr, claim.labels)), ", ".join(map(repr, rows.classes))
    ok = sorted(map(repr, map(typed, claim.labels))) == sorted(map(repr, map(typed, rows.classes)))
    return Check("classes", ok, text if ok else f"model claims {text}, the store has {store or 'none'}")


def _consistency(claim: ClassesClaim) -> list[Check]:
    """What the claims say about each other."""
    size, text = length(claim.v.ravel()), f"{len(claim.labels)} classes, ||V|| = {length(claim.v.ravel()):.12g}"
    ok = (claim.constant > 0) == claim.intercept and (claim.soft or claim.lower is None or abs(size - 1) <= _CLOSE)
    text += f", every row ends in {claim.constant:g}" if claim.intercept else ", no intercepts"
    checks = [Check("hypothesis", ok, text if ok else f"{text}: expected ||V|| = 1, a constant only with intercepts")]
    checks += same_epsilon(cast("Any", claim))
    lower, upper = claim.lower, claim.upper
    ratio = min(1.0, lower / upper) if lower is not None and upper is not None and lower > 0 and upper > 0 else 0.0
    if claim.ratio is not None and not close(claim.ratio, ratio):
        checks.append(Check("ratio", ok=False, text=f"model claims {claim.ratio:.9g}, its own bounds give {ratio:.9g}"))
    if claim.soft:
        return [*checks, value_status(cast("Any", claim))]
    if claim.status != "not_separable":
        return [*checks, margin_status(cast("Any", claim), ratio)]
    limit = 64 * (claim.v.size + claim.duals.size + 16) * UNIT * (claim.radius + claim.constant)
    ok = claim.kind == "not_separable" and upper is not None and upper <= limit
    text = f"not separable: no margin above {shown(upper)}, which is zero for rows as long as {claim.radius:.6g}"
    if not ok:
        text = f"model claims that nothing separates the rows, but its upper bound is not zero: {shown(upper)}"
    return [*checks, Check("status", ok, text)]


def _hull(claim: ClassesClaim) -> tuple[float | None, list[Check]]:
    """The upper bound that the coreset proves, and whether the claimed one is at least that."""
    if claim.upper is None:
        return None, []
    row, rival = np.nonzero(claim.duals)
    a, own = claim.duals[row, rival], claim.y[row] - 1
    total = float(a.sum())
    ok = bool(np.isfinite(a).all() and (a >= 0).all() and (rival != own).all() and abs(total - 1) <= _CLOSE)
    text = f"{len(a):,} weights of pairs of row and rival, each at least 0, that sum to 1"
    check = Check("dual weights", ok, text if ok else f"expected {text}; found a sum of {total:.12g}")
    if not ok:
        return None, [check]
    high, low = normalised_weights(a, [np.ones(len(a), dtype=bool)])
    blocks = []
    for k in range(len(claim.labels)):
        mine = np.flatnonzero((own == k) | (rival == k))
        sign = np.where(own[mine] == k, 1.0, -1.0)
        last = claim.constant * math.fsum([*(sign * high[mine]).tolist(), *(sign * low[mine]).tolist()])
        blocks += [combination(claim.x[row[mine]], sign * high[mine], sign * low[mine]), np.array([last])]
    found = length(np.concatenate(blocks))
    claimed, proven = apart(claim.upper, found)
    text = f"{len(claim.ids):,} coreset rows prove at most {proven}"
    ok = found <= claim.upper
    text = f"{text} (claimed: {claimed})" if ok else f"model claims {claimed}, {text}"
    return found, [check, Check("upper bound", ok, text)]


def _prices(claim: ClassesClaim, rows: Rows) -> np.ndarray:
    """c (K,) of a row of weight 1 of each class: C, or "balanced": C n / (K n_class), counts being sums of weights."""
    classes = len(claim.labels)
    if not claim.balanced:
        return np.full(classes, claim.cost)
    place = {typed(label): k for k, label in enumerate(claim.labels)}
    sums = [Fraction(0)] * classes
    for codes, weights in rows.labels():
        for code, label in enumerate(rows.classes):
            mine = weights[codes == code]
            sums[place[typed(label)]] += Fraction(math.fsum(mine.tolist()))
    return np.array([float(Fraction(claim.cost) * sum(sums) / (classes * k)) if k else 0.0 for k in sums])


def _coreset(scan: ClassesScan) -> Check:
    """Whether the rows with duals are rows of the store."""
    problems, ids = scan.membership(), scan.ids
    repeated = [int(row) for row in np.unique(ids[1:][ids[1:] == ids[:-1]])]
    if repeated:
        problems.append(f"{listed(repeated)} named more than once")
    bits = "" if scan.claim.soft else ", bit for bit"
    text = f"all {scan.matched:,} rows are the store's{bits}, with its labels"
    return Check("coreset", not problems, "; ".join(problems) or text)


def _lowest(scan: ClassesScan) -> Check:
    """Whether every row has at least the claimed margin."""
    margin, row, place = scan.lowest
    claim, count = scan.claim, scan.rows.rows - scan.unlabelled
    if row < 0:
        return Check("lower bound", ok=False, text="the store has no labelled row, nothing can be claimed about it")
    if claim.lower is None:
        return Check("lower bound", ok=True, text="nothing is claimed")
    claimed, found = apart(claim.lower, margin)
    lowest = f"row {row} (class {claim.labels[place]!r}) has margin {found}"
    if scan.below:
        text = f"model claims {claimed}, {lowest}; {scan.below:,} of {count:,} rows are below{scan.aside}"
        return Check("lower bound", ok=False, text=text)
    text = f"all {count:,} rows{scan.aside} have at least {claimed}; lowest: {lowest}"
    return Check("lower bound", ok=True, text=text)


def _excess(scan: ClassesScan) -> float:
    """What float64 may put the sum of a row's duals above its price by, as a share."""
    return (len(scan.claim.labels) + 16) * UNIT


def _priced(scan: ClassesScan) -> Check:
    """Whether the duals are feasible, up to rounding."""
    claim, duals = scan.claim, scan.claim.duals
    if claim.lower is None or claim.lower <= 0:
        return Check("dual weights", ok=True, text="none are needed: no value is below 0")
    own = duals[np.arange(len(duals)), claim.y - 1]
    wrong = ~np.isfinite(duals).all(axis=1) | (duals < 0).any(axis=1) | (own != 0)
    wrong |= ~(duals.sum(axis=1) <= scan.limits * (1 + _excess(scan)))
    if wrong.any():
        k = int(np.argmax(wrong))
        text = f"those of row {claim.ids[k]} sum to {duals[k].sum():.12g}, expected from 0 to {scan.limits[k]:.12g}"
        return Check("dual weights", ok=False, text=f"{text}, none below 0, none at its own class")
    text = f"{len(duals):,} rows with weights of their own, up to their prices; all others at their worst class"
    return Check("dual weights", ok=True, text=text)


def _bounds(scan: ClassesScan) -> tuple[float, float]:
    """(dual bound rounded down, value of the hypothesis rounded up), as found here."""
    claim, error = scan.claim, gamma(min(SLAB_ROWS, scan.rows.chunk_rows) + 16 + len(scan.claim.labels))
    given = np.where(np.isfinite(claim.duals), claim.duals, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        size = length(claim.v.ravel())
        value = (0.5 * size * size + float(scan["loss"])) * (1 + error)
        total = (float(scan["paid"]) + math.fsum(given.ravel().tolist())) * (1 - error)
        longest = length(scan["pull"].ravel()) * (1 + _FEW) + error * float(scan["reach"])
        dual = total * (1 - 2 * _excess(scan)) - 0.5 * longest * longest * (1 + _FEW)
    return (dual if dual > 0 else 0.0), (value if math.isfinite(value) else math.inf)


def _above(scan: ClassesScan, value: float) -> Check:
    """Whether the hypothesis is as good as claimed."""
    claim, rows = scan.claim, scan.rows.rows - scan.unlabelled
    if claim.upper is None:
        return Check("value", ok=True, text="nothing is claimed")
    claimed, found = apart(claim.upper, value)
    text = f"of the hypothesis over all {rows:,} rows{scan.aside}: {found}"
    if value <= claim.upper:
        return Check("value", ok=True, text=f"{text} (claimed: at most {claimed})")
    return Check("value", ok=False, text=f"model claims at most {claimed}, {text}")


def _below(scan: ClassesScan, dual: float) -> Check:
    """Whether nothing can be as good as the claimed bound says nothing is."""
    if scan.claim.lower is None:
        return Check("dual bound", ok=True, text="nothing is claimed")
    claimed, found = apart(scan.claim.lower, dual)
    if scan.claim.lower <= dual:
        return Check("dual bound", ok=True, text=f"no hypothesis has a value below {found} (claimed: {claimed})")
    return Check("dual bound", ok=False, text=f"model claims {claimed}, the dual weights prove {found}")
