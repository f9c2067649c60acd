"""The claim that a few rows are a compression scheme: they alone give the hyperplane, which bounds its error.

Of the k rows with dual weights above 0, taken alone, one hyperplane has the largest margin. If (w, b) has the margin r
on them, and by their weights none has more than u, it is near that one: v = w / r is in the convex set of all v that
have margins of at least 1 with some b, whose shortest element v* is at least 1 / u long, so that

    ||v - v*||^2 <= ||v||^2 - ||v*||^2 <= 1 / r^2 - 1 / u^2.

No row is longer than R, and the offset of v* is such that a kept row has the margin 1 exactly. If M is the largest
margin of the kept rows from (w, b), the margin of a row from their own hyperplane hence differs from that of (w, b) by
less than 2 R u ||v - v*|| + M - r, as all of these are shares of 1 / r. Where this is less than the lower bound on
the margin of all N rows, their own hyperplane has none of these on the wrong side, and it misclassifies new rows with
at most the probability p for which

    (1 - p)^(N - k) (N over k) N = 1 - confidence

(Floyd and Warmuth 1995, as Louche and Ralaivola 2015 use it in (8)), if all rows are drawn independently.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.checks import CLOSE, Check
from coremargin.verify.sums import dot_products, length
from coremargin.verify.values import percent_up

if TYPE_CHECKING:
    from coremargin.formats.hard_margin import Compression
    from coremargin.verify.claim import Claim

#: What the hyperplane may be off, as a share: other rows than those as near to it are classified alike.
SAME = 1e-4
#: What is not checked of rows of a table: texts are weighed and gaps filled by all rows that were there at first.
ENCODED = " and columns are encoded without them"


def compression_check(claim: Claim, stated: Compression, counted: int, upper: float | None) -> Check:
    """Whether the claim holds; counted: rows that count in the store; upper: of the margin, by the dual weights."""
    problems = _problems(claim, stated, counted, upper)
    kept = f"{stated.kept:,} of {stated.rows:,} rows alone have this hyperplane but for {SAME:g} of its length"
    share = (
        f"theirs misclassifies at most {percent_up(stated.error)} of new rows, with confidence {stated.confidence!r}"
    )
    text = f"{kept}: {share}, if all are drawn independently{ENCODED if claim.columns else ''}"
    return Check("compression", not problems, "; ".join(problems) or text)


def _problems(claim: Claim, stated: Compression, counted: int, upper: float | None) -> list[str]:
    kept = np.flatnonzero(claim.alpha > 0)
    if claim.lower is None or not claim.lower > 0 or upper is None:
        return ["nothing is claimed to separate the rows"]
    if claim.scaling not in ("", "rownorm") or claim.map is not None:
        return ["scaling or map depend on rows that are not kept"]
    if (stated.kept, stated.rows) != (len(kept), counted):
        return [f"model claims {stated.kept:,} of {stated.rows:,} rows, found {len(kept):,} of {counted:,}"]
    margins = claim.y[kept] * dot_products(claim.x[kept], claim.w, claim.b) / (length(claim.w) or 1.0)
    p, apart = error_bound(counted, len(kept), 1 - stated.confidence), distance_from_own(margins, upper)
    problems = [] if abs(p - stated.error) <= CLOSE else [f"model claims {stated.error:.9g}, found {p:.9g}"]
    if not apart <= SAME:
        problems.append(f"the rows that are kept have another hyperplane of the largest margin ({apart:.3g} away)")
        return problems
    moved = 2.0 * apart * claim.radius + float(margins.max() - margins.min())
    if not moved < claim.lower:
        problems.append(
            f"the margins of rows from their own hyperplane may be smaller by {moved:.3g}: more than all have"
        )
    return problems


def error_bound(rows: int, kept: int, delta: float) -> float:
    """p of the formula above; 1 if no row is left."""
    if rows <= kept:
        return 1.0
    ways = sum(math.log(rows - k) - math.log(k + 1) for k in range(kept))
    return -math.expm1(-(ways + math.log(rows / delta)) / (rows - kept))


def distance_from_own(margins: np.ndarray, upper: float) -> float:
    """A bound on how far the claimed hyperplane is from that of the kept rows, as a share of its length.

    margins: of the kept rows. upper: u, which the weights prove.
    """
    least = float(margins.min(initial=np.inf))
    if not 0 < least < math.inf:
        return math.inf
    share = upper / least
    return math.sqrt(max(0.0, (share - 1.0) * (share + 1.0)))
