"""The smallest ball around all rows but k: the fit whose search is outliers/row_search.py.

A row's score is its distance from the centre; a certificate is a few rows whose smallest ball is too large, by their
dual weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.enclosing_ball import lower_bound, smallest_ball, upper_bounds
from coremargin.maths.outliers.row_search import MOST_NODES, SHARE, Carried, Trimmed, reached_score, search_rows
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.row_search import Places

#: Steps of an incumbent, each of which solves the rows that the last one leaves.
STEPS = 50


def concentrate(rows: Array, k: int, centre: Array) -> tuple[Array, Array]:
    """A centre that is at least as good for all rows (n, d) but k, and the dual weights (n,) of the rows it encloses.

    Each step solves the n - k nearest rows.
    """
    best, weights = np.inf, np.zeros(len(rows))
    for _ in range(STEPS):
        may_stop()
        off = rows - centre
        near = np.sort(np.argpartition(np.einsum("ij,ij->i", off, off), len(rows) - k - 1)[: len(rows) - k])
        start = weights[near] if weights[near].any() else None
        found = smallest_ball(rows[near], None if start is None else start / start.sum())
        at = found @ rows[near]
        radius = reached_score(upper_bounds(rows, at), k)
        if radius >= best * (1 - 1e-12):
            break
        best, centre, weights = radius, at, np.zeros(len(rows))
        weights[near] = found
    return centre, weights


@dataclass(frozen=True)
class BallFit:
    """Balls around rows (n, d), by their centres."""

    rows: Array

    @property
    def dimension(self) -> int:
        """As many rows as a ball touches at most."""
        return int(self.rows.shape[1]) + 1

    def scores(self, centre: Array) -> Array:
        """Distances (n,), rounded up."""
        return upper_bounds(self.rows, centre)

    def concentrate(self, k: int, centre: Array) -> Array:
        """See ``concentrate``."""
        return concentrate(self.rows, k, centre)[0]

    def carried(self, places: Places, enough: float) -> Carried[Array]:
        """The smallest ball around some rows, or one of the radius ``enough``."""
        weights = smallest_ball(self.rows[places], enough=enough * (1.0 + 2 * SHARE))
        some, at = np.flatnonzero(weights), weights @ self.rows[places]
        return Carried(places[some], weights[some], lower_bound(self.rows[places[some]], weights[some], at), at)

    def target(self, radius: float, gap: float) -> float:
        """Above what the gap requires by a share, as bounds are rounded."""
        return radius * (1.0 - gap) * (1.0 + SHARE)

    def gap(self, radius: float, bound: float) -> float:
        """The share of the radius that is not proven."""
        return 1.0 - max(bound, 0.0) / radius


def search_trimmed(
    rows: Array, k: int, epsilon: float, centre: Array, most_nodes: int = MOST_NODES
) -> Iterator[Trimmed[Array]]:
    """The smallest ball around all rows (n, d) but k, as ``search_rows``; a radius of 0 needs no search."""
    fit = BallFit(rows)
    centre = fit.concentrate(k, centre)
    if reached_score(fit.scores(centre), k) == 0:
        yield Trimmed(centre, 0.0, 0.0, None, complete=True, nodes=0)
        return
    for found in search_rows(fit, k, epsilon, centre, most_nodes):
        yield replace(found, bound=max(found.bound, 0.0))
