"""A machine with a kernel: bounds of the margins or values of k functions, column by column.

Decisions are off by at most e (kernel_functions.py). So a margin is at least y (f + b) - e, and a loss at most that of
it.

For dual weights a >= 0, with the hinge at most c, and r = sum y a, the value of every (f, b) is at least
sum a - 1/2 ||sum a y k(x, .)||^2 - sum a^2 / (4 c) (squared hinge) - |r| |b| (Lagrange), and an optimal b is no larger
than 1 + ||f|| max sqrt(k(x, x)): beyond that, all rows of one class have margins above 1, and b can be reduced. A hard
margin is the same without a loss: the value 1/2 ||f||^2 of a function with margins of 1 has the margin 1 / ||f||.

With a relative margin B every |f + b| + e must be at most B. Dual weights a may then be any numbers, and sum a becomes
sum phi(a), phi being the least of the loss and a times the margin over margins within B (relative_margin.py); every
function within the bound has |b| <= B + ||f|| max sqrt(k(x, x)).

If the model is reduced, fewer rows decide than have dual weights: the value is that of the deciding functions, the
bound that of the dual point, and the scan compares the decisions of both.

With k outliers the rows that the model names, at most k, need not have the margin. The upper bound is then the largest
that one of several certificates proves, which a tree makes a proof (removal.py). A certificate is some coreset rows
with weights a >= 0 whose sums S over each class are divided out: a function with margins of rho on them, of length 1,
has 2 rho (without intercept rho) at most || sum a y / S k(x, .) ||, as the intercept cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import UNSET

from coremargin.verify import margins, values
from coremargin.verify.checks import CLOSE, Check, certified, same_classes, same_epsilon, same_ratio, shown, typed
from coremargin.verify.claim import AnyClaim, any_claim
from coremargin.verify.folds import held_out
from coremargin.verify.gamma import Variance
from coremargin.verify.kernel_functions import (
    CallableKernel,
    ClosedKernel,
    NotAKernel,
    check_function,
    expand,
    function_missing,
    function_terms,
)
from coremargin.verify.kind import Kind
from coremargin.verify.removal import check_left_out, most_left_out, proving_certificates, stored_proof
from coremargin.verify.store import Members, StoreFindings
from coremargin.verify.sums import SLAB_ROWS, UNIT, Total, nearest, rounded_sum, slabs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coremargin.formats.kernel import KernelRecord
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.kernel_functions import Kernel
    from coremargin.verify.rows import Chunk, Rows

_FEW = 64 * UNIT  # error of a handful of operations
_EXCESS = 32 * UNIT  # relative amount by which weights may be above c: balanced ones are rounded sums


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """The claim about functions on fewer rows than the whole coreset, which decide in its place."""

    weights: np.ndarray  #: (m, k), 0 for rows that do not carry them
    rows: int
    distance: float  #: largest difference from the whole coreset's decisions
    changed: int  #: largest number of rows whose class may differ


@dataclass(frozen=True, kw_only=True)
class KernelClaim(AnyClaim):
    """The claim of k columns; y are the places of the rows' classes, from 1."""

    labels: tuple[Any, ...]
    function: Kernel
    scale: bool  #: gamma is claimed to be that of "scale"
    duals: np.ndarray  #: (m, k)
    offsets: np.ndarray  #: (k,)
    lowers: np.ndarray  #: (k,) NaN if nothing is claimed
    uppers: np.ndarray  #: (k,)
    loss: str  #: "" for a hard margin
    cost: float  #: C, 0 for a hard margin
    weight: str | tuple[float, float] | None  #: class_weight
    bound: float  #: B of a relative margin, else infinite
    stored_values: np.ndarray  #: (s, s) of a function for some of the coreset's rows, (0, 0) for other kernels
    reduced: Reduction | None  #: None: the functions of the dual weights decide
    outliers: Any  #: how many rows may be left out, as in the parameters; UNSET: none
    left_out: np.ndarray  #: (k,) their ids
    proof: Mapping[str, list[np.ndarray]]  #: with outliers: rows, weights, paths and numbers of the proof

    @property
    def signs(self) -> np.ndarray:
        """Sides (m, k) of the coreset's rows."""
        return sides(self.y, len(self.labels))

    @property
    def deciding(self) -> np.ndarray:
        """Weights (m, k) of the coreset's rows in the functions that decide."""
        return self.signs * self.duals if self.reduced is None else self.reduced.weights


