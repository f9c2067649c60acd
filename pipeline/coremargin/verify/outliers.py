"""A margin with outliers: all rows but k have it, and no k rows removed allow a larger one; for one or more k.

- Lower bound, by a scan: for each k the rows whose margin is below the claim are counted, at most k. A fast product
  decides on which side a row is, unless rounding leaves it open; then the sum is rounded once. The rows below the
  margin of the model's own k must be among those that it names, at most k, with the labels and margins that it states.
- Upper bound, without a scan. A certificate is a few rows with weights whose combination is so short that these rows
  alone allow no larger margin; a better set of k rows would have to take one row out of each. The proof is a tree: each
  node removes a row, or keeps it. Its leaves must cover every choice, and a leaf names certificates without removed
  rows, some of them more than once: so many that the rows which may still be removed cannot meet all of them, as none
  meets more than the row that is in most of them. All of that is checked from the rows, and the scan compares these
  with the store's bit for bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from coremargin.formats.model_record import WHOLE
from coremargin.formats.outliers import OUTLIERS, outlier_counts
from coremargin.verify.checks import CLOSE, Check, certified, same_epsilon, same_ratio, same_two_classes, shown
from coremargin.verify.claim import Claim, two_classes
from coremargin.verify.kind import UNCHECKED, Kind
from coremargin.verify.margins import bounded_above, overlap, status, uncancelled, unit_length, weighed_length, zero
from coremargin.verify.removal import check_cover, check_leaf, lists
from coremargin.verify.store import Members, StoreScan, listed
from coremargin.verify.sums import (
    LOST,
    TINY,
    UNIT,
    combination,
    dot_products,
    length,
    lift,
    normalised_weights,
    slabs,
)

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.outliers import Outliers
    from coremargin.verify.rows import Chunk, Rows

#: Relative to the row's length: a row's margin in the model may differ from that found here, for it was rounded down.
_MARGIN = 1e-9
#: Limits of the rows that all leaves of a proof name, a certificate's rows counting each time it is named: a constant,
#: and a multiple of the numbers that the proof and its rows consist of.
_LITTLE, _REPEATED = 10**8, 64
EXACT = 1e-8  #: epsilon of the certificate if the parameters ask for epsilon 0


@dataclass(frozen=True)
class Trimmed:
    """The claim for one number of outliers; leaves: those of its proof, none if no proof is stored."""

    k: int
    lower: float
    upper: float
    w: np.ndarray
    b: float
    leaves: slice


@dataclass(frozen=True, kw_only=True)
class OutlierClaim(Claim):
    """The claim about two classes without outliers; the hyperplane and the bounds are those of the largest k."""

    outliers: Mapping[str, np.ndarray]  #: the arrays about outliers by name
    requested: Any  #: the numbers of outliers in the parameters

    def tightened(self, more: float) -> Self:
        """A stronger claim for each number of outliers."""
        bounds = {"lower": self.outliers["lower"] + more, "upper": self.outliers["upper"] - more}
        return replace(super().tightened(more), outliers={**self.outliers, **bounds})

    @cached_property
    def trimmed(self) -> tuple[Trimmed, ...]:
        """A claim for each k."""
        arrays = self.outliers
        counts = arrays.get("proof_leaves", np.zeros(arrays["k"].shape, np.int64)).tolist()
        ends = list(accumulate(counts))
        return tuple(
            Trimmed(
                int(k),
                float(arrays["lower"][i]),
                float(arrays["upper"][i]),
                arrays["w"][i],
                float(arrays["b"][i]),
                slice(ends[i] - counts[i], ends[i]),
            )
            for i, k in enumerate(arrays["k"])
        )


@dataclass(frozen=True)
class Named:
    """The outliers that a model names, in order of their ids (m,): signs, and margins under its hyperplane."""

    ids: np.ndarray
    signs: np.ndarray
    margins: np.ndarray


def _named(claim: OutlierClaim) -> Named:
    ids, signs, margins = (claim.outliers[name] for name in ("ids", "signs", "margins"))
    order = np.argsort(ids)
    return Named(ids[order], signs[order], margins[order])


@dataclass(frozen=True)
class OutlierSummary:
    """The summary of one chunk: rows below each claim (m,), ids of those below the last, and of those named wrongly."""

    below: np.ndarray
    low: tuple[int, ...]
    wrong: tuple[int, ...]
    unlabelled: int
    radius: float
    members: Members


class OutlierScan(StoreScan):
    """The scan for the number of rows below each claimed margin, and for the outliers that the model names."""

    claim: OutlierClaim

    def __init__(self, claim: OutlierClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.named, self.last = _named(claim), claim.trimmed[-1]
        self.trimmed = [one for one in claim.trimmed if one.lower > -np.inf]
        self.bounded = bool(self.trimmed) and self.trimmed[-1] is self.last
        self.below = np.zeros(len(self.trimmed), np.int64)
        self.low: list[int] = []
        self.wrong: list[int] = []

    def probe(self, chunk: Chunk) -> OutlierSummary:
        """The summary of a chunk, in slabs of float64."""
        signs = self.signs(chunk)
        below, low, wrong, radius = np.zeros(len(self.trimmed), np.int64), [], [], 0.0
        for part, x in slabs(chunk.x):
            lengths = self.lengths(x, chunk.start + part.start)
            radius = max(radius, float(lengths.max()))
            for i, one in enumerate(self.trimmed):
                places = part.start + _below(x, signs[part], lengths, one)
                below[i] += len(places)
                if one is self.last:
                    low += (places + chunk.start).tolist()
            wrong += self._wrong(x, signs[part], lengths, chunk.start + part.start)
        return OutlierSummary(
            below, tuple(low), tuple(wrong), int((signs == 0).sum()), radius, self.members(chunk, signs)
        )

    def _wrong(self, x: Any, signs: np.ndarray, lengths: np.ndarray, first: int) -> list[int]:
        """Ids of named outliers whose label or margin is not that of rows x (n, d) from ``first`` on."""
        a, b = np.searchsorted(self.named.ids, (first, first + len(signs)))
        here, one = self.named.ids[a:b] - first, self.last
        found = signs[here] * dot_products(x[here], one.w, one.b) / (length(one.w) or 1.0)
        slack = _MARGIN * (lengths[here] + np.minimum(abs(one.b), lengths.max())) + (len(one.w) + 4) * TINY
        near = np.abs(found - self.named.margins[a:b]) <= slack
        same = (signs[here] == self.named.signs[a:b]) & (signs[here] != 0)
        return [int(row) for row in self.named.ids[a:b][~(near & same)]]

    def add(self, summary: OutlierSummary) -> None:
        """Add a summary."""
        self.below += summary.below
        self.low += summary.low[: self.last.k + 1]
        self.wrong += summary.wrong
        self.count(summary.unlabelled, summary.radius, summary.members)

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        requested = same_counts(self.claim, self.rows.rows - self.unlabelled)
        return [self.content(), self.coreset(), requested, *self._bounds(), *self._names()]

    def _bounds(self) -> list[Check]:
        count = self.rows.rows - self.unlabelled
        return [
            Check(
                f"lower bound with {one.k:,} outliers",
                bool(below <= one.k),
                f"all but {below:,} of {count:,} rows have at least {shown(one.lower)}"
                + ("" if below <= one.k else f"; model claims all but {one.k:,}"),
            )
            for one, below in zip(self.trimmed, self.below.tolist(), strict=True)
        ]

    def _names(self) -> list[Check]:
        """Whether the named rows are the store's, at most k, and include all below the margin of the model's own k."""
        ids, k = self.named.ids, self.last.k
        problems = []
        twice = [int(row) for row in np.unique(ids[1:][ids[1:] == ids[:-1]])]
        if twice:
            problems.append(f"{listed(twice)} named more than once")
        if len(ids) > k:
            problems.append(f"the model names {len(ids):,} rows, more than {k:,}")
        outside = [int(row) for row in ids if not 0 <= row < self.rows.rows]
        if outside:
            problems.append(f"{listed(outside)} not in the store")
        if self.wrong:
            problems.append(f"{listed(self.wrong)} of another label or margin than the model says")
        others = sorted(set(self.low) - set(ids.tolist()))
        if others:
            problems.append(f"the model does not name all rows below its margin: {listed(others)} missing")
        below = f"; the {len(self.low):,} rows below the margin are among them" if self.bounded else ""
        text = f"{len(ids):,} rows have the labels and margins that the model says{below}"
        return [Check("rows left out", not problems, "; ".join(problems) or text)]

    def bounds(self) -> tuple[float | None, float | None]:
        """The lower bound of the largest k, if it holds."""
        holds = self.bounded and self.below[-1] <= self.trimmed[-1].k
        return (self.claim.lower if holds else None), None


def _below(x: Any, signs: np.ndarray, lengths: np.ndarray, one: Trimmed) -> np.ndarray:
    """Places (m,) of labelled rows whose margin is below the claim."""
    size, n = length(one.w) or 1.0, len(one.w) + 4
    fast = signs * (x @ one.w + one.b)
    error = 2 * n * UNIT * (lengths * size + abs(one.b)) + n * TINY
    target = one.lower * size
    surely = (signs != 0) & (fast < target - error)
    again = np.flatnonzero((signs != 0) & ~surely & ~(fast > target + error))
    exact = signs[again] * dot_products(x[again], one.w, one.b) / size - n * LOST
    return np.sort(np.concatenate([np.flatnonzero(surely), again[~(exact >= one.lower)]]))


def outliers_consistency(claim: OutlierClaim) -> list[Check]:
    """Whether the claims for each k agree with each other, and with the model's own."""
    trimmed, problems = claim.trimmed, []
    last = trimmed[-1]
    not_separable = claim.kind == "not_separable"
    same = np.array_equal(claim.w, last.w) and claim.b == last.b
    if last.lower > -math.inf and not same:  # before the first scan nothing is claimed of any
        problems.append(f"the model's hyperplane is not that of its {last.k} outliers")
    if claim.lower != (None if not_separable else _finite(last.lower)) or claim.upper != _finite(last.upper):
        problems.append(f"the model's bounds are not those of its {last.k} outliers")
    for one in trimmed:
        if one.lower > -math.inf and not (
            abs(length(one.w) - 1) <= CLOSE and (claim.intercept or one.b == 0) and one.lower <= one.upper
        ):
            problems.append(
                f"with {one.k:,} outliers: expected a hyperplane of ||w|| = 1 and a lower bound up to the upper one, "
                f"found ||w|| = {length(one.w):.6g}, b = {one.b:.6g}, {one.lower:.6g} and {one.upper:.6g}"
            )
        if not_separable and one.lower > 0:
            problems.append(f"a margin of {one.lower:.6g} with {one.k:,} outliers, and that nothing separates the rows")
    problems += [_unproven(one) for one in trimmed if claim.status == "certified" and not _proven(claim, one)]
    return [Check("outliers", ok=False, text="; ".join(problems[:5]))] if problems else []


