"""A margin of several classes at once (Crammer and Singer 2001), hard or soft, over pairs of a row and a rival class.

With z of a row (x, s) of class y and a rival r the vector of K blocks with (x, s) in block y and -(x, s) in block r,
the margin of V against that rival is <V, z>, and scores are s_k = v_k.(x, s). For weights a >= 0 that sum to 1 no V of
length 1 has margins above || sum a z || (Kesler; Har-Peled, Roth, Zimak 2006, section 6); for a >= 0 with
sum_r a_r <= c for each row no V has a value 1/2 ||V||^2 + sum c max(0, 1 - margin) below sum a - 1/2 || sum a z ||^2
(Lagrange).

Margins. A row's margin is the score of its class minus the largest of the others. In float64 it is off by at most
e = 2 gamma_(d+4) (||x|| max ||w_k|| + max |b_k| + 1). For a hard margin, rows for which that leaves open whether they
reach the claim, or are the lowest of their slab, are evaluated again, the difference of two scores rounded once as a
whole. For a soft one the loss is at most max(0, 1 - margin + e): these are summed.

Duals. The model stores those of some rows. Any other row has its whole c against the class that is worst for it at the
reference, the first with the largest t_r = (1 + s_r) - s_y; none if no t_r is above 0. If e leaves open which class
that is, scores are evaluated again, rounded once.

Nothing separates the classes if the combination is zero. Its rows and its constant are measured separately, for
separability depends neither on the constant nor on the rows' origin: with weights that give each class as much as they
take from it, sum a z is the same for rows about any point c, and for F = sum a z of the rows about c, and r_k = what
class k is given, a hypothesis (W, b) of margins rho > 0 has rho <= ||W|| ||F|| + sum |b_k| |r_k|. So F has to be zero
for the rows that carry weight, about their mean, in each feature, and r for the weights, which sum to 1.

That is not enough, for b may be as long as the longest of these rows, R from their mean. Weights are a flow between
classes: what one is given beyond what is taken from it, T = sum |r| / 2 in all, goes by paths of at most K - 1 pairs to
those that lack it. Without these paths weights balance, and F changes by no more than sqrt(2) (K - 1) T R. So T R has
to be zero too, as F has. A single long row elsewhere, and the constant above it, do not matter.

With k outliers the rows that the model names, at most k, need not have the margin. The upper bound is then the largest
of several such combinations, each of some coreset rows, which a tree makes a proof: see removal.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import UNSET
from scipy.sparse import csr_array, issparse, vstack

from coremargin.formats.limits import C_LIMITS
from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import CLOSE, Check, same_classes, same_epsilon, same_ratio, typed
from coremargin.verify.claim import AnyClaim, any_claim
from coremargin.verify.hard_margin import decided, has_margin
from coremargin.verify.kind import Kind
from coremargin.verify.margins import bounded_above, overlap, uncancelled, zero
from coremargin.verify.margins import status as margin_status
from coremargin.verify.removal import check_left_out, most_left_out, proving_certificates, stored_proof
from coremargin.verify.store import Members, StoreFindings
from coremargin.verify.sums import (
    LOST,
    SLAB_ROWS,
    TINY,
    UNIT,
    Total,
    combination,
    differences,
    dot_products,
    gamma,
    length,
    lift,
    nearest,
    rounded_sum,
    slabs,
    sparse_rows,
    true_lengths,
)
from coremargin.verify.values import status as value_status
from coremargin.verify.values import value_bounded, value_reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.crammer_singer import SeveralClasses
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows

_FEW = 16 * UNIT  # error of a handful of operations


@dataclass(frozen=True, kw_only=True)
class ClassesClaim(AnyClaim):
    """The claim of a model of several classes; y are their places, from 1."""

    labels: tuple[Any, ...]
    constant: float  #: last entry of every row
    v: np.ndarray  #: (K, d + 1)
    duals: np.ndarray  #: (m, K)
    cost: float  #: C, 0 for a hard margin
    balanced: bool
    reference: np.ndarray  #: (K, d + 1), zeros for a hard margin
    outliers: Any  #: how many rows may be left out, as in the parameters; UNSET: none
    left_out: np.ndarray  #: (k,) their ids
    proof: Mapping[str, list[np.ndarray]]  #: with outliers: rows, weights, paths and numbers of the proof


@dataclass(frozen=True)
class ClassesSummary:
    """The summary of one chunk; margins are multiplied by ||V||."""

    lowest: tuple[float, int, int]  #: (margin, row, class) of the lowest row, (inf, -1, 0) without rows that count
    below: int  #: rows whose margin is below the claim
    sums: dict[str, np.ndarray]
    row_c: np.ndarray  #: c of the coreset's rows, in the order of ``members``
    uncounted: int
    left_out: int  #: rows that count, and need not have the margin
    radius: float
    members: Members


class ClassesScan(StoreFindings):
    """The scan for the margin or the value, and what it proves.

    class_c (K,): c of a row of weight 1 of each class, 0 for a hard margin. Sums: loss (); total_c (K,): c of all rows
    of each class; far_c (): c of rows without duals of their own; dual_sum (K, d + 1): sum of M (x, constant), M being
    the negative duals at the row's rivals and their sum at its class; reach (): sum |M| ||(x, constant)||.
    """

    def __init__(self, claim: ClassesClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.class_c, self.classes = _class_costs(claim, rows), len(claim.labels)
        place = {typed(label): k + 1 for k, label in enumerate(claim.labels)}
        self._places = np.array([*(place[typed(label)] for label in rows.classes), 0])
        self.lowest: tuple[float, int, int] = (np.inf, -1, 0)
        self.below = self.left_out_counted = 0
        shapes = {"loss": (), "total_c": (self.classes,), "far_c": (), "dual_sum": claim.v.shape, "reach": ()}
        self._totals = {name: Total(shape) for name, shape in shapes.items()}
        self.limits = np.zeros(len(claim.ids))
        self._mine = -claim.duals  # M of the rows with duals of their own
        self._mine[np.arange(len(claim.duals)), claim.y - 1] += claim.duals.sum(axis=1)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._totals[name].value

    def probe(self, chunk: Chunk) -> ClassesSummary:
        """The summary of a chunk, in slabs of float64."""
        place = self._places[chunk.codes]
        weights = np.ones(len(place)) if chunk.weights is None else chunk.weights
        place = np.where(weights > 0, place, 0)
        members = self.members(chunk, place)
        here = self.claim.left_out - chunk.start
        here = np.unique(here[(here >= 0) & (here < len(place))])
        uncounted, left_out = int((place == 0).sum()), int((place[here] > 0).sum())
        place = place.copy()
        place[here] = 0
        row_c = np.where(place > 0, self.class_c[place - 1], 0.0) * weights
        local, first = np.unique(self.claim.ids[members.places] - chunk.start, return_index=True)
        given, own = np.zeros((len(place), self.classes)), np.zeros(len(place), dtype=bool)
        given[local], own[local] = self._mine[members.places[first]], True
        lowest: tuple[float, int, int] = (np.inf, -1, 0)
        below, radius = 0, 0.0
        sums = {name: Total(total.high.shape) for name, total in self._totals.items()}
        for part, x in slabs(chunk.x, SLAB_ROWS):
            lengths = self.lengths(x, chunk.start + part.start)
            radius = max(radius, float(lengths.max()))
            counted = np.flatnonzero(place[part])
            if not len(counted):
                continue
            x, lengths, y = x[counted], lengths[counted], place[part][counted] - 1
            if self.claim.soft:
                m = np.where(own[part][counted, None], given[part][counted], np.nan)
                self._soft(sums, x, lengths, y, row_c[part][counted], m)
            else:
                found, count = lowest_of_classes(self.claim, x, lengths, y, chunk.start + part.start + counted)
                lowest, below = min(lowest, found), below + count
        coreset_c = row_c[self.claim.ids[members.places] - chunk.start]
        values = {name: total.value for name, total in sums.items()}
        return ClassesSummary(lowest, below, values, coreset_c, uncounted, left_out, radius, members)

    def _soft(
        self, sums: dict[str, Total], x: Any, lengths: np.ndarray, y: np.ndarray, row_c: np.ndarray, m: np.ndarray
    ) -> None:
        """Add to the sums; m (n, K): M of the rows with duals of their own, NaN for the others."""
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows proves nothing
            scores, error = _scores(self.claim, x, lengths, self.claim.v)
            sums["loss"].add(np.asarray(row_c @ np.maximum(1.0 - _margins(scores, y) + error, 0.0)))
            sums["total_c"].add(np.bincount(y, weights=row_c, minlength=self.classes))
            far = np.isnan(m[:, 0])
            worst = self._worst(x, lengths, y, far)
            losing = np.flatnonzero(far & (worst != y))
            m = np.where(far[:, None], 0.0, m)
            m[losing, worst[losing]] -= row_c[losing]
            m[losing, y[losing]] += row_c[losing]
            sums["far_c"].add(np.asarray(row_c[losing].sum()))
            dual_sum = np.asarray(m.T @ x)
            sums["dual_sum"].add(np.column_stack([dual_sum, self.claim.constant * m.sum(axis=0)]))
            sums["reach"].add(np.asarray(np.abs(m).sum(axis=1) @ (lengths + self.claim.constant)))

    def _worst(self, x: Any, lengths: np.ndarray, y: np.ndarray, far: np.ndarray) -> np.ndarray:
        """The worst class (n,) at the reference."""
        scores, error = _scores(self.claim, x, lengths, self.claim.reference)
        t = _violations(scores, y)
        two = np.partition(t, -2, axis=1)[:, -2:]
        unclear = np.flatnonzero(far & (two[:, 1] - two[:, 0] <= 2 * error))
        if len(unclear):
            t[unclear] = _violations(_exact(self.claim, x[unclear], self.claim.reference), y[unclear])
        return np.asarray(t.argmax(axis=1))

    def add(self, summary: ClassesSummary) -> None:
        """Add a summary; in the order of chunks, so that ties are decided by the lower row."""
        self.lowest = min(self.lowest, summary.lowest)
        self.below += summary.below
        self.left_out_counted += summary.left_out
        for name, values in summary.sums.items():
            self._totals[name].add(values)
        self.limits[summary.members.places] = summary.row_c
        self.count(summary.uncounted, summary.radius, summary.members)

    def bounds(self) -> tuple[float | None, float | None]:
        """The bounds found; the upper bound of a margin needs no scan."""
        if self.claim.soft:
            return self._values()
        lower = self.lowest[0] if self.claim.lower is not None and self.lowest[1] >= 0 else None
        return lower, self._trimmed[0]

    @cached_property
    def _trimmed(self) -> tuple[float | None, list[Check]]:
        """The upper bound by the tree of certificates, and its checks; None without outliers. After all chunks."""
        if self.claim.outliers is UNSET:
            return None, []
        return trimmed_bound(self.claim, self.rows.rows - self.unlabelled)

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        claim = self.claim
        if not claim.soft:
            rows, label = self.rows.rows - self.unlabelled, claim.labels[self.lowest[2]]
            counted = rows - self.left_out_counted, self.aside
            lower = has_margin(claim.lower, self.lowest, self.below, counted, f"class {label!r}")
            return [self.content(), self.coreset(), *self._left_out(rows), lower, *self._trimmed[1]]
        problems, (dual, value) = self.membership(), self._values()
        text = f"all {self.matched:,} rows are the store's, with its labels"
        return [
            self.content(),
            Check("coreset", not problems, "; ".join(problems) or text),
            self._class_costs_check(),
            self._dual_weights_check(),
            value_reached(claim, value, self.counted),
            value_bounded(claim, dual),
        ]

    def _left_out(self, rows: int) -> list[Check]:
        claim = self.claim
        if claim.outliers is UNSET:
            return []
        return [check_left_out(claim.outliers, claim.left_out, self.left_out_counted, rows, "are left out")]

    def _excess(self) -> float:
        """Relative amount by which float64 may put the sum of a row's duals above its c."""
        return (len(self.claim.labels) + 16) * UNIT

    def _class_costs_check(self) -> Check:
        """Whether sums of such c are within what float64 can bound."""
        (low, high), found = C_LIMITS, self["total_c"]
        text = f"the rows of a class cost {found.min():.6g} to {found.max():.6g} in all"
        if ((found >= low) & (found <= high)).all():
            return Check("per-sample C", ok=True, text=text)
        return Check("per-sample C", ok=False, text=f"{text}: expected from {low:g} to {high:g}")

    def _infeasible(self) -> np.ndarray:
        """Which rows (m,) have duals that are not feasible, up to rounding."""
        duals = self.claim.duals
        own = duals[np.arange(len(duals)), self.claim.y - 1]
        within = duals.sum(axis=1) <= self.limits * (1 + self._excess())
        return np.asarray(~((duals >= 0).all(axis=1) & (own == 0) & within))

    def _dual_weights_check(self) -> Check:
        """Whether the duals are feasible, if a bound depends on them."""
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
        """The dual bound, rounded down, and the value of the hypothesis, rounded up."""
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


