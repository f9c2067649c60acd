"""How ``verify`` checks the margin with outliers: by one scan (scan.py), and by walking through the proof of the bound.

- Lower bound, for each number k of outliers: the rows whose margin is below the claim are counted, at most k. A fast
  product says on which side a row is unless rounding leaves it open; then the sum is rounded once. Of the model's own
  k the rows below must be among those that it says are left out, at most k, with the labels and margins that it says
  (scan.py).
- Upper bound. A certificate is a few rows with weights whose combination is so short that these rows alone allow no
  larger margin. A better set of k rows would have to take one row out of each. The proof is a tree: at each node a row
  is left out, or stays. Its leaves must cover every choice; and a leaf names certificates that no row left out belongs
  to, some of them more than once, so many that the rows that may still be left out cannot meet all of them: none meets
  more than the row that is in most of them. All of that is checked here from the rows themselves, which the scan
  compares with the store bit for bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from coremargin.formats.outlier_counts import outlier_counts
from coremargin.verify.checks import CLOSE, Check, certified
from coremargin.verify.margins import bounded_above, overlap, uncancelled, weighed_length, zero
from coremargin.verify.sums import combination, length, lift, normalised_weights

if TYPE_CHECKING:
    from coremargin.verify.outliers.claim import OutlierClaim, Trimmed

#: Rows that the leaves of a proof may name in all, a certificate's rows counting each time that it is named: so many,
#: and so many for each number that the proof and its rows are made of.
_LITTLE, _REPEATED = 10**8, 64


def same_answer(claim: OutlierClaim) -> list[Check]:
    """What the claims for each k say about each other, and about what the model says of itself."""
    trimmed, problems = claim.trimmed, []
    last = trimmed[-1]
    hopeless = claim.kind == "not_separable"
    same = np.array_equal(claim.w, last.w) and claim.b == last.b
    if last.lower > -math.inf and not same:  # before the first scan nothing is claimed of any
        problems.append(f"the model's hyperplane is not that of its {last.k} outliers")
    if claim.lower != (None if hopeless else _finite(last.lower)) or claim.upper != _finite(last.upper):
        problems.append(f"the model's bounds are not those of its {last.k} outliers")
    for one in trimmed:
        if one.lower > -math.inf and not (
            abs(length(one.w) - 1) <= CLOSE and (claim.intercept or one.b == 0) and one.lower <= one.upper
        ):
            problems.append(
                f"with {one.k:,} outliers: expected a hyperplane of ||w|| = 1 and a lower bound up to the upper one, "
                f"found ||w|| = {length(one.w):.6g}, b = {one.b:.6g}, {one.lower:.6g} and {one.upper:.6g}"
            )
        if hopeless and one.lower > 0:
            problems.append(f"a margin of {one.lower:.6g} with {one.k:,} outliers, and that nothing separates the rows")
    problems += [_unproven(one) for one in trimmed if claim.status == "certified" and not _proven(claim, one)]
    return [Check("outliers", ok=False, text="; ".join(problems[:5]))] if problems else []


def _proven(claim: OutlierClaim, one: Trimmed) -> bool:
    """Whether the bounds for one k are near enough; or there is no margin, which ``_bound_check`` asks of the proof."""
    return certified(one.lower, one.upper, claim.proven_epsilon) if one.lower > 0 else math.isfinite(one.upper)


def _unproven(one: Trimmed) -> str:
    return f"certified, which {one.lower:.6g} and {one.upper:.6g} with {one.k:,} outliers do not say"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def upper_bounds(claim: OutlierClaim) -> tuple[float | None, list[Check]]:
    """The upper bound of the largest k as its proof has it, and a check for each bound that is claimed.

    Fewer rows left out allow no more: a proof for one k is one for each smaller k, which may have none of its own. A
    bound that no proof is stored for is false: what cannot be checked is not claimed.
    """
    trimmed, checks = claim.trimmed, list[Check]()
    found: list[tuple[_Bound, Trimmed]] = []  # what each proof says, from the largest k down
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
        # the lowest; its own where that is enough
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
        left += own_bound.kept
    return own_bound.value, [*checks[::-1], *left]


def _bound_check(claim: OutlierClaim, name: str, one: Trimmed, found: _Bound, proven: Trimmed) -> Check:
    """Whether a claim is as high as what was found by the proof for its k, or for a larger one.

    Where a certified model has no margin with k outliers, the bound is zero for the rows that prove it.
    """
    nothing = found.value <= zero(claim, found.size) and one.upper <= zero(claim, found.whole) and not found.kept
    if claim.status == "certified" and one.lower <= 0 and not nothing:
        return Check(name, ok=False, text=_unproven(one))
    leaves = proven.leaves.stop - proven.leaves.start
    whose = "" if proven is one else f" for {proven.k:,} outliers, so for fewer too,"
    return bounded_above(
        one.upper, found.value, f"{leaves:,} {'leaf proves' if leaves == 1 else 'leaves prove'}{whose} at most", name
    )


def same_counts(claim: OutlierClaim, rows: int) -> Check:
    """Whether the numbers of outliers are those that were asked for; rows: how many have a label and a weight."""
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
    """A bound, and the size of the rows that rounding it is a share of: see ``overlap``.

    Of several certificates each has to be zero for its own rows; then the bound is, for the largest of these. whole:
    the same about the origin: a claim is rounded up from rows as they are. kept: a failed check, where a bound is zero
    for the rows and not for each feature.
    """

    value: float
    size: float
    whole: float
    kept: list[Check] = field(default_factory=list)


class _Proof:
    """The certificates of a model with their values, and its leaves. Raises ValueError where they do not fit."""

    def __init__(self, claim: OutlierClaim) -> None:
        arrays = {name.removeprefix("proof_"): values for name, values in claim.outliers.items()}
        self.paths, self.numbers, self.sets = [], [], []
        self.rows, self.weights = list[np.ndarray](), list[np.ndarray]()
        self.values: list[_Bound] = []
        self.claim, self.m = claim, len(claim.ids)
        if "rows" not in arrays:
            return
        self.rows, self.weights = rows, weights = list(_lists(arrays, "rows")), list(_lists(arrays, "weights"))
        self.paths, self.numbers = _lists(arrays, "paths"), _lists(arrays, "proofs")
        if len(set(claim.ids.tolist())) < self.m:
            raise ValueError("the coreset has a row twice, which would count as two")
        counts = arrays["leaves"]
        if len(self.paths) != int(counts.sum()) or counts.min(initial=0) < 0:
            raise ValueError(f"leaves are missing: {len(self.paths):,} where the models claim {int(counts.sum()):,}")
        self.values = [_value(claim, part, share) for part, share in zip(rows, weights, strict=True)]
        self.sets = [frozenset(part.tolist()) for part in rows]
        self._check_work(arrays, claim)

    def _check_work(self, arrays: Mapping[str, np.ndarray], claim: OutlierClaim) -> None:
        """Raises ValueError unless leaves can be looked at in reasonable time.

        At each leaf all rows of its certificates are looked at: many leaves that share one long certificate are a
        short file and much work. Searches write down new certificates, and new rows, as they go on.
        """
        named = arrays["proofs"]
        there = named[(named >= 0) & (named < len(self.sets))]  # ``bound`` says so where one is not
        work = int(np.array([len(rows) for rows in self.sets], np.int64)[there].sum())
        size = len(named) + sum(len(arrays[name]) for name in ("rows", "paths")) + claim.x.size
        if work > _LITTLE + _REPEATED * size:
            raise ValueError(f"leaves name {work:,} rows in all, far too many for a proof of {size:,} numbers")

    def bound(self, one: Trimmed) -> _Bound:
        """The largest value of a certificate that one claim rests on. Raises ValueError where its proof fails."""
        leaves, used = [], set[int]()
        for path, numbers in zip(self.paths[one.leaves], self.numbers[one.leaves], strict=True):
            if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self.sets)):
                raise ValueError("a leaf names a certificate that is not there")
            if not len(numbers):
                raise ValueError("a leaf names no certificate")
            steps = tuple(path.tolist())
            if any(not -self.m <= step < self.m for step in steps):
                raise ValueError("a leaf names a row that is not there")
            _check_leaf(steps, [(self.sets[i], n) for i, n in Counter(numbers.tolist()).items()], one.k)
            leaves.append(steps)
            used.update(numbers.tolist())
        _check_cover(sorted(leaves))
        bounds = [self.values[i] for i in used]
        nothing = all(bound.value <= zero(self.claim, bound.size) for bound in bounds)
        kept = next(filter(None, map(self._kept, sorted(used))), []) if nothing else []
        size = (max if nothing else min)(bound.size for bound in bounds)
        return _Bound(max(bound.value for bound in bounds), size, max(bound.whole for bound in bounds), kept)

    def _kept(self, number: int) -> list[Check]:
        """A failed check where a certificate leaves some of a feature."""
        x, y, weights = self.claim.x[self.rows[number]], self.claim.y[self.rows[number]], self.weights[number]
        high, low = normalised_weights(weights, _groups(self.claim, y))
        return uncancelled(self.claim, x, [(high * y, low * y)], high, centred=self.claim.intercept)


def _groups(claim: OutlierClaim, y: np.ndarray) -> list[np.ndarray]:
    """Of rows on sides y (m,) those whose weights sum to 1, as masks (m,)."""
    return [y == sign for sign in (-1, 1)] if claim.intercept else [np.ones(len(y), bool)]


def _value(claim: OutlierClaim, rows: np.ndarray, weights: np.ndarray) -> _Bound:
    """The margin that some coreset rows allow at most, by their weights."""
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


def _check_leaf(path: tuple[int, ...], named: Sequence[tuple[frozenset[int], int]], k: int) -> None:
    """Raises ValueError unless k rows left out cannot meet all that a leaf names: certificates, and how often each."""
    out, kept = {step for step in path if step >= 0}, {~step for step in path if step < 0}
    if len(out) + len(kept) < len(path) or out & kept:
        raise ValueError("a path decides about a row twice")
    if any(rows & out for rows, _ in named):
        raise ValueError("a certificate at a leaf has a row that is left out")
    if any(rows <= kept for rows, _ in named):
        return
    times = Counter[int]()
    for rows, often in named:
        times.update(dict.fromkeys(rows - kept, often))
    count, met = sum(often for _, often in named), max(times.values()) * (k - len(out))
    if len(out) <= k and count <= met:
        raise ValueError(
            f"{count:,} certificates at a leaf, where the {k - len(out):,} rows that may still be left out can meet "
            f"{met:,}, as often as they are named"
        )


def _check_cover(paths: list[tuple[int, ...]]) -> None:
    """Whether the leaves are those of one tree, each of whose nodes has both children. Raises ValueError if not."""
    waiting: list[tuple[list[tuple[int, ...]], int]] = [(paths, 0)]
    while waiting:
        here, depth = waiting.pop()
        if any(len(path) == depth for path in here):
            if len(here) > 1:
                raise ValueError("a leaf lies below another one")
            continue
        steps = {path[depth] for path in here}
        if len(steps) != 2 or sum(steps) != -1:
            raise ValueError("a node has not both children: a choice is not covered")
        waiting += [([path for path in here if path[depth] == step], depth + 1) for step in steps]


def _lists(arrays: Mapping[str, np.ndarray], name: str) -> list[np.ndarray]:
    ends = arrays[f"{name}_ends"]
    return np.split(arrays[name], ends)[:-1] if len(ends) else []
