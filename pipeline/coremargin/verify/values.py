"""Claims about the value of a hypothesis with a loss; the lower bound is the value of a dual point."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from coremargin.verify.checks import Check, certified, in_order, shown

if TYPE_CHECKING:
    from coremargin.verify.claim import AnyClaim


def proven(epsilon: float) -> str:
    """The statement that is true of a certified value."""
    return f"no hypothesis has a value below (1 - {epsilon}) of this one's"


def value_reached(claim: AnyClaim, value: float, rows: str, thing: str = "hypothesis") -> Check:
    """Whether the hypothesis has at most the claimed value; value: as found, rounded up; rows: a text about them."""
    if claim.upper is None:
        return Check("value", ok=True, text="nothing is claimed")
    claimed, found = shown(claim.upper), shown(value)
    text = f"of the {thing} over all {rows}: {found}"
    if value <= claim.upper:
        return Check("value", ok=True, text=f"{text} (claimed: at most {claimed})")
    return Check("value", ok=False, text=f"model claims at most {claimed}, {text}")


def value_bounded(claim: AnyClaim, dual: float, thing: str = "hypothesis") -> Check:
    """Whether no hypothesis has a value below the claimed bound; dual: the bound found, rounded down."""
    if claim.lower is None:
        return Check("dual bound", ok=True, text="nothing is claimed")
    claimed, found = shown(claim.lower), shown(dual)
    if claim.lower <= dual:
        return Check("dual bound", ok=True, text=f"no {thing} has a value below {found} (claimed: {claimed})")
    return Check("dual bound", ok=False, text=f"model claims {claimed}, the dual weights prove {found}")


def status(claim: AnyClaim) -> Check:
    """Whether the status follows from the bounds of a value."""
    lower, upper, epsilon = claim.lower, claim.upper, claim.proven_epsilon
    bounds = f"value {shown(upper)}, dual bound {shown(lower)}, epsilon {epsilon}"
    if claim.status == "not_separable":
        return Check("status", ok=False, text=f"model claims status 'not_separable' of a soft margin; {bounds}")
    if claim.status == "stopped":
        return Check("status", ok=True, text=f"stopped before epsilon was proven: {bounds}")
    if not in_order(claim):
        return Check("status", ok=False, text=f"model claims a dual bound above its value: {bounds}")
    if certified(lower, upper, epsilon):
        gap = (Fraction(upper) - Fraction(lower)) / Fraction(upper)  # type: ignore[arg-type]
        text = f"certified: the gap is {float(gap):.6g} of the value, at most {epsilon}"
        return Check("status", ok=True, text=text)
    text = f"model claims to be certified, its own numbers do not say so: {bounds}"
    return Check("status", ok=False, text=text)
