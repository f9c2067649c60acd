"""The feature space of a kernel, for strategies of the hard margin that carry numbers: a perceptron, hull points, SMO.

A vector is an array of coefficients, one for each row of a *span*: the rows that the strategy has used. So a strategy
that is written with the methods of ``RowBlock`` trains with a kernel as it is. Vectors grow by the rows of a block
before it is walked through, and shrink to the rows with a coefficient after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.kernel.functions import Points
from coremargin.maths.kernel.machine import Side, solve
from coremargin.maths.rows import concatenate, take
from coremargin.maths.stopping import may_stop
from coremargin.problems.hard.strategies.iterative import RowBlock

if TYPE_CHECKING:
    from coremargin.maths.kernel.functions import Kernel
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows
    from coremargin.problems.hard.state import Carried
    from coremargin.problems.hard.strategies.iterative import Walk

#: Rows of a block, whose kernel values with the span and with each other are in memory.
BLOCK = 256
#: Gap to which the nearest point of a hull is solved.
EXACT = 1e-10


@dataclass(frozen=True)
class Span:
    """Rows (m, d) in increasing order of their ids (m,), which vectors are combinations of; gram (m, m) if known."""

    ids: NDArray[np.int64]
    points: Points
    gram: Array | None = None

    def __len__(self) -> int:
        return len(self.ids)


NO_SPAN = Span(np.zeros(0, np.int64), Points(np.zeros((0, 0)), np.zeros(0)))


@dataclass(frozen=True)
class KernelBlock(RowBlock):
    """Rows (n, d) in the feature space of a kernel; vectors are coefficients of the span (m,), or of both (m + n,).

    columns: kernel values (n,) with rows by their ids, which stay known as long as the block.
    """

    kernel: Kernel
    span: Span = NO_SPAN
    columns: dict[int, Array] = field(default_factory=dict)

    @cached_property
    def points(self) -> Points:
        """The rows, prepared for products."""
        return self.kernel.points(self.rows)

    @cached_property
    def across(self) -> Array:
        """Kernel values (n, m) with the span."""
        if not len(self.span):
            return np.zeros((len(self.ids), 0))
        return self.kernel.block(self.points, self.span.points)

    @cached_property
    def own(self) -> Array:
        """Kernel values (n, n)."""
        return self.kernel.block(self.points, self.points)

    @cached_property
    def metric(self) -> Array:
        """Kernel values (m + n, m + n) of the span and the rows."""
        span = self.span.gram
        if span is None:
            span = self.kernel.block(self.span.points, self.span.points)
        return np.block([[span, self.across.T], [self.across, self.own]])

    def lengths(self) -> Array:
        """sqrt(k(x, x)) (n,)."""
        return np.sqrt(self.kernel.diagonal(self.points))

    def vector(self, at: int) -> Array:
        """A coefficient of 1 for the row at a position."""
        found = np.zeros(len(self.span) + len(self.ids))
        found[len(self.span) + at] = 1.0
        return found

    def values(self, w: Array, first: int = 0, stop: int | None = None) -> Array:
        """Products (m,) of w with the rows from ``first`` to ``stop``."""
        m = len(self.span)
        found = self.across[first:stop] @ w[:m]
        return np.asarray(found + self.own[first:stop] @ w[m:] if len(w) > m else found)

    def inner(self, u: Array, v: Array) -> float:
        """The product of two vectors."""
        return float(u @ (self.metric @ v))

    def combination(self, rows: Rows, weights: Array) -> Array:
        """The weights: the rows are the span."""
        return weights

    def gram(self, rows: Rows, others: Rows) -> Array:
        """Kernel values (m, k) of rows (m, d) and (k, d)."""
        return self.kernel.block(self.kernel.points(rows), self.kernel.points(others))

    def sums(self, ids: NDArray[np.int64], rows: Rows, weights: Array, w: Array) -> Array:
        """sum_j weights_j k(x, rows_j) (n,), from kernel values that are computed once."""
        used = np.flatnonzero(weights)
        ids, rows, weights = ids[used], take(rows, used), weights[used]
        new = np.array([k for k, row in enumerate(ids.tolist()) if row not in self.columns], np.intp)
        if len(new):
            values = self.kernel.block(self.points, self.kernel.points(take(rows, new)))
            self.columns.update(zip(ids[new].tolist(), values.T.copy(), strict=True))
        found = np.zeros(len(self.ids))
        for row, weight in zip(ids.tolist(), weights.tolist(), strict=True):
            found += weight * self.columns[row]
        return found

    def nearest_point(self, factors: Array, constant: float) -> tuple[Array, float, float]:
        """As of rows: coefficients of the block's rows and of the constant, and the length."""
        matrix = (self.own + constant**2) * factors[:, None] * factors[None, :]
        ones = np.ones(len(factors))
        duals = solve(matrix, Side(ones, ones, None, intercept=False), np.zeros(len(factors)), EXACT).duals
        shares = duals / duals.sum()  # the f of margins of 1 is the nearest point over its squared length
        length = float(np.sqrt(max(0.0, shares @ (matrix @ shares))))
        weights = shares * factors
        return weights, constant * float(weights.sum()), length