def lowest_of_classes(
    claim: ClassesClaim, x: Any, lengths: np.ndarray, y: np.ndarray, rows: np.ndarray
) -> tuple[tuple[float, int, int], int]:
    """(margin, row, class) of the row with the least margin, and how many have less than is claimed.

    x (n, d) and lengths (n,): at least one row; y (n,): their classes, from 0; rows (n,): their numbers.
    """
    size = length(claim.v.ravel()) or 1.0
    scores, error = _scores(claim, x, lengths, claim.v)
    fast = _margins(scores, y)
    target = -np.inf if claim.lower is None else claim.lower * size
    surely, again = decided(fast, error, target)
    where = np.flatnonzero(again)
    margins = _exact_margins(claim, x[where], y[where]) / size
    margins -= 4 * (claim.features + 4) * LOST  # of a difference, and of the choice of the rival
    margins = np.where(np.isnan(margins), -np.inf, margins)  # what overflows proves nothing
    below = int((surely & ~again).sum())
    below += 0 if claim.lower is None else int((~(margins >= claim.lower)).sum())
    k = int(np.argmin(margins))
    return (float(margins[k]), int(rows[where[k]]), int(y[where[k]])), below


def _scores(claim: ClassesClaim, x: Any, lengths: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, K), and a bound (n,) on the error of the difference of two of them."""
    b, d = claim.constant * v[:, -1], v.shape[1] - 1
    size = lengths * max(map(length, v[:, :-1])) + float(np.abs(b).max()) + 1.0
    moved = 2 * claim.moved * max(map(length, v[:, :-1])) * (1 + gamma(8))  # of mapped rows
    return np.asarray(x @ v[:, :-1].T) + b, 2 * gamma(d + 4) * size + (d + 4) * TINY + moved


def _exact(claim: ClassesClaim, x: Any, v: np.ndarray) -> np.ndarray:
    """Scores (n, K), each rounded once."""
    b = claim.constant * v[:, -1]
    return np.stack([dot_products(x, w, float(c)) for w, c in zip(v[:, :-1], b, strict=True)], axis=1)


def _exact_margins(claim: ClassesClaim, x: Any, y: np.ndarray) -> np.ndarray:
    """Margins (n,) of V, each rounded once: the largest score is still largest after scores are rounded."""
    w, b = claim.v[:, :-1], claim.constant * claim.v[:, -1]
    others, found = _exact(claim, x, claim.v), np.full(len(y), np.inf)
    others[np.arange(len(y)), y] = -np.inf
    largest = others.max(axis=1)
    for rival in range(len(claim.labels)):
        mine = np.flatnonzero(~(others[:, rival] < largest) & (y != rival))
        if len(mine):
            found[mine] = np.minimum(found[mine], differences(x[mine], w, b, y[mine], rival))
    return found


def _margins(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Scores (n,) of the rows' classes minus the largest of the others."""
    own = np.arange(len(y)), y
    others = scores.copy()
    others[own] = -np.inf
    return np.asarray(scores[own] - others.max(axis=1))


