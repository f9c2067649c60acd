"""What ``verify`` checks without the store's rows: what the claims say about each other, and the upper bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.sums import UNIT, combination, length, normalised_weights

if TYPE_CHECKING:
    from coremargin.verify.claim import AnyClaim, Claim
    from coremargin.verify.rows import Rows

_EXACT = 1e-8  # what a certificate with outliers says where epsilon 0 was asked for
_CLOSE = 1e-9  # for numbers that are said to be 1, or a ratio of others: not for bounds


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
        if any(commit.get("digest") == claim.store_digest for commit in rows.commits[:-1]):
            text += "; rows were appended after training: train again on all of them"
    return Check("rows", claimed == found, text)


def same_classes(claim: Claim, rows: Rows) -> Check:
    """Whether the store's labels are the model's two or, of one class against the rest, that class is among them."""
    labels, known = (claim.negative, claim.positive), {typed(label) for label in rows.classes}
    view = claim.view
    if view.label is None:
        ok = {typed(label) for label in labels} == known
    else:
        ok = labels == (False, True) and all(map(_is_bool, labels)) and typed(view.label) in known and len(known) > 1
    text = f"{claim.negative!r} (negative) and {claim.positive!r} (positive)"
    if view.label is not None or view.fold is not None:
        text += f": {view.text}"
    if not ok:
        text = f"model claims {text}, the store has {', '.join(map(repr, rows.classes)) or 'none'}"
    return Check("classes", ok, text)


def _is_bool(label: Any) -> bool:
    return isinstance(label, bool)


def typed(label: Any) -> tuple[str, Any]:
    """A label with its kind: 1, 1.0 and True are different labels."""
    return type(label).__name__, label


def consistency(claim: Claim) -> list[Check]:
    """What the claims say about each other."""
    size = length(claim.w)
    unit = abs(size - 1) <= _CLOSE and (claim.intercept or claim.b == 0)
    text = f"||w|| = {size:.12g}, b = {claim.b:.6g}"
    if not unit:
        text += ": expected ||w|| = 1" + ("" if claim.intercept else " and b = 0 (no intercept)")
    checks = [Check("hypothesis", unit, text)] if claim.lower is not None else []
    checks += same_epsilon(claim)
    ratio, wrong = same_ratio(claim)
    return [*checks, *wrong, status(claim, ratio)]


def same_ratio(claim: AnyClaim) -> tuple[float, list[Check]]:
    """The ratio of the bounds that the model claims, 0 without; and a failed check if the model claims another."""
    lower, upper = claim.lower, claim.upper
    ratio = min(1.0, lower / upper) if lower is not None and upper is not None and lower > 0 and upper > 0 else 0.0
    if claim.ratio is None or close(claim.ratio, ratio):
        return ratio, []
    text = f"model claims {claim.ratio:.9g}, its own bounds give {ratio:.9g}"
    return ratio, [Check("ratio", ok=False, text=text)]


def value_reached(claim: AnyClaim, value: float, rows: str) -> Check:
    """Whether the hypothesis of a soft margin is as good as claimed; value: as found, rows: over which, in words."""
    if claim.upper is None:
        return Check("value", ok=True, text="nothing is claimed")
    claimed, found = apart(claim.upper, value)
    text = f"of the hypothesis over all {rows}: {found}"
    if value <= claim.upper:
        return Check("value", ok=True, text=f"{text} (claimed: at most {claimed})")
    return Check("value", ok=False, text=f"model claims at most {claimed}, {text}")


def value_bounded(claim: AnyClaim, dual: float) -> Check:
    """Whether nothing can be as good as the claimed bound says nothing is; dual: the bound as found."""
    if claim.lower is None:
        return Check("dual bound", ok=True, text="nothing is claimed")
    claimed, found = apart(claim.lower, dual)
    if claim.lower <= dual:
        return Check("dual bound", ok=True, text=f"no hypothesis has a value below {found} (claimed: {claimed})")
    return Check("dual bound", ok=False, text=f"model claims {claimed}, the dual weights prove {found}")


def same_epsilon(claim: AnyClaim) -> list[Check]:
    """A failed check unless parameters and certificate name one epsilon."""
    if claim.epsilon == claim.proven_epsilon and 0 < claim.epsilon < 1:
        return []
    if claim.problem == "outliers" and claim.epsilon == 0 and claim.proven_epsilon == _EXACT:
        return []
    text = f"expected one number in (0, 1), parameters say {claim.epsilon}, certificate says {claim.proven_epsilon}"
    return [Check("epsilon", ok=False, text=text)]


def close(claimed: float, found: float) -> bool:
    """Whether a ratio is what it is said to be."""
    return abs(claimed - found) <= _CLOSE


def status(claim: AnyClaim, ratio: float) -> Check:
    """Whether the status is what the bounds of a margin say."""
    lower, upper, epsilon = claim.lower, claim.upper, claim.proven_epsilon
    bounds = f"lower {shown(lower)}, upper {shown(upper)}, epsilon {epsilon:g}"
    if claim.status == "certified":
        both = lower is not None and upper is not None
        ok = claim.kind == "margin" and both and lower > 0 and lower >= (1 - epsilon) * upper  # type: ignore[operator]
        text = f"certified: lower / upper = {ratio!r}, at least 1 - {epsilon:g}"
        if not ok:
            text = f"model claims to be certified, its own numbers do not say so: {claim.kind}, {bounds}"
    elif claim.status == "not_separable":
        limit = 64 * (claim.features + len(claim.ids) + 16) * UNIT * claim.radius
        ok = claim.kind == "not_separable" and upper is not None and upper <= limit
        text = f"not separable: no margin above {shown(upper)}, which is zero for rows as long as {claim.radius:.6g}"
        if not ok:
            text = f"model claims overlapping classes, but its upper bound is not zero (limit {limit:.3g}): {bounds}"
    else:
        ok = claim.status == "stopped" and claim.kind == "margin"
        text = f"stopped before epsilon was proven: {bounds}"
        if not ok:
            text = f"model claims status {claim.status!r} of a {claim.kind!r}, which do not go together; {bounds}"
    return Check("status", ok, text)


def dual(claim: Claim) -> tuple[float | None, list[Check]]:
    """The upper bound that the coreset proves, and whether the claimed one is at least that."""
    if claim.upper is None:
        return None, []
    signs = (-1, 1) if claim.intercept else (0,)
    names = {-1: f"class {claim.negative!r}", 1: f"class {claim.positive!r}", 0: "the coreset"}
    groups = [claim.y == sign if sign else np.ones(len(claim.y), dtype=bool) for sign in signs]
    problems = []
    bad = np.flatnonzero(~(np.isfinite(claim.alpha) & (claim.alpha >= 0)))
    if len(bad):
        row = int(claim.ids[bad[0]])
        problems.append(f"the weight of row {row} is {claim.alpha[bad[0]]:.6g}, expected a number >= 0")
    else:
        for sign, group in zip(signs, groups, strict=True):
            total = float(claim.alpha[group].sum())
            if abs(total - 1) > _CLOSE:
                problems.append(f"the weights of {names[sign]} sum to {total:.12g}, expected 1")
    check = Check(
        "dual weights", not problems, "; ".join(problems) or f"{len(claim.alpha):,} weights >= 0 that sum to 1"
    )
    if len(bad) or not all(claim.alpha[group].sum() > 0 for group in groups):
        return None, [check]
    high, low = normalised_weights(claim.alpha, groups)
    found = length(combination(claim.x, high * claim.y, low * claim.y)) / (2 if claim.intercept else 1)
    ok = found <= claim.upper
    claimed, proven = apart(claim.upper, found)
    text = f"{len(claim.alpha):,} coreset rows prove at most {proven}"
    text = f"{text} (claimed: {claimed})" if ok else f"model claims {claimed}, {text}"
    return found, [check, Check("upper bound", ok, text)]


def apart(claimed: float, found: float) -> tuple[str, str]:
    """Two numbers as text, with as many digits as it takes to tell them apart."""
    short = (f"{claimed:.12g}", f"{found:.12g}")
    return short if short[0] != short[1] or claimed == found else (repr(claimed), repr(found))


def shown(value: float | None) -> str:
    """A number that may not be there."""
    return "none" if value is None else f"{value:.12g}"
