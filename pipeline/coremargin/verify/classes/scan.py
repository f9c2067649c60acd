"""What ``verify`` asks of every row of the store about a model of several classes.

Scores are s_k = v_k.(x, constant); a row's margin is the score of its class less the largest of the others.

Margins. In float64 one is off by at most e = 2 gamma_(d+4) (||x|| max ||w_k|| + max |b_k| + 1). For a hard margin, rows
for which that leaves open whether they reach the claim, or are the lowest of their slab, are evaluated again, the
difference of two scores rounded once as a whole. For a soft one the loss is at most max(0, 1 - margin + e): these are
summed up.

Duals. A row outside of those with duals of their own has its whole c against the class that is the worst for it at
the reference, t_r = (1 + s_r) - s_y being largest, first of equals; nothing if no t_r is above 0. Where e leaves open
which class that is, scores are evaluated again, rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.checks import typed
from coremargin.verify.hard.scan import decided
from coremargin.verify.store import Members, StoreFindings
from coremargin.verify.sums import LOST, SLAB_ROWS, TINY, Total, differences, dot_products, gamma, length, slabs

if TYPE_CHECKING:
    from coremargin.verify.classes.claim import ClassesClaim
    from coremargin.verify.rows import Chunk, Rows


@dataclass(frozen=True)
class Answer:
    """What one chunk says; margins of length ||V||."""

    lowest: tuple[float, int, int]  #: (margin, row, class) of the lowest row, (inf, -1, 0) without rows that count
    below: int  #: rows whose margin is below the claim
    sums: dict[str, np.ndarray]
    row_c: np.ndarray  #: of the coreset rows, in the order of ``members``
    uncounted: int
    radius: float
    members: Members


class ClassesScan(StoreFindings):
    """One scan; ``class_c`` (K,): c of a row of weight 1 of each class, 0 for a hard margin.

    sums: loss (); total_c (K,): of all rows of each class; far_c (): that of far rows; dual_sum (K, d + 1): sum of
    M (x, constant), M being the duals at the row's rival with a minus, and their sum at its class; reach ():
    sum |M| ||(x, constant)||.
    """

    def __init__(self, claim: ClassesClaim, rows: Rows, class_c: np.ndarray) -> None:
        super().__init__(claim, rows)
        self.class_c, self.classes = class_c, len(claim.labels)
        place = {typed(label): k + 1 for k, label in enumerate(claim.labels)}
        self._places = np.array([*(place[typed(label)] for label in rows.classes), 0])
        self.size = length(claim.v.ravel()) or 1.0
        self.lowest: tuple[float, int, int] = (np.inf, -1, 0)
        self.below = 0
        shapes = {"loss": (), "total_c": (self.classes,), "far_c": (), "dual_sum": claim.v.shape, "reach": ()}
        self._totals = {name: Total(shape) for name, shape in shapes.items()}
        self.limits = np.zeros(len(claim.ids))
        self._mine = -claim.duals  # M of the rows with duals of their own
        self._mine[np.arange(len(claim.duals)), claim.y - 1] += claim.duals.sum(axis=1)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._totals[name].value

    def ask(self, chunk: Chunk) -> Answer:
        """One chunk, in slabs of float64."""
        place = self._places[chunk.codes]
        weights = np.ones(len(place)) if chunk.weights is None else chunk.weights
        place = np.where(weights > 0, place, 0)
        members = self.members(chunk, place)
        row_c = np.where(place > 0, self.class_c[place - 1], 0.0) * weights
        local, first = np.unique(self.claim.ids[members.places] - chunk.start, return_index=True)
        given, own = np.zeros((len(place), self.classes)), np.zeros(len(place), dtype=bool)
        given[local], own[local] = self._mine[members.places[first]], True
        lowest: tuple[float, int, int] = (np.inf, -1, 0)
        below, radius = 0, 0.0
        sums = {name: Total(total.high.shape) for name, total in self._totals.items()}
        for part, x in slabs(chunk.x, SLAB_ROWS):
            lengths = self.lengths(x, chunk.start + part.start)
            radius = max(radius, float(lengths.max()))
            counted = np.flatnonzero(place[part])
            if not len(counted):
                continue
            x, lengths, y = x[counted], lengths[counted], place[part][counted] - 1
            if self.claim.soft:
                m = np.where(own[part][counted, None], given[part][counted], np.nan)
                self._soft(sums, x, lengths, y, row_c[part][counted], m)
            else:
                found, count = self._hard(x, lengths, y, chunk.start + part.start + counted)
                lowest, below = min(lowest, found), below + count
        coreset_c = row_c[self.claim.ids[members.places] - chunk.start]
        values = {name: total.value for name, total in sums.items()}
        return Answer(lowest, below, values, coreset_c, int((place == 0).sum()), radius, members)

    def _scores(self, x: Any, lengths: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores (n, K), and a bound (n,) on the error of a difference of two of them."""
        b, d = self.claim.constant * v[:, -1], v.shape[1] - 1
        size = lengths * max(map(length, v[:, :-1])) + float(np.abs(b).max()) + 1.0
        moved = 2 * self.claim.moved * max(map(length, v[:, :-1])) * (1 + gamma(8))  # of mapped rows
        return np.asarray(x @ v[:, :-1].T) + b, 2 * gamma(d + 4) * size + (d + 4) * TINY + moved

    def _exact(self, x: Any, v: np.ndarray) -> np.ndarray:
        """Scores (n, K), each rounded once."""
        b = self.claim.constant * v[:, -1]
        return np.stack([dot_products(x, w, float(c)) for w, c in zip(v[:, :-1], b, strict=True)], axis=1)

    def _exact_margins(self, x: Any, y: np.ndarray) -> np.ndarray:
        """Margins (n,) of V, each rounded once: who has the largest score, has it once scores are rounded too."""
        v = self.claim.v
        w, b = v[:, :-1], self.claim.constant * v[:, -1]
        others, found = self._exact(x, v), np.full(len(y), np.inf)
        others[np.arange(len(y)), y] = -np.inf
        largest = others.max(axis=1)
        for rival in range(self.classes):
            mine = np.flatnonzero(~(others[:, rival] < largest) & (y != rival))
            if len(mine):
                found[mine] = np.minimum(found[mine], differences(x[mine], w, b, y[mine], rival))
        return found

    def _hard(self, x: Any, lengths: np.ndarray, y: np.ndarray, rows: np.ndarray) -> tuple[tuple[float, int, int], int]:
        scores, error = self._scores(x, lengths, self.claim.v)
        fast = _margins(scores, y)
        target = -np.inf if self.claim.lower is None else self.claim.lower * self.size
        surely, again = decided(fast, error, target)
        where = np.flatnonzero(again)
        margins = self._exact_margins(x[where], y[where]) / self.size
        margins -= 4 * (self.claim.features + 4) * LOST  # of a difference, and of the choice of the rival
        margins = np.where(np.isnan(margins), -np.inf, margins)  # what overflows proves nothing
        below = int((surely & ~again).sum())
        below += 0 if self.claim.lower is None else int((~(margins >= self.claim.lower)).sum())
        k = int(np.argmin(margins))
        return (float(margins[k]), int(rows[where[k]]), int(y[where[k]])), below

    def _soft(
        self, sums: dict[str, Total], x: Any, lengths: np.ndarray, y: np.ndarray, row_c: np.ndarray, m: np.ndarray
    ) -> None:
        """m (n, K): M of the rows with duals of their own, NaN for the others."""
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows proves nothing
            scores, error = self._scores(x, lengths, self.claim.v)
            sums["loss"].add(np.asarray(row_c @ np.maximum(1.0 - _margins(scores, y) + error, 0.0)))
            sums["total_c"].add(np.bincount(y, weights=row_c, minlength=self.classes))
            far = np.isnan(m[:, 0])
            worst = self._worst(x, lengths, y, far)
            losing = np.flatnonzero(far & (worst != y))
            m = np.where(far[:, None], 0.0, m)
            m[losing, worst[losing]] -= row_c[losing]
            m[losing, y[losing]] += row_c[losing]
            sums["far_c"].add(np.asarray(row_c[losing].sum()))
            dual_sum = np.asarray(m.T @ x)
            sums["dual_sum"].add(np.column_stack([dual_sum, self.claim.constant * m.sum(axis=0)]))
            sums["reach"].add(np.asarray(np.abs(m).sum(axis=1) @ (lengths + self.claim.constant)))

    def _worst(self, x: Any, lengths: np.ndarray, y: np.ndarray, far: np.ndarray) -> np.ndarray:
        """The class (n,) that is the worst at the reference."""
        scores, error = self._scores(x, lengths, self.claim.reference)
        t = _violations(scores, y)
        two = np.partition(t, -2, axis=1)[:, -2:]
        unclear = np.flatnonzero(far & (two[:, 1] - two[:, 0] <= 2 * error))
        if len(unclear):
            t[unclear] = _violations(self._exact(x[unclear], self.claim.reference), y[unclear])
        return np.asarray(t.argmax(axis=1))

    def add(self, answer: Answer) -> None:
        """Take one chunk's answer; chunks come in order, so that ties are decided by the lower row."""
        self.lowest = min(self.lowest, answer.lowest)
        self.below += answer.below
        for name, values in answer.sums.items():
            self._totals[name].add(values)
        self.limits[answer.members.places] = answer.row_c
        self.count(answer.uncounted, answer.radius, answer.members)


def _margins(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    own = np.arange(len(y)), y
    others = scores.copy()
    others[own] = -np.inf
    return np.asarray(scores[own] - others.max(axis=1))


def _violations(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    own = np.arange(len(y)), y
    t = (1.0 + scores) - scores[own][:, None]
    t[own] = 0.0
    return np.asarray(t)
