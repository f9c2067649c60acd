"""The linear algebra of Wolfe's method in loops: the functions of factors.py for the compiler.

Compiled, a call of BLAS for a dozen numbers takes longer than the numbers do.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def step_begins() -> None:
    """Do nothing: compiled solves are short, and are not interrupted."""


def split(q: Array, m: int, column: Array) -> tuple[Array, Array]:
    """A column (d,) in the basis (m,), and the rest of it (d,), which is orthogonal to the basis."""
    head, rest = np.zeros(m), column.copy()
    for _ in range(2):
        part = np.empty(m)
        for k in range(m):
            total = 0.0
            for i in range(len(rest)):
                total += q[k, i] * rest[i]
            part[k] = total
            head[k] += total
        for k in range(m):
            for i in range(len(rest)):
                rest[i] -= part[k] * q[k, i]
    return head, rest


def clear(q: Array, m: int, vector: Array) -> None:
    """Subtract from a vector (d,), in place, its projection on the basis."""
    part = np.empty(m)
    for k in range(m):
        total = 0.0
        for i in range(len(vector)):
            total += q[k, i] * vector[i]
        part[k] = total
    for k in range(m):
        for i in range(len(vector)):
            vector[i] -= part[k] * q[k, i]


def carried(
    rows: Array, groups: NDArray[np.int64], support: NDArray[np.int64], weights: Array, point: Array, count: int
) -> Array:
    """The weighted sums (count,) of rows.point over the support of each group; rows (n, d), weights and groups (n,)."""
    sums = np.zeros(count)
    for row in support:
        total = 0.0
        for i in range(len(point)):
            total += rows[row, i] * point[i]
        sums[groups[row]] += weights[row] * total
    return sums


def lowest(rows: Array, blocked: Array, first: int, stop: int, point: Array) -> tuple[float, int]:
    """The smallest of rows.point + blocked (n,) from row ``first`` to ``stop`` - 1, and its place."""
    levels = rows[first:stop] @ point  # for many rows, a call of BLAS pays
    least, place = np.inf, first
    for k in range(stop - first):
        level = levels[k] + blocked[first + k]
        if level < least:
            least, place = level, first + k
    return least, place


def solve_upper(r: Array, m: int, head: Array) -> Array:
    """Solve the triangular system of the first m columns, from the last row up."""
    solution = head[:m].copy()
    for j in range(m - 1, -1, -1):
        solution[j] /= r[j, j]
        for i in range(j):
            solution[i] -= r[i, j] * solution[j]
    return solution


def delete_column(q: Array, r: Array, m: int, k: int) -> None:
    """Remove column k from the factors, in place: rotations make the others triangular again."""
    for j in range(k, m - 1):
        for i in range(j + 2):
            r[i, j] = r[i, j + 1]
    for j in range(k, m - 1):
        size = math.hypot(r[j, j], r[j + 1, j])
        c, s = (r[j, j] / size, r[j + 1, j] / size) if size > 0 else (1.0, 0.0)
        for i in range(j, m - 1):
            above, below = r[j, i], r[j + 1, i]
            r[j, i], r[j + 1, i] = c * above + s * below, c * below - s * above
        for i in range(q.shape[1]):
            above, below = q[j, i], q[j + 1, i]
            q[j, i], q[j + 1, i] = c * above + s * below, c * below - s * above