def _proven(claim: OutlierClaim, one: Trimmed) -> bool:
    """Whether the bounds for one k prove epsilon; or there is no margin, which ``_bound_check`` checks."""
    return certified(one.lower, one.upper, claim.proven_epsilon) if one.lower > 0 else math.isfinite(one.upper)


def _unproven(one: Trimmed) -> str:
    return f"certified, which {one.lower:.6g} and {one.upper:.6g} with {one.k:,} outliers do not say"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def upper_bounds(claim: OutlierClaim) -> tuple[float | None, list[Check]]:
    """The upper bound of the largest k by its proof, and a check for each claimed bound.

    Removing fewer rows allows no larger margin: a proof for one k is one for each smaller k, which may have none of its
    own. A bound without a proof fails its check.
    """
    trimmed, checks = claim.trimmed, list[Check]()
    found: list[tuple[_Bound, Trimmed]] = []  # the bound of each proof, from the largest k down
    try:
        proof = _Proof(claim)
    except ValueError as error:
        proof = None
        checks.append(Check("proof of the upper bounds", ok=False, text=f"the proof is incomplete or altered: {error}"))
    for one in reversed(trimmed):
        name, own = f"upper bound with {one.k:,} outliers", one.leaves.start < one.leaves.stop
        try:
            if proof is not None and own:
                found.append((proof.bound(one), one))
        except ValueError as error:
            checks.append(Check(name, ok=False, text=f"the proof is incomplete or altered: {error}"))
            continue
        if not math.isfinite(one.upper):
            continue
        # the lowest bound, or its own proof's if that suffices
        best = min(
            found, key=lambda pair: (pair[1] is not one or pair[0].value > one.upper, pair[0].value), default=None
        )
        if best is None:
            text = f"model claims {one.upper:.9g} and holds no proof of it; train again, with fewer outliers"
            checks.append(Check(name, ok=False, text=text))
        else:
            checks.append(_bound_check(claim, name, one, *best))
    own_bound = next((bound for bound, one in found if one is trimmed[-1]), None)
    if own_bound is None:
        return None, [*checks[::-1], *overlap(claim, None, 0.0)]
    left = overlap(claim, own_bound.value, own_bound.size)
    if left and left[0].ok:
        left += own_bound.left
    return own_bound.value, [*checks[::-1], *left]


