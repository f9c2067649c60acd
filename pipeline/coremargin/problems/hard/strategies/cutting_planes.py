"""Cutting planes (Louche, Ralaivola 2015, Algorithms 2 and 3): the version space is cut by a misclassified row a scan.

A scan of the store is the paper's PICK: of the rows that the query point misclassifies, y w.x <= 0, it finds that of
the largest or the smallest error, or a random one, which becomes a plane. QUERY is the next point: in Algorithm 3 a
perceptron on the planes, started at the last query point; in Algorithm 2 a centre of the version space of the planes.
It ends when no row is misclassified. Rows have the length 1; with an intercept they are (x, r) divided by their length,
r being the length of the longest row. Proposition 2: the perceptron makes at most 1 / g^2 updates in all, g being the
margin of these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import dense, is_sparse, lengths, signed_points
from coremargin.problems.hard.strategies.iterative import RowSearch
from coremargin.problems.hard.strategies.perceptron import hyperplane, novikoff, sizes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.formats.choices import Centre, ErrorPick
    from coremargin.maths.margin import Array
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.state import Carried, Hypothesis
    from coremargin.problems.hard.strategies.iterative import Proven, RowBlock, Task

#: Most updates of the perceptron for one query point.
MOST_UPDATES = 1_000_000


@dataclass(frozen=True)
class CuttingPlanes(RowSearch):
    """One plane a scan."""

    centre: Centre = "perceptron"
    pick: ErrorPick = "largest"

    reading = "a scan for each plane: a handful for centres, up to hundreds for the perceptron"

    def begin(self, task: Task) -> Carried:
        """w = 0, the centre of the ball."""
        numbers = {"last": 0.0, "constant": task.constant, "updates": 0, "planes": 0, "failed": False}
        return {"w": np.zeros(task.features), **{name: np.array(value) for name, value in numbers.items()}}

    def scores(self, block: RowBlock, carried: Carried) -> Array:
        """The lowest is the row to cut with; infinite for rows on the right side."""
        if carried["failed"]:
            return np.full(len(block.ids), np.inf)
        constant = float(carried["constant"])
        sizes = sizes_of(block, constant, "cutting-planes")
        values = block.signs * (block.rows @ carried["w"] + constant * carried["last"]) / sizes
        if self.pick == "random":
            order = _random(block.ids, int(carried["planes"]))
        else:
            order = values if self.pick == "largest" else -values
        return np.where(values <= 0, order, np.inf)

    def step(self, carried: Carried, found: SentRows, used: RowBlock) -> Carried:
        """The next query point; updates are those of the perceptron, or planes."""
        from coremargin.maths.active.centres import centre_of
        from coremargin.maths.active.cutting_planes import perceptron

        constant, planes = float(carried["constant"]), carried["planes"] + 1
        rows, signs = used.rows, used.signs
        if self.centre != "perceptron":
            try:
                w, b = centre_of(self.centre, rows, signs, constant=constant)
            except ValueError:  # no point is inside; if nothing separates the planes, their exact solution proves it
                return {**carried, "planes": planes, "updates": planes, "failed": np.array(True)}
            through = np.array(b / constant if constant else 0.0)
            return {**carried, "w": w, "last": through, "planes": planes, "updates": planes}
        columns = np.unique(rows.indices) if is_sparse(rows) else np.arange(rows.shape[1])  # w is 0 elsewhere
        normals = dense(signed_points(rows[:, columns], signs / np.hypot(lengths(rows), constant), constant))
        try:
            found_point = perceptron(normals, np.append(carried["w"][columns], carried["last"]), MOST_UPDATES)
        except ValueError:
            failed = {"planes": planes, "updates": carried["updates"] + MOST_UPDATES, "failed": np.array(True)}
            return {**carried, **failed}
        w = np.zeros(len(carried["w"]))
        w[columns], last = found_point.w[:-1], found_point.w[-1:].reshape(())
        return {**carried, "w": w, "last": last, "planes": planes, "updates": carried["updates"] + found_point.updates}

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane of the query point."""
        return hyperplane(carried["w"], float(carried["last"]), float(carried["constant"]))

    def most_updates(self, proven: Proven, carried: Carried, *, intercept: bool) -> float | None:
        """Proposition 2, by the margin that the proven hyperplane has at least on rows of length 1."""
        return novikoff(proven, intercept=intercept) if self.centre == "perceptron" else None


def _random(ids: NDArray[np.int64], number: int) -> Array:
    """Numbers (n,) in [0, 1) that depend on the row and the number of the plane alone (SplitMix64)."""
    z = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64((number + 1) * 0xD1342543DE82EF95 % (1 << 64))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((z ^ (z >> np.uint64(31))) >> np.uint64(11)) / float(1 << 53)
