"""The claim that a few rows are a compression scheme: they alone give the hyperplane, which bounds its error.

Of the k rows with dual weights above 0, taken alone, one hyperplane has the largest margin. If (w, b) has the margin r
on them, and by their weights none has more than u, it is near that one: v = w / r is in the convex set of all v that
have margins of at least 1 with some b, whose shortest element v* is at least 1 / u long, so that

    ||v - v*||^2 <= ||v||^2 - ||v*||^2 <= 1 / r^2 - 1 / u^2.

If the hyperplane has no row of all N on the wrong side, which the lower bound proves, new rows are misclassified with
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


def compression_check(claim: Claim, stated: Compression, counted: int, upper: float | None) -> Check:
    """Whether the claim holds; counted: rows that count in the store; upper: of the margin, by the dual weights."""
    problems = _problems(claim, stated, counted, upper)
    kept = f"{stated.kept:,} of {stated.rows:,} rows alone have this hyperplane"
    share = f"at most {percent_up(stated.error)} of new rows are misclassified, with confidence {stated.confidence:.4g}"
    text = f"{kept}: {share}, if all are drawn independently"
    return Check("compression", not problems, "; ".join(problems) or text)


def _problems(claim: Claim, stated: Compression, counted: int, upper: float | None) -> list[str]:
    kept = np.flatnonzero(claim.alpha > 0)
    if claim.lower is None or not claim.lower > 0 or upper is None:
        return ["nothing is claimed to separate the rows"]
    if claim.scaling not in ("", "rownorm") or claim.map is not None:
        return ["scaling or map depend on rows that are not kept"]
    if (stated.kept, stated.rows) != (len(kept), counted):
        return [f"model claims {stated.kept:,} of {stated.rows:,} rows, found {len(kept):,} of {counted:,}"]
    p, apart = error_bound(counted, len(kept), 1 - stated.confidence), distance_from_own(claim, kept, upper)
    problems = [] if abs(p - stated.error) <= CLOSE else [f"model claims {stated.error:.9g}, found {p:.9g}"]
    if not apart <= SAME:
        problems.append(f"the rows that are kept have another hyperplane of the largest margin ({apart:.3g} away)")
    return problems


def error_bound(rows: int, kept: int, delta: float) -> float:
    """p of the formula above; 1 if no row is left."""
    if rows <= kept:
        return 1.0
    ways = sum(math.log(rows - k) - math.log(k + 1) for k in range(kept))
    return -math.expm1(-(ways + math.log(rows / delta)) / (rows - kept))


def distance_from_own(claim: Claim, kept: np.ndarray, upper: float) -> float:
    """A bound on how far the claimed hyperplane is from that of the kept rows, as a share of its length.

    upper: u, which the weights prove.
    """
    margins = claim.y[kept] * dot_products(claim.x[kept], claim.w, claim.b)
    least = float(margins.min(initial=np.inf)) / (length(claim.w) or 1.0)
    if not 0 < least < math.inf:
        return math.inf
    share = upper / least
    return math.sqrt(max(0.0, (share - 1.0) * (share + 1.0)))