def _bound_check(claim: OutlierClaim, name: str, one: Trimmed, found: _Bound, proven: Trimmed) -> Check:
    """Whether a claim is at least the bound found by the proof for its k, or for a larger one.

    If a certified model has no margin with k outliers, the bound has to be zero for the rows that prove it.
    """
    nothing = found.value <= zero(claim, found.size) and one.upper <= zero(claim, found.whole) and not found.left
    if claim.status == "certified" and one.lower <= 0 and not nothing:
        return Check(name, ok=False, text=_unproven(one))
    leaves = proven.leaves.stop - proven.leaves.start
    whose = "" if proven is one else f" for {proven.k:,} outliers, so for fewer too,"
    return bounded_above(
        one.upper, found.value, f"{leaves:,} {'leaf proves' if leaves == 1 else 'leaves prove'}{whose} at most", name
    )


def same_counts(claim: OutlierClaim, rows: int) -> Check:
    """Whether the numbers of outliers are those of the parameters; rows: how many have a label and a weight."""
    try:
        requested = outlier_counts(claim.requested, lambda: rows)
    except ValueError as error:
        return Check("outliers asked for", ok=False, text=str(error))
    found = tuple(one.k for one in claim.trimmed)
    text = f"{claim.requested!r} of {rows:,} rows" if isinstance(claim.requested, str) else f"{claim.requested!r}"
    if requested == found and found[-1] < rows:
        return Check("outliers asked for", ok=True, text=text)
    text = f"the parameters ask for {text}, the model answers for {', '.join(map(str, found[:5]))} of {rows:,}"
    return Check("outliers asked for", ok=False, text=text)


