"""Certificates of the outlier search: few rows whose own best margin is already too small.

Sets of pool rows are Python integers, bit i for row i: intersections of sets are what the search does most, and on
integers they cost some 50 ns, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import Array, normalised_weights, upper_bound
from coremargin.maths.nearest import Nearest, nearest_point

Rows = NDArray[np.intp]

#: A distance of hulls that is this share of the longest row counts as none.
ZERO = 1e-14


@dataclass(frozen=True)
class Certificate:
    """Rows of the pool (m,) with weights (m,) that prove that they alone allow no margin above ``value``.

    since: the least threshold for which it stands; that is ``value``, or the threshold that it was found for where
    rounding leaves the value a trifle above it. bits: the rows as a set.
    """

    rows: Rows
    weights: Array
    value: float
    since: float
    bits: int


@dataclass(frozen=True)
class Verdict:
    """What a solve says about some rows: ``too_small`` (their margin is at most the threshold), or the best direction.

    rows and weights: the support; point (d,): sum of a_i z_i, a direction that separates the rows unless too small.
    """

    too_small: bool
    rows: Rows
    weights: Array
    point: Array


class SearchRows:
    """The rows of the pool, x (n, d) with signs (n,), as the solves see them.

    The geometry is that of z = y (x - centre): with an intercept it does not depend on the centre (d,), and near the
    mean it is better conditioned.
    """

    def __init__(self, x: Array, signs: NDArray[np.int8], centre: Array, *, intercept: bool) -> None:
        self.x, self.signs, self.centre, self.intercept = x, signs, centre, intercept
        self.z = (x - centre if intercept else x) * signs[:, None]
        self.groups = (signs < 0).astype(np.int64) if intercept else np.zeros(len(x), np.int64)
        # Classes side by side: the kernel looks at each without a copy.
        self.order = np.argsort(self.groups, kind="stable")
        self.zero = ZERO * float(np.sqrt(np.einsum("ij,ij->i", self.z, self.z).max(initial=0.0)))

    def __len__(self) -> int:
        return len(self.x)

    def decide(self, free: NDArray[np.bool_], forced: Rows, threshold: float) -> Verdict | None:
        """Whether the best margin of the free rows is at most ``threshold``; None: a class is empty, it has no bound.

        Where rounding stops the solve too early to tell, the answer is no: nothing rests on that. The forced rows,
        which are free too, are looked at first: a certificate of them alone is worth most.
        """
        length = 2.0 * threshold if self.intercept else threshold
        rows = self.order[free[self.order]]
        groups = self.groups[rows]
        if not len(rows) or (self.intercept and groups[0] == groups[-1]):
            return None
        start = None
        if len(forced) and not (self.intercept and (self.groups[forced] == self.groups[forced[0]]).all()):
            forced = forced[np.argsort(self.groups[forced], kind="stable")]
            inner = nearest_point(self.z[forced], self.groups[forced], zero=0.0, side=length)
            if inner.status in ("short", "zero"):
                return _verdict(inner, forced, too_small=True)
            start = np.zeros(len(self))
            start[forced] = inner.weights
            start = start[rows]
        found = nearest_point(self.z[rows], groups, start, zero=0.0, side=length)
        return _verdict(found, rows, too_small=found.status in ("short", "zero"))

    def best(self, free: NDArray[np.bool_], start: Verdict | None = None) -> Verdict:
        """The best direction for the free rows; both classes are there."""
        rows = self.order[free[self.order]]
        groups, weights = self.groups[rows], None
        if start is not None:
            weights = np.zeros(len(self))
            weights[start.rows] = start.weights
            weights = weights[rows]
            total = np.bincount(groups, weights, minlength=int(groups[-1]) + 1)
            weights = weights / total[groups] if total.min() > 0 else None
        return _verdict(nearest_point(self.z[rows], groups, weights, zero=self.zero), rows, too_small=False)

    def bounded(self, free: NDArray[np.bool_]) -> bool:
        """Whether the best margin of the free rows has a bound: with an intercept, both classes are there."""
        signs = self.signs[free]
        return bool((signs > 0).any() and (signs < 0).any()) if self.intercept else len(signs) > 0

    def lowest(self, values: Array, k: int) -> tuple[Array, Array]:
        """The k + 1 smallest of values (n,) for each class, in increasing order."""
        parts = (values[self.signs > 0], values[self.signs < 0])
        least, most = (np.sort(part if len(part) <= k + 1 else np.partition(part, k)[: k + 1]) for part in parts)
        return least, most

    def certificate(self, rows: Rows, weights: Array, threshold: float) -> Certificate:
        """The claim that these rows make, with its value rounded up."""
        order = np.argsort(rows)
        rows, signs = rows[order], self.signs[rows[order]]
        weights = normalised_weights(weights[order], signs, self.intercept)
        value = upper_bound(self.x[rows], signs, weights, self.intercept)
        return Certificate(rows, weights, value, min(value, threshold), bits_of(rows))


def _verdict(found: Nearest, rows: Rows, *, too_small: bool) -> Verdict:
    used = np.flatnonzero(found.weights > 0)
    return Verdict(too_small, rows[used], found.weights[used], found.point)


def bits_of(rows: Iterable[int]) -> int:
    """The set of these rows."""
    bits = 0
    for row in rows:
        bits |= 1 << int(row)
    return bits


def rows_of(bits: int) -> list[int]:
    """The rows of a set, in increasing order."""
    rows = []
    while bits:
        low = bits & -bits
        rows.append(low.bit_length() - 1)
        bits ^= low
    return rows


def mask_of(bits: int, size: int) -> NDArray[np.bool_]:
    """The set as a mask (size,)."""
    packed = np.frombuffer(bits.to_bytes((size + 7) // 8, "little"), np.uint8)
    return np.unpackbits(packed, count=size, bitorder="little").astype(np.bool_)
