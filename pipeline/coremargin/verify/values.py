"""Claims about the value of a hypothesis with a loss; the lower bound is the value of a dual point."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from coremargin.verify.checks import Check, certified, in_order, shown

if TYPE_CHECKING:
    from coremargin.verify.claim import AnyClaim


def proven(epsilon: float) -> str:
    """The statement that is true of a certified value."""
    return f"no hypothesis has a value below (1 - {epsilon}) of this one's"


def guaranteed_risk(rows: int, dimension: int, share: float, delta: float = 0.05) -> float:
    """The error on new rows, with confidence 1 - delta, at most 1: Vapnik 1995, as Jebara's lecture prints it.

    share: of the rows that are misclassified; dimension: the VC dimension of all hyperplanes.
    """
    if rows < dimension:
        return 1.0
    a = dimension * math.log(2.0 * math.e * rows / dimension) + math.log(4.0 / delta)
    return min(1.0, share + 2.0 * a / rows * (1.0 + math.sqrt(1.0 + rows * share / a)))


def percent_up(share: float) -> str:
    """A share in percent, rounded up to three digits."""
    if share <= 0:
        return "0 %"
    digits = 2 - math.floor(math.log10(100 * share))
    return f"{math.ceil(100 * share * 10**digits) / 10**digits:.12g} %"


def errors_check(wrong: int, rows: int) -> Check:
    """The training error, which no model claims; wrong: rows that may be misclassified, of so many."""
    text = f"none of {rows:,} rows is on the wrong side"
    if wrong:
        text = f"at most {wrong:,} of {rows:,} rows ({percent_up(wrong / rows)}) are on the wrong side"
    return Check("errors", ok=True, text=text)


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
