"""The claim that a few rows are a compression scheme: they alone give the hyperplane, which bounds its error.

Of k rows with dual weights above 0 the hyperplane of the largest margin is the shortest w with y (w.x + b) = 1 on all
of them (the conditions of Karush, Kuhn and Tucker: it is also the sum of y x by these weights). It is solved here from
these rows, without the claimed w, and compared with it. If the claimed hyperplane has no row of all N on the wrong
side, which the lower bound proves, new rows are misclassified with at most the probability p for which

    (1 - p)^(N - k) (N over k) N = 1 - confidence

(Floyd and Warmuth 1995, as Louche and Ralaivola 2015 use it in (8)), if all rows are drawn independently.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as sla
from scipy.sparse import issparse

from coremargin.verify.checks import CLOSE, Check
from coremargin.verify.sums import length
from coremargin.verify.values import percent_up

if TYPE_CHECKING:
    from coremargin.formats.hard_margin import Compression
    from coremargin.verify.claim import Claim

MOST = 1 << 22  #: numbers of the kept rows, which are solved in memory
SAME = 1e-6  #: what the hyperplane may be off, as a share: other rows than those as near to it are classified alike


def compression_check(claim: Claim, stated: Compression, counted: int) -> Check:
    """Whether the claim holds; counted: rows that count in the store."""
    problems = _problems(claim, stated, counted)
    kept = f"{stated.kept:,} of {stated.rows:,} rows alone have this hyperplane"
    share = f"at most {percent_up(stated.error)} of new rows are misclassified, with confidence {stated.confidence:.4g}"
    text = f"{kept}: {share}, if all are drawn independently"
    return Check("compression", not problems, "; ".join(problems) or text)


def _problems(claim: Claim, stated: Compression, counted: int) -> list[str]:
    kept = np.flatnonzero(claim.alpha > 0)
    if claim.lower is None or not claim.lower > 0:
        return ["nothing is claimed to separate the rows"]
    if claim.scaling not in ("", "rownorm") or claim.map is not None:
        return ["scaling or map depend on rows that are not kept"]
    if (stated.kept, stated.rows) != (len(kept), counted):
        return [f"model claims {stated.kept:,} of {stated.rows:,} rows, found {len(kept):,} of {counted:,}"]
    if len(kept) * claim.features > MOST:
        return [f"expected at most {MOST:,} numbers in the rows that are kept"]
    p, apart = error_bound(counted, len(kept), 1 - stated.confidence), distance_from_own(claim, kept)
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


def distance_from_own(claim: Claim, kept: np.ndarray) -> float:
    """How far the claimed hyperplane, and that of the dual weights, are from the one of the kept rows; a share."""
    x = claim.x[kept]
    x = x.toarray() if issparse(x) else x
    y, weights = claim.y[kept].astype(np.float64), claim.alpha[kept]
    a = np.hstack([x, np.ones((len(x), 1))]) if claim.intercept else x
    if claim.intercept:  # b takes no part in the length: the rows' mean and that of y are split off
        a, y_mean, x_mean = x - x.mean(axis=0), float(y.mean()), x.mean(axis=0)
        w = sla.lstsq(a, y - y_mean, lapack_driver="gelsd")[0]
        b = y_mean - float(x_mean @ w)
    else:
        w, b = sla.lstsq(a, y, lapack_driver="gelsd")[0], 0.0
    size, normal = length(w), (weights * y) @ x
    by_weights = length(normal)
    if not (0 < size < math.inf and 0 < by_weights < math.inf):
        return math.inf
    residual = float(np.abs(y * (x @ w + b) - 1).max())
    offset = abs(b / size - claim.b) / max(claim.radius, abs(claim.b))
    return max(residual, length(w / size - claim.w), length(w / size - normal / by_weights), offset)
