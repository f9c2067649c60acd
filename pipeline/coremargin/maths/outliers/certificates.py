"""Certificates of the outlier search: few rows whose own best margin is already too small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import Array, upper_bounds
from coremargin.maths.nearest import MOST_STEPS, Nearest, nearest_point
from coremargin.maths.outliers.compiled import kernel
from coremargin.maths.outliers.ragged import Ragged

Rows = NDArray[np.intp]

#: A distance of hulls that is this share of the longest row counts as none.
ZERO = 1e-14


@dataclass(frozen=True)
class Certificate:
    """Rows of the pool (m,) with weights (m,) that prove that they alone allow no margin above ``value``."""

    rows: Rows
    weights: Array
    value: float


@dataclass(frozen=True)
class Certificates:
    """Certificates by number: rows and weights, and what they prove, values (c,).

    since (c,): the least threshold for which each stands; that is its value, or the threshold that it was found for
    where rounding leaves the value a trifle above it. uses (c,) int64: how many ends of branches rest on it.
    """

    rows: Ragged
    weights: Ragged
    values: Array
    since: Array
    uses: NDArray[np.int64]

    @classmethod
    def nothing(cls) -> Certificates:
        """None."""
        return cls(Ragged.nothing(), Ragged.nothing(np.float64), np.zeros(0), np.zeros(0), np.zeros(0, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Certificates]) -> Certificates:
        """Those of all parts, in order."""
        return cls(
            Ragged.joined([part.rows for part in parts]), Ragged.joined([part.weights for part in parts]),
            np.concatenate([part.values for part in parts]), np.concatenate([part.since for part in parts]),
            np.concatenate([part.uses for part in parts]),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Certificate:
        return Certificate(self.rows[number], self.weights[number], float(self.values[number]))

    def __iter__(self) -> Iterator[Certificate]:
        return map(Certificate, self.rows, self.weights, self.values.tolist())

    def take(self, numbers: NDArray[np.integer]) -> Certificates:
        """Those of these numbers."""
        return Certificates(
            self.rows.take(numbers), self.weights.take(numbers), self.values[numbers], self.since[numbers],
            self.uses[numbers],
        )  # fmt: skip

    def standing(self, threshold: float, most: int) -> NDArray[np.intp]:
        """The numbers of those that stand at a threshold, increasing: the newest and the most used, so many at most."""
        standing = np.flatnonzero(self.since <= threshold)
        newest = max(0, len(standing) - most // 2)
        if newest <= most - most // 2:
            return standing
        used = np.argsort(-self.uses[standing[:newest]], kind="stable")[: most - most // 2]
        return np.concatenate([standing[np.sort(used)], standing[newest:]])


@dataclass(frozen=True)
class Verdict:
    """What a solve says about some rows: ``too_small`` (their margin is at most the threshold), or the best direction.

    rows and weights: the support; point (d,): sum of a_i z_i, a direction that separates the rows unless too small;
    steps: what the solve took.
    """

    too_small: bool
    rows: Rows
    weights: Array
    point: Array
    steps: int = 0


class SearchRows:
    """The rows of the pool, x (n, d) with signs (n,), as the solves see them.

    The geometry is that of z = y (x - centre): with an intercept it does not depend on the centre (d,), and near the
    mean it is better conditioned. compiled: whether solves are.
    """

    def __init__(
        self, x: Array, signs: NDArray[np.int8], centre: Array, *, intercept: bool, compiled: bool = False
    ) -> None:
        self.x, self.signs, self.centre, self.intercept, self.compiled = x, signs, centre, intercept, compiled
        self.z = np.ascontiguousarray((x - centre if intercept else x) * signs[:, None])
        self.groups = (signs < 0).astype(np.int64) if intercept else np.zeros(len(x), np.int64)
        # Classes side by side: the kernel looks at each without a copy.
        self.order = np.argsort(self.groups, kind="stable")
        self.zero = ZERO * float(np.sqrt(np.einsum("ij,ij->i", self.z, self.z).max(initial=0.0)))

    def __reduce__(self) -> tuple[Any, ...]:
        """What travels to workers: the rest follows from it."""
        return partial(SearchRows, intercept=self.intercept, compiled=self.compiled), (self.x, self.signs, self.centre)

    def of(self, x: Array, signs: NDArray[np.int8]) -> SearchRows:
        """Other rows, seen in the same way."""
        return SearchRows(x, signs, self.centre, intercept=self.intercept, compiled=self.compiled)

    def __len__(self) -> int:
        return len(self.x)

    def decide(self, free: NDArray[np.bool_], threshold: float) -> Verdict | None:
        """Whether the best margin of the free rows is at most ``threshold``; None: a class is empty, it has no bound.

        Where rounding stops the solve too early to tell, the answer is no: nothing rests on that.
        """
        rows = self.order[free[self.order]]
        groups = self.groups[rows]
        if not len(rows) or (self.intercept and groups[0] == groups[-1]):
            return None
        found = self._nearest(rows, None, zero=0.0, side=self.length(threshold))
        return _verdict(found, rows, too_small=found.status in ("short", "zero"))

    def best(self, free: NDArray[np.bool_], start: Verdict | None = None, most_steps: int = MOST_STEPS) -> Verdict:
        """The best direction for the free rows, or as good a one as so many steps lead to; both classes are there."""
        rows = self.order[free[self.order]]
        groups, weights = self.groups[rows], None
        if start is not None:
            weights = np.zeros(len(self))
            weights[start.rows] = start.weights
            weights = weights[rows]
            total = np.bincount(groups, weights, minlength=int(groups[-1]) + 1)
            weights = weights / total[groups] if total.min() > 0 else None
        return _verdict(self._nearest(rows, weights, zero=self.zero, most_steps=most_steps), rows, too_small=False)

    def length(self, margin: float) -> float:
        """How long the point of hulls with this margin is."""
        return 2.0 * margin if self.intercept else margin

    def _nearest(
        self, rows: Rows, weights: Array | None, *, zero: float, side: float | None = None, most_steps: int = MOST_STEPS
    ) -> Nearest:
        walk = kernel("walk", compiled=self.compiled)
        return nearest_point(
            self.z[rows], self.groups[rows], weights, zero=zero, side=side, max_steps=most_steps, walk=walk
        )

    def bounded(self, free: NDArray[np.bool_]) -> bool:
        """Whether the best margin of the free rows has a bound: with an intercept, both classes are there."""
        signs = self.signs[free]
        return bool((signs > 0).any() and (signs < 0).any()) if self.intercept else len(signs) > 0

    def lowest(self, values: Array, k: int) -> tuple[Array, Array]:
        """The k + 1 smallest of values (n,) for each class, in increasing order."""
        parts = (values[self.signs > 0], values[self.signs < 0])
        least, most = (np.sort(part if len(part) <= k + 1 else np.partition(part, k)[: k + 1]) for part in parts)
        return least, most

    def certificates(self, rows: Ragged, weights: Ragged, threshold: float) -> Certificates:
        """The claims that these lists of rows, with weights, make; with their values rounded up."""
        number = np.repeat(np.arange(len(rows)), rows.lengths)
        order = np.lexsort((rows.values, number))
        rows, weights = Ragged(rows.values[order], rows.ends), Ragged(weights.values[order], weights.ends)
        shares, values = upper_bounds(self.x, self.signs, rows.values, weights.values, number, self.intercept)
        return Certificates(
            rows, Ragged(shares, rows.ends), values, np.minimum(values, threshold), np.zeros(len(values), np.int64)
        )


def _verdict(found: Nearest, rows: Rows, *, too_small: bool) -> Verdict:
    used = np.flatnonzero(found.weights > 0)
    return Verdict(too_small, rows[used], found.weights[used], found.point, found.steps)
