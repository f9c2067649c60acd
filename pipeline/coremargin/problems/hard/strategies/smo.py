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

from coremargin.maths.kernel.machine import compiled_step
from coremargin.maths.rows import as_float64, concatenate, from_arrays, take, to_arrays
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.sample import first_row_of_each
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies.iterative import Walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.hard.state import Carried
    from coremargin.problems.hard.strategies.iterative import RowBlock, Task

#: Rows of each class that join the rows in memory at a time, and most steps with them: weights of rows that nothing
#: separates grow without limit.
JOINING, STEPS = 100, 100_000
#: Share of the violation of rows that join to which the rows in memory are solved.
ROUGH = 0.1
#: Rows that memory always has room for. Of rows that nothing separates most get a weight: without a limit memory would
#: grow with the store.
LEAST_ROOM = 1_000


class SequentialMinimal(Walk):
    """One pass after another, until one makes no step."""

    vectors = ()

    reading = "a read for each pass, until one makes no step, often a few"

    def first(self, source: Source, codes: tuple[int, int]) -> Sample:
        """The first row of each class."""
        return first_row_of_each(source, codes)

    def begin(self, task: Task) -> Carried:
        """The solution of these two rows. most: rows in memory, whose dot products take at most half of it.

        values: w.x of the rows in memory.
        """
        first, none = task.first, np.zeros(len(task.first.ids))
        rows, signs = as_float64(first.rows), first.signs
        weights, values, steps = minimise(first.gram(rows, rows), signs, none, task.epsilon, intercept=task.intercept)
        numbers = {
            "b": _offset(signs, values) if task.intercept else 0.0,
            "epsilon": task.epsilon,
            "intercept": task.intercept,
            "most": max(LEAST_ROOM, isqrt(task.memory // 16)),
            "updates": steps,
        }
        w = first.combination(rows, weights * signs)
        known = {"w": w, "weights": weights, "values": values, "signs": signs, "ids": first.ids}
        arrays = {name: np.asarray(value) for name, value in (known | numbers).items()}
        return arrays | to_arrays("rows", rows)

    def walk(self, block: RowBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """Steps with the rows of the block, until they and the rows in memory are optimal to within epsilon.

        While rows of the block violate by much, those in memory are solved to a share of that only. Rows whose weight
        has become 0 leave at the end.
        """
        intercept, tolerance, most = bool(carried["intercept"]), float(carried["epsilon"]), int(carried["most"])
        rows, weights, values = from_arrays("rows", carried), carried["weights"], carried["values"]
        signs, ids, w, b = carried["signs"], carried["ids"], carried["w"], float(carried["b"])
        products, solved = carried.get("_products"), np.inf  # the last block may have ended after many steps
        updates, touched = int(carried["updates"]), set[int]()
        while len(block.ids):
            may_stop()
            fresh = np.flatnonzero(~np.isin(block.ids, ids))
            wanted, held = block.signs - block.sums(ids, rows, weights * signs, w), weights > 0
            joining, violation = _violating(
                block.signs, wanted, fresh, (signs - values)[held], tolerance, intercept=intercept
            )
            joining = joining[: max(0, most - len(ids))]
            optimal = solved <= tolerance or not _unequal((signs - values)[held], tolerance, intercept=intercept)
            if not len(joining) and optimal:
                break
            if products is None:
                products = block.gram(rows, rows)
            if len(joining):
                new = as_float64(take(block.rows, joining))
                products, rows = _extended(block, products, rows, new, most), concatenate([rows, new])
                signs, ids = np.append(signs, block.signs[joining]), np.append(ids, block.ids[joining])
                weights = np.append(weights, np.zeros(len(joining)))
            solved = max(tolerance, ROUGH * violation) if len(joining) else tolerance
            weights, values, steps = minimise(products, signs, weights, solved, intercept=intercept)
            updates += steps
            touched |= set(ids[weights > 0].tolist())
            w = block.combination(rows, weights * signs)
            b = _offset(signs[weights > 0], values[weights > 0]) if intercept else 0.0
            if (
                not steps and solved <= tolerance
            ) or steps >= STEPS:  # rounding, or rows that nothing separates: the exact solution decides
                break
        stay = np.flatnonzero(weights > 0)
        if len(stay) < len(ids):
            rows, signs, ids, weights, values = take(rows, stay), signs[stay], ids[stay], weights[stay], values[stay]
            w = block.combination(rows, weights * signs)
            products = None if products is None else products[np.ix_(stay, stay)]
        known = {"w": w, "weights": weights, "values": values, "signs": signs, "ids": ids}
        numbers = {"b": np.array(b), "updates": np.array(updates)}
        found = {**carried, **known, **numbers, **to_arrays("rows", rows)}
        if products is not None:
            found["_products"] = products
        return found, np.flatnonzero(np.isin(block.ids, np.array(sorted(touched), np.int64)))

    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """w, and b as the rows with a weight have it."""
        length = float(np.linalg.norm(carried["w"]))
        return Hypothesis(carried["w"] / length, float(carried["b"]) / length) if length > 0 else None


def minimise(
    products: Array, signs: NDArray[np.int8], weights: Array, tolerance: float, *, intercept: bool
) -> tuple[Array, Array, int]:
    """Weights (m,) of rows, optimal to within the tolerance, w.x (m,), and the steps taken; products (m, m) or more."""
    y, none = signs.astype(np.float64), np.zeros(len(signs))
    used = products[: len(y), : len(y)]
    gradient = y * (used @ (y * weights)) - 1
    numbers = np.stack([y, np.full(len(y), np.inf), none, weights, gradient])
    step = compiled_step("pairwise_step" if intercept else "single_step")
    unit = float(used.diagonal().max(initial=0.0)) or 1.0
    steps, _ = step(products, numbers, unit, tolerance, STEPS)
    return numbers[3], y * (numbers[4] + 1), int(steps)


def _extended(block: RowBlock, products: Array, rows: Rows, new: Rows, most: int) -> Array:
    """The products of m rows and k new rows with each other, from those of the rows; with room for up to ``most``."""
    m, k = rows.shape[0], new.shape[0]
    if m + k > len(products):
        before, size = products, max(m + k, min(m + k + m // 2, most))
        products = np.empty((size, size))
        products[:m, :m] = before[:m, :m]
    across = block.gram(new, rows)
    products[m : m + k, :m], products[:m, m : m + k] = across, across.T
    products[m : m + k, m : m + k] = block.gram(new, new)
    return products


def _unequal(wanted: Array, tolerance: float, *, intercept: bool) -> bool:
    """Whether rows with a weight violate the conditions; wanted (m,): the offset for which each has the margin 1."""
    if not intercept:
        return bool(np.abs(wanted).max(initial=0.0) > tolerance)
    return bool(wanted.max(initial=-np.inf) - wanted.min(initial=np.inf) > tolerance)


def _violating(
    signs: NDArray[np.int8],
    wanted: Array,
    fresh: NDArray[np.intp],
    held_wanted: Array,
    tolerance: float,
    *,
    intercept: bool,
) -> tuple[NDArray[np.intp], float]:
    """The rows of a block, in order, that violate the conditions the most, at most ``JOINING`` of each class; how much.

    wanted (n,): y - w.x, the offset for which a row has the margin 1; fresh: positions of rows that are not in memory;
    held_wanted (m,): of those with a weight. A positive row without weight needs an offset of at least that, a negative
    one of at most that, a row with weight exactly that.
    """
    if not intercept:
        lacking = signs * wanted
        short = fresh[lacking[fresh] > tolerance]
        worst = np.sort(short[np.argsort(-lacking[short], kind="stable")[: 2 * JOINING]])
        return worst, float(lacking[short].max(initial=0.0))
    positive, negative = fresh[signs[fresh] > 0], fresh[signs[fresh] < 0]
    least = max(wanted[positive].max(initial=-np.inf), held_wanted.max(initial=-np.inf))
    most = min(wanted[negative].min(initial=np.inf), held_wanted.min(initial=np.inf))
    if not least - most > tolerance:
        return np.zeros(0, np.intp), 0.0
    above, below = positive[wanted[positive] > most + tolerance], negative[wanted[negative] < least - tolerance]
    above = above[np.argsort(-wanted[above], kind="stable")[:JOINING]]
    below = below[np.argsort(wanted[below], kind="stable")[:JOINING]]
    return np.sort(np.concatenate([above, below])), float(least - most)


def _offset(signs: NDArray[np.int8], values: Array) -> float:
    """b in the middle of what the rows with weight ask for: y (w.x + b) = 1."""
    wanted = signs - values
    return float((wanted.max() + wanted.min()) / 2) if len(wanted) else 0.0
