"""Sequential minimal optimisation (Platt 1998), with the choice of pairs of Fan, Chen and Lin (2005), out of core.

    minimise ||w||^2 / 2 - sum a,   w = sum a y x,   over a >= 0,   sum a y = 0 with an intercept

Two weights change at a time, by the step that is best for both: i is the row that violates the optimality conditions
the most, j the one that gains the most with it by the second derivative. Without an intercept one weight changes. The
rows with a weight stay in memory, with their dot products; the others pass by in blocks. Of each block the rows that
violate the most join them, until no pair of rows violates by more than epsilon, as in LIBSVM's rule. A pass without a
step therefore is the end. It begins with the first row of each class: a block may have rows of one class only.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.margin import SHORTEST
from coremargin.maths.rows import (
    as_float64,
    concatenate,
    from_arrays,
    gram,
    signed,
    take,
    to_arrays,
    weighted_sum,
)
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.sample import first_row_of_each
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies.iterative import Walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.maths.margin import Array
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.hard.state import Carried
    from coremargin.problems.hard.strategies.iterative import RowBlock, Task

#: Rows of each class that join the rows in memory at a time, and most steps with them: weights of rows that nothing
#: separates grow without limit.
JOINING, STEPS = 100, 20_000
#: Rows that memory always has room for. Of rows that nothing separates most get a weight: without a limit memory would
#: grow with the store.
LEAST_ROOM = 1_000


class SequentialMinimal(Walk):
    """One pass after another, until one makes no step."""

    reading = "a read for each pass, until one makes no step, often a few"

    def first(self, source: Source, codes: tuple[int, int]) -> Sample:
        """The first row of each class."""
        return first_row_of_each(source, codes)

    def begin(self, task: Task) -> Carried:
        """The solution of these two rows. most: rows in memory, whose dot products take at most half of it."""
        rows, signs = as_float64(task.first.rows), task.first.signs
        products, none = gram(signed(rows, signs)), np.zeros(len(signs))
        weights, steps = minimise(products, signs, none, task.epsilon, intercept=task.intercept)
        w = weighted_sum(rows, weights * signs)
        numbers = {
            "b": _offset(signs, rows @ w) if task.intercept else 0.0,
            "epsilon": task.epsilon,
            "intercept": task.intercept,
            "most": max(LEAST_ROOM, isqrt(task.memory // 16)),
            "updates": steps,
        }
        known = {"w": w, "weights": weights, "signs": signs, "ids": task.first.ids}
        arrays = {name: np.asarray(value) for name, value in (known | numbers).items()}
        return arrays | to_arrays("rows", rows)

    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """Steps with the rows of the block, until they and the rows in memory are optimal to within epsilon."""
        intercept, tolerance = bool(carried["intercept"]), float(carried["epsilon"])
        rows, weights = from_arrays("rows", carried), carried["weights"]
        signs, ids, w, b = carried["signs"], carried["ids"], carried["w"], float(carried["b"])
        updates, touched = int(carried["updates"]), set[int]()
        while len(block.ids):
            may_stop()
            fresh = np.flatnonzero(~np.isin(block.ids, ids))
            wanted, held_wanted = block.signs - block.rows @ w, np.asarray(signs - rows @ w, np.float64)
            joining = _violating(block.signs, wanted, fresh, held_wanted, tolerance, intercept=intercept)
            joining = joining[: max(0, int(carried["most"]) - len(ids))]
            if not len(joining):
                break
            rows = concatenate([rows, as_float64(take(block.rows, joining))])
            signs, ids = np.append(signs, block.signs[joining]), np.append(ids, block.ids[joining])
            weights = np.append(weights, np.zeros(len(joining)))
            weights, steps = minimise(gram(signed(rows, signs)), signs, weights, tolerance, intercept=intercept)
            updates += steps
            held = np.flatnonzero(weights > 0)
            touched |= set(ids[held].tolist())
            rows, signs, ids, weights = take(rows, held), signs[held], ids[held], weights[held]
            w = weighted_sum(rows, weights * signs)
            b = _offset(signs, rows @ w) if intercept else 0.0
            if not steps or steps >= STEPS:  # rounding, or rows that nothing separates: the exact solution decides
                break
        found = {
            **carried,
            "w": w,
            "b": np.array(b),
            "weights": weights,
            "signs": signs,
            "ids": ids,
            "updates": np.array(updates),
            **to_arrays("rows", rows),
        }
        return found, np.flatnonzero(np.isin(block.ids, np.array(sorted(touched), np.int64)))

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """w, and b as the rows with a weight have it."""
        length = float(np.linalg.norm(carried["w"]))
        return Hypothesis(carried["w"] / length, float(carried["b"]) / length) if length > 0 else None


def minimise(
    products: Array, signs: NDArray[np.int8], weights: Array, tolerance: float, *, intercept: bool
) -> tuple[Array, int]:
    """Weights (m,) of rows with ``products`` (m, m) of y x, optimal to within the tolerance, and the steps taken."""
    a, y = weights.copy(), signs.astype(np.float64)
    gradient, sizes = products @ a - 1, np.maximum(np.diag(products), SHORTEST**2)
    for steps in range(STEPS):
        if not intercept:
            gain = np.where((gradient < -tolerance) | ((a > 0) & (gradient > tolerance)), gradient**2 / sizes, 0.0)
            i = int(gain.argmax())
            if not gain[i] > 0:
                return a, steps
            step = max(-float(gradient[i] / sizes[i]), -float(a[i]))
            a[i] = a[i] + step if a[i] + step > 0 else 0.0
            gradient += step * products[i]
            continue
        values = -y * gradient
        i = int(np.where((y > 0) | (a > 0), values, -np.inf).argmax())
        lower = np.where((y < 0) | (a > 0), values, np.inf)
        if values[i] - lower.min() <= tolerance:
            return a, steps
        difference = values[i] - lower
        square = np.maximum(sizes[i] + sizes - 2 * y[i] * y * products[i], 1e-12 * (sizes[i] + sizes))
        j = int(np.where(difference > 0, difference**2 / square, 0.0).argmax())
        step = float(difference[j] / square[j])
        for k, sign in ((i, y[i]), (j, -y[j])):  # a_i grows by y_i step, a_j falls by y_j step; none below 0
            step = min(step, float(a[k])) if sign < 0 else step
        for k, sign in ((i, y[i]), (j, -y[j])):
            change = sign * step
            a[k] = a[k] + change if a[k] + change > 0 else 0.0
            gradient += change * products[k]
    return a, STEPS


def _violating(
    signs: NDArray[np.int8],
    wanted: Array,
    fresh: NDArray[np.intp],
    held_wanted: Array,
    tolerance: float,
    *,
    intercept: bool,
) -> NDArray[np.intp]:
    """The rows of a block, in order, that violate the conditions the most, at most ``JOINING`` of each class.

    wanted (n,): y - w.x, the offset for which a row has the margin 1; fresh: positions of rows that are not in memory;
    held_wanted (m,): of those that are. A positive row without weight needs an offset of at least that, a negative one
    of at most that, a row with weight exactly that.
    """
    if not intercept:
        short = fresh[signs[fresh] * wanted[fresh] > tolerance]
        return np.sort(short[np.argsort(-signs[short] * wanted[short], kind="stable")[: 2 * JOINING]])
    positive, negative = fresh[signs[fresh] > 0], fresh[signs[fresh] < 0]
    least = max(wanted[positive].max(initial=-np.inf), held_wanted.max(initial=-np.inf))
    most = min(wanted[negative].min(initial=np.inf), held_wanted.min(initial=np.inf))
    if not least - most > tolerance:
        return np.zeros(0, np.intp)
    above, below = positive[wanted[positive] > most + tolerance], negative[wanted[negative] < least - tolerance]
    above = above[np.argsort(-wanted[above], kind="stable")[:JOINING]]
    below = below[np.argsort(wanted[below], kind="stable")[:JOINING]]
    return np.sort(np.concatenate([above, below]))


def _offset(signs: NDArray[np.int8], values: Array) -> float:
    """b in the middle of what the rows with weight ask for: y (w.x + b) = 1."""
    wanted = signs - values
    return float((wanted.max() + wanted.min()) / 2) if len(wanted) else 0.0
