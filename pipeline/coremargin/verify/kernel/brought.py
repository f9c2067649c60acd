"""A kernel that is a function, as ``verify`` asks it: code of its own, with blocks of its own shapes.

The claims are about every positive semi-definite kernel k with |k(x, z) - v(x, z)| <= eta sqrt(k(x, x) k(z, z)), v
being what the function gives and eta the ``kernel_error`` of the model, which may not be below FLOOR whatever is
claimed. Then k(x, x) <= v(x, x) / (1 - eta), and a sum of weights b_j with k(z_j, x) is off by (eta + gamma_(m+2)) of
sqrt(k(x, x)) sum_j |b_j| sqrt(k(z_j, z_j)) at most.

That there is such a kernel can be refuted, not proven: each v(x, x) of the store has to be finite and no less than 0,
each |v(x, z)| no more than the root of both and eta allow; among the rows of the coreset v is symmetric, gives the same
values in other blocks and another order, and has no eigenvalue below -eta sum_i v(x_i, x_i), as far as float64 tells.
Whose word the function is: that of who verifies. What the model says of it is a name, which is told and never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.sparse import issparse

from coremargin.errors import UsageError
from coremargin.formats.function import function_name
from coremargin.formats.kernel import reference_places
from coremargin.verify.checks import Check, shown
from coremargin.verify.kernel.values import Expansion, Function
from coremargin.verify.sums import UNIT, gamma

FLOOR = 1e-13  #: no function of sums in float64 is taken for more exact
_OWN = 24  # rows whose values with each other are asked for to have those with themselves
_TALL, _WIDE = 128, 768  # a block of values
_DENSE = 1 << 22  # numbers of rows that are dense at a time
_TOGETHER = 4096  # coreset rows whose eigenvalues are looked at together
_AGAIN = 200  # of these, rows that are asked about in another order


class NoKernel(Exception):
    """A function gave what no kernel gives; row: the place of the row that it is about, -1 for none alone."""

    def __init__(self, text: str, row: int = -1) -> None:
        super().__init__(text, row)
        self.text, self.row = text, row

    def moved(self, first: int) -> NoKernel:
        """Of rows that begin at this place of others."""
        return NoKernel(self.text, self.row if self.row < 0 else self.row + first)


@dataclass(frozen=True)
class Brought(Function):
    """A function as a kernel; call: None until who verifies has said it; named: what the model calls it."""

    eta: float = FLOOR
    named: str = ""
    call: Callable[[np.ndarray, np.ndarray], Any] | None = None

    def asked(self, x: Any, z: Any) -> np.ndarray:
        """Values (n, m) of rows x (n, d) and z (m, d), which it gets as dense copies. Raises NoKernel."""
        assert self.call is not None  # noqa: S101 - for the type checker: ``expansion`` is made of those that have one
        try:
            values = np.asarray(self.call(_dense(x), _dense(z)))
        except MemoryError:
            raise
        except Exception as error:
            raise NoKernel(f"the function raised {type(error).__name__}: {error}") from error
        if values.shape != (x.shape[0], z.shape[0]) or values.dtype.kind not in "fiub":
            raise NoKernel(f"the function gave {values.dtype} of shape {values.shape} for {x.shape} and {z.shape}")
        return np.array(values, dtype=np.float64)

    def own(self, x: Any) -> np.ndarray:
        """sqrt(k(x, x)) (n,) of rows, at most. Raises NoKernel."""
        found = np.empty(x.shape[0])
        for part in _parts(len(found), min(_OWN, _dense_rows(x))):
            found[part] = self.asked(x[part], x[part]).diagonal()
        wrong = np.flatnonzero(~((found >= 0) & (found < np.inf)))
        if len(wrong):
            row = int(wrong[0])
            raise NoKernel(f"k(x, x) is {found[row]:g}, expected a finite number from 0 on", row)
        return np.sqrt(found / (1 - self.eta)) * (1 + 4 * UNIT)

    def values(self, x: Any, z: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Values (n, m) of rows with these sqrt(k(x, x)) (n,) and (m,). Raises NoKernel."""
        found = np.empty((len(left), len(right)))
        most = _dense_rows(x)
        for across in _parts(len(right), min(_WIDE, most)):
            for part in _parts(len(left), min(_TALL, most)):
                block = self.asked(x[part], z[across])
                limit = (1 + self.eta) * (1 + 8 * UNIT) * np.outer(left[part], right[across])
                self._limited(block, limit, part.start)
                found[part, across] = block
        return found

    def _limited(self, block: np.ndarray, limit: np.ndarray, first: int) -> None:
        """Raises NoKernel for a value of a block of rows from ``first`` on that is beyond its limit."""
        good = np.abs(block) <= limit
        if not good.all():
            row, other = (int(places[0]) for places in np.nonzero(~good))
            raise NoKernel(
                f"k(x, z) is {block[row, other]:.17g}, of a positive semi-definite kernel it is no larger than "
                f"sqrt(k(x, x) k(z, z)) = {limit[row, other]:.17g}",
                first + row,
            )

    def bound(self, left: np.ndarray | float, right: float) -> np.ndarray:
        """No value of rows with these sqrt(k(x, x)) (n,) is larger."""
        return np.asarray(left) * right * (1 + 4 * UNIT)


