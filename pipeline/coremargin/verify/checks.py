"""What ``verify`` checks without the store's rows: what the claims say about each other, and the upper bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from coremargin.formats.model_record import WHOLE
from coremargin.verify.sums import UNIT, combination, length, lift, normalised_weights, rounded_sum, true_lengths
from coremargin.verify.view import view_text

if TYPE_CHECKING:
    from coremargin.verify.claim import AnyClaim, Claim
    from coremargin.verify.rows import Rows

EXACT = 1e-8  #: what a certificate with outliers says where epsilon 0 was asked for
CLOSE = 1e-9  #: for numbers that are said to be 1, or a ratio of others: not for bounds
_ZERO = 64  # roundings of each feature that a distance of zero may leave; trainers keep to half of it
_MOST = 1e-12  # however many features


@dataclass(frozen=True)
class Check:
    """One thing that was checked: ``text`` says what was found, with numbers, and what was claimed if that is false."""

    name: str
    ok: bool
    text: str


def same_shape(claim: AnyClaim, rows: Rows) -> Check:
    """Whether the store has the rows, features and precision that the model names."""
    claimed = (claim.rows, claim.features, claim.dtype)
    found = (rows.rows, rows.features, rows.dtype)
    text = f"{rows.rows:,} rows x {rows.features:,} features of {rows.dtype}"
    if claimed != found:
        text = f"model claims {claim.rows:,} rows x {claim.features:,} features of {claim.dtype}, the store has {text}"
        if any(commit.digest == claim.store_digest for commit in rows.commits[:-1]):
            text += "; rows were appended after training: train again on all of them"
    return Check("rows", claimed == found, text)


def same_classes(claim: Claim, rows: Rows) -> Check:
    """Whether the store's labels are the model's two or, of one class against the rest, that class is among them."""
    labels, known = (claim.negative, claim.positive), {typed(label) for label in rows.classes}
    view = claim.view
    if view.label is None:
        ok = {typed(label) for label in labels} == known
    else:
        against = list(map(typed, labels)) == [typed(False), typed(True)]
        ok = against and typed(view.label) in known and len(known) > 1
    text = f"{claim.negative!r} (negative) and {claim.positive!r} (positive)"
    if view != WHOLE:
        text += f": {view_text(view)}"
    if not ok:
        text = f"model claims {text}, the store has {', '.join(map(repr, rows.classes)) or 'none'}"
    return Check("classes", ok, text)


def typed(label: Any) -> tuple[str, Any]:
    """A label with its kind: 1, 1.0 and True are different labels."""
    return type(label).__name__, label


def consistency(claim: Claim) -> list[Check]:
    """What the claims say about each other."""
    size = length(claim.w)
    unit = abs(size - 1) <= CLOSE and (claim.intercept or claim.b == 0)
    text = f"||w|| = {size:.12g}, b = {claim.b:.6g}"
    if not unit:
        text += ": expected ||w|| = 1" + ("" if claim.intercept else " and b = 0 (no intercept)")
    checks = [Check("hypothesis", unit, text)] if claim.lower is not None else []
    checks += same_epsilon(claim)
    return [*checks, *same_ratio(claim), status(claim)]


def same_ratio(claim: AnyClaim) -> list[Check]:
    """A failed check if the model claims another ratio than that of its bounds, or one where it has no two bounds."""
    lower, upper = claim.lower, claim.upper
    ratio = None
    if lower is not None and upper is not None:
        ratio = min(1.0, lower / upper) if lower > 0 and upper > 0 else 0.0
    if claim.ratio == ratio or (claim.ratio is not None and ratio is not None and abs(claim.ratio - ratio) <= CLOSE):
        return []
    return [Check("ratio", ok=False, text=f"model claims {shown(claim.ratio)}, its own bounds give {shown(ratio)}")]


def value_reached(claim: AnyClaim, value: float, rows: str) -> Check:
    """Whether the hypothesis of a soft margin is as good as claimed; value: as found, rows: over which, in words."""
    if claim.upper is None:
        return Check("value", ok=True, text="nothing is claimed")
    claimed, found = shown(claim.upper), shown(value)
    text = f"of the hypothesis over all {rows}: {found}"
    if value <= claim.upper:
        return Check("value", ok=True, text=f"{text} (claimed: at most {claimed})")
    return Check("value", ok=False, text=f"model claims at most {claimed}, {text}")


def value_bounded(claim: AnyClaim, dual: float) -> Check:
    """Whether nothing can be as good as the claimed bound says nothing is; dual: the bound as found."""
    if claim.lower is None:
        return Check("dual bound", ok=True, text="nothing is claimed")
    claimed, found = shown(claim.lower), shown(dual)
    if claim.lower <= dual:
        return Check("dual bound", ok=True, text=f"no hypothesis has a value below {found} (claimed: {claimed})")
    return Check("dual bound", ok=False, text=f"model claims {claimed}, the dual weights prove {found}")


def same_epsilon(claim: AnyClaim) -> list[Check]:
    """A failed check unless parameters and certificate name one epsilon."""
    if claim.epsilon == claim.proven_epsilon and 0 < claim.epsilon < 1:
        return []
    if claim.problem == "outliers" and claim.epsilon == 0 and claim.proven_epsilon == EXACT:
        return []
    text = f"expected one number in (0, 1), parameters say {claim.epsilon}, certificate says {claim.proven_epsilon}"
    return [Check("epsilon", ok=False, text=text)]


def status(claim: AnyClaim) -> Check:
    """Whether the status is what the bounds of a margin say; that they hold is for other checks to say."""
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
            text = f"model claims status {claim.status!r} of a {claim.kind!r}, which do not go together; {bounds}"
    return Check("status", ok, text)


def certified(lower: float | None, upper: float | None, epsilon: float) -> bool:
    """Whether two bounds, above 0, prove epsilon: of a margin and of a value alike."""
    if lower is None or upper is None or not (0 < lower < math.inf and 0 < upper < math.inf):
        return False
    return Fraction(lower) >= (1 - Fraction(epsilon)) * Fraction(upper)


def in_order(claim: AnyClaim) -> bool:
    """Whether the lower bound that is claimed is not above the upper one."""
    return claim.lower is None or claim.upper is None or claim.lower <= claim.upper


def zero(claim: AnyClaim, size: float) -> float:
    """What rounding may leave of a margin of zero, for rows of this size."""
    return min(_ZERO * (2 * claim.features + 18) * UNIT, _MOST) * size


def overlap(claim: AnyClaim, found: float | None, size: float) -> list[Check]:
    """Whether the bound that was found is zero, where it is claimed that nothing separates the rows.

    size: the sum of dual weights times lengths of their rows, which is all that rounding is a share of. Neither the
    claimed radius nor the number of coreset rows has a say: whoever forges them would set the limit.
    """
    if claim.status != "not_separable":
        return []
    limit = zero(claim, size)
    if found is not None and found <= limit:
        text = f"no margin above {found:.6g}, which is zero for rows as long as {size:.6g}"
        return [Check("overlap", ok=True, text=text)]
    text = f"model claims that nothing separates the rows; its proof leaves {shown(found)}, zero is at most {limit:.3g}"
    return [Check("overlap", ok=False, text=text)]


def dual(claim: Claim) -> tuple[float | None, list[Check]]:
    """The upper bound that the coreset proves, and whether the claimed one is at least that."""
    if claim.upper is None:
        return None, overlap(claim, None, 0.0)
    signs = (-1, 1) if claim.intercept else (0,)
    names = {-1: f"class {claim.negative!r}", 1: f"class {claim.positive!r}", 0: "the coreset"}
    groups = [claim.y == sign if sign else np.ones(len(claim.y), dtype=bool) for sign in signs]
    problems = []
    bad = np.flatnonzero(~(claim.alpha >= 0))
    if len(bad):
        row = int(claim.ids[bad[0]])
        problems.append(f"the weight of row {row} is {claim.alpha[bad[0]]:.6g}, expected a number >= 0")
    else:
        for sign, group in zip(signs, groups, strict=True):
            total = float(claim.alpha[group].sum())
            if not abs(total - 1) <= CLOSE:
                problems.append(f"the weights of {names[sign]} sum to {total:.12g}, expected 1")
    text = f"{len(claim.alpha):,} weights >= 0 that sum to 1"
    check = Check("dual weights", not problems, "; ".join(problems) or text)
    if problems:
        return None, [check, *overlap(claim, None, 0.0)]
    high, low = normalised_weights(claim.alpha, groups)
    share, lifted = 2 if claim.intercept else 1, lift(claim.x)
    found = length(combination(claim.x * lifted, high * claim.y, low * claim.y)) / lifted / share
    size = weighed_length(claim.x, high, centred=claim.intercept) / share
    text = f"{len(claim.alpha):,} coreset rows prove at most"
    return found, [check, bounded_above(claim.upper, found, text), *overlap(claim, found, size)]


def weighed_length(x: Any, weights: np.ndarray, *, centred: bool) -> float:
    """The sum of weights (m,) times lengths of rows (m, d), which is all that rounding of the weights is a share of.

    centred: the weights of both classes sum to 1, so that the rows' common offset takes no part in their combination:
    lengths are those about the rows' mean. Sparse rows are taken as they are.
    """
    if centred and not issparse(x):
        x = x - weights @ x / 2
    return rounded_sum((weights * true_lengths(x)).tolist())


def bounded_above(claimed: float, found: float, proof: str, name: str = "upper bound") -> Check:
    """Whether an upper bound of a margin is as high as what was found; proof: in words."""
    said, proven = shown(claimed), shown(found)
    ok = found <= claimed
    return Check(name, ok, f"{proof} {proven} (claimed: {said})" if ok else f"model claims {said}, {proof} {proven}")


def shown(value: float | None) -> str:
    """A number, exactly, that may not be there."""
    return "none" if value is None else repr(float(value)).removesuffix(".0")