def sides(places: np.ndarray, classes: int) -> np.ndarray:
    """1 and -1 (n, k) for rows whose classes have these places (n,), from 1; of two classes the second is 1."""
    own = np.array([2]) if classes == 2 else np.arange(1, classes + 1)
    return np.where(places[:, None] == own[None, :], 1.0, -1.0)


@dataclass(frozen=True)
class Difference:
    """The difference from the whole coreset's decisions: largest distance, number of rows of another class."""

    distance: float = 0.0
    changed: int = 0

    def merge(self, other: Difference) -> Difference:
        """The difference on the rows of both; a distance of NaN, unknown, stays NaN."""
        return Difference(float(np.maximum(self.distance, other.distance)), self.changed + other.changed)


@dataclass(frozen=True)
class KernelSummary:
    """The summary of one chunk."""

    loss: np.ndarray  #: (k,)
    lowest: tuple[tuple[float, int], ...]  #: for each column the smallest margin, and its row
    limits: np.ndarray  #: (members, k): c of the coreset's rows
    uncounted: int
    radius: float
    members: Members
    variance: Variance
    difference: Difference
    reach: float  #: upper bound on sqrt(k(x, x))
    widest: np.ndarray  #: (k,) no row has a larger |f + b|
    left_out: int  #: rows that count, and need not have the margin
    fault: str  #: why a function is no kernel, "" if it may be one
    errors: int  #: rows that count and may be given another class than theirs