def walk_in_feature_space(
    strategy: Walk, block: KernelBlock, carried: Carried, known_ids: NDArray[np.int64], room: int
) -> tuple[Carried, NDArray[np.intp]]:
    """As ``Walk.walk``; the block's span has the rows that the vectors of ``carried`` are about.

    It ends early once it has used more than ``room`` rows whose ids are not known: memory has no room for their kernel
    values.
    """
    vectors, known, touched = strategy.vectors or (), block.span, list[NDArray[np.intp]]()
    step = BLOCK if vectors else int(carried["most"])  # without vectors, it has rows of its own, at most so many
    for first in range(0, len(block.ids), step):
        may_stop()
        part = slice(first, first + step)
        ids = block.ids[part]
        own = KernelBlock(block.rows[part], block.signs[part], ids, block.name, block.kernel, known)
        longer = {name: np.append(carried[name], np.zeros(len(ids))) for name in vectors}
        found, used = strategy.walk(own, {**carried, **longer})
        touched.append(first + used)
        room -= int(np.isin(ids[used], known_ids, invert=True).sum())
        if not len(used):  # vectors are as before, but numbers may have changed
            carried = {**found, **{name: carried[name] for name in vectors}}
        elif vectors:
            carried, known = _merged(own, found, vectors)
        else:
            carried = found
        if room < 0:
            break
    return carried, np.concatenate([np.zeros(0, np.intp), *touched])


def _merged(block: KernelBlock, carried: Carried, vectors: tuple[str, ...]) -> tuple[Carried, Span]:
    """Vectors of the span and the block as those of a span of the rows that have a coefficient, each row once."""
    every = np.concatenate([block.span.ids, block.ids])
    ids, where, inverse = np.unique(every, return_index=True, return_inverse=True)
    merged = {name: np.zeros(len(ids)) for name in vectors}
    for name in vectors:
        np.add.at(merged[name], inverse, carried[name])
    used = np.flatnonzero(np.any([values != 0 for values in merged.values()], axis=0))
    at = where[used]
    both = [block.span.points, block.points] if len(block.span) else [block.points, block.points.take(slice(0, 0))]
    points = Points(concatenate([one.rows for one in both]), np.concatenate([one.lengths for one in both])).take(at)
    gram = block.metric[np.ix_(at, at)] if "metric" in vars(block) else None
    found = {**carried, "ids": ids[used], **{name: values[used] for name, values in merged.items()}}
    return found, Span(ids[used], points, gram)


def rows_of(ids: NDArray[np.int64], known: NDArray[np.int64], rows: Rows) -> Rows:
    """Rows with these ids, of rows (n, d) with ids ``known`` (n,), all different."""
    order = np.argsort(known)
    return take(rows, order[np.searchsorted(known, ids, sorter=order)])
