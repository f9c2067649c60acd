"""Kernel functions of many rows at once, with bounds on the rounding error of each value.

    linear   x.z
    poly     (gamma x.z + coef0)^degree
    rbf      exp(-gamma ||x - z||^2)

as in scikit-learn and LIBSVM. For gamma > 0, coef0 >= 0 and integer degrees from 1 on they are positive
semi-definite; the bounds rely on that. Values are computed in float64 by one matrix product. Float32 would be twice as
fast but is too inexact for a proof: over 784 pixels the error of ||x - z||^2 can be 5e-5 (||x|| + ||z||)^2, for digits
about 1 % of a decision value.

For the rbf kernel, dense rows are centred first: ||x||^2 + ||z||^2 - 2 x.z cancels the digits that ||x||^2 has in front
of ||x - z||^2, few where rows lie around the origin, all where they lie far from it.
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
#: A user-defined kernel: from rows (n, d) and (m, d), float64 arrays, to values (n, m).
KernelFunction: TypeAlias = Callable[[Array, Array], Any]

UNIT = float(np.finfo(np.float64).eps) / 2
#: Largest error of exp and pow in float64, in units of UNIT; NumPy's and the C library's stay below 4.
LIBRARY = 8
#: Kernel values are computed in tiles of this shape, which fit into the cache and reuse one buffer.
TILE_ROWS, TILE_COLUMNS = 256, 1024


class KernelFault(Exception):
    """Raised for values that no positive semi-definite kernel has.

    text: what is wrong. row, other: positions of the two rows among those passed, None where no single row is at fault.
    """

    def __init__(self, text: str, row: int | None = None, other: int | None = None) -> None:
        super().__init__(text, row, other)
        self.text, self.row, self.other = text, row, other

    def shifted(self, first: int, across: int = 0) -> KernelFault:
        """The same fault of rows that begin at these positions of larger arrays."""
        row = None if self.row is None else self.row + first
        return KernelFault(self.text, row, None if self.other is None else self.other + across)


def relocate_faults(work: Callable[[], Any], first: int | NDArray[np.intp], across: int = 0) -> Any:
    """Call ``work`` on a part of the rows and restate its faults by positions among all rows.

    first: the position of the part's first row, or the positions (n,) of its rows. across: the same for the other side.
    """
    try:
        return work()
    except KernelFault as fault:
        if isinstance(first, int):
            raise fault.shifted(first, across) from fault.__cause__
        places = (None if place is None else int(first[place]) for place in (fault.row, fault.other))
        raise KernelFault(fault.text, *places) from fault.__cause__


@dataclass(frozen=True)
class Points:
    """Rows (n, d) prepared for products: in float64, centred where the kernel has a centre; lengths (n,)."""

    rows: Rows
    lengths: Array

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, positions: Any) -> Points:
        """The rows at these positions; a slice of dense rows is a view."""
        return Points(self.rows[positions], self.lengths[positions])

    @property
    def terms(self) -> NDArray[np.int64]:
        """The largest number of terms (n,) in a dot product with each row."""
        some = np.diff(self.rows.indptr) if is_sparse(self.rows) else np.full(len(self), self.rows.shape[1])
        return np.asarray(some, np.int64)

    @property
    def longest(self) -> float:
        """The largest length; 0 without rows."""
        return float(self.lengths.max(initial=0.0))


@dataclass(frozen=True)
class Lengths:
    """Lengths of the rows of an expansion: the longest, and the means of ||z|| and ||z||^2 weighted by |weights|.

    The means are the largest of all columns, so that bounds hold for each. A verifier that centres the rows otherwise,
    at the mean of all weights, finds lengths within a small factor. terms: the most terms in a dot product with a row.
    """

    longest: float
    mean: float
    square: float
    terms: int

    @classmethod
    def from_points(cls, points: Points, weights: Array) -> Lengths:
        """The lengths of rows (m, d) with weights (m, k)."""
        size = np.abs(weights)
        shares = size / np.where(size.any(axis=0), size.sum(axis=0), 1.0)
        with np.errstate(over="ignore"):
            each = np.stack([points.lengths, points.lengths * points.lengths]) @ shares
        mean, square = (float(one.max(initial=0.0)) for one in each)
        return cls(points.longest, mean, square, row_ops.terms(points.rows))


@dataclass(frozen=True)
class Kernel:
    """A kernel and its parameters. centre (d,): subtracted from dense rows, rbf only; None: rows are not centred.

    SAFETY: claimed errors are the bounds times this factor, so that a verifier with another order of summation or
    another centre finds no more. The errors themselves are about 1e-12.
    """

    SAFETY: ClassVar[float] = 16.0

    name: KernelName
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0
    centre: Array | None = None

    def points(self, rows: Rows) -> Points:
        """Rows (n, d) prepared for products. Sparse rows are not centred: they would become dense."""
        exact: Any = row_ops.as_float64(rows)
        if self.centre is not None and not is_sparse(exact):
            exact = exact - self.centre
        return Points(exact, row_ops.lengths(exact))

    def block(self, x: Points, z: Points, out: Array | None = None, dtype: Any = np.float64) -> NDArray[Any]:
        """Values (n, m) of rows x (n, d) with rows z (m, d); infinite or NaN where they overflow.

        out (n, m): a buffer, which may be returned. dtype: float32 where full precision is not needed.
        """
        return self.from_products(self.products(x, z, out), dtype)

    def products(self, x: Points, z: Points, out: Array | None = None) -> Array:
        """The common part (n, m) of kernels that differ only in gamma: x.z, or for rbf -||x - z||^2."""
        values = _products(x.rows, z.rows, out)
        if self.name == "rbf":
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                values *= 2.0
                values -= (x.lengths * x.lengths)[:, None]
                values -= (z.lengths * z.lengths)[None, :]
                np.minimum(values, 0.0, out=values)  # rounding may leave equal rows above 0
        return values

    def from_products(self, values: Array, dtype: Any = np.float64, out: Array | None = None) -> NDArray[Any]:
        """Kernel values (n, m) from ``products``, computed in place unless a buffer ``out`` (n, m) is given."""
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

    def diagonal(self, x: Points) -> Array:
        """k(x, x) (n,) of rows x (n, d)."""
        own = x.lengths * x.lengths
        if self.name == "rbf":
            return np.ones_like(own)
        return own if self.name == "linear" else np.asarray((self.gamma * own + self.coef0) ** self.degree)

    @property
    def relative_error(self) -> float:
        """Approximate error of a value, relative to sqrt(k(x, x) k(z, z))."""
        return UNIT

    def value_bound(self, length: Array | float, longest: float) -> Any:
        """A bound (n,) on |k(x, z)| for rows x of these lengths and rows z no longer than ``longest``."""
        if self.name == "rbf":
            return np.ones_like(length, dtype=np.float64)
        size = np.asarray(length, dtype=np.float64) * longest * (1 + 1e-12)
        with np.errstate(over="ignore"):
            return size if self.name == "linear" else (self.gamma * size + self.coef0) ** self.degree * (1 + 1e-12)

    def value_error(self, length: Array | float, longest: float, terms: NDArray[np.int64] | int) -> Any:
        """A bound (n,) on the rounding error of ``block``, for rows as in ``value_bound``; terms: of a dot product.

        rbf: the entries of x' = fl(x - c) are off by u each, which changes ||x' - z'||^2 by up to
        2 u (||x|| + ||z||)^2; the squares and the product add gamma_(terms + 6) of the same. exp contracts below 0.
        """
        length = np.asarray(length, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.name == "rbf":
                return self._distance_error((length + longest) ** 2, terms)
            product = _rounding(terms + 2) * length * longest + terms * float(np.finfo(np.float64).tiny)
            if self.name == "linear":
                return product
            size = self.gamma * length * longest + self.coef0
            moved = self.gamma * product + 4 * UNIT * size
            return self.degree * (size + moved) ** (self.degree - 1) * moved + LIBRARY * UNIT * (size + moved) ** (
                self.degree
            )

    def _distance_error(self, size: Array, terms: NDArray[np.int64] | int) -> Array:
        """Error of rbf values, from (||x|| + ||z||)^2 (n,); means of that give means of errors."""
        return np.asarray(self.gamma * _rounding(terms + 10) * size + LIBRARY * UNIT)

    def sums(self, x: Points, z: Points, weights: Array) -> Array:
        """sum_j weights_jc k(x_i, z_j) (n, k) for weights (m, k)."""
        return kernel_sums([self], [slice(None)], x, z, weights)

    def sums_error(self, x: Points, carrying: Lengths, size: Array, count: int) -> Array:
        """A bound (n, k) on the rounding error of ``sums`` over ``count`` rows; size (k,): their sums of |weights|.

        carrying: the lengths of these rows. For rbf each counts with its own length, so that a single long row, as
        among texts, adds no more than its weight.
        """
        terms = np.maximum(x.terms, carrying.terms)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.name == "rbf":
                own, mean, square = x.lengths, carrying.mean, carrying.square
                if self.centre is not None and carrying.longest > 0.0:  # a verifier may use another centre
                    moved = 2.0 * UNIT * float(np.linalg.norm(self.centre))
                    own, mean, square = own + moved, mean + moved, square + moved * (2.0 * mean + moved)
                each = self._distance_error(own * own + 2.0 * own * mean + square, terms)
            else:
                each = self.value_error(x.lengths, carrying.longest, terms)
            each = each + rounding(count + 4) * self.value_bound(x.lengths, carrying.longest)
            return np.asarray(each[:, None] * size[None, :])


def kernel_sums(kernels: Sequence[Kernel], columns: Sequence[Any], x: Points, z: Points, weights: Array) -> Array:
    """sum_j weights_jc k(x_i, z_j) (n, k) for weights (m, k), one tile of kernel values at a time.

    The kernels differ only in gamma and share their products. columns: the columns of ``weights`` for each kernel.
    """
    total = np.zeros((len(x), weights.shape[1]))
    scratch = np.empty(TILE_ROWS * TILE_COLUMNS)
    own = np.empty(TILE_ROWS * TILE_COLUMNS if len(kernels) > 1 else 0)
    for across in range(0, len(z), TILE_COLUMNS):
        some, part_weights = z.take(slice(across, across + TILE_COLUMNS)), weights[across : across + TILE_COLUMNS]
        for first in range(0, len(x), TILE_ROWS):
            part = x.take(slice(first, first + TILE_ROWS))
            shape, size = (len(part), len(some)), len(part) * len(some)
            work = partial(kernels[0].products, part, some, scratch[:size].reshape(shape))
            shared = relocate_faults(work, first, across)
            memory = own[:size].reshape(shape) if len(kernels) > 1 else None
            for kernel, mine in zip(kernels, columns, strict=True):
                values = kernel.from_products(shared, out=memory)
                total[first : first + TILE_ROWS, mine] += values @ part_weights[:, mine]
    return total


def _products(x: Rows, z: Rows, out: Array | None) -> Array:
    """Dot products (n, m), dense; out (n, m): a buffer for those of dense rows."""
    if is_sparse(x):
        found: Any = x @ z.T
        return np.asarray(found.toarray(), dtype=np.float64)
    return np.matmul(x, z.T, out=out)


def _rounding(terms: NDArray[np.int64] | int) -> Any:
    """At least gamma_m for each number m of terms (n,)."""
    most = int(np.max(terms, initial=1))
    return rounding(most) * (terms / most)
