"""Certificates of the outlier search: a few rows whose own best margin is too small, and the solves for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

#: Hulls closer than this share of the longest row are taken to meet.
ZERO = 1e-14


@dataclass(frozen=True)
class Certificate:
    """Positions of rows (m,) in the working set, with weights (m,): they alone allow no margin above ``value``."""

    rows: Rows
    weights: Array
    value: float


@dataclass(frozen=True)
class Certificates:
    """Numbered certificates: rows, weights, and the values (c,) that they prove.

    valid_from (c,): the smallest threshold at which each is valid: its value, or the threshold that it was found for
    when rounding puts the value just above. uses (c,) int64: how many leaves rest on it.
    """

    rows: Ragged
    weights: Ragged
    values: Array
    valid_from: Array
    uses: NDArray[np.int64]

    @classmethod
    def empty(cls) -> Certificates:
        """No certificates."""
        return cls(Ragged.empty(), Ragged.empty(np.float64), np.zeros(0), np.zeros(0), np.zeros(0, np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[Certificates]) -> Certificates:
        """Those of all parts, in order."""
        return cls(
            Ragged.concatenate([part.rows for part in parts]),
            Ragged.concatenate([part.weights for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.valid_from for part in parts]),
            np.concatenate([part.uses for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Certificate:
        return Certificate(self.rows[number], self.weights[number], float(self.values[number]))

    def __iter__(self) -> Iterator[Certificate]:
        return map(Certificate, self.rows, self.weights, self.values.tolist())

    def take(self, numbers: NDArray[np.integer]) -> Certificates:
        """Those with these numbers."""
        return Certificates(
            self.rows.take(numbers),
            self.weights.take(numbers),
            self.values[numbers],
            self.valid_from[numbers],
            self.uses[numbers],
        )

    def valid_at(self, threshold: float, limit: int) -> NDArray[np.intp]:
        """The numbers (increasing) of at most ``limit`` certificates valid at a threshold: the newest and most used."""
        valid = np.flatnonzero(self.valid_from <= threshold)
        newest = max(0, len(valid) - limit // 2)
        if newest <= limit - limit // 2:
            return valid
        used = np.argsort(-self.uses[valid[:newest]], kind="stable")[: limit - limit // 2]
        return np.concatenate([valid[np.sort(used)], valid[newest:]])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {
            **self.rows.to_arrays("rows"),
            **self.weights.to_arrays("weights"),
            "values": self.values,
            "valid_from": self.valid_from,
            "uses": self.uses,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Certificates:
        """Inverse of ``to_arrays``."""
        rows, weights = (Ragged.from_arrays(name, arrays) for name in ("rows", "weights"))
        return cls(rows, weights, arrays["values"], arrays["valid_from"], arrays["uses"])


@dataclass(frozen=True)
class Solution:
    """The result of a solve: their margin is at most the threshold (``too_small``), or the best direction.

    rows and weights: the support; point (d,): sum of a_i z_i, a direction that separates the rows unless too_small;
    steps: of the solver.
    """

    too_small: bool
    rows: Rows
    weights: Array
    point: Array
    steps: int = 0


class SearchRows:
    """The rows of the working set, x (n, d) with signs (n,), in the form that solves use.

    The geometry is that of z = y (x - centre): with an intercept it does not depend on the centre (d,), and near the
    mean it is better conditioned. compiled: whether solves run compiled.
    """

    def __init__(
        self, x: Array, signs: NDArray[np.int8], centre: Array, *, intercept: bool, compiled: bool = False
    ) -> None:
        self.x, self.signs, self.centre, self.intercept, self.compiled = x, signs, centre, intercept, compiled
        self.z = np.ascontiguousarray((x - centre if intercept else x) * signs[:, None])
        self.groups = (signs < 0).astype(np.int64) if intercept else np.zeros(len(x), np.int64)
        # Classes side by side: the kernel uses each without a copy.
        self.order = np.argsort(self.groups, kind="stable")
        self.zero = ZERO * float(np.sqrt(np.einsum("ij,ij->i", self.z, self.z).max(initial=0.0)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Send only the arguments to workers."""
        return partial(SearchRows, intercept=self.intercept, compiled=self.compiled), (self.x, self.signs, self.centre)

    def with_rows(self, x: Array, signs: NDArray[np.int8]) -> SearchRows:
        """Other rows with the same centre and options."""
        return SearchRows(x, signs, self.centre, intercept=self.intercept, compiled=self.compiled)

    def __len__(self) -> int:
        return len(self.x)

    def decide(self, free: NDArray[np.bool_], threshold: float) -> Solution | None:
        """Decide whether the best margin of the free rows is at most ``threshold``; None when a class is empty.

        When rounding stops the solve too early the answer is no, on which nothing rests.
        """
        rows = self.order[free[self.order]]
        groups = self.groups[rows]
        if not len(rows) or (self.intercept and groups[0] == groups[-1]):
            return None
        found = self._nearest(rows, None, zero=0.0, side=self.hull_distance(threshold))
        return _solution(found, rows, too_small=found.status in ("short", "zero"))

    def best(self, free: NDArray[np.bool_], start: Solution | None = None, most_steps: int = MOST_STEPS) -> Solution:
        """The best direction for the free rows, of both classes, or as good a one as ``most_steps`` allow."""
        rows = self.order[free[self.order]]
        groups, weights = self.groups[rows], None
        if start is not None:
            weights = np.zeros(len(self))
            weights[start.rows] = start.weights
            weights = weights[rows]
            total = np.bincount(groups, weights, minlength=int(groups[-1]) + 1)
            weights = weights / total[groups] if total.min() > 0 else None
        return _solution(self._nearest(rows, weights, zero=self.zero, most_steps=most_steps), rows, too_small=False)

    def hull_distance(self, margin: float) -> float:
        """The distance of the hulls (from the origin without an intercept) for a margin."""
        return 2.0 * margin if self.intercept else margin

    def _nearest(
        self, rows: Rows, weights: Array | None, *, zero: float, side: float | None = None, most_steps: int = MOST_STEPS
    ) -> Nearest:
        walk = kernel("walk", compiled=self.compiled)
        return nearest_point(
            self.z[rows], self.groups[rows], weights, zero=zero, side=side, max_steps=most_steps, walk=walk
        )

    def has_bound(self, free: NDArray[np.bool_]) -> bool:
        """Whether the margin of the free rows is bounded: with an intercept, when both classes are present."""
        signs = self.signs[free]
        return bool((signs > 0).any() and (signs < 0).any()) if self.intercept else len(signs) > 0

    def lowest(self, values: Array, k: int) -> tuple[Array, Array]:
        """The k + 1 smallest of values (n,) of each class, increasing."""
        parts = (values[self.signs > 0], values[self.signs < 0])
        least, most = (np.sort(part if len(part) <= k + 1 else np.partition(part, k)[: k + 1]) for part in parts)
        return least, most

    def certificates(self, rows: Ragged, weights: Ragged, threshold: float) -> Certificates:
        """The certificates of lists of rows with weights; values are rounded up."""
        number = np.repeat(np.arange(len(rows)), rows.lengths)
        order = np.lexsort((rows.values, number))
        rows, weights = Ragged(rows.values[order], rows.ends), Ragged(weights.values[order], weights.ends)
        shares, values = upper_bounds(self.x, self.signs, rows.values, weights.values, number, self.intercept)
        return Certificates(
            rows, Ragged(shares, rows.ends), values, np.minimum(values, threshold), np.zeros(len(values), np.int64)
        )


def _solution(found: Nearest, rows: Rows, *, too_small: bool) -> Solution:
    used = np.flatnonzero(found.weights > 0)
    return Solution(too_small, rows[used], found.weights[used], found.point, found.steps)
