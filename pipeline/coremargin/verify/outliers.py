"""How ``verify`` checks the margin with outliers: by one scan, and by walking through the proof of the upper bound.

- Lower bound, for each number k of outliers: the rows whose margin is below the claim are counted, at most k. A fast
  product says on which side a row is unless rounding leaves it open; then the sum is rounded once. Of the model's own
  k the rows below must be among those that it says are left out, at most k, with the labels and margins that it says
  (outliers_scan.py).
- Upper bound. A certificate is a few rows with weights whose combination is so short that these rows alone allow no
  larger margin. A better set of k rows would have to take one row out of each. The proof is a tree: at each node a row
  is left out, or stays. Its leaves must cover every choice; and at each leaf the certificates that no row left out
  belongs to are so many, without a common row that might still be left out, that the remaining choices do not
  suffice. All of that is checked here from the rows themselves, which the scan compares with the store bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.errors import DataError
from coremargin.verify.checks import Check, apart
from coremargin.verify.sums import combination, length, normalised_weights

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim

_SUM = 1e-9  #: how far weights that are said to sum to 1 may be from it before they are scaled here


@dataclass(frozen=True)
class Trimmed:
    """The claim for one number of outliers; leaves: which of the proof's are about it, none where it is not stored."""

    k: int
    lower: float
    upper: float
    w: np.ndarray
    b: float
    leaves: slice


def trimmed_claims(claim: Claim) -> list[Trimmed]:
    """The claims of a model, one for each k. Raises DataError when its arrays do not fit together."""
    arrays = claim.outliers
    try:
        ks = arrays["k"]
        counts = arrays.get("proof_leaves", np.zeros(ks.shape, np.int64))
        shapes = {"lower": ks.shape, "upper": ks.shape, "w": (*ks.shape, claim.features), "b": ks.shape}
        fits = len(ks) > 0 and ks.ndim == 1 and all(arrays[name].shape == shape for name, shape in shapes.items())
        if not fits or (np.diff(ks) <= 0).any() or ks[0] < 0 or arrays["ids"].ndim != 1 or counts.shape != ks.shape:
            raise ValueError("the arrays about outliers do not fit together")
        numbers = [arrays["w"], arrays["b"]]
        if not all(np.isfinite(part).all() for part in numbers) or np.isnan([arrays["lower"], arrays["upper"]]).any():
            raise ValueError("a hyperplane or a bound is no number")
        if (arrays["lower"] == np.inf).any() or (arrays["upper"] == -np.inf).any():
            raise ValueError("a bound is infinite on the wrong side")
        ends = np.cumsum(counts)
        return [
            Trimmed(
                int(k), float(arrays["lower"][i]), float(arrays["upper"][i]), arrays["w"][i], float(arrays["b"][i]),
                slice(int(ends[i] - counts[i]), int(ends[i])),
            )
            for i, k in enumerate(ks)
        ]  # fmt: skip
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise DataError(f"{claim.path}/arrays.npz: {error}; get an unaltered copy of the model") from error


def same_answer(claim: Claim, trimmed: Sequence[Trimmed]) -> list[Check]:
    """A failed check unless the model's hyperplane and bounds are those of its largest k."""
    last = trimmed[-1]
    hopeless = claim.kind == "not_separable"
    lower = None if hopeless else _finite(last.lower)
    found = hopeless or (np.array_equal(claim.w, last.w) and claim.b == last.b)
    if found and claim.lower == lower and claim.upper == _finite(last.upper):
        return []
    return [Check("outliers", ok=False, text=f"the model's own numbers are not those of its {last.k} outliers")]


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def upper_bounds(claim: Claim, trimmed: Sequence[Trimmed]) -> tuple[float | None, list[Check], list[str]]:
    """The upper bound of the largest k as its proof has it, a check for each proof, and what could not be checked.

    Fewer rows left out allow no more: a proof for one k is one for each smaller k, which may have none of its own.
    """
    checks: list[Check] = []
    unchecked: list[str] = []
    try:
        proof = _Proof(claim)
    except (KeyError, ValueError, IndexError) as error:
        stored = any(name.startswith("proof_") for name in claim.outliers)
        proof, broken = None, f"the proof is incomplete or altered: {error}"
        checks = [Check("proof of the upper bounds", ok=False, text=broken)] if stored else []
    found: list[tuple[float, Trimmed]] = []  # what each proof says, from the largest k down
    for one in reversed(trimmed):
        name, own = f"upper bound with {one.k:,} outliers", one.leaves.start < one.leaves.stop
        try:
            if proof is not None and own:
                found.append((proof.bound(one), one))
        except (ValueError, IndexError) as error:
            checks.append(Check(name, ok=False, text=f"the proof is incomplete or altered: {error}"))
            continue
        if not np.isfinite(one.upper):
            continue
        # the lowest; its own where that is enough
        best = min(found, key=lambda pair: (pair[1] is not one or pair[0] > one.upper, pair[0]), default=None)
        if best is not None and (own or best[0] <= one.upper):
            checks.append(_bound_check(name, one, *best))
        else:
            unchecked.append(f"the {name}: {one.upper:.9g}; the model was stored without its proof")
    return next((bound for bound, one in found if one is trimmed[-1]), None), checks[::-1], unchecked[::-1]