@dataclass(frozen=True)
class _Bound:
    """A bound, and the size of the rows that its rounding error is relative to: see ``overlap``.

    Each of several certificates has to be zero for its own rows; then the bound is, for the largest of these. whole:
    the size about the origin, as a claim is rounded up from uncentred rows. left: a failed check, if a bound is zero
    for the rows and not for each feature.
    """

    value: float
    size: float
    whole: float
    left: list[Check] = field(default_factory=list)


class _Proof:
    """The certificates of a model with their values, and its leaves. Raises ValueError if they are malformed."""

    def __init__(self, claim: OutlierClaim) -> None:
        arrays = {name.removeprefix("proof_"): values for name, values in claim.outliers.items()}
        self.paths, self.numbers, self.sets = [], [], []
        self.rows, self.weights = list[np.ndarray](), list[np.ndarray]()
        self.values: list[_Bound] = []
        self.claim, self.m = claim, len(claim.ids)
        if "rows" not in arrays:
            return
        self.rows, self.weights = rows, weights = list(lists(arrays, "rows")), list(lists(arrays, "weights"))
        self.paths, self.numbers = lists(arrays, "paths"), lists(arrays, "proofs")
        if len(set(claim.ids.tolist())) < self.m:
            raise ValueError("the coreset has a row twice, which would count as two")
        counts = arrays["leaves"]
        if len(self.paths) != int(counts.sum()) or counts.min(initial=0) < 0:
            raise ValueError(f"leaves are missing: {len(self.paths):,} where the models claim {int(counts.sum()):,}")
        self.values = [_value(claim, part, share) for part, share in zip(rows, weights, strict=True)]
        self.sets = [frozenset(part.tolist()) for part in rows]
        self._check_work(arrays, claim)

    def _check_work(self, arrays: Mapping[str, np.ndarray], claim: OutlierClaim) -> None:
        """Raises ValueError unless leaves can be checked in reasonable time.

        At each leaf all rows of its certificates are read: many leaves that share one long certificate are a short file
        and much work. Searches store new certificates, and new rows, as they continue.
        """
        named = arrays["proofs"]
        there = named[(named >= 0) & (named < len(self.sets))]  # ``bound`` rejects the others
        work = int(np.array([len(rows) for rows in self.sets], np.int64)[there].sum())
        size = len(named) + sum(len(arrays[name]) for name in ("rows", "paths")) + claim.x.size
        if work > _LITTLE + _REPEATED * size:
            raise ValueError(f"leaves name {work:,} rows in all, far too many for a proof of {size:,} numbers")

    def bound(self, one: Trimmed) -> _Bound:
        """The largest value of a certificate that a claim depends on. Raises ValueError if its proof fails."""
        leaves, used = [], set[int]()
        for path, numbers in zip(self.paths[one.leaves], self.numbers[one.leaves], strict=True):
            if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self.sets)):
                raise ValueError("a leaf names a certificate that is not there")
            if not len(numbers):
                raise ValueError("a leaf names no certificate")
            steps = tuple(path.tolist())
            if any(not -self.m <= step < self.m for step in steps):
                raise ValueError("a leaf names a row that is not there")
            check_leaf(steps, [(self.sets[i], n) for i, n in Counter(numbers.tolist()).items()], one.k)
            leaves.append(steps)
            used.update(numbers.tolist())
        check_cover(sorted(leaves))
        bounds = [self.values[i] for i in used]
        nothing = all(bound.value <= zero(self.claim, bound.size) for bound in bounds)
        left = next(filter(None, map(self._left, sorted(used))), []) if nothing else []
        size = (max if nothing else min)(bound.size for bound in bounds)
        return _Bound(max(bound.value for bound in bounds), size, max(bound.whole for bound in bounds), left)

    def _left(self, number: int) -> list[Check]:
        """A failed check if a certificate's combination is not zero in each feature."""
        x, y, weights = self.claim.x[self.rows[number]], self.claim.y[self.rows[number]], self.weights[number]
        high, low = normalised_weights(weights, _groups(self.claim, y))
        return uncancelled(self.claim, x, [(high * y, low * y)], high, centred=self.claim.intercept)