def _violations(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """t (n, K), 0 at the rows' own classes."""
    own = np.arange(len(y)), y
    t = (1.0 + scores) - scores[own][:, None]
    t[own] = 0.0
    return np.asarray(t)


def consistency(claim: ClassesClaim) -> list[Check]:
    """Length of the hypothesis, last entries of rows, epsilon, ratio, status."""
    size, text = length(claim.v.ravel()), f"{len(claim.labels)} classes, ||V|| = {length(claim.v.ravel()):.12g}"
    constant = last_entry(claim.radius) if claim.intercept else 0.0
    ok = claim.constant == constant and (claim.soft or claim.lower is None or abs(size - 1) <= CLOSE)
    text += f", every row ends in {claim.constant:g}" if claim.intercept else ", no intercepts"
    if not ok:
        text += f": expected {'' if claim.soft else '||V|| = 1, '}a last entry of {constant:g}"
    checks = [Check("hypothesis", ok, text), *same_epsilon(claim), *same_ratio(claim)]
    return [*checks, value_status(claim) if claim.soft else margin_status(claim)]


def last_entry(longest: float) -> float:
    """The last entry of every row: the least power of two that is not below the length of the longest row."""
    if longest >= 2.0**1023:
        return math.inf
    return 2.0 ** math.ceil(math.log2(longest)) if longest > 0 else 1.0


def _class_costs(claim: ClassesClaim, rows: Rows) -> np.ndarray:
    """c (K,) of a row of weight 1 of each class: C; "balanced": C n / (K n_class), with sums of weights as counts."""
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


def dual(claim: ClassesClaim) -> tuple[float | None, list[Check]]:
    """The upper bound that the coreset proves, and whether the claimed one is at least that."""
    if claim.upper is None:
        return None, overlap(claim, None, 0.0)
    row, rival = np.nonzero(claim.duals)
    a, own = claim.duals[row, rival], claim.y[row] - 1
    total = float(a.sum())
    ok = bool((a >= 0).all() and (rival != own).all() and abs(total - 1) <= CLOSE)
    text = f"{len(a):,} weights of pairs of row and rival, each at least 0, that sum to 1"
    check = Check("dual weights", ok, text if ok else f"expected {text}; found a sum of {total:.12g}")
    if not ok:
        return None, [check, *overlap(claim, None, 0.0)]
    lifted = lift(claim.x, claim.constant)
    x, constant = _used(claim.x) * lifted, claim.constant * lifted
    pairs = _Pairs(x, row, own, rival, len(claim.labels))
    sums, given = pairs.combined(a)  # as claimed: weights divided by their sum no longer balance to the last bit
    blocks = np.concatenate([sums.ravel(), constant * given])
    found = length(blocks) / lifted / rounded_sum(a.tolist())
    proof = f"{len(claim.ids):,} coreset rows prove at most"
    left = _left(claim, pairs, a, np.bincount(row, weights=a / a.sum(), minlength=len(claim.ids)), lifted)
    return found, [check, bounded_above(claim.upper, found, proof), *left]


def trimmed_bound(claim: ClassesClaim, rows: int) -> tuple[float | None, list[Check]]:
    """The upper bound for every choice of rows to leave out, and its checks; rows: how many count."""
    if claim.upper is None:
        return None, overlap(claim, None, 0.0)
    try:
        k = most_left_out(claim.outliers, rows)
        if k == 0:
            return dual(claim)
        used = proving_certificates(claim.proof, claim.ids, k)
    except ValueError as error:
        return None, [Check("upper bound", ok=False, text=str(error)), *overlap(claim, None, 0.0)]
    largest = 0.0
    for number in used:
        places, weights = claim.proof["rows"][number], claim.proof["weights"][number]
        part = replace(claim, ids=claim.ids[places], x=claim.x[places], y=claim.y[places], duals=weights)
        found, checks = dual(part)
        if found is None or not all(check.ok for check in checks):
            return None, [*(check for check in checks if not check.ok), *overlap(claim, None, 0.0)]
        largest = max(largest, found)
    proof = f"{len(claim.proof['paths']):,} leaves about {len(claim.ids):,} coreset rows prove at most"
    return largest, [bounded_above(claim.upper, largest, proof)]


@dataclass(frozen=True)
class _Pairs:
    """Pairs (n,) of weight above 0: their rows in x (m, d), their classes and rivals, of K classes."""

    x: Any
    row: np.ndarray
    own: np.ndarray
    rival: np.ndarray
    classes: int

    def mixes(self, a: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each class its signed weights of the pairs, as sums of two numbers."""
        signs = [(self.own == k) * 1.0 - (self.rival == k) for k in range(self.classes)]
        return [(sign * a, np.zeros_like(a)) for sign in signs]

    def combined(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F (K, d) and r (K,) of weights (n,), each value rounded once."""
        sums, given = [], []
        for k in range(self.classes):
            mine = np.flatnonzero((self.own == k) | (self.rival == k))
            sign = np.where(self.own[mine] == k, 1.0, -1.0)
            given.append(rounded_sum((sign * a[mine]).tolist()))
            sums.append(combination(self.x[self.row[mine]], sign * a[mine], np.zeros(len(mine))))
        return np.stack(sums), np.array(given)


def _left(claim: ClassesClaim, pairs: _Pairs, a: np.ndarray, shares: np.ndarray, lifted: float) -> list[Check]:
    """Whether the combination is zero, if it is claimed that nothing separates the rows.

    pairs: of rows times ``lifted``; a (n,): their weights; shares (m,): weights of the rows, sum 1.
    """
    if claim.status != "not_separable":
        return []
    sums, given = pairs.combined(a)
    if not claim.intercept:
        size = math.sqrt(2) * rounded_sum((shares * true_lengths(pairs.x)).tolist())
        checks = overlap(claim, length(sums.ravel()) / lifted, size / lifted)
        if not all(check.ok for check in checks):
            return checks
        return [*checks, *uncancelled(claim, pairs.x[pairs.row], pairs.mixes(a), a, centred=False)]
    mean = combination(pairs.x, shares, np.zeros(len(shares)))
    about = _lengths_about(pairs.x, mean)
    size = math.sqrt(2) * rounded_sum((shares * about).tolist())
    moved = given[:, None] * mean
    # Each number is rounded, and for equal rows only that error remains.
    left = np.maximum(np.abs(sums - moved) - 4 * UNIT * np.abs(moved), 0.0)
    checks = overlap(claim, length(left.ravel()) / lifted, size / lifted)
    checks += _unbalanced(claim, given, float(about[shares > 0].max()) / lifted, size / lifted)
    if not all(check.ok for check in checks):
        return checks
    if not issparse(pairs.x):
        return [*checks, *uncancelled(claim, (pairs.x - mean)[pairs.row], pairs.mixes(a), a, centred=False)]
    # An imbalance of the classes' weights counts as a further row at the mean.
    rows = csr_array(vstack([pairs.x[pairs.row], mean[None, :]]))
    mixes = [
        (np.append(high, -more), np.append(low, 0.0)) for (high, low), more in zip(pairs.mixes(a), given, strict=True)
    ]
    return [*checks, *uncancelled(claim, rows, mixes, np.append(a, 0.0), centred=False)]


def _unbalanced(claim: ClassesClaim, given: np.ndarray, longest: float, size: float) -> list[Check]:
    """A failed check if classes are given (K,) more than is taken from them, by more than rounding.

    longest: the largest distance from the mean of a row that carries weight; size: the weighed length of these rows.
    """
    excess = 0.5 * rounded_sum(np.abs(given).tolist())
    limit = zero(claim, 1.0) * min(1.0, size / longest if longest > 0 else 1.0)
    if excess <= limit:
        return []
    k = int(np.abs(given).argmax())
    text = (
        f"model claims that nothing separates the rows; its weights give class {claim.labels[k]!r} {given[k]:.3g} more "
        f"than they take from it, of 1 in all; for rows up to {longest:.3g} from their mean zero is at most {limit:.3g}"
    )
    return [Check("overlap", ok=False, text=text)]


def _used(x: Any) -> Any:
    """Rows x (m, d) without the columns in which sparse rows store no values: there every sum is zero."""
    if not issparse(x):
        return x
    columns, places = np.unique(x.indices, return_inverse=True)
    return csr_array((x.data, places.reshape(-1), x.indptr), shape=(x.shape[0], len(columns)))


def _lengths_about(x: Any, mean: np.ndarray) -> np.ndarray:
    """||x - mean|| (m,) of rows x (m, d); sparse rows are made dense one at a time."""
    if not issparse(x):
        return true_lengths(x - mean)
    lengths = np.empty(x.shape[0])
    for k, (columns, row) in enumerate(sparse_rows(x)):
        away = -mean
        away[columns] += row
        lengths[k] = true_lengths(away[None, :])[0]
    return lengths


class ClassesKind(Kind[ClassesClaim]):
    """The claims of a margin of several classes at once."""

    def claim(self, files: ModelFiles) -> ClassesClaim:
        """A hyperplane for each class, and dual weights."""
        record, arrays = cast("SeveralClasses", files.record), files.arrays
        parameters, v = record.parameters, arrays["hypothesis"]
        return ClassesClaim(
            **any_claim(files, WHOLE, soft=record.soft),
            y=arrays["coreset_classes"].astype(np.int64) + 1,
            labels=tuple(record.classes),
            constant=record.constant,
            v=v,
            duals=arrays["duals"],
            cost=0.0 if parameters.C is UNSET else float(parameters.C),
            balanced=parameters.class_weight == "balanced",
            reference=arrays.get("reference", np.zeros_like(v)),
            outliers=parameters.outliers,
            left_out=arrays.get("outliers_ids", np.zeros(0, np.int64)),
            proof=stored_proof(arrays),
        )

    def same_classes(self, claim: ClassesClaim, rows: Rows) -> Check:
        """All of them."""
        return same_classes(claim.labels, rows)

    def consistency(self, claim: ClassesClaim) -> list[Check]:
        """Length of the hypothesis, its last entries, epsilon, ratio, status."""
        return consistency(claim)

    def bound(self, claim: ClassesClaim) -> tuple[float | None, list[Check]]:
        """The upper bound of a margin, by the dual weights; the scan bounds a value, and a margin with outliers."""
        return (None, []) if claim.soft or claim.outliers is not UNSET else dual(claim)

    def terms(self, claim: ClassesClaim) -> str:
        """How many rows may be left out."""
        return "" if claim.outliers is UNSET else f", whatever rows are left out, up to {claim.outliers}"

    def scan(self, claim: ClassesClaim, rows: Rows) -> ClassesScan:
        """The margin of each row against all rivals; or its loss, and its share of the dual point."""
        return ClassesScan(claim, rows)


KIND = ClassesKind()