def _bound_check(name: str, one: Trimmed, found: float, proven: Trimmed) -> Check:
    """Whether a claim is as high as what was found by the proof for its k, or for a larger one."""
    claimed, at_most = apart(one.upper, found)
    leaves = proven.leaves.stop - proven.leaves.start
    whose = "" if proven is one else f" with {proven.k:,} outliers, so with fewer"
    text = f"{leaves:,} {'leaf proves' if leaves == 1 else 'leaves prove'} at most {at_most}{whose}"
    ok = found <= one.upper
    return Check(name, ok, f"{text} (claimed: {claimed})" if ok else f"model claims {claimed}, {text}")


class _Proof:
    """The certificates of a model with their values, and its leaves. Raises ValueError where they do not fit."""

    def __init__(self, claim: Claim) -> None:
        arrays = {name.removeprefix("proof_"): values for name, values in claim.outliers.items()}
        rows, weights = _lists(arrays, "rows"), _lists(arrays, "weights")
        self.paths, self.numbers, self.m = _lists(arrays, "paths"), _lists(arrays, "proofs"), len(claim.ids)
        if len(set(claim.ids.tolist())) < self.m:
            raise ValueError("the coreset has a row twice, which would count as two")
        if len(rows) != len(weights) or len(self.paths) != len(self.numbers):
            raise ValueError("numbers of certificates, weights, paths and leaves do not fit")
        self.values = [_value(claim, part, share, self.m) for part, share in zip(rows, weights, strict=True)]
        self.sets = [frozenset(part.tolist()) for part in rows]

    def bound(self, one: Trimmed) -> float:
        """The largest value of a certificate that one claim rests on. Raises ValueError where its proof fails."""
        leaves, used = [], set[int]()
        for path, numbers in zip(self.paths[one.leaves], self.numbers[one.leaves], strict=True):
            if len(numbers) == 0 or numbers.min() < 0 or numbers.max() >= len(self.sets):
                raise ValueError("a leaf names no certificate, or one that is not there")
            steps = tuple(path.tolist())
            if any(not -self.m <= step < self.m for step in steps):
                raise ValueError("a leaf names a row that is not there")
            _check_leaf(steps, [self.sets[i] for i in numbers.tolist()], one.k)
            leaves.append(steps)
            used.update(numbers.tolist())
        if len(leaves) != one.leaves.stop - one.leaves.start:
            raise ValueError("leaves are missing")
        _check_cover(sorted(leaves))
        return max(self.values[i] for i in used)


def _value(claim: Claim, rows: np.ndarray, weights: np.ndarray, m: int) -> float:
    """The margin that some coreset rows allow at most, by their weights."""
    if len(rows) != len(weights) or not len(rows) or rows.min() < 0 or rows.max() >= m or len(set(rows)) < len(rows):
        raise ValueError("a certificate names rows that are not there, or one twice")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("a certificate has a weight that is no number >= 0")
    y = claim.y[rows]
    groups = [y == sign for sign in (-1, 1)] if claim.intercept else [np.ones(len(y), bool)]
    if any(abs(float(weights[group].sum()) - 1) > _SUM for group in groups):
        raise ValueError("the weights of a certificate do not sum to 1")
    high, low = normalised_weights(weights, groups)
    combined = length(combination(claim.x[rows], high * y, low * y))
    return combined / (2 if claim.intercept else 1)


def _check_leaf(path: tuple[int, ...], sets: Sequence[frozenset[int]], k: int) -> None:
    out, kept = {step for step in path if step >= 0}, {~step for step in path if step < 0}
    if len(out) + len(kept) < len(path) or out & kept:
        raise ValueError("a path decides about a row twice")
    if any(rows & out for rows in sets):
        raise ValueError("a certificate at a leaf has a row that is left out")
    free = [rows - kept for rows in sets]
    if any(not rows for rows in free):
        return
    if len(frozenset().union(*free)) < sum(map(len, free)):
        raise ValueError("certificates at a leaf share a row that may be left out")
    if len(out) <= k and len(free) <= k - len(out):
        raise ValueError(f"{len(free)} certificates at a leaf where {k - len(out)} rows may still be left out")


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
    values, ends = arrays[name], arrays[f"{name}_ends"]
    if values.ndim != 1 or ends.ndim != 1 or (np.diff(ends) < 0).any() or (len(ends) and ends[-1] != len(values)):
        raise ValueError(f"the ends of {name} do not fit")
    return np.split(values, ends)[:-1] if len(ends) else []