def _groups(claim: OutlierClaim, y: np.ndarray) -> list[np.ndarray]:
    """Masks (m,) of the rows on sides y (m,) whose weights sum to 1."""
    return [y == sign for sign in (-1, 1)] if claim.intercept else [np.ones(len(y), bool)]


def _value(claim: OutlierClaim, rows: np.ndarray, weights: np.ndarray) -> _Bound:
    """The largest margin that some of the coreset's rows allow, by their weights."""
    if len(rows) != len(weights) or not len(rows):
        raise ValueError("a certificate has no rows, or not a weight for each")
    if rows.min() < 0 or rows.max() >= len(claim.ids) or len(set(rows.tolist())) < len(rows):
        raise ValueError("a certificate names rows that are not there, or one twice")
    if not (weights >= 0).all():
        raise ValueError("a certificate has a weight below 0")
    y = claim.y[rows]
    groups = _groups(claim, y)
    if any(not abs(float(weights[group].sum()) - 1) <= CLOSE for group in groups):
        raise ValueError("the weights of a certificate do not sum to 1")
    high, low = normalised_weights(weights, groups)
    share, x = 2 if claim.intercept else 1, claim.x[rows]
    lifted = lift(x)
    combined = length(combination(x * lifted, high * y, low * y)) / lifted
    size, whole = (weighed_length(x, high, centred=centred) / share for centred in (claim.intercept, False))
    return _Bound(combined / share, size, whole)


class OutlierKind(Kind[OutlierClaim]):
    """The claims of a margin with outliers."""

    unchecked = (
        "how much margin each outlier costs, and the model's dual weights (no claim depends on them)",
        "which search ran, and how many nodes it searched",
        *UNCHECKED,
    )

    def claim(self, files: ModelFiles) -> OutlierClaim:
        """A hyperplane for each k, the outliers, and the proof."""
        arrays, requested = files.arrays, cast("Outliers", files.record).parameters.outliers
        own = {name.removeprefix(OUTLIERS): arrays[name] for name in arrays if name.startswith(OUTLIERS)}
        return OutlierClaim(**two_classes(files, WHOLE, soft=False), outliers=own, requested=requested)

    def same_classes(self, claim: OutlierClaim, rows: Rows) -> Check:
        """Two."""
        return same_two_classes(claim, rows)

    def consistency(self, claim: OutlierClaim) -> list[Check]:
        """Length of the hyperplane, epsilon, ratio, status; and the claims for each k."""
        exact = claim.epsilon == 0 and claim.proven_epsilon == EXACT
        checks = [*unit_length(claim), *([] if exact else same_epsilon(claim)), *same_ratio(claim)]
        return [*checks, status(claim), *outliers_consistency(claim)]

    def bound(self, claim: OutlierClaim) -> tuple[float | None, list[Check]]:
        """By the tree of certificates."""
        return upper_bounds(claim)

    def scan(self, claim: OutlierClaim, rows: Rows) -> OutlierScan:
        """Whether each row has each margin, and is an outlier."""
        return OutlierScan(claim, rows)


KIND = OutlierKind()
