"""Kernels as the verifier evaluates them, in float64, with bounds on the error: code of its own.

    linear x.z,   poly (gamma x.z + coef0)^degree,   rbf exp(-gamma ||x - z||^2)

For rbf, rows are shifted by -m first, m being the weighted mean of the rows that carry the functions, which changes no
distance, and keeps the digits of ||x||^2 + ||z||^2 - 2 x.z. With L = ||x|| + ||z|| of shifted rows, the shift costs
4 u L^2 of the squared distance, lengths and product gamma_(d + 8) L^2; exp(-v) changes by no more than v does. For
weighted sums that is a weighted mean of L^2: of ||x||^2 + 2 ||x|| ||z|| + ||z||^2, three sums.

A kernel may also be a function that the user of ``verify`` passes; the model only names it, and the name is never run.
Then claims are about every positive semi-definite kernel k with |k(x, z) - v(x, z)| <= eta sqrt(k(x, x) k(z, z)), v
being the function's values and eta the model's ``kernel_error``, at least FLOOR whatever is claimed. So
k(x, x) <= v(x, x) / (1 - eta), and a sum of weights b_j with k(z_j, x) is off by at most (eta + gamma_(m+2))
sqrt(k(x, x)) sum_j |b_j| sqrt(k(z_j, z_j)).

That there is such a kernel can be disproved, not proven: each v(x, x) of the store has to be finite and at least 0,
each |v(x, z)| at most what the root of both and eta allow; among the coreset's rows v is symmetric, gives the same
values in other blocks and another order, and has no eigenvalue below -eta sum_i v(x_i, x_i), up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.sparse import issparse

from coremargin.errors import UsageError
from coremargin.formats.function import CALLABLE, function_name
from coremargin.formats.kernel import reference_places
from coremargin.verify.checks import Check, shown
from coremargin.verify.sums import TINY, UNIT, gamma, true_lengths

_LIBRARY = 8 * UNIT  # upper bound on the error of exp and powers
_VALUES = 1 << 21  # kernel values in memory, per thread

FLOOR = 1e-13  #: no function of sums in float64 counts as more exact
_OWN = 24  # rows whose values with each other are computed for those with themselves
_TALL, _WIDE = 128, 768  # a block of values
_DENSE = 1 << 22  # numbers of rows that are dense at a time
_TOGETHER = 4096  # coreset rows whose eigenvalues are checked together
_AGAIN = 200  # of these, rows that are evaluated in another order


@dataclass(frozen=True)
class ClosedKernel:
    """One of the kernels above; each uses the numbers that it has."""

    name: str
    scale: float
    degree: int
    constant: float

    def of_products(self, products: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Values (n, m) from dot products (n, m), and squares of the lengths (n,), (m,)."""
        if self.name == "linear":
            return np.asarray(products)
        if self.name == "poly":
            return np.asarray((self.scale * products + self.constant) ** self.degree)
        apart = (left[:, None] + right[None, :]) - 2.0 * products
        return np.asarray(np.exp(-self.scale * np.maximum(apart, 0.0)))

    def bound(self, left: np.ndarray | float, right: float) -> np.ndarray:
        """Upper bounds on values of rows of these lengths (n,) with rows no longer than ``right``."""
        if self.name == "rbf":
            return np.ones(np.shape(left))
        most = np.asarray(left) * right
        return np.asarray(most if self.name == "linear" else (self.scale * most + self.constant) ** self.degree)

    def rbf_error(self, squares: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """Error of rbf values whose (||x|| + ||z||)^2, or a mean of it, is this; terms: of a product."""
        apart = (_gamma(terms + 8) + 4 * UNIT) * squares + (terms + 8) * TINY  # squares underflow, too
        return np.asarray(self.scale * apart + _LIBRARY)

    def product_error(self, left: np.ndarray, right: np.ndarray | float, terms: np.ndarray) -> np.ndarray:
        """Error (n,) of values of the others, of rows of these lengths with rows no longer than ``right``."""
        product = _gamma(terms + 1) * left * right + terms * TINY
        if self.name == "linear":
            return np.asarray(product)
        base = self.scale * left * right + self.constant
        moved = self.scale * product + 3 * UNIT * base
        most = base + moved
        return np.asarray(self.degree * most ** (self.degree - 1) * moved + _LIBRARY * most**self.degree)


class Expansion:
    """k functions sum_j weights_jc k(z_j, .) of rows z (m, d) with weights (m, k)."""

    def __init__(self, function: ClosedKernel, z: Any, weights: np.ndarray) -> None:
        self.function, self.weights = function, weights
        shift = function.name == "rbf" and not issparse(z) and len(z) > 0
        self._mean = _mean(z, np.abs(weights).sum(axis=1)) if shift else None
        self._z = self._shifted(z)
        self._lengths = true_lengths(self._z)
        self._squares = self._lengths * self._lengths
        self.longest = float(self._lengths.max(initial=0.0))
        sizes = np.abs(weights)
        self.size = sizes.sum(axis=0)
        self._terms = int(row_terms(z).max(initial=0))
        shares = sizes / np.where(self.size > 0, self.size, 1.0)
        self._means = self._lengths @ shares, self._squares @ shares

    def _shifted(self, x: Any) -> Any:
        return x if self._mean is None else x - self._mean

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """The functions (n, k) at rows x (n, d) float64, and bounds (n, k) on their errors."""
        x = self._shifted(x)
        lengths = true_lengths(x)
        found = np.empty((len(lengths), self.weights.shape[1]))
        for part in _parts(len(lengths), max(8, _VALUES // max(1, self.weights.shape[0]))):
            product = x[part] @ self._z.T
            products = np.asarray(product.toarray() if issparse(product) else product)
            squares = lengths[part] * lengths[part]
            found[part] = self.function.of_products(products, squares, self._squares) @ self.weights
        return found, self._error(lengths, np.maximum(row_terms(x), self._terms))

    def reach(self, x: Any, longest: float) -> float:
        """Upper bound on sqrt(k(x, x)) of rows x (n, d) up to this length."""
        return float(np.sqrt(self.function.bound(longest, longest)))

    def _error(self, lengths: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """Error (n, k) of the functions at rows of these lengths, with so many terms."""
        summed = gamma(self.weights.shape[0] + 2) * self.function.bound(lengths, self.longest)
        if self.function.name != "rbf":
            return np.asarray((self.function.product_error(lengths, self.longest, terms) + summed)[:, None] * self.size)
        own, (once, twice) = lengths[:, None], self._means
        return np.asarray(
            (self.function.rbf_error(own * own + 2.0 * own * once + twice, terms[:, None]) + summed[:, None])
            * self.size
        )


def row_terms(x: Any) -> np.ndarray:
    """The number (n,) of products in a sum over each row of x that are not 0 exactly."""
    return np.asarray(np.diff(x.indptr) if issparse(x) else np.full(len(x), x.shape[1]))


def _gamma(terms: np.ndarray) -> np.ndarray:
    """``gamma`` of each of these (n,), or slightly more."""
    most = int(terms.max(initial=1))
    return np.asarray(gamma(most) * (terms / most))


def _mean(z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean (d,) of rows z (m, d) by weights (m,); the plain one if the weights are 0 or not finite.

    Computed about the first row: the mean of equal rows is that row, to the bit, and all distances from it are 0.
    """
    total = weights.sum()
    away = z - z[0]
    return np.asarray(z[0] + ((weights / total) @ away if 0 < total < np.inf else away.mean(axis=0)))


class NotAKernel(Exception):
    """A function returned what no kernel returns; row: the place of the row that it is about, -1 for several."""

    def __init__(self, text: str, row: int = -1) -> None:
        super().__init__(text, row)
        self.text, self.row = text, row

    def offset(self, first: int) -> NotAKernel:
        """The same for rows that begin at this place of others."""
        return NotAKernel(self.text, self.row if self.row < 0 else self.row + first)


@dataclass(frozen=True)
class CallableKernel:
    """A function as a kernel; call: None until the user of ``verify`` passes it; named: the name in the model."""

    eta: float
    named: str
    call: Callable[[np.ndarray, np.ndarray], Any] | None = None
    name: str = CALLABLE
    scale: float = 0.0

    def evaluate(self, x: Any, z: Any) -> np.ndarray:
        """Values (n, m) of rows x (n, d) and z (m, d), which the function gets as dense copies. Raises NotAKernel."""
        assert self.call is not None  # noqa: S101 - for the type checker: claims are checked after it is set
        try:
            values = np.asarray(self.call(_dense(x), _dense(z)))
        except MemoryError:
            raise
        except Exception as error:
            raise NotAKernel(f"the function raised {type(error).__name__}: {error}") from error
        if values.shape != (x.shape[0], z.shape[0]) or values.dtype.kind not in "fiub":
            raise NotAKernel(f"the function gave {values.dtype} of shape {values.shape} for {x.shape} and {z.shape}")
        return np.array(values, dtype=np.float64)

    def own(self, x: Any) -> np.ndarray:
        """Upper bounds (n,) on sqrt(k(x, x)). Raises NotAKernel."""
        found = np.empty(x.shape[0])
        for part in _parts(len(found), min(_OWN, _dense_rows(x))):
            found[part] = self.evaluate(x[part], x[part]).diagonal()
        wrong = np.flatnonzero(~((found >= 0) & (found < np.inf)))
        if len(wrong):
            row = int(wrong[0])
            raise NotAKernel(f"k(x, x) is {found[row]:g}, expected a finite number of at least 0", row)
        return np.sqrt(found / (1 - self.eta)) * (1 + 4 * UNIT)

    def values(self, x: Any, z: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Values (n, m) of rows with these sqrt(k(x, x)) (n,) and (m,). Raises NotAKernel."""
        found = np.empty((len(left), len(right)))
        most = _dense_rows(x)
        for across in _parts(len(right), min(_WIDE, most)):
            for part in _parts(len(left), min(_TALL, most)):
                block = self.evaluate(x[part], z[across])
                limit = (1 + self.eta) * (1 + 8 * UNIT) * np.outer(left[part], right[across])
                good = np.abs(block) <= limit
                if not good.all():
                    row, other = (int(places[0]) for places in np.nonzero(~good))
                    raise NotAKernel(
                        f"k(x, z) is {block[row, other]:.17g}, of a positive semi-definite kernel it is no larger than "
                        f"sqrt(k(x, x) k(z, z)) = {limit[row, other]:.17g}",
                        part.start + row,
                    )
                found[part, across] = block
        return found


class CallableExpansion:
    """The same of a kernel that is a function."""

    def __init__(self, function: CallableKernel, z: Any, weights: np.ndarray) -> None:
        self.function, self.weights, self._z = function, weights, z
        self._roots = function.own(z)

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """As of ``Expansion``. Raises NotAKernel."""
        roots = self.function.own(x)
        found, size = np.zeros((len(roots), self.weights.shape[1])), np.abs(self.weights).T @ self._roots
        for part in _parts(len(roots), _TALL):
            try:
                values = self.function.values(x[part], self._z, roots[part], self._roots)
            except NotAKernel as wrong:
                raise wrong.offset(part.start) from wrong.__cause__
            found[part] = values @ self.weights
        lost = (self.function.eta + gamma(len(self._roots) + 4)) * (1 + 16 * UNIT)
        return found, lost * roots[:, None] * size[None, :]

    def reach(self, x: Any, longest: float) -> float:
        """The same. Raises NotAKernel."""
        return float(self.function.own(x).max(initial=0.0))


Kernel: TypeAlias = ClosedKernel | CallableKernel
AnyExpansion: TypeAlias = Expansion | CallableExpansion


def expand(function: Kernel, z: Any, weights: np.ndarray) -> AnyExpansion:
    """The functions sum_j weights_jc k(z_j, .). Raises UsageError if the user's function fails on the rows z."""
    if isinstance(function, ClosedKernel):
        return Expansion(function, z, weights)
    try:
        return CallableExpansion(function, z, weights)
    except NotAKernel as wrong:
        raise UsageError(f"--kernel {function_name(function.call)}, on rows of the coreset: {wrong.text}") from wrong


def check_function(function: CallableKernel, z: Any, stored: np.ndarray) -> list[Check]:
    """Whether a function is that of a model with coreset rows z (m, d), and may be a kernel on them.

    stored (s, s): the model's values of some of these rows.
    """
    name, named = function_name(function.call), function.named
    other = "" if name == named else f"; the model names {named!r}, which was not run"
    try:
        difference = _difference(function, z, stored)
        _check_definite(function, z)
    except NotAKernel as wrong:
        return [Check("kernel", ok=False, text=f"{name}: {wrong.text}{other}")]
    if difference is not None:
        return [Check("kernel", ok=False, text=f"{name} is another function than the model's: {difference}{other}")]
    many = "" if z.shape[0] <= _TOGETHER else f", {_TOGETHER:,} at a time"
    text = (
        f"{name} gives the values that the model stores; symmetric, reproducible, and positive semi-definite on the "
        f"{z.shape[0]:,} coreset rows{many}, within {function.eta:g}{other}"
    )
    return [Check("kernel", function.eta >= FLOOR, text)]


def _difference(function: CallableKernel, z: Any, stored: np.ndarray) -> str | None:
    """The first value that is not within 2 eta of the one that the model stores; None if all are."""
    some = z[reference_places(z.shape[0])]
    roots = function.own(some)
    values = function.values(some, some, roots, roots)
    wrong = ~(np.abs(values - stored) <= 2 * function.eta * (1 + 1e-6) * np.outer(roots, roots))
    if not wrong.any():
        return None
    place = tuple(int(k[0]) for k in np.nonzero(wrong))
    return f"it gives {shown(values[place])} where the model has {shown(stored[place])}"


def _check_definite(function: CallableKernel, z: Any) -> None:
    """Raises NotAKernel unless a function may be a kernel on coreset rows (m, d)."""
    groups = -(-z.shape[0] // _TOGETHER)
    for group in range(groups):
        some = z[np.arange(group, z.shape[0], groups)]
        roots = function.own(some)
        values, limit = function.values(some, some, roots, roots), 2 * function.eta * (1 + 1e-6)
        for part in _parts(len(roots), _TALL):
            wrong = ~(np.abs(values[part] - values[:, part].T) <= limit * np.outer(roots[part], roots))
            if wrong.any():
                row, other = (int(k[0]) for k in np.nonzero(wrong))
                row += part.start
                pair = f"{shown(values[row, other])} one way and {shown(values[other, row])} the other"
                raise NotAKernel(f"it is not symmetric: of two coreset rows it gives {pair}")
        _check_reproducible(function, some, roots, values)
        _check_eigenvalues(values, roots, function.eta)


def _check_reproducible(function: CallableKernel, z: Any, roots: np.ndarray, values: np.ndarray) -> None:
    """Raises NotAKernel if values differ from these (n, n) in another order of rows, in blocks of other shapes."""
    order = np.arange(len(roots))[:: max(1, len(roots) // _AGAIN)][::-1]
    half = order[: (len(order) + 1) // 2]
    again = function.values(z[order], z[half], roots[order], roots[half])
    limit = 2 * function.eta * (1 + 1e-6) * np.outer(roots[order], roots[half])
    if not (np.abs(again - values[np.ix_(order, half)]) <= limit).all():
        raise NotAKernel("for the same rows in another order it gives other values")


def _check_eigenvalues(values: np.ndarray, roots: np.ndarray, eta: float) -> None:
    """Raises NotAKernel unless values (n, n), which are overwritten, are within eta of a semi-definite matrix.

    Only one triangle is read: the other one is as close to the kernel's.
    """
    trace = float((roots * roots).sum())
    values[np.diag_indices(len(roots))] += (eta + gamma(4 * len(roots) + 16)) * trace + 1e-300
    try:
        cholesky(values.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        text = f"of {len(roots):,} coreset rows an eigenvalue is below {-eta * trace:.3g}"
        raise NotAKernel(f"it is not positive semi-definite: {text}, which is all that {eta:g} explains") from None


def function_terms(eta: float) -> str:
    """The condition under which claims about a function hold."""
    return (
        f", of every positive semi-definite kernel k from which the function's values are off by {eta:g} "
        f"sqrt(k(x,x) k(z,z)) at most (that there is one is assumed of all rows; of the coreset's it was checked)"
    )


def function_missing(named: str) -> UsageError:
    """The error for a model whose kernel is a function that was not passed."""
    return UsageError(
        f"the kernel of this model is a function, {named!r} where it was trained, and no part of the model: if you "
        f"trust yours, pass --kernel MODULE:FUNCTION; from Python coremargin.verify(model, store, kernel=function)"
    )


def _dense(x: Any) -> np.ndarray:
    """A dense copy, which a function may change."""
    return np.array(x.toarray() if issparse(x) else x, dtype=np.float64, order="C")


def _dense_rows(x: Any) -> int:
    """The number of rows like these (n, d) that may be dense at a time."""
    return max(1, _DENSE // max(1, int(x.shape[1])))


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(first, min(count, first + size)) for first in range(0, count, size))
