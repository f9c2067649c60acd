"""Which row to ask about, by a centre of the version space: Louche and Ralaivola 2015, Algorithm 4, on rows in memory.

With the Chebyshev centre it is Active-SVM (Tong and Koller 2002, "simple margin", through the origin), with the centre
of gravity Active-BPM. Both classify by their centre.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import filled, lengths, take

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

#: w (d,) and b from rows (m, d) and their signs (m,).
Centre: TypeAlias = "Callable[[Rows, NDArray[np.int8]], tuple[Array, float]]"
Cuts = Literal["all", "errors"]


@dataclass(frozen=True)
class Asked:
    """After an answer: the row asked about, its sign, and the centre (w, b) before it was known."""

    row: int
    sign: int
    w: Array
    b: float


def nearest(rows: Rows, w: Array, b: float, open_ones: NDArray[np.bool_], constant: float = 0.0) -> int:
    """The row (of those open) whose plane passes nearest to the centre: least |w.x + b| / ||(x, constant)||.

    The paper prints the least <g, x>, without the absolute value: that would be the row it is surest to be negative.
    """
    sizes = np.sqrt(lengths(rows) ** 2 + constant**2)
    away = np.abs(np.asarray(rows @ w).ravel() + b) / np.where(sizes > 0, sizes, 1.0)
    return int(np.where(open_ones, away, np.inf).argmin())


def active_cutting_planes(
    rows: Rows, label: Callable[[int], int], centre: Centre, first: NDArray[np.integer], *, cuts: Cuts = "all"
) -> Iterator[Asked]:
    """Algorithm 4: rows (n, d) are asked about one by one, for as long as the caller goes on and rows are left.

    label(row) is 1 or -1. first: rows asked about to begin with. cuts: whose planes cut; as printed only those of
    answers that the centre had wrong ("errors"), with "all" every answer counts, as in Active-SVM.
    """
    open_ones = np.ones(rows.shape[0], bool)
    open_ones[first] = False
    held, signs = [int(row) for row in first], [label(int(row)) for row in first]
    while open_ones.any():
        w, b = centre(take(rows, np.array(held)), np.array(signs, np.int8))
        row = nearest(rows, w, b, open_ones)
        sign, open_ones[row] = label(row), False
        yield Asked(row, sign, w, b)
        if cuts == "all" or sign * float((filled(take(rows, np.array([row]))) @ w)[0] + b) <= 0:
            held.append(row)
            signs.append(sign)
