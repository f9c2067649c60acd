"""A function of two rows that somebody brings as a kernel: what is claimed of it, and what can be refuted.

How such a function rounds is not known. So what is proven is proven for every positive semi-definite kernel k with

    |k(x, z) - v(x, z)| <= eta sqrt(k(x, x) k(z, z))

v being the values that it gives and eta, the ``kernel_error``, a part of the question as epsilon is. In the place of
the length of a row stands its length in the space of k: ||x|| here is sqrt(k(x, x)) <= sqrt(v(x, x) / (1 - eta)), which
sqrt(v(x, x)) (1 + eta) is no less than for eta up to 1e-3. Then |k(x, z)| <= ||x|| ||z||, each value is off by
eta ||x|| ||z|| at most, and sum_j beta_j k(z_j, x) by (eta + gamma_m) ||x|| sum_j |beta_j| ||z_j||, which every bound
counts: of decisions and losses, of norms, of dual values.

That v is near a kernel at all is an assumption about all rows. What can be refuted is looked at, with no more tolerance
than eta gives: values are finite and k(x, x) is not negative (of every row), |v(x, z)| <= (1 + eta) ||x|| ||z|| (of all
values that are computed), v(x, z) = v(z, x) within 2 eta and the same values again in blocks of other shapes and orders
(of rows side by side in the store, and of those that carry the functions), and the least eigenvalue of the values of
these with each other: within eta of a positive semi-definite matrix there is none below -eta sum_i k(x_i, x_i).
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
    located,
)
from coremargin.maths.margin import gamma as rounding
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.rows import Rows

Array = NDArray[np.float64]
#: Rows of a block on the diagonal, of which k(x, x) is taken: so many values are computed for each that is needed.
DIAGONAL = 32
#: Numbers of rows that are made dense at a time: 32 MiB.
DENSE = 1 << 22
#: Rows whose values with each other are judged at a time: 128 MiB, and a second for their factor.
JUDGED = 4096
#: Rows of them that are asked about once more, in another order and shape.
AGAIN = 256
#: Rows of which the least eigenvalue is told.
TOLD = 1024


@dataclass(frozen=True)
class CallableKernel(Kernel):
    """The kernel of a function; ``lengths`` of its points are those in the space of the kernel, never below these.

    eta: as above, from 1e-13 to 1e-3.
    """

    room: ClassVar[float] = 4.0  #: who counts eta once more may find values that are 2 eta away: 3, and some rounding

    name: KernelName = "callable"
    function: KernelFunction = np.inner
    eta: float = 1e-10

    def points(self, rows: Rows) -> Points:
        """Rows (n, d), and sqrt(k(x, x)) (n,). Raises KernelFault."""
        exact: Any = row_ops.as_float64(rows)
        own, step = np.empty(exact.shape[0]), min(DIAGONAL, _dense_rows(exact))
        for first in range(0, len(own), step):
            part = slice(first, first + step)
            own[part] = located(partial(self._diagonal, exact[part]), first, first)
        return Points(exact, np.sqrt(own) * (1 + self.eta))

    def _diagonal(self, rows: Rows) -> Array:
        """k(x, x) (n,) of a few rows."""
        values = self._asked(rows, rows)
        own = values.diagonal()
        wrong = np.flatnonzero(~(np.isfinite(own) & (own >= 0)))
        if len(wrong):
            row = int(wrong[0])
            raise KernelFault(f"k(x, x) = {own[row]:g}, expected a number from 0 on", row)
        lengths = np.sqrt(own) * (1 + self.eta)
        if np.isfinite(values).all():  # of others it is told what they are
            check_symmetric(values, lengths, self.eta)
        self._check(values, lengths, lengths)
        return own

    def shared(self, x: Points, z: Points, out: Array | None = None) -> Array:
        """Values (n, m). Raises KernelFault."""
        values = np.empty((len(x), len(z))) if out is None else out
        most = _dense_rows(x.rows)
        tall, wide = min(TILE_ROWS, most), min(TILE_COLUMNS, most)
        for across in range(0, len(z), wide):
            some = z.take(slice(across, across + wide))
            for first in range(0, len(x), tall):
                part = x.take(slice(first, first + tall))
                tile = located(partial(self._tile, part, some), first, across)
                values[first : first + tall, across : across + wide] = tile
        return values

    def of_shared(self, values: Array, dtype: Any = np.float64, out: Array | None = None) -> NDArray[Any]:
        """The same values: no two of such kernels share anything."""
        return values.astype(dtype, copy=False)

    def _tile(self, x: Points, z: Points) -> Array:
        values = self._asked(x.rows, z.rows)
        self._check(values, x.lengths, z.lengths)
        return values

    def _asked(self, x: Rows, z: Rows) -> Array:
        """Values (n, m), as the function gives them for copies of the rows, which it may do with what it likes."""
        may_stop()
        try:
            given = np.asarray(self.function(_own(x), _own(z)))
        except (MemoryError, KernelFault):
            raise
        except Exception as error:
            raise KernelFault(f"it raised {type(error).__name__}: {error}") from error
        if given.dtype.kind not in "fiub" or given.shape != (x.shape[0], z.shape[0]):
            raise KernelFault(
                f"expected an array of shape ({x.shape[0]}, {z.shape[0]}) of real numbers for rows of shape {x.shape} "
                f"and {z.shape}, found one of shape {given.shape} of {given.dtype}"
            )
        return given.astype(np.float64, copy=False)

    def _check(self, values: Array, left: Array, right: Array) -> None:
        """Raises KernelFault for values (n, m) of rows of these lengths that are no kernel's."""
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
            f"k(x, z) = {value:.17g}, of rows with k(x, x) = {own:.6g} and k(z, z) = {others:.6g}: a positive "
            f"semi-definite kernel has no more than the root of their product, within kernel_error {self.eta:g}",
            row, other,
        )  # fmt: skip

    def squares(self, x: Points) -> Array:
        """k(x, x) (n,), as the function gives them."""
        return np.asarray((x.lengths / (1 + self.eta)) ** 2)

    @property
    def noise(self) -> float:
        """What values may be off by."""
        return self.eta

    def largest(self, length: Array | float, longest: float) -> Any:
        """A bound (n,) on |k(x, z)| of rows of these lengths in its space with rows no longer than ``longest``."""
        return np.asarray(length, dtype=np.float64) * longest * (1 + 1e-12)

    def error(self, length: Array | float, longest: float, terms: NDArray[np.int64] | int) -> Any:
        """A bound (n,) on how far values are from those of k; terms: of no meaning here."""
        return self.eta * self.largest(length, longest)

    def sums_error(self, x: Points, carrying: Lengths, size: Array, count: int) -> Array:
        """As of every kernel; rows that carry weights count with their own lengths."""
        each = (self.eta + rounding(count + 6)) * (1 + 1e-12) * carrying.mean * x.lengths
        return np.asarray(each[:, None] * size[None, :])

    def judge(self, x: Points) -> None:
        """Raises KernelFault for rows whose values with each other show that it is no kernel, as far as that can be.

        Up to JUDGED of them all together, of more so many at a time, in groups that are spread over all.
        """
        groups = -(-len(x) // JUDGED)
        for group in range(groups):
            places = np.arange(group, len(x), groups)
            located(partial(self._judge, x.take(places)), places)

    def _judge(self, x: Points) -> None:
        values = self.block(x, x)
        check_symmetric(values, x.lengths, self.eta)
        for order in (np.arange(len(x))[::-1], np.arange(0, len(x), 3)):
            some = order[:AGAIN]
            located(partial(self._again, x.take(some), values[np.ix_(some, some)]), some)
        check_semidefinite(values, x.lengths, self.eta)

    def _again(self, x: Points, before: Array) -> None:
        """Raises KernelFault where the function does not give the values (n, n) again that it gave before."""
        for first, stop in ((0, len(x) // 3), (len(x) // 3, len(x))):
            part = x.take(slice(first, stop))
            wrong = beyond(self.block(part, x), before[first:stop], part.lengths, x.lengths, self.eta)
            if wrong is not None:
                raise KernelFault(
                    f"k(x, z) = {wrong[2]:.17g}, and asked once more, with other rows beside these, {wrong[3]:.17g}: "
                    f"they differ by more than kernel_error {self.eta:g} explains", wrong[0] + first, wrong[1],
                )  # fmt: skip


def beyond(values: Array, others: Array, left: Array, right: Array, eta: float) -> tuple[int, int, float, float] | None:
    """Where values (n, m) of rows of these lengths are not within 2 eta of others, and both; None: they are."""
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(values - others) <= 2 * (eta + 4 * UNIT) * left[:, None] * right[None, :])
    if not wrong.any():
        return None
    row, other = (int(places[0]) for places in np.nonzero(wrong))
    return row, other, float(values[row, other]), float(others[row, other])


def check_symmetric(values: Array, lengths: Array, eta: float) -> None:
    """Raises KernelFault for values (n, n) that are not those of their rows the other way round."""
    wrong = beyond(values, values.T, lengths, lengths, eta)
    if wrong is not None:
        raise KernelFault(
            f"k(x, z) = {wrong[2]:.17g} and k(z, x) = {wrong[3]:.17g}: it is not symmetric, within kernel_error "
            f"{eta:g}", wrong[0], wrong[1],
        )  # fmt: skip


def check_semidefinite(values: NDArray[Any], lengths: Array, eta: float) -> None:
    """Raises KernelFault for values (n, n), in any precision, that are near no positive semi-definite matrix."""
    count, trace = len(lengths), float(lengths @ lengths)
    if not trace:
        return
    unit = float(np.finfo(values.dtype).eps)
    least = (eta + 2 * unit + rounding(4 * count + 16)) * trace
    shifted = values.T.astype(np.float64, order="F")  # one triangle of which is read: both are as near to k
    shifted[np.diag_indices(count)] += least
    try:
        cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        some = np.linspace(0, count - 1, min(count, TOLD)).astype(int)
        lowest = float(eigvalsh(values[np.ix_(some, some)].astype(np.float64))[0])
        told = f", {lowest:.6g} of {len(some):,} of them" if lowest < 0 else ""
        raise KernelFault(
            f"its values of {count:,} rows with each other have an eigenvalue below {-least:.3g}, which is all that "
            f"kernel_error {eta:g} explains{told}: it is not positive semi-definite, and of such a function nothing is "
            f"best and nothing could be proven"
        ) from None


def _dense_rows(rows: Rows) -> int:
    """How many rows like these (n, d) are made dense at a time."""
    return max(1, DENSE // max(1, int(rows.shape[1])))


def _own(rows: Rows) -> Array:
    """Dense copies of rows in float64."""
    return np.array(row_ops.dense(rows), dtype=np.float64, order="C")