class BroughtExpansion(Expansion):
    """Functions sum_j weights_jc k(z_j, .) of such a kernel."""

    function: Brought

    def __init__(self, function: Brought, z: Any, weights: np.ndarray) -> None:
        self.function, self.weights, self._z = function, weights, z
        self._roots = function.own(z)

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """As of every kernel. Raises NoKernel."""
        roots = self.function.own(x)
        found, size = np.zeros((len(roots), self.weights.shape[1])), np.abs(self.weights).T @ self._roots
        for part in _parts(len(roots), _TALL):
            try:
                values = self.function.values(x[part], self._z, roots[part], self._roots)
            except NoKernel as wrong:
                raise wrong.moved(part.start) from wrong.__cause__
            found[part] = values @ self.weights
        lost = (self.function.eta + gamma(len(self._roots) + 4)) * (1 + 16 * UNIT)
        return found, lost * roots[:, None] * size[None, :]

    def reach(self, x: Any, longest: float) -> float:
        """The largest sqrt(k(x, x)). Raises NoKernel."""
        return float(self.function.own(x).max(initial=0.0))


def expansion(function: Function, z: Any, weights: np.ndarray) -> Expansion:
    """Functions of a kernel of either kind. Raises UsageError where a function gives nothing that could be checked."""
    if not isinstance(function, Brought):
        return Expansion(function, z, weights)
    try:
        return BroughtExpansion(function, z, weights)
    except NoKernel as wrong:
        raise UsageError(f"--kernel {function_name(function.call)}, on rows of the coreset: {wrong.text}") from wrong


def checked(function: Brought, z: Any, kept: np.ndarray) -> list[Check]:
    """Whether a function is the one of a model with coreset rows z (m, d), and may be a kernel on them."""
    told, named = function_name(function.call), function.named
    other = "" if told == named else f"; the model names {named!r}, which was not run"
    try:
        apart = _apart(function, z, kept)
        _judged(function, z)
    except NoKernel as wrong:
        return [Check("kernel", ok=False, text=f"{told}: {wrong.text}{other}")]
    if apart is not None:
        return [Check("kernel", ok=False, text=f"{told} is another function than the model's: {apart}{other}")]
    many = "" if z.shape[0] <= _TOGETHER else f", {_TOGETHER:,} at a time"
    text = (
        f"{told} gives the values that the model keeps; symmetric, the same again, and positive semi-definite on the "
        f"{z.shape[0]:,} coreset rows{many}, within {function.eta:g}{other}"
    )
    return [Check("kernel", function.eta >= FLOOR, text)]


def _apart(function: Brought, z: Any, kept: np.ndarray) -> str | None:
    """Which value is not within 2 eta of the one that a model keeps; None where all are."""
    some = z[reference_places(z.shape[0])]
    roots = function.own(some)
    values = function.values(some, some, roots, roots)
    wrong = ~(np.abs(values - kept) <= 2 * function.eta * (1 + 1e-6) * np.outer(roots, roots))
    if not wrong.any():
        return None
    place = tuple(int(k[0]) for k in np.nonzero(wrong))
    return f"it gives {shown(values[place])} where the model has {shown(kept[place])}"


def _judged(function: Brought, z: Any) -> None:
    """Raises NoKernel for a function that is no kernel on coreset rows (m, d)."""
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
                raise NoKernel(f"it is not symmetric: of two coreset rows it gives {pair}")
        _asked_again(function, some, roots, values)
        _semidefinite(values, roots, function.eta)


def _asked_again(function: Brought, z: Any, roots: np.ndarray, values: np.ndarray) -> None:
    """Raises NoKernel where it gives other values (n, n) when rows come in another order, in blocks of other shapes."""
    order = np.arange(len(roots))[:: max(1, len(roots) // _AGAIN)][::-1]
    half = order[: (len(order) + 1) // 2]
    again = function.values(z[order], z[half], roots[order], roots[half])
    limit = 2 * function.eta * (1 + 1e-6) * np.outer(roots[order], roots[half])
    if not (np.abs(again - values[np.ix_(order, half)]) <= limit).all():
        raise NoKernel("asked again for the same rows in another order, it gives other values")


def _semidefinite(values: np.ndarray, roots: np.ndarray, eta: float) -> None:
    """Raises NoKernel for values (n, n) that are within eta of no positive semi-definite matrix, changing them.

    One triangle of them is read: the other one is as near to the kernel's.
    """
    trace = float((roots * roots).sum())
    values[np.diag_indices(len(roots))] += (eta + gamma(4 * len(roots) + 16)) * trace + 1e-300
    try:
        cholesky(values.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        text = f"of {len(roots):,} coreset rows an eigenvalue is below {-eta * trace:.3g}"
        raise NoKernel(f"it is not positive semi-definite: {text}, which is all that {eta:g} explains") from None


def claimed(eta: float) -> str:
    """What else is a part of a claim, in words."""
    return (
        f", of every positive semi-definite kernel k from which the function's values are off by {eta:g} "
        f"sqrt(k(x,x) k(z,z)) at most (that there is one is assumed of all rows; of the coreset's it was checked)"
    )


def without(named: str) -> UsageError:
    """What to do about a model whose kernel is a function that nobody said."""
    return UsageError(
        f"the kernel of this model is a function, {named!r} where it was trained, and no part of the model: if you "
        f"trust yours, say --kernel MODULE:FUNCTION; from Python coremargin.verify(model, store, kernel=function)"
    )


def _dense(x: Any) -> np.ndarray:
    """A dense copy, with which a function may do what it likes."""
    return np.array(x.toarray() if issparse(x) else x, dtype=np.float64, order="C")


def _dense_rows(x: Any) -> int:
    """How many rows like these (n, d) are dense at a time."""
    return max(1, _DENSE // max(1, int(x.shape[1])))


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(first, min(count, first + size)) for first in range(0, count, size))
