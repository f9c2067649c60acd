"""The linear algebra of Wolfe's method (nearest.py), by BLAS and LAPACK.

QR factors of a few columns that come and go, and products of rows with a point.

q (capacity, d) has an orthonormal basis in its first m rows, r (capacity, capacity) the triangle in its first m
columns. loops.py has the same functions for the compiler.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs

from coremargin.maths.stopping import may_stop

Array = NDArray[np.float64]


def step_begins() -> None:
    """Called before each step of Wolfe's method: may raise the error that ends the solve."""
    may_stop()


def split(q: Array, m: int, column: Array) -> tuple[Array, Array]:
    """A column (d,) in the basis (m,), and the rest of it (d,), which is orthogonal to the basis."""
    q = q[:m]
    head = q @ column
    rest = column - head @ q
    again = q @ rest  # twice is enough (Giraud, Langou, Rozloznik 2005)
    return head + again, rest - again @ q


def clear(q: Array, m: int, vector: Array) -> None:
    """Subtract from a vector (d,), in place, its projection on the basis."""
    q = q[:m]
    vector -= (q @ vector) @ q


def carried(
    rows: Array, groups: NDArray[np.int64], support: NDArray[np.int64], weights: Array, point: Array, count: int
) -> Array:
    """The weighted sums (count,) of rows.point over the support of each group; rows (n, d), weights and groups (n,)."""
    levels = weights[support] * (rows[support] @ point)
    return np.asarray(np.bincount(groups[support], levels, count))


def lowest(rows: Array, blocked: Array, first: int, stop: int, point: Array) -> tuple[float, int]:
    """The smallest of rows.point + blocked (n,) from row ``first`` to ``stop`` - 1, and its place."""
    levels = rows[first:stop] @ point + blocked[first:stop]
    k = int(levels.argmin())
    return float(levels[k]), first + k


def solve_upper(r: Array, m: int, head: Array) -> Array:
    """Solve the triangular system of the first m columns; by the LAPACK routine, without SciPy's costly checks."""
    solution, _ = dtrtrs(r[:m, :m], head[:m])
    return np.asarray(solution)


def delete_column(q: Array, r: Array, m: int, k: int) -> None:
    """Remove column k from the factors, in place."""
    left, upper = sla.qr_delete(q[:m].T, r[:m, :m], k, which="col", check_finite=False)
    q[: m - 1] = left[:, : m - 1].T
    r[: m - 1, : m - 1] = upper[: m - 1]
