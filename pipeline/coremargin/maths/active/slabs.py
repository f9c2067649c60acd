"""Two points and the slab between them (Har-Peled 2015, "A Simple Algorithm for Maximum Margin ... Revisited").

slab(b, w) is the set of points whose projection on the line through b and w lies strictly between the two; it is shrunk
by (1 - epsilon) around its middle. The method queries a row inside or, if there is none, a counterexample. Then one of
the two points moves to the nearest point of the segment from it to the new row, and the slab becomes thinner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

UNSEPARATED = "expected rows that a slab separates within {} steps, found none that does"


@dataclass
class Slab:
    """The slab between two points, each a convex combination of rows of one class with weights (n,), of rows (n, d).

    The weights of each class sum to 1; black, white: the points. steps: number of moves; labelled, refuted: the rows
    that the labelling oracle and the counterexample oracle returned.
    """

    rows: Array
    weights: Array
    black: Array
    white: Array
    steps: int
    labelled: list[int]
    refuted: list[int]

    @classmethod
    def between(cls, rows: Array, black: int, white: int) -> Slab:
        """The slab between two rows."""
        weights = np.zeros(len(rows))
        weights[[black, white]] = 1.0
        return cls(rows, weights, rows[black].copy(), rows[white].copy(), 0, [], [])

    @property
    def width(self) -> float:
        """The distance of the two points."""
        return float(np.linalg.norm(self.black - self.white))

    def places(self) -> Array:
        """Positions of rows (n,) across the slab: 1 at the black point, -1 at the white one, 0 in the middle."""
        across = self.black - self.white
        return np.asarray((self.rows - (self.black + self.white) / 2) @ across * 2.0 / float(across @ across))

    def move(self, row: int, sign: int, members: NDArray[np.bool_]) -> None:
        """Move the point of the row's class to the point on the segment to the row that is nearest to the other point.

        members (n,): the rows of that class that have weight. The nearest point of the segment, not of its line: beyond
        the row the foot is no point of the hull, and its distance may be less than the margin. Where the row itself is
        the nearest, the slab shrinks by more than the lemma needs.
        """
        mine, other = (self.black, self.white) if sign > 0 else (self.white, self.black)
        along = self.rows[row] - mine
        size = float(along @ along)
        share = float(np.clip((other - mine) @ along / size, 0.0, 1.0)) if size > 0 else 0.0
        self.weights[members] *= 1.0 - share
        self.weights[row] += share
        moved = mine + share * along
        self.black, self.white = (moved, self.white) if sign > 0 else (self.black, moved)
        self.steps += 1


def slab_method(
    rows: Array,
    black: int,
    white: int,
    epsilon: float,
    label: Callable[[int], int],
    counterexample: Callable[[Array], int | None],
    most: int = 10_000_000,
) -> Slab:
    """Lemma 1.1: rows (n, d), of which one black (sign 1) and one white (-1) are known, and two oracles.

    label(row) is a sign; counterexample(places) is a row on the wrong side of the middle (places as in ``Slab``; above
    0 is black), or None. Rows with a known label that are in the slab again cause steps, but no queries. Raises
    ValueError if ``most`` steps are not enough.
    """
    slab = Slab.between(rows, black, white)
    signs = np.zeros(len(rows), np.int8)
    signs[[black, white]] = 1, -1
    while slab.steps <= most and slab.width > 0.0:
        places = slab.places()
        nearest = int(np.abs(places).argmin())
        if abs(places[nearest]) < 1.0 - epsilon:
            row = nearest
            if signs[row] == 0:
                signs[row] = label(row)
                slab.labelled.append(row)
        else:
            wrong = counterexample(places)
            if wrong is None:
                return slab
            row = wrong
            signs[row] = 1 if places[row] < 0 else -1
            slab.refuted.append(row)
        slab.move(row, int(signs[row]), signs == signs[row])
    raise ValueError(UNSEPARATED.format(most))


def slab_of_labelled(
    rows: Array, signs: NDArray[np.integer], epsilon: float, start: Array | None = None, most: int = 10_000_000
) -> Slab:
    """Remark A: the same with all labels (n,) known: an epsilon-approximation of the largest margin.

    The row that lies furthest into the slab, or beyond it, moves its point; this covers rows on the wrong side, which
    the oracle would find, and rows within. start: initial weights (n,) of both classes. Raises ValueError if ``most``
    steps are not enough; without this limit, the method would not end on rows whose hulls meet.
    """
    slab = _initial_slab(rows, signs, start)
    while slab.steps <= most and slab.width > 0.0:
        places = signs * slab.places()
        row = int(places.argmin())
        if places[row] >= 1.0 - epsilon:
            return slab
        slab.move(row, int(signs[row]), signs == signs[row])
    raise ValueError(UNSEPARATED.format(most))


def _initial_slab(rows: Array, signs: NDArray[np.integer], start: Array | None) -> Slab:
    black, white = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
    if start is None:
        return Slab.between(rows, int(black[0]), int(white[0]))
    weights = start.copy()
    return Slab(rows, weights, weights[black] @ rows[black], weights[white] @ rows[white], 0, [], [])
