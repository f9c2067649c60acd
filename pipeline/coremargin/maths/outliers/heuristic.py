"""A good hyperplane with k outliers, found quickly: no proof, but the search needs one to start from.

Soft-margin directions for a grid of C; concentration steps (leave out the k lowest rows, refit, repeat) from the best
of them; then over-trimming: leave out one supporting row more, refit, concentrate back to k. A hard-margin hyperplane
is a fixed point of concentration steps whatever was left out, so that only soft starts and over-trimming move at all.
(Concentration: Rousseeuw, Van Driessen 1999 for trimmed squares; the rest is ours.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.newton import Quadratic, Rows, minimise_squared_hinge
from coremargin.maths.outliers.trimmed import best_removal, fewest_wrong, outliers_of

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import SearchRows, Verdict

#: Grid of C for the soft starts, times 1 / radius^2.
GRID = tuple(10.0**e for e in range(-3, 5))
#: So many soft starts are concentrated.
STARTS = 4
#: Gains smaller than this share are no gains.
GAIN = 1e-9
#: A soft start is a direction, not an answer: it needs few digits.
CONCENTRATIONS = 50
#: Up to so many outliers, each start is over-trimmed.
FEW = 100
#: So many supporting rows, the heaviest, are left out in turn by over-trimming.
OVER = 24


@dataclass(frozen=True)
class Found:
    """A hyperplane: w (d,) of length 1, b, and its margin over the arena's rows with k outliers; -inf: none."""

    w: Array
    b: float
    margin: float

    @classmethod
    def nothing(cls, features: int) -> Found:
        """No hyperplane at all."""
        return cls(np.zeros(features), 0.0, -np.inf)


def measure(search_rows: SearchRows, w: Array, k: int) -> Found:
    """The direction w (d,) of any length with its best offset for k outliers."""
    length = float(np.linalg.norm(w))
    if not length > 0:
        return Found.nothing(len(w))
    w = w / length
    margin, b = best_removal(search_rows.lowest(search_rows.signs * (search_rows.x @ w), k), k, search_rows.intercept)
    return Found(w, b, margin)


def fewest_of(directions: list[Array], search_rows: SearchRows) -> int:
    """The least number of rows on the wrong side of one of these directions: wrong labels, most likely."""
    signs = search_rows.signs
    values = [signs * (search_rows.x @ w) for w in directions if np.any(w)]
    return min(
        (fewest_wrong(v[signs > 0], v[signs < 0], search_rows.intercept) for v in values), default=len(search_rows)
    )


def soft_directions(search_rows: SearchRows) -> list[Array]:
    """Directions (d,) of squared-hinge soft margins over the grid of C, each started from the one before."""
    d = search_rows.x.shape[1]
    signed = np.column_stack([search_rows.z, search_rows.signs]) if search_rows.intercept else search_rows.z
    metric = np.ones(signed.shape[1])
    metric[d:] = 0.0
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    if radius == 0.0:  # all rows are one point
        return [np.eye(1, d)[0]]
    point, directions = np.zeros(signed.shape[1]), []
    for c in GRID:
        row_c = np.full(len(search_rows), c / radius**2)
        rows = Rows(signed, row_c, signed @ point)
        point, _ = minimise_squared_hinge(point, metric, Quadratic.zero(len(point)), rows, 30)
        directions.append(point[:d])
    return directions


def concentrate(search_rows: SearchRows, found: Found, k: int) -> tuple[Found, Verdict | None]:
    """Leave out the k lowest rows, refit, until that gains nothing; and the last refit."""
    last: Verdict | None = None
    for _ in range(CONCENTRATIONS):
        verdict = search_rows.best(_without(search_rows, found, k), last)
        again = measure(search_rows, verdict.point, k)
        last = verdict
        if not again.margin > found.margin + GAIN * abs(found.margin):
            break
        found = again
    return found, last


def over_trimmed(search_rows: SearchRows, found: Found, k: int) -> Found:
    """Leave out one supporting row more, refit, concentrate back to k; repeat from the best while that gains."""
    while True:
        free = _without(search_rows, found, k)
        base = search_rows.best(free)
        best = found
        for row in base.rows[np.argsort(-base.weights, kind="stable")[:OVER]]:
            free[row] = False
            if search_rows.bounded(free):
                again, _ = concentrate(search_rows, measure(search_rows, search_rows.best(free, base).point, k), k)
                best = again if again.margin > best.margin * (1 + GAIN) else best
            free[row] = True
        if best is found:
            return found
        found = best


def good_hyperplane(search_rows: SearchRows, k: int, directions: list[Array], *, thorough: bool = True) -> Found:
    """The best that the heuristic finds, starting from the most promising of the directions.

    thorough: with over-trimming, which takes several times as long as all the rest.
    """
    starts = sorted((measure(search_rows, w, k) for w in directions), key=lambda found: -found.margin)
    best = Found.nothing(search_rows.x.shape[1])
    for start in starts[:STARTS]:
        if start.margin > -np.inf:
            again, _ = concentrate(search_rows, start, k)
            best = again if again.margin > best.margin else best
    return over_trimmed(search_rows, best, k) if thorough and best.margin > 0 else best


def climb(search_rows: SearchRows, k: int, start: Array) -> Found:
    """The best hyperplane from one start (d,), with over-trimming where k is small: one task."""
    return good_hyperplane(search_rows, k, [start], thorough=k <= FEW)


def _without(search_rows: SearchRows, found: Found, k: int) -> NDArray[np.bool_]:
    """The rows but for the k lowest under a hyperplane."""
    free = np.ones(len(search_rows), bool)
    free[outliers_of(search_rows.signs * (search_rows.x @ found.w + found.b), k)] = False
    return free
