"""User-defined kernels: what is claimed of a function, and which checks it must pass.

How a user-defined function rounds is unknown. So proofs hold for every positive semi-definite kernel k with

    |k(x, z) - v(x, z)| <= eta sqrt(k(x, x) k(z, z))

where v are the values of the function and eta is the ``kernel_error``, a parameter of the job as epsilon is. Lengths
of rows are taken in the space of k: ||x|| here is sqrt(k(x, x)) <= sqrt(v(x, x) / (1 - eta)), which for eta up to 1e-3
is at most sqrt(v(x, x)) (1 + eta). Then |k(x, z)| <= ||x|| ||z||, each value is off by at most eta ||x|| ||z||, and
sum_j beta_j k(z_j, x) by (eta + gamma_m) ||x|| sum_j |beta_j| ||z_j||. All bounds count this: on decision values and
losses, norms and dual values.

That such a k exists is an assumption about all rows. These checks can refute it, with no more tolerance than eta gives:
- of every row: values are finite, and k(x, x) is not negative;
- of every computed value: |v(x, z)| <= (1 + eta) ||x|| ||z||;
- of neighbours in the store and of rows that carry the functions: v(x, z) = v(z, x) within 2 eta, and the same values
  again in blocks of other shapes and orders;
- of the latter: the least eigenvalue of their kernel matrix. Within eta of a positive semi-definite matrix it is at
  least -eta sum_i k(x_i, x_i).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.linalg import LinAlgError, eigvalsh
from numpy.typing import NDArray
from scipy.linalg import cho_factor

from coremargin.formats.choices import KernelName
from coremargin.maths import rows as row_ops
from coremargin.maths.kernel.functions import (
    TILE_COLUMNS,
    TILE_ROWS,
    UNIT,
    Kernel,
    KernelFault,
    KernelFunction,
    Lengths,
    Points,
    relocate_faults,
)
from coremargin.maths.margin import gamma as rounding
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.rows import Rows

Array = NDArray[np.float64]
#: Rows of a block on the diagonal, from which k(x, x) is taken: so many values are computed for each one needed.
DIAGONAL = 32
#: Numbers of rows that are dense at a time: 32 MiB.
DENSE = 1 << 22
#: Rows whose kernel matrix is checked at a time: 128 MiB, and as much for its factor.
CHECKED = 4096
#: Rows of these whose values are computed again, in other blocks.
REPEATED = 256
#: Rows whose least eigenvalue a message states.
REPORTED = 1024


@dataclass(frozen=True)
class CallableKernel(Kernel):
    """The kernel of a user-defined function; ``lengths`` of its points are upper bounds on sqrt(k(x, x)).

    eta: as above, from 1e-13 to 1e-3. SAFETY: a verifier that counts eta once more may find values that differ by
    2 eta: a factor of 3, and some rounding.
    """

    SAFETY: ClassVar[float] = 4.0

    name: KernelName = "callable"
    function: KernelFunction = np.inner
    eta: float = 1e-10

    def points(self, rows: Rows) -> Points:
        """Rows (n, d), with upper bounds on sqrt(k(x, x)) as lengths (n,). Raises KernelFault."""
        exact: Any = row_ops.as_float64(rows)
        own, step = np.empty(exact.shape[0]), min(DIAGONAL, _dense_rows(exact))
        for first in range(0, len(own), step):
            part = slice(first, first + step)
            own[part] = relocate_faults(partial(self._diagonal, exact[part]), first, first)
        return Points(exact, np.sqrt(own) * (1 + self.eta))

    def _diagonal(self, rows: Rows) -> Array:
        """k(x, x) (n,) of a few rows, whose values with each other are checked."""
        values = self._call(rows, rows)
        own = values.diagonal()
        wrong = np.flatnonzero(~(np.isfinite(own) & (own >= 0)))
        if len(wrong):
            row = int(wrong[0])
            raise KernelFault(f"k(x, x) = {own[row]:g}, expected a number from 0 on", row)
        lengths = np.sqrt(own) * (1 + self.eta)
        if np.isfinite(values).all():  # else the next check has a better message
            check_symmetric(values, lengths, self.eta)
        self._check_sizes(values, lengths, lengths)
        return own

    def products(self, x: Points, z: Points, out: Array | None = None) -> Array:
        """Values (n, m), computed and checked tile by tile. Raises KernelFault."""
        values = np.empty((len(x), len(z))) if out is None else out
        most = _dense_rows(x.rows)
        tall, wide = min(TILE_ROWS, most), min(TILE_COLUMNS, most)
        for across in range(0, len(z), wide):
            some = z.take(slice(across, across + wide))
            for first in range(0, len(x), tall):
                part = x.take(slice(first, first + tall))
                tile = relocate_faults(partial(self._tile, part, some), first, across)
                values[first : first + tall, across : across + wide] = tile
        return values

    def from_products(self, values: Array, dtype: Any = np.float64, out: Array | None = None) -> NDArray[Any]:
        """The same values: user-defined kernels share nothing."""
        return values.astype(dtype, copy=False)

    def _tile(self, x: Points, z: Points) -> Array:
        values = self._call(x.rows, z.rows)
        self._check_sizes(values, x.lengths, z.lengths)
        return values

    def _call(self, x: Rows, z: Rows) -> Array:
        """Values (n, m) of the function, which gets copies of the rows and may change them."""
        may_stop()
        try:
            found = np.asarray(self.function(_dense_copy(x), _dense_copy(z)))
        except (MemoryError, KernelFault):
            raise
        except Exception as error:
            raise KernelFault(f"it raised {type(error).__name__}: {error}") from error
        if found.dtype.kind not in "fiub" or found.shape != (x.shape[0], z.shape[0]):
            raise KernelFault(
                f"expected an array of shape ({x.shape[0]}, {z.shape[0]}) of real numbers for rows of shape {x.shape} "
                f"and {z.shape}, found one of shape {found.shape} of {found.dtype}"
            )
        return found.astype(np.float64, copy=False)

    def _check_sizes(self, values: Array, left: Array, right: Array) -> None:
        """Raise KernelFault if values (n, m) exceed the product of the lengths of their rows, or are not finite."""
        most = (left * (1 + self.eta) * (1 + 8 * UNIT))[:, None] * right[None, :]
        good = np.abs(values) <= most
        if good.all():
            return
        row, other = (int(places[0]) for places in np.nonzero(~good))
        value = float(values[row, other])
        if not np.isfinite(value):
            raise KernelFault(f"k(x, z) = {value:g}, expected a finite number", row, other)
        own, others = (float(lengths[place]) ** 2 for lengths, place in ((left, row), (right, other)))
        raise KernelFault(
            f"k(x, z) = {value:.17g} for rows with k(x, x) = {own:.6g} and k(z, z) = {others:.6g}: in a positive "
            f"semi-definite kernel |k(x, z)| is at most the square root of their product, within kernel_error "
            f"{self.eta:g}",
            row,
            other,
        )

    def diagonal(self, x: Points) -> Array:
        """k(x, x) (n,), as the function returned them."""
        return np.asarray((x.lengths / (1 + self.eta)) ** 2)

    @property
    def relative_error(self) -> float:
        """eta."""
        return self.eta

    def value_bound(self, length: Array | float, longest: Array | float) -> Any:
        """A bound (n,) on |k(x, z)| for rows x of these lengths and rows z no longer than ``longest``."""
        return np.asarray(length, dtype=np.float64) * longest * (1 + 1e-12)

    def value_error(self, length: Array | float, longest: Array | float, terms: NDArray[np.int64] | int) -> Any:
        """A bound (n,) on the distance of values from those of k; terms is not used."""
        return self.eta * self.value_bound(length, longest)

    def sums_error(self, x: Points, carrying: Lengths, size: Array, count: int) -> Array:
        """As for every kernel; each row that carries weights counts with its own length."""
        each = (self.eta + rounding(count + 6)) * (1 + 1e-12) * carrying.mean * x.lengths
        return np.asarray(each[:, None] * size[None, :])

    def check_values(self, x: Points) -> None:
        """Raise KernelFault if the values of these rows with each other are those of no kernel.

        More than CHECKED rows are checked in groups, each of which is spread over all rows.
        """
        groups = -(-len(x) // CHECKED)
        for group in range(groups):
            places = np.arange(group, len(x), groups)
            relocate_faults(partial(self._check_group, x.take(places)), places)

    def _check_group(self, x: Points) -> None:
        values = self.block(x, x)
        check_symmetric(values, x.lengths, self.eta)
        for order in (np.arange(len(x))[::-1], np.arange(0, len(x), 3)):
            some = order[:REPEATED]
            relocate_faults(partial(self._check_repeatable, x.take(some), values[np.ix_(some, some)]), some)
        check_semidefinite(values, x.lengths, self.eta)

    def _check_repeatable(self, x: Points, before: Array) -> None:
        """Raise KernelFault if the function returns other values than ``before`` (n, n)."""
        for first, stop in ((0, len(x) // 3), (len(x) // 3, len(x))):
            part = x.take(slice(first, stop))
            wrong = first_difference(self.block(part, x), before[first:stop], part.lengths, x.lengths, self.eta)
            if wrong is not None:
                raise KernelFault(
                    f"k(x, z) = {wrong[2]:.17g}, but {wrong[3]:.17g} when computed alongside other rows: they differ "
                    f"by more than kernel_error {self.eta:g} allows",
                    wrong[0] + first,
                    wrong[1],
                )


def first_difference(
    values: Array, others: Array, left: Array, right: Array, eta: float
) -> tuple[int, int, float, float] | None:
    """Where values (n, m) of rows of these lengths first differ from ``others`` by more than 2 eta, and both values."""
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(values - others) <= 2 * (eta + 4 * UNIT) * left[:, None] * right[None, :])
    if not wrong.any():
        return None
    row, other = (int(places[0]) for places in np.nonzero(wrong))
    return row, other, float(values[row, other]), float(others[row, other])


def check_symmetric(values: Array, lengths: Array, eta: float) -> None:
    """Raise KernelFault if a kernel matrix (n, n) is not symmetric."""
    wrong = first_difference(values, values.T, lengths, lengths, eta)
    if wrong is not None:
        raise KernelFault(
            f"k(x, z) = {wrong[2]:.17g} and k(z, x) = {wrong[3]:.17g}: it is not symmetric, within kernel_error "
            f"{eta:g}",
            wrong[0],
            wrong[1],
        )


def check_semidefinite(values: NDArray[Any], lengths: Array, eta: float) -> None:
    """Raise KernelFault if a matrix (n, n), in any precision, is not near a positive semi-definite one."""
    count, trace = len(lengths), float(lengths @ lengths)
    if not trace:
        return
    unit = float(np.finfo(values.dtype).eps)
    least = (eta + 2 * unit + rounding(4 * count + 16)) * trace
    shifted = values.T.astype(np.float64, order="F")  # one triangle is read; both are equally near to k
    shifted[np.diag_indices(count)] += least
    try:
        cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        some = np.linspace(0, count - 1, min(count, REPORTED)).astype(int)
        lowest = float(eigvalsh(values[np.ix_(some, some)].astype(np.float64))[0])
        found = f" ({lowest:.6g} for {len(some):,} of them)" if lowest < 0 else ""
        raise KernelFault(
            f"the kernel matrix of {count:,} rows has an eigenvalue below {-least:.3g}, the least that kernel_error "
            f"{eta:g} allows{found}: it is not positive semi-definite, so the problem has no optimum and nothing can "
            f"be proven"
        ) from None


def _dense_rows(rows: Rows) -> int:
    """How many rows like these (n, d) are dense at a time."""
    return max(1, DENSE // max(1, int(rows.shape[1])))


def _dense_copy(rows: Rows) -> Array:
    return np.array(row_ops.dense(rows), dtype=np.float64, order="C")
