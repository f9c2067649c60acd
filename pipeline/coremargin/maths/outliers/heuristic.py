"""A good hyperplane with k outliers, quickly and without proof: the search needs one to start from.

Soft-margin directions for a grid of C; concentration steps (exclude the k lowest rows, refit, repeat) from the best of
them; then over-trimming: exclude one more supporting row, refit, concentrate back to k. A hard-margin hyperplane is a
fixed point of concentration steps whatever was excluded, so that only soft starts and over-trimming move at all.
(Concentration: Rousseeuw, Van Driessen 1999 for least trimmed squares; the rest is new here.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.newton import Quadratic, Rows, minimise_squared_hinge
from coremargin.maths.outliers.tasks import TaskRunner, run_serially
from coremargin.maths.outliers.trimmed import best_removal, count_misclassified, lowest_rows
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import SearchRows, Solution

#: Grid of C for the soft starts, times 1 / radius^2.
GRID = tuple(10.0**e for e in range(-3, 5))
#: Multiplications of a Newton step up to which all of the grid is tried.
SOFT_EFFORT = 1_500_000_000
#: Soft starts that are concentrated.
STARTS = 4
#: Gains smaller than this share do not count.
GAIN = 1e-9
#: Concentration steps: a soft start is a direction, not an answer, and needs few digits.
CONCENTRATIONS = 50
#: With at most this many outliers, each start is over-trimmed.
FEW = 100
#: Supporting rows, the heaviest, that over-trimming excludes in turn.
OVER = 24
#: Hyperplanes from many starts, the best, that are over-trimmed.
CLIMBED = 8
#: Multiplications of a refit, and about those of a whole task: a few tenths of a second. A refit that stops early still
#: gives a direction, and directions are measured wherever they come from.
EFFORT, LEAST_STEPS = 300_000_000, 20
#: Over-trimming may take this multiple of it; the number of its first tries, at least.
OVER_EFFORT, FEW_TRIES = 3, 4


@dataclass(frozen=True)
class Hyperplane:
    """w (d,) of length 1, b, and its margin with k outliers; margin -inf: no hyperplane."""

    w: Array
    b: float
    margin: float

    @classmethod
    def none(cls, features: int) -> Hyperplane:
        """No hyperplane."""
        return cls(np.zeros(features), 0.0, -np.inf)


def measure(search_rows: SearchRows, w: Array, k: int) -> Hyperplane:
    """The direction w (d,) of any length with its best offset for k outliers."""
    length = float(np.linalg.norm(w))
    if not length > 0:
        return Hyperplane.none(len(w))
    w = w / length
    margin, b = best_removal(search_rows.lowest(search_rows.signs * (search_rows.x @ w), k), k, search_rows.intercept)
    return Hyperplane(w, b, margin)


def fewest_misclassified(directions: list[Array], search_rows: SearchRows) -> int:
    """The smallest number of rows that one of these directions misclassifies: most likely wrong labels."""
    signs = search_rows.signs
    values = [signs * (search_rows.x @ w) for w in directions if np.any(w)]
    return min(
        (count_misclassified(v[signs > 0], v[signs < 0], search_rows.intercept) for v in values),
        default=len(search_rows),
    )


def soft_directions(search_rows: SearchRows) -> list[Array]:
    """Directions (d,) of squared-hinge soft margins over the grid of C, each warm-started from the one before."""
    z, basis = search_rows.z, None
    if z.shape[1] > len(z):  # directions lie in the span of the rows
        basis, coordinates = np.linalg.qr(z.T)
        z = np.ascontiguousarray(coordinates.T)
    n, d = z.shape
    signed = np.column_stack([z, search_rows.signs]) if search_rows.intercept else z
    metric = np.ones(signed.shape[1])
    metric[d:] = 0.0
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    if radius == 0.0:  # all rows are one point
        return [np.eye(1, search_rows.x.shape[1])[0]]
    point, directions = np.zeros(signed.shape[1]), []
    for c in GRID[:: 1 + n * d * d // SOFT_EFFORT]:
        row_c = np.full(len(search_rows), c / radius**2)
        rows = Rows(signed, row_c, signed @ point)
        point, _ = minimise_squared_hinge(point, metric, Quadratic.zero(len(point)), rows, 30)
        directions.append(point[:d] if basis is None else basis @ point[:d])
    return directions


def concentrate(search_rows: SearchRows, found: Hyperplane, k: int) -> tuple[Hyperplane, int]:
    """Exclude the k lowest rows and refit until that gains nothing; also return the steps of all refits. One task."""
    last: Solution | None = None
    steps = 0
    for _ in range(CONCENTRATIONS):
        may_stop()
        last = _refit(search_rows, _without_lowest(search_rows, found, k), last)
        again, steps = measure(search_rows, last.point, k), steps + last.steps
        gains = again.margin > found.margin + GAIN * abs(found.margin)
        found = again if gains else found
        if not gains or steps >= _most_steps(search_rows):
            break
    return found, steps


def over_trim(search_rows: SearchRows, found: Hyperplane, k: int, run: TaskRunner = run_serially) -> Hyperplane:
    """Exclude one more supporting row, refit, concentrate back to k; repeat from the best while that gains."""
    spent = 0
    while spent < OVER_EFFORT * _most_steps(search_rows):
        base = _refit(search_rows, _without_lowest(search_rows, found, k), None)
        rows = base.rows[np.argsort(-base.weights, kind="stable")]
        tries = rows[: min(OVER, max(FEW_TRIES, OVER_EFFORT * _most_steps(search_rows) // base.steps))]
        answers = run(_exclude_one_more, [(search_rows, found, k, int(row), base) for row in tries])
        spent += base.steps + sum(steps for _, steps in answers)
        best = _best_of([found, *(again for again, _ in answers)])
        if not best.margin > found.margin * (1 + GAIN):
            break
        found = best
    return found


def find_hyperplane(
    search_rows: SearchRows, k: int, directions: list[Array], run: TaskRunner = run_serially, *, thorough: bool = True
) -> Hyperplane:
    """The best that the heuristic finds from the most promising directions.

    thorough: with over-trimming, which takes several times as long as everything else.
    """
    starts = sorted((measure(search_rows, w, k) for w in directions), key=lambda found: -found.margin)
    tasks = [(search_rows, start, k) for start in starts[:STARTS] if start.margin > -np.inf]
    answers = run(concentrate, tasks)
    best = _best_of([Hyperplane.none(search_rows.x.shape[1]), *(found for found, _ in answers)])
    return over_trim(search_rows, best, k, run) if thorough and best.margin > 0 else best


def climb(search_rows: SearchRows, k: int, starts: list[Array], run: TaskRunner = run_serially) -> Hyperplane:
    """The best hyperplane from many starts (d,); when k is small, the best distinct ones are over-trimmed."""
    answers = run(concentrate, [(search_rows, measure(search_rows, start, k), k) for start in starts])
    each = {found.margin: found for found, _ in reversed(answers)}
    best = [each[margin] for margin in sorted(each, reverse=True)]
    if k <= FEW:
        best = [over_trim(search_rows, found, k, run) for found in best[:CLIMBED] if found.margin > 0] or best
    return _best_of(best)


def _exclude_one_more(
    search_rows: SearchRows, found: Hyperplane, k: int, row: int, base: Solution
) -> tuple[Hyperplane, int]:
    """Concentrate after excluding a row besides the k lowest. One task. base: the refit with the row."""
    free = _without_lowest(search_rows, found, k)
    free[row] = False
    if not search_rows.has_bound(free):
        return found, 0
    start = _refit(search_rows, free, base)
    again, steps = concentrate(search_rows, measure(search_rows, start.point, k), k)
    return again, start.steps + steps


def _best_of(each: Iterable[Hyperplane]) -> Hyperplane:
    """The first of those with the largest margin."""
    return max(each, key=lambda found: found.margin)


def _refit(search_rows: SearchRows, free: NDArray[np.bool_], start: Solution | None) -> Solution:
    return search_rows.best(free, start, _most_steps(search_rows))


def _most_steps(search_rows: SearchRows) -> int:
    return max(LEAST_STEPS, EFFORT // search_rows.x.size)


def _without_lowest(search_rows: SearchRows, found: Hyperplane, k: int) -> NDArray[np.bool_]:
    """A mask (n,) of all rows but the k lowest under a hyperplane."""
    free = np.ones(len(search_rows), bool)
    free[lowest_rows(search_rows.signs * (search_rows.x @ found.w + found.b), k)] = False
    return free
