"""The hard margin of several classes on all rows but k: the fit whose search is outliers/row_search.py.

A row's score is minus its margin against its worst rival; a certificate is a few rows whose own best margin is too
small, by weights of their Kesler vectors. Removing a row removes all of its vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.kesler import KeslerVectors, solve_kesler
from coremargin.maths.margin import resolution
from coremargin.maths.multiclass import margins, upper_bound, violations
from coremargin.maths.nearest import nearest_point
from coremargin.maths.outliers.row_search import Carried, margin_gap, margin_target, reached_score
from coremargin.maths.rows import take
from coremargin.maths.simplex_newton import ClassesModel, minimise_classes
from coremargin.maths.span import Span, span_of
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.multiclass import Codes
    from coremargin.maths.outliers.row_search import Places
    from coremargin.maths.rows import Rows

#: Values of C of the soft margins that concentration starts from, in units of 1 / R^2, and their relative gap.
SOFT_C, ROUGH = (1e-1, 1e1, 1e3, 1e5), 1e-2
#: Steps of a concentration; gains below this share end it.
STEPS, GAIN = 50, 1e-9
#: Relative gap of solves.
TOLERANCE = 1e-9
#: Vectors that join a coreset at a time.
BATCH = 20


@dataclass(frozen=True)
class KeslerFit:
    """Hypotheses (K, q), in the coordinates of rows (n, d) of ``codes`` (n,) with a last entry ``constant``."""

    rows: Rows
    codes: Codes
    classes: int
    constant: float

    @cached_property
    def span(self) -> Span:
        """The rows with their last entry, in coordinates where that is shorter."""
        return span_of(self.rows, self.constant)

    @cached_property
    def radius(self) -> float:
        """The length of the longest row."""
        return float(np.linalg.norm(self.span.flat, axis=1).max())

    @cached_property
    def nothing(self) -> float:
        """Margins up to this one are none, as far as float64 resolves."""
        return resolution(2.0 * self.radius, len(self.codes) + self.classes, self.dimension)

    @property
    def dimension(self) -> int:
        """As many rows as may carry a margin."""
        return self.classes * int(self.span.flat.shape[1])

    def scores(self, at: Array) -> Array:
        """Minus the margins (n,) of a hypothesis of length 1; of none, the worst score that there is."""
        if not at.any():
            return np.zeros(len(self.codes))
        return -margins(self.span.flat @ at.T, self.codes)[0]

    def soft_starts(self) -> list[Array]:
        """Hypotheses of soft margins, which wrong labels move less."""
        flat, found, starts = self.span.flat, None, []
        zero = violations(np.zeros((len(flat), self.classes)), self.codes)
        for c in SOFT_C:
            model = ClassesModel(0.0, zero, flat, self.codes, np.full(len(flat), c / self.radius**2))
            found = minimise_classes(model, ROUGH, found)
            at = found.at[:, :-1]
            starts.append(at / (float(np.linalg.norm(at)) or 1.0))
        return starts

    def start(self, k: int) -> Array:
        """A good hypothesis for all rows but k."""
        found = [self.concentrate(k, at) for at in self.soft_starts()]
        return min(found, key=lambda at: reached_score(self.scores(at), k))

    def concentrate(self, k: int, at: Array) -> Array:
        """At least as good a hypothesis: each step solves all rows but those with the k lowest margins."""
        best = reached_score(self.scores(at), k)
        for _ in range(STEPS):
            may_stop()
            near = np.sort(np.argsort(self.scores(at), kind="stable")[: len(self.codes) - k])
            found = solve_kesler(self.span.flat[near], self.codes[near], self.classes, tolerance=TOLERANCE)
            reached = reached_score(self.scores(found.at), k) if found.at.any() else np.inf
            if not reached < best - GAIN * abs(best):
                break
            best, at = reached, found.at
        return at

    def carried(self, places: Places, enough: float) -> Carried[Array]:
        """The largest margin of some rows, or weights that prove it to be at most -``enough``.

        A coreset grows by the vectors with the lowest margins, until it is clear on which side the margin is.
        """
        z, most = KeslerVectors(self.span.flat[places], self.codes[places], self.classes), -enough
        weights, work = np.zeros(len(places) * self.classes), np.zeros(0, np.intp)
        entering = np.array([(self.codes[places[0]] + 1) % self.classes])
        while True:
            may_stop()
            work = np.concatenate([work[weights[work] > 0], entering])
            flat, basis = z.vectors(work)
            found = nearest_point(
                flat,
                np.zeros(len(work), np.int64),
                weights[work] if weights.any() else None,
                tolerance=TOLERANCE,
                zero=self.nothing,
                side=most if most > self.nothing else None,
            )
            weights[:] = 0.0
            weights[work] = found.weights / found.weights.sum()
            point = found.point.reshape(self.classes, -1)
            point = point if basis is None else point @ basis
            length = float(np.linalg.norm(point))
            if found.status in ("zero", "short") or length == 0.0:
                at = np.zeros_like(point)
                break
            at, levels = point / length, z.levels(point / length)
            low = np.flatnonzero(levels < (1.0 - TOLERANCE) * length)
            low = np.setdiff1d(low, work)
            if levels.min() > most > 0 or not len(low):
                break
            entering = low[np.argsort(levels[low], kind="stable")[:BATCH]]
        by_row = weights.reshape(len(places), self.classes)
        used = np.flatnonzero(by_row.any(axis=1))
        value = upper_bound(take(self.rows, places[used]), self.codes[places[used]], by_row[used], self.constant)
        return Carried(places[used], by_row[used], -value, at)

    def target(self, reached: float, gap: float) -> float:
        """See ``margin_target``."""
        return margin_target(reached, gap, self.nothing)

    def gap(self, reached: float, bound: float) -> float:
        """See ``margin_gap``."""
        return margin_gap(reached, bound)