class KernelScan(StoreFindings):
    """The scan for the decisions of k functions, and what it proves."""

    claim: KernelClaim

    def __init__(self, claim: KernelClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        weights = claim.signs * claim.duals
        if claim.reduced is not None:
            weights = np.hstack([claim.reduced.weights, weights])
        self.expansion = expand(claim.function, claim.x, weights)  # the hypothesis first, the dual point last
        place = {typed(label): k + 1 for k, label in enumerate(claim.labels)}
        self._places = np.array([*(place.get(typed(label), 0) for label in rows.classes), 0])
        columns = len(claim.offsets)
        self.class_c = _side_costs(claim, rows)
        self.loss = Total((columns,))
        self.lowest: list[tuple[float, int]] = [(np.inf, -1)] * columns
        self.limits = np.zeros(claim.duals.shape)
        self.variance = Variance()
        self.difference = Difference()
        self.reach, self.fault, self.unproven, self.errors, self.left_out_counted = 0.0, "", "", 0, 0
        self.widest = np.zeros(columns)

    def probe(self, chunk: Chunk) -> KernelSummary:
        """The summary of a chunk, in slabs of float64."""
        place = self._places[chunk.codes]
        weights = np.ones(len(place)) if chunk.weights is None else chunk.weights
        out = held_out(self.claim.view, chunk.start, len(place))
        place = np.where((weights > 0) & ~out, place, 0)
        members, columns = self.members(chunk, place), len(self.claim.offsets)
        here = self.claim.left_out - chunk.start
        here = np.unique(here[(here >= 0) & (here < len(place))])
        uncounted, left_out = int((place == 0).sum()), int((place[here] > 0).sum())
        place = place.copy()
        place[here] = 0
        signs = sides(place, len(self.claim.labels))
        row_c = np.where(signs > 0, self.class_c[:, 0], self.class_c[:, 1]) * weights[:, None]
        lowest, loss, radius, difference = [(np.inf, -1)] * columns, Total((columns,)), 0.0, Difference()
        reach, fault, widest, errors = 0.0, "", np.zeros(columns), 0
        for part, x in slabs(chunk.x, SLAB_ROWS):
            longest = float(self.lengths(x, chunk.start + part.start).max())
            radius = max(radius, longest)
            counted = np.flatnonzero(place[part])
            if not len(counted):
                continue
            try:
                values, error = self._decisions(x[counted])
                reach = max(reach, self.expansion.reach(x[counted], longest))
            except NotAKernel as wrong:
                fault = fault or _fault(wrong, chunk.start + part.start + counted)
                values = np.full((len(counted), self.expansion.weights.shape[1]), np.nan)
                error = np.zeros_like(values)
            difference = difference.merge(_difference(values, error, columns))
            decided = _certain_class(values[:, :columns], error[:, :columns])
            errors += int((decided != place[part][counted] - 1).sum())
            most = np.abs(values[:, :columns]) + error[:, :columns]
            widest = np.maximum(widest, np.where(np.isnan(most), np.inf, most).max(axis=0))
            margins = _margins(values[:, :columns], error[:, :columns], signs[part][counted])
            loss.add(self._losses(margins, row_c[part][counted]))
            least = margins.argmin(axis=0)
            found = [(float(margins[r, k]), chunk.start + part.start + int(counted[r])) for k, r in enumerate(least)]
            lowest = [min(pair) for pair in zip(lowest, found, strict=True)]
        limits = row_c[self.claim.ids[members.places] - chunk.start]
        return KernelSummary(
            loss.value,
            tuple(lowest),
            limits,
            uncounted,
            radius,
            members,
            Variance.of(chunk.x),
            difference,
            reach,
            widest,
            left_out,
            fault,
            errors,
        )

    def _decisions(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Decision values of rows x (n, d), those of the hypothesis first, and bounds on their errors."""
        values, error = self.expansion.values(x)
        offsets = np.tile(self.claim.offsets, values.shape[1] // len(self.claim.offsets))
        return values + offsets, error + 2 * UNIT * (np.abs(values) + np.abs(offsets) + 1.0)

    def _losses(self, margins: np.ndarray, row_c: np.ndarray) -> np.ndarray:
        """Sums (k,) of the rows' losses, rounded up."""
        slack = np.maximum(1.0 - margins, 0.0)
        if not self.claim.loss:
            return np.zeros(len(self.claim.offsets))
        cost = row_c * (slack if self.claim.loss == "hinge" else slack * slack)
        return np.asarray(cost.sum(axis=0) * (1 + (len(margins) + 16) * UNIT))

    def add(self, summary: KernelSummary) -> None:
        """Add a summary."""
        self.loss.add(summary.loss)
        self.lowest = [min(pair) for pair in zip(self.lowest, summary.lowest, strict=True)]
        self.limits[summary.members.places] = summary.limits
        self.variance = self.variance.merge(summary.variance)
        self.difference = self.difference.merge(summary.difference)
        self.reach, self.fault = max(self.reach, summary.reach), self.fault or summary.fault
        self.widest = np.maximum(self.widest, summary.widest)
        self.errors += summary.errors
        self.left_out_counted += summary.left_out
        self.count(summary.uncounted, summary.radius, summary.members)

    def square_of_first(self) -> float:
        """||f||^2 of the function of the first column."""
        return float(self._lengths[0][0])

    def bounds(self) -> tuple[float | None, float | None]:
        """The bounds of all columns: sums of values, the smallest of margins."""
        if not self.rows.rows > self.unlabelled:
            return None, None
        lower, upper = self._columns
        if self.claim.soft:
            return rounded_sum(lower.tolist()) * (1 - UNIT), rounded_sum(upper.tolist()) * (1 + UNIT)
        return float(lower.min()), float(upper.min())

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        claim, checks = self.claim, [self.content(), self.coreset()]
        if claim.scale:
            checks.append(self.variance.scale_check(claim.function.scale, claim.features, claim.shift * claim.factor))
        if self.fault:
            checks.append(Check("kernel values", ok=False, text=self.fault))
        if claim.outliers is not UNSET:
            rows = self.rows.rows - self.unlabelled
            checks.append(check_left_out(claim.outliers, claim.left_out, self.left_out_counted, rows, "are left out"))
        checks += [self._dual_weights_check(), *self._bounds_checks(), *self._columns_checks()]
        if claim.loss:
            checks.append(values.errors_check(self.errors, self.rows.rows - self.unlabelled))
        if math.isfinite(claim.bound):
            checks.append(self._relative_margin_check())
        if claim.reduced is not None:
            checks.append(self._reduction_check(claim.reduced))
        return checks

    @cached_property
    def _lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """||f||^2 (k,) of each column, and bounds (k,) on their errors."""
        weights, expansion = self.expansion.weights, self.expansion
        found = np.zeros((2, weights.shape[1]))
        for first in range(0, len(weights), SLAB_ROWS):
            part = slice(first, first + SLAB_ROWS)
            try:
                values, error = expansion.values(self.claim.x[part])
            except NotAKernel as wrong:  # the function gave other values before
                self.fault = self.fault or f"on rows of the coreset: {wrong.text}"
                return found[0], np.full(weights.shape[1], np.inf)
            own = weights[part]
            found[0] += [rounded_sum((own[:, k] * values[:, k]).tolist()) for k in range(own.shape[1])]
            found[1] += (np.abs(own) * (error + 2 * UNIT * np.abs(values))).sum(axis=0)
        return found[0], found[1] + _FEW * np.abs(found[0])

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        """The bounds (k,), (k,) of each column, rounded outward: of margins without a loss, else of values."""
        columns = range(len(self.claim.offsets))
        lower, upper = np.array([self._dual(k) for k in columns]), np.array([self._value(k) for k in columns])
        if self.claim.soft:
            return lower, upper
        with np.errstate(divide="ignore", invalid="ignore"):
            margins = np.sqrt(0.5 / upper) * (1 - _FEW), np.sqrt(0.5 / lower) * (1 + _FEW)
        trimmed = self._trimmed()
        return margins[0], np.where(lower > 0, margins[1], np.inf) if trimmed is None else np.array([trimmed])

    def _trimmed(self) -> float | None:
        """The upper bound by the tree of certificates, infinite if it proves none; None if no row may be left out."""
        claim = self.claim
        if claim.outliers is UNSET:
            return None
        try:
            k = most_left_out(claim.outliers, self.rows.rows - self.unlabelled)
            return trimmed_bound(claim, k, self.reach) if k else None
        except ValueError as error:
            self.unproven = str(error)
            return math.inf

    def _value(self, k: int) -> float:
        """Upper bound on the value of a column's hypothesis."""
        square = float(self._lengths[0][k] + self._lengths[1][k])  # of the hypothesis, which comes first
        if self.claim.soft:
            return (0.5 * square + float(self.loss.value[k])) * (1 + _FEW)
        least = self.lowest[k][0]
        if not (least > 0 and square >= 0):
            return math.inf
        length = math.sqrt(square) / least  # squares of both might overflow
        return 0.5 * length * length * (1 + _FEW)

    def _dual(self, k: int) -> float:
        """Lower bound on the value of every hypothesis of a column; 0 if the weights prove nothing."""
        a, signs, claim = self.claim.duals[:, k], self.claim.signs[:, k], self.claim
        own = k - len(claim.offsets)  # the dual point comes last
        # NaN, if it overflowed, stays NaN
        square = float(np.maximum(self._lengths[0][own], 0.0) + self._lengths[1][own])
        total, curved, beyond = rounded_sum(a.tolist()), 0.0, 1.0
        sizes = total
        if math.isfinite(claim.bound):
            beyond, c = claim.bound, self.limits[:, k]
            inner, outer = np.clip(a, 0.0, c), np.maximum(np.maximum(a - c, -a), 0.0)
            total = rounded_sum(inner.tolist()) - beyond * rounded_sum(outer.tolist())
            wide = (a < 0) | (a > c * (1 - _EXCESS))  # where rounding is multiplied by the bound
            sizes = rounded_sum(inner.tolist()) + beyond * rounded_sum((np.abs(a) + c)[wide].tolist())
        if claim.loss == "squared_hinge":
            with np.errstate(divide="ignore", invalid="ignore"):
                each = np.where(a > 0, a * a / (4 * self.limits[:, k]), 0.0)
            curved = rounded_sum(each.tolist())
        left = abs(rounded_sum((signs * a).tolist())) if claim.intercept else 0.0
        found = total - 0.5 * square - curved
        if left:
            found -= left * (beyond + math.sqrt(2.0 * self._value(k)) * self.reach) * (1 + _FEW)
        found -= _FEW * (sizes + square + curved)
        return found if found > 0 else 0.0

    def _dual_weights_check(self) -> Check:
        """Whether the dual weights are feasible."""
        duals, columns = self.claim.duals, len(self.claim.offsets)
        text = f"{np.count_nonzero(duals):,} weights in {columns_text(columns)}"
        if math.isfinite(self.claim.bound):
            return Check("dual weights", ok=True, text=f"{text}, which may be any numbers")
        text = f"{text}, each at least 0"
        if self.claim.loss != "hinge":
            return Check("dual weights", ok=True, text=text)
        over = duals > self.limits * (1 + _EXCESS)
        if not over.any():
            return Check("dual weights", ok=True, text=f"{text} and at most c of its row")
        row, k = (int(place[0]) for place in np.nonzero(over))
        found = f"row {self.claim.ids[row]} has {shown(duals[row, k])}, its c is {shown(self.limits[row, k])}"
        return Check("dual weights", ok=False, text=f"expected at most c; {found}")

    def _relative_margin_check(self) -> Check:
        """Whether the decision values of all rows are within the bound, in columns of which a bound is claimed.

        The certificate's bounds are about all columns, whatever is claimed of each.
        """
        claim, bound = self.claim, shown(self.claim.bound)
        claimed = ~(np.isnan(claim.lowers) & np.isnan(claim.uppers))
        claimed |= claim.lower is not None or claim.upper is not None
        if not claimed.any():
            return Check("relative margin", ok=True, text="nothing is claimed")
        widest = float(self.widest[claimed].max())
        text = f"the decision values of all {self.counted} are within {shown(widest)} (claimed: {bound})"
        if widest <= claim.bound:
            return Check("relative margin", ok=True, text=text)
        text = f"model claims decision values within {bound}, those of {self.counted} may reach {shown(widest)}"
        return Check("relative margin", ok=False, text=text)

    def _reduction_check(self, claimed: Reduction) -> Check:
        """How much the functions that decide differ from those of the whole coreset."""
        found = self.difference
        near, same = found.distance <= claimed.distance, found.changed <= claimed.changed
        text = (
            f"{claimed.rows:,} rows decide: within {shown(found.distance)} of all {len(self.claim.ids):,} "
            f"(claimed: {shown(claimed.distance)}), at most {found.changed:,} rows of another class (claimed: "
            f"{claimed.changed:,}), of {self.counted}"
        )
        return Check("reduced", near and same, text)

    def _bounds_checks(self) -> list[Check]:
        """Whether the two bounds of the certificate hold."""
        claim, (lower, upper) = self.claim, self.bounds()
        if lower is None or upper is None:
            return [Check("lower bound", ok=False, text="the store has no labelled row: nothing can be claimed")]
        below, above = claim.lower is None or claim.lower <= lower, claim.upper is None or claim.upper >= upper
        what = "value" if claim.soft else "margin"
        lows = f"{what}: found at least {shown(lower)} (claimed: {shown(claim.lower)})"
        highs = f"{what}: found at most {shown(upper)} (claimed: {shown(claim.upper)})"
        highs = f"{self.unproven}; {highs}" if self.unproven else highs
        return [Check("lower bound", below, lows), Check("upper bound", above, f"{highs} over {self.counted}")]

    def _columns_checks(self) -> list[Check]:
        """Whether the bounds of each column hold, and each is certified if the model is."""
        claim, (lower, upper) = self.claim, self._columns
        low, high = _wrong(claim.lowers, claim.lowers <= lower), _wrong(claim.uppers, claim.uppers >= upper)
        checks = []
        for name, wrong, claimed, found in (("lower", low, claim.lowers, lower), ("upper", high, claim.uppers, upper)):
            if len(wrong):
                k = wrong[0]
                text = f"column {k} claims {shown(claimed[k])}, found {shown(found[k])}"
                checks.append(Check(f"{name} bounds", ok=False, text=f"{text}; {columns_text(len(wrong))} wrong"))
        pairs = zip(lower.tolist(), upper.tolist(), strict=True)
        short = [k for k, (a, b) in enumerate(pairs) if not certified(a, b, claim.proven_epsilon)]
        if claim.status == "certified" and short:
            text = f"columns {', '.join(map(str, short[:8]))} are not proven to {claim.proven_epsilon}"
            checks.append(Check("columns", ok=False, text=text))
        elif not checks:
            checks.append(Check("columns", ok=True, text=f"the bounds of {columns_text(len(lower))} hold"))
        return checks


def _fault(wrong: NotAKernel, rows: np.ndarray) -> str:
    """The text of the error, with its row, or the first and last of these (n,) rows."""
    where = f"rows {rows[0]} to {rows[-1]}" if wrong.row < 0 else f"row {rows[wrong.row]}"
    return f"{where}: {wrong.text}"


def _margins(values: np.ndarray, error: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Lower bounds on margins (n, k) of rows with these decision values and sides."""
    found = signs * values - error
    return np.where(np.isnan(found), -np.inf, found)  # what overflows proves nothing


def _difference(values: np.ndarray, error: np.ndarray, columns: int) -> Difference:
    """The largest possible difference of the first decisions from the last ones; none without a reduction."""
    if values.shape[1] == columns:
        return Difference()
    far = np.abs(values[:, :columns] - values[:, columns:]) + error[:, :columns] + error[:, columns:]
    now, then = (_certain_class(values[:, part], error[:, part]) for part in (slice(columns), slice(columns, None)))
    return Difference(float((far * (1 + 4 * UNIT)).max()), int(((now < 0) | (now != then)).sum()))


def _certain_class(values: np.ndarray, error: np.ndarray) -> np.ndarray:
    """The class (n,) by decisions (n, k), -1 where their errors leave another one possible."""
    if values.shape[1] == 1:
        return np.where((np.abs(values) > error)[:, 0], values[:, 0] > 0, -1)
    first, rows = values.argmax(axis=1), np.arange(len(values))
    least, most = values[rows, first] - error[rows, first], values + error
    most[rows, first] = -np.inf
    return np.where((most < least[:, None]).all(axis=1), first, -1)


def _side_costs(claim: KernelClaim, rows: Rows) -> np.ndarray:
    """c (k, 2) of a row of weight 1 on the positive and the other side of each column."""
    columns = len(claim.offsets)
    if claim.weight != "balanced":
        factors = (1.0, 1.0) if claim.weight is None else (float(claim.weight[1]), float(claim.weight[0]))
        return claim.cost * np.tile(factors, (columns, 1))
    sums = dict.fromkeys(map(typed, claim.labels), Fraction(0))
    start = 0
    for codes, weights in rows.labels():
        weights = np.where(held_out(claim.view, start, len(codes)), 0.0, weights)
        start += len(codes)
        for code, label in enumerate(rows.classes):
            if typed(label) in sums:
                sums[typed(label)] += Fraction(rounded_sum(weights[codes == code].tolist()))
    each, every = list(sums.values()), sum(sums.values())
    own = each[1:] if len(each) == 2 else each
    pairs = [(part, every - part) for part in own]
    costs = [[nearest(Fraction(claim.cost) * every / (2 * part)) if part else 0.0 for part in pair] for pair in pairs]
    return np.array(costs)


def trimmed_bound(claim: KernelClaim, k: int, reach: float) -> float:
    """The largest margin on all of the coreset's rows but k, whichever these are, rounded up.

    reach: a bound on sqrt(k(x, x)) of all rows. Raises ValueError if the tree is no proof.
    """
    used = proving_certificates(claim.proof, claim.ids, k)
    mixes = np.zeros((len(claim.ids), len(used)))
    for column, number in enumerate(used):
        places, weights = claim.proof["rows"][number], claim.proof["weights"][number]
        signs = claim.signs[places, 0]
        groups = [signs > 0, signs < 0] if claim.intercept else [np.ones(len(places), bool)]
        if not (weights >= 0).all():
            raise ValueError("a certificate has a weight below 0")
        for group in groups:
            total = rounded_sum(weights[group].tolist())
            if not abs(total - 1) <= CLOSE:
                raise ValueError("the weights of a certificate do not sum to 1")
            mixes[places[group], column] = signs[group] * weights[group] / total
    squares, errors = np.zeros(len(used)), np.zeros(len(used))
    expansion = expand(claim.function, claim.x, mixes)
    for first in range(0, len(mixes), SLAB_ROWS):
        part = slice(first, first + SLAB_ROWS)
        values, error = expansion.values(claim.x[part])
        own = mixes[part]
        squares += [rounded_sum((own[:, c] * values[:, c]).tolist()) for c in range(len(used))]
        errors += (np.abs(own) * (error + 2 * UNIT * np.abs(values))).sum(axis=0)
    lengths = np.sqrt(np.maximum(squares, 0.0) + errors + _FEW * np.abs(squares)) * (1 + _FEW)
    lengths += 4 * UNIT * np.abs(mixes).sum(axis=0) * reach  # weights are rounded when their sums are divided out
    largest = float(lengths.max()) / (2 if claim.intercept else 1)
    return largest if largest == largest else math.inf


def columns_text(count: int) -> str:
    """The number with its noun."""
    return "1 column" if count == 1 else f"{count:,} columns"


def _wrong(claimed: np.ndarray, holds: np.ndarray) -> Sequence[int]:
    """Columns whose claim does not hold."""
    return [int(k) for k in np.flatnonzero(~np.isnan(claimed) & ~holds)]


class KernelKind(Kind[KernelClaim]):
    """The claims of machines with kernels."""

    def claim(self, files: ModelFiles) -> KernelClaim:
        """A kernel, and for each column dual weights, an intercept, two bounds."""
        record, arrays = cast("KernelRecord", files.record), files.arrays
        parameters, kernel = record.parameters, record.kernel
        function: Kernel = ClosedKernel(
            kernel.name,
            0.0 if kernel.gamma is UNSET else kernel.gamma,
            1 if kernel.degree is UNSET else kernel.degree,
            0.0 if kernel.coef0 is UNSET else kernel.coef0,
        )
        if kernel.error is not UNSET and kernel.function is not UNSET:
            function = CallableKernel(eta=kernel.error, named=kernel.function)
        return KernelClaim(
            **any_claim(files, record.view, soft=record.soft),
            y=arrays["coreset_classes"].astype(np.int64) + 1,
            labels=tuple(record.classes),
            function=function,
            scale=parameters.gamma == "scale",
            duals=arrays["duals"],
            offsets=arrays["offsets"],
            lowers=arrays["lowers"],
            uppers=arrays["uppers"],
            loss="" if parameters.loss is UNSET else parameters.loss,
            cost=0.0 if parameters.C is UNSET else float(parameters.C),
            weight=None if parameters.class_weight is UNSET else parameters.class_weight,
            bound=math.inf if parameters.relative_margin is UNSET else float(parameters.relative_margin),
            reduced=_reduction(record, arrays),
            stored_values=arrays.get("kernel_values", np.zeros((0, 0))),
            outliers=parameters.outliers,
            left_out=arrays.get("outliers_ids", np.zeros(0, np.int64)),
            proof=stored_proof(arrays),
        )

    def with_kernel(self, claim: KernelClaim, kernel: Callable[..., Any] | None) -> KernelClaim:
        """The claim about the passed function."""
        function = claim.function
        if not isinstance(function, CallableKernel):
            return super().with_kernel(claim, kernel)
        if kernel is None:
            raise function_missing(function.named)
        return replace(claim, function=replace(function, call=kernel))

    def terms(self, claim: KernelClaim) -> str:
        """The bound of a relative margin; for a function, the assumed distance from a kernel."""
        within = f", of those with all decision values within {claim.bound:g}" if math.isfinite(claim.bound) else ""
        if claim.outliers is not UNSET:
            within = f", whatever rows are left out, up to {claim.outliers}"
        return within + (function_terms(claim.function.eta) if isinstance(claim.function, CallableKernel) else "")

    def same_classes(self, claim: KernelClaim, rows: Rows) -> Check:
        """All of them."""
        return same_classes(claim.labels, rows)

    def consistency(self, claim: KernelClaim) -> list[Check]:
        """The intercepts, epsilon, ratio, status."""
        text, function = f"kernel {claim.function.name}, {columns_text(len(claim.offsets))}", claim.function
        through = claim.intercept or not claim.offsets.any()
        text += "" if through else ": expected intercepts of 0, as in the parameters"
        status = values.status(claim) if claim.soft else margins.status(claim)
        checks = check_function(function, claim.x, claim.stored_values) if isinstance(function, CallableKernel) else []
        return [Check("hypothesis", through, text), *checks, *same_epsilon(claim), *same_ratio(claim), status]

    def scan(self, claim: KernelClaim, rows: Rows) -> KernelScan:
        """The decisions of each row in each column."""
        return KernelScan(claim, rows)


def _reduction(record: KernelRecord, arrays: Mapping[str, np.ndarray]) -> Reduction | None:
    """The claim about fewer rows, if these decide."""
    reduced = record.reduced
    if reduced is UNSET:
        return None
    weights = np.zeros(arrays["duals"].shape)
    weights[arrays["reduced_places"]] = arrays["reduced_weights"]
    return Reduction(weights=weights, rows=reduced.rows, distance=reduced.distance, changed=reduced.changed)


KIND = KernelKind()
