"""Claims about a margin: the lower bound is that of the hypothesis, the upper one follows from dual weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from coremargin.verify.checks import CLOSE, Check, certified, in_order, shown
from coremargin.verify.sums import TINY, UNIT, combination, length, rounded_sum, true_lengths

if TYPE_CHECKING:
    from coremargin.verify.claim import AnyClaim, Claim

_ZERO = 64  # rounding errors of each feature that a distance of zero may have; trainers use up to half of it
_MOST = 1e-12  # relative, for any number of features
_MOVES = 8  # times the error of a mapped row, which trainer and verifier both make, and trainers add once more
_SURE = 1e-6  # of the longest row: a larger error of mapped rows does not count as zero


def proven(epsilon: float) -> str:
    """The statement that is true of a certified margin."""
    return f"the margin is at least (1 - {epsilon}) of the best possible"


def unit_length(claim: Claim) -> list[Check]:
    """Whether decision values are distances, if a margin is claimed."""
    size = length(claim.w)
    unit = abs(size - 1) <= CLOSE and (claim.intercept or claim.b == 0)
    text = f"||w|| = {size:.12g}, b = {claim.b:.6g}"
    if not unit:
        text += ": expected ||w|| = 1" + ("" if claim.intercept else " and b = 0 (no intercept)")
    return [Check("hypothesis", unit, text)] if claim.lower is not None else []


def status(claim: AnyClaim) -> Check:
    """Whether the status follows from the claimed bounds of a margin; other checks verify these."""
    lower, upper, epsilon = claim.lower, claim.upper, claim.proven_epsilon
    bounds = f"lower {shown(lower)}, upper {shown(upper)}, epsilon {epsilon}"
    if claim.status == "certified":
        ok = claim.kind == "margin" and in_order(claim) and certified(lower, upper, epsilon)
        text = f"certified: lower / upper is at least 1 - {epsilon}"
        if not ok:
            text = f"model claims to be certified, its own numbers do not say so: {claim.kind}, {bounds}"
    elif claim.status == "not_separable":
        ok = claim.kind == "not_separable" and upper is not None and lower is None and claim.ratio is None
        text = f"not separable: no margin above {shown(upper)}"
        if not ok:
            text = (
                f"model claims that nothing separates the rows, its own numbers do not say so: {claim.kind}, {bounds}"
            )
    else:
        ok = claim.status == "stopped" and claim.kind == "margin" and in_order(claim)
        text = f"stopped before epsilon was proven: {bounds}"
        if not ok:
            text = f"model claims status {claim.status!r} of a {claim.kind!r}, which contradict each other; {bounds}"
    return Check("status", ok, text)


def zero(claim: AnyClaim, size: float) -> float:
    """The largest number that counts as a margin of zero, for rows of this size, including the error of a map.

    The map's arrays determine its error, and may be forged to lose all digits; the radius has its own check.
    """
    moved = min(_MOVES * claim.moved, _SURE * claim.radius)
    return _share(claim) * size + moved


def _share(claim: AnyClaim) -> float:
    """Relative error of a sum that is zero."""
    return min(_ZERO * (2 * claim.features + 18) * UNIT, _MOST)


def overlap(claim: AnyClaim, found: float | None, size: float) -> list[Check]:
    """Whether the bound found is zero, if it is claimed that nothing separates the rows.

    size: the sum of dual weights times lengths of their rows, which rounding errors are relative to. Neither the
    claimed radius nor the number of coreset rows is used: a forger would set the limit with them.
    """
    if claim.status != "not_separable":
        return []
    limit = zero(claim, size)
    if found is not None and found <= limit < math.inf:
        text = f"no margin above {found:.6g}, which is zero for rows as long as {size:.6g}"
        return [Check("overlap", ok=True, text=text)]
    text = f"model claims that nothing separates the rows; its proof leaves {shown(found)}, zero is at most {limit:.3g}"
    return [Check("overlap", ok=False, text=text)]


def uncancelled(
    claim: AnyClaim, x: Any, mixes: list[tuple[np.ndarray, np.ndarray]], weights: np.ndarray, *, centred: bool
) -> list[Check]:
    """A failed check if sums of rows x (m, d) are not zero in each feature, though nothing is claimed to separate them.

    mixes: for each sum the weights (m,), as sums of two numbers; weights (m,) >= 0: rounding errors are relative to
    these times the values of a feature. A sum may be tiny relative to the rows' lengths because one feature has large
    values, while another one separates the rows; separability does not depend on units. centred: as for
    ``weighed_length``.
    """
    largest = abs(x).max(axis=0)
    largest = np.asarray(largest.toarray() if issparse(x) else largest).ravel()
    scales = np.where(largest > 0, np.ldexp(1.0, -np.clip(np.frexp(largest)[1], -1000, 1000)), 1.0)
    if issparse(x):
        scaled = x.copy()
        scaled.data = x.data * scales[x.indices]
        sizes = weights @ abs(scaled)
    else:
        scaled = x * scales
        middle = weights @ scaled / rounded_sum(weights.tolist()) if centred else np.zeros(x.shape[1])
        sizes = weights @ np.abs(scaled - middle)
    # Weights are known to two roundings: a feature that is the same in all rows leaves that much.
    limit = _share(claim) * sizes + zero(claim, 0.0) * scales + 64 * UNIT * UNIT * (weights @ abs(scaled))
    for high, low in mixes:
        left = np.abs(combination(scaled, high, low))
        wrong = np.flatnonzero(~(left <= limit))
        if len(wrong):
            j = int(wrong[np.argmax(left[wrong] / np.maximum(sizes[wrong], TINY))])
            text = (
                f"model claims that nothing separates the rows; its proof leaves {left[j] / max(sizes[j], TINY):.3g} "
                f"of the values of feature {j}, where rounding leaves at most {limit[j] / max(sizes[j], TINY):.3g}"
            )
            return [Check("overlap", ok=False, text=text)]
    return []


def weighed_length(x: Any, weights: np.ndarray, *, centred: bool) -> float:
    """The sum of weights (m,) times lengths of rows (m, d), which rounding errors of the weights are relative to.

    centred: the weights of each class sum to 1, so the rows' common offset cancels in their combination, and lengths
    are those from the rows' mean. Sparse rows are not centred.
    """
    if centred and not issparse(x):
        x = x - weights @ x / 2
    return rounded_sum((weights * true_lengths(x)).tolist())


def bounded_above(claimed: float, found: float, proof: str, name: str = "upper bound") -> Check:
    """Whether a claimed upper bound is at least the one found; proof: text."""
    stated, proven = shown(claimed), shown(found)
    ok = found <= claimed
    return Check(
        name, ok, f"{proof} {proven} (claimed: {stated})" if ok else f"model claims {stated}, {proof} {proven}"
    )
