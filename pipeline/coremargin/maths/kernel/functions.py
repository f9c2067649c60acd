"""Kernels as functions of two rows, over many rows at once, with a bound on what rounding does to each value.

    linear   x.z
    poly     (gamma x.z + coef0)^degree
    rbf      exp(-gamma ||x - z||^2)

as scikit-learn and LIBSVM define them. All are positive semi-definite for gamma > 0, coef0 >= 0 and whole degrees from
1 on, which the bounds rest on. Values are computed in float64 by one matrix product. Float32 would be twice as fast and
cannot be used for a proof: the bound on the error of ||x - z||^2 over 784 pixels is 5e-5 of (||x|| + ||z||)^2, which
for digits is 1 % of what a decision is made of.

Of the rbf kernel, dense rows are taken about a centre first: ||x||^2 + ||z||^2 - 2 x.z loses the digits that ||x||^2
has in front of ||x - z||^2, few where rows lie around the origin, all where they lie far from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.formats.choices import KernelName
from coremargin.maths import rows as row_ops
from coremargin.maths.margin import gamma as rounding
from coremargin.maths.rows import Rows, is_sparse

Array = NDArray[np.float64]
#: One that somebody brings: from rows (n, d) and (m, d), float64 arrays, to values (n, m).
KernelFunction: TypeAlias = Callable[[Array, Array], Any]

UNIT = float(np.finfo(np.float64).eps) / 2
#: What exp and pow of float64 lose at most, in units: those of NumPy's and C's libraries stay below 4.
LIBRARY = 8
#: Kernel values that are there at a time: they stay in the cache, and memory for them is asked for once.
TILE_ROWS, TILE_COLUMNS = 256, 1024


class KernelFault(Exception):
    """What a function gave that no kernel does.

    text: what that is. row, other: places of the rows that it is about among those asked about, None: no one row's.
    """

    def __init__(self, text: str, row: int | None = None, other: int | None = None) -> None:
        super().__init__(text, row, other)
        self.text, self.row, self.other = text, row, other

    def moved(self, first: int, across: int = 0) -> KernelFault:
        """Of rows that begin at these places of others."""
        row = None if self.row is None else self.row + first
        return KernelFault(self.text, row, None if self.other is None else self.other + across)


def located(work: Callable[[], Any], first: int | NDArray[np.intp], across: int = 0) -> Any:
    """What ``work`` gives, with the places of a fault among all rows: from ``first`` on, or listed there."""
    try:
        return work()
    except KernelFault as fault:
        if isinstance(first, int):
            raise fault.moved(first, across) from fault.__cause__
        places = (None if place is None else int(first[place]) for place in (fault.row, fault.other))
        raise KernelFault(fault.text, *places) from fault.__cause__


@dataclass(frozen=True)
class Points:
    """Rows (n, d) ready to be multiplied: in float64, about ``centre`` (d,) where there is one; their lengths (n,)."""

    rows: Rows
    lengths: Array

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, positions: Any) -> Points:
        """Only those at these positions, or of a slice, which copies nothing of dense rows."""
        return Points(self.rows[positions], self.lengths[positions])

    @property
    def terms(self) -> NDArray[np.int64]:
        """How many products (n,) a dot product with each of them adds up at most."""
        some = np.diff(self.rows.indptr) if is_sparse(self.rows) else np.full(len(self), self.rows.shape[1])
        return np.asarray(some, np.int64)

    @property
    def longest(self) -> float:
        """The largest length, 0 of no rows."""
        return float(self.lengths.max(initial=0.0))


@dataclass(frozen=True)
class Lengths:
    """How long rows z that carry functions are: the longest, and the means of ||z|| and of ||z||^2 by their |weights|.

    Of several functions the largest means, so that they hold for each: whoever takes the rows about another centre, the
    mean by all weights, finds rows no longer than some times that. terms: products in a dot product with one of them.
    """

    longest: float
    mean: float
    square: float
    terms: int

    @classmethod
    def of(cls, points: Points, weights: Array) -> Lengths:
        """Of rows (m, d) with weights (m, k)."""
        size = np.abs(weights)
        shares = size / np.where(size.any(axis=0), size.sum(axis=0), 1.0)
        with np.errstate(over="ignore"):
            each = np.stack([points.lengths, points.lengths * points.lengths]) @ shares
        mean, square = (float(one.max(initial=0.0)) for one in each)
        return cls(points.longest, mean, square, row_ops.terms(points.rows))


@dataclass(frozen=True)
class Kernel:
    """A kernel and its parameters. centre (d,): rbf only, where rows are taken about it; None: as they are.

    room: by how much bounds exceed what they bound, so that whoever sums in another order, about another centre, finds
    no more: the errors themselves are some 1e-12.
    """

    room: ClassVar[float] = 16.0

    name: KernelName
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0
    centre: Array | None = None

    def points(self, rows: Rows) -> Points:
        """Rows (n, d) as they are multiplied; sparse ones are not moved, for they would be sparse no more."""
        exact: Any = row_ops.as_float64(rows)
        if self.centre is not None and not is_sparse(exact):
            exact = exact - self.centre
        return Points(exact, row_ops.lengths(exact))

    def block(self, x: Points, z: Points, out: Array | None = None, dtype: Any = np.float64) -> NDArray[Any]:
        """Values (n, m) of rows x (n, d) with rows z (m, d); what overflows is infinite or NaN, for callers to see.

        out (n, m): memory to work in, which may be what is returned. dtype: float32 where the last digits do not count.
        """
        return self.of_shared(self.shared(x, z, out), dtype)

    def shared(self, x: Points, z: Points, out: Array | None = None) -> Array:
        """What kernels that differ in gamma only have in common (n, m): products, of rbf distances, -||x - z||^2."""
        values = _products(x.rows, z.rows, out)
        if self.name == "rbf":
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                values *= 2.0
                values -= (x.lengths * x.lengths)[:, None]
                values -= (z.lengths * z.lengths)[None, :]
                np.minimum(values, 0.0, out=values)  # of equal rows, rounding may leave more than nothing
        return values

    def of_shared(self, values: Array, dtype: Any = np.float64, out: Array | None = None) -> NDArray[Any]:
        """Values (n, m) of what ``shared`` gave, which becomes them unless there is memory ``out`` (n, m) for them."""
        if self.name == "linear":
            return values.astype(dtype, copy=False)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            values = np.multiply(values, self.gamma, out=values if out is None else out)
            if self.name == "rbf":
                values = values.astype(dtype, copy=False)
                np.exp(values, out=values)
            else:
                values += self.coef0
                values **= self.degree
        return values.astype(dtype, copy=False)

    def squares(self, x: Points) -> Array:
        """k(x, x) (n,) of rows x (n, d)."""
        own = x.lengths * x.lengths
        if self.name == "rbf":
            return np.ones_like(own)
        return own if self.name == "linear" else np.asarray((self.gamma * own + self.coef0) ** self.degree)

    @property
    def noise(self) -> float:
        """What values may be off by as a share of the lengths of both rows in the space of the kernel, about."""
        return UNIT

    def largest(self, length: Array | float, longest: float) -> Any:
        """A bound (n,) on |k(x, z)| of rows of these lengths with rows no longer than ``longest``."""
        if self.name == "rbf":
            return np.ones_like(length, dtype=np.float64)
        size = np.asarray(length, dtype=np.float64) * longest * (1 + 1e-12)
        with np.errstate(over="ignore"):
            return size if self.name == "linear" else (self.gamma * size + self.coef0) ** self.degree * (1 + 1e-12)

    def error(self, length: Array | float, longest: float, terms: NDArray[np.int64] | int) -> Any:
        """A bound (n,) on what rounding did to ``block``, of rows as in ``largest``; terms: products in a dot product.

        rbf: with x' = fl(x - c), whose entries are off by u each, ||x' - z'||^2 is off by 2 u (||x|| + ||z||)^2 of
        these, and the sum of squares and product by gamma_(terms + 6) of the same; exp is a contraction below 0.
        """
        length = np.asarray(length, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.name == "rbf":
                return self._apart_error((length + longest) ** 2, terms)
            product = _rounding(terms + 2) * length * longest + terms * float(np.finfo(np.float64).tiny)
            if self.name == "linear":
                return product
            size = self.gamma * length * longest + self.coef0
            moved = self.gamma * product + 4 * UNIT * size
            return self.degree * (size + moved) ** (self.degree - 1) * moved + LIBRARY * UNIT * (size + moved) ** (
                self.degree
            )

    def _apart_error(self, size: Array, terms: NDArray[np.int64] | int) -> Array:
        """Of rbf, from (||x|| + ||z||)^2 (n,), or from means of it for means of errors."""
        return np.asarray(self.gamma * _rounding(terms + 10) * size + LIBRARY * UNIT)

    def sums(self, x: Points, z: Points, weights: Array) -> Array:
        """sum_j weights_jc k(x_i, z_j) (n, k) for weights (m, k)."""
        return sums([self], [slice(None)], x, z, weights)

    def sums_error(self, x: Points, carrying: Lengths, size: Array, count: int) -> Array:
        """A bound (n, k) on what rounding did to ``sums`` of ``count`` rows, sizes (k,) being their sums of |weights|.

        Of rbf each row that carries weights counts with its own length: one that is far longer than the others, as
        texts have them, costs no more than its weight.
        """
        terms = np.maximum(x.terms, carrying.terms)  # of the lengths of either, and of products
        with np.errstate(over="ignore", invalid="ignore"):
            if self.name == "rbf":
                own, mean, square = x.lengths, carrying.mean, carrying.square
                if self.centre is not None and carrying.longest > 0.0:  # another centre is rounded otherwise
                    moved = 2.0 * UNIT * float(np.linalg.norm(self.centre))
                    own, mean, square = own + moved, mean + moved, square + moved * (2.0 * mean + moved)
                each = self._apart_error(own * own + 2.0 * own * mean + square, terms)
            else:
                each = self.error(x.lengths, carrying.longest, terms)
            each = each + rounding(count + 4) * self.largest(x.lengths, carrying.longest)
            return np.asarray(each[:, None] * size[None, :])


def sums(kernels: Sequence[Kernel], columns: Sequence[Any], x: Points, z: Points, weights: Array) -> Array:
    """sum_j weights_jc k(x_i, z_j) (n, k) for weights (m, k), a tile of kernel values at a time.

    Kernels differ in gamma only, so that what they share is computed once; columns: of the weights, those of each.
    """
    total = np.zeros((len(x), weights.shape[1]))
    scratch = np.empty(TILE_ROWS * TILE_COLUMNS)
    own = np.empty(TILE_ROWS * TILE_COLUMNS if len(kernels) > 1 else 0)
    for across in range(0, len(z), TILE_COLUMNS):
        some, part_weights = z.take(slice(across, across + TILE_COLUMNS)), weights[across : across + TILE_COLUMNS]
        for first in range(0, len(x), TILE_ROWS):
            part = x.take(slice(first, first + TILE_ROWS))
            shape, size = (len(part), len(some)), len(part) * len(some)
            work = partial(kernels[0].shared, part, some, scratch[:size].reshape(shape))
            shared = located(work, first, across)
            memory = own[:size].reshape(shape) if len(kernels) > 1 else None
            for kernel, mine in zip(kernels, columns, strict=True):
                values = kernel.of_shared(shared, out=memory)
                total[first : first + TILE_ROWS, mine] += values @ part_weights[:, mine]
    return total


def _products(x: Rows, z: Rows, out: Array | None) -> Array:
    """Dot products (n, m) of rows with each other, dense; out: memory for them."""
    if is_sparse(x):
        found: Any = x @ z.T
        return np.asarray(found.toarray(), dtype=np.float64)
    return np.matmul(x, z.T, out=out)


def _rounding(terms: NDArray[np.int64] | int) -> Any:
    """``rounding`` of each of so many terms (n,), or a little more."""
    most = int(np.max(terms, initial=1))
    return rounding(most) * (terms / most)
