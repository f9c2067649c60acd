"""What one scan says about a margin with outliers: the rows below each margin, and those that a model names.

The proof of the upper bound is in proof.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.checks import Check, shown
from coremargin.verify.outliers.proof import same_counts
from coremargin.verify.store import Members, StoreScan, listed
from coremargin.verify.sums import LOST, TINY, UNIT, dot_products, length, slabs

if TYPE_CHECKING:
    from coremargin.verify.outliers.claim import OutlierClaim, Trimmed
    from coremargin.verify.rows import Chunk, Rows

#: A margin that a model gives for a row may differ from that found here by so much of the row's length: it is a sum
#: that was rounded down, as a proof has to be.
_MARGIN = 1e-9


@dataclass(frozen=True)
class Named:
    """The rows that a model says are left out, in order of their ids (m,): signs, and margins under its hyperplane."""

    ids: np.ndarray
    signs: np.ndarray
    margins: np.ndarray


def _named(claim: OutlierClaim) -> Named:
    ids, signs, margins = (claim.outliers[name] for name in ("ids", "signs", "margins"))
    order = np.argsort(ids)
    return Named(ids[order], signs[order], margins[order])


@dataclass(frozen=True)
class Answer:
    """What one chunk says: rows below each claim (m,), by number those below the last and those named wrongly."""

    below: np.ndarray
    low: tuple[int, ...]
    wrong: tuple[int, ...]
    unlabelled: int
    radius: float
    members: Members


class OutlierScan(StoreScan):
    """One scan: how many rows are below each claimed margin."""

    claim: OutlierClaim

    def __init__(self, claim: OutlierClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.named, self.last = _named(claim), claim.trimmed[-1]
        self.trimmed = [one for one in claim.trimmed if one.lower > -np.inf]
        self.bounded = bool(self.trimmed) and self.trimmed[-1] is self.last
        self.below = np.zeros(len(self.trimmed), np.int64)
        self.low: list[int] = []
        self.wrong: list[int] = []

    def ask(self, chunk: Chunk) -> Answer:
        """One chunk, in slabs of float64."""
        signs = self.signs(chunk)
        below, low, wrong, radius = np.zeros(len(self.trimmed), np.int64), [], [], 0.0
        for part, x in slabs(chunk.x):
            lengths = self.lengths(x, chunk.start + part.start)
            radius = max(radius, float(lengths.max()))
            for i, one in enumerate(self.trimmed):
                places = part.start + _below(x, signs[part], lengths, one)
                below[i] += len(places)
                if one is self.last:
                    low += (places + chunk.start).tolist()
            wrong += self._wrong(x, signs[part], lengths, chunk.start + part.start)
        return Answer(below, tuple(low), tuple(wrong), int((signs == 0).sum()), radius, self.members(chunk, signs))

    def _wrong(self, x: Any, signs: np.ndarray, lengths: np.ndarray, first: int) -> list[int]:
        """Rows (n, d) among those named as left out, by number, whose label or margin is another."""
        a, b = np.searchsorted(self.named.ids, (first, first + len(signs)))
        here, one = self.named.ids[a:b] - first, self.last
        found = signs[here] * dot_products(x[here], one.w, one.b) / (length(one.w) or 1.0)
        slack = _MARGIN * (lengths[here] + np.minimum(abs(one.b), lengths.max())) + (len(one.w) + 4) * TINY
        near = np.abs(found - self.named.margins[a:b]) <= slack
        same = (signs[here] == self.named.signs[a:b]) & (signs[here] != 0)
        return [int(row) for row in self.named.ids[a:b][~(near & same)]]

    def add(self, answer: Answer) -> None:
        """Take one chunk's answer."""
        self.below += answer.below
        self.low += answer.low[: self.last.k + 1]
        self.wrong += answer.wrong
        self.count(answer.unlabelled, answer.radius, answer.members)

    def checks(self) -> list[Check]:
        """What the scan says about the claims."""
        problems = self.membership()
        text = f"all {self.matched:,} rows are the store's, bit for bit, with its labels"
        coreset = Check("coreset", not problems, "; ".join(problems) or text)
        requested = same_counts(self.claim, self.rows.rows - self.unlabelled)
        return [self.content(), coreset, requested, *self._bounds(), *self._names()]

    def _bounds(self) -> list[Check]:
        count = self.rows.rows - self.unlabelled
        return [
            Check(
                f"lower bound with {one.k:,} outliers",
                bool(below <= one.k),
                f"all but {below:,} of {count:,} rows have at least {shown(one.lower)}"
                + ("" if below <= one.k else f"; model claims all but {one.k:,}"),
            )
            for one, below in zip(self.trimmed, self.below.tolist(), strict=True)
        ]

    def _names(self) -> list[Check]:
        """Whether the rows named are the store's, at most k, and those below the margin of the model's own k."""
        ids, k = self.named.ids, self.last.k
        problems = []
        twice = [int(row) for row in np.unique(ids[1:][ids[1:] == ids[:-1]])]
        if twice:
            problems.append(f"{listed(twice)} named more than once")
        if len(ids) > k:
            problems.append(f"the model names {len(ids):,} rows, more than {k:,}")
        outside = [int(row) for row in ids if not 0 <= row < self.rows.rows]
        if outside:
            problems.append(f"{listed(outside)} not in the store")
        if self.wrong:
            problems.append(f"{listed(self.wrong)} of another label or margin than the model says")
        others = sorted(set(self.low) - set(ids.tolist()))
        if others:
            problems.append(f"the model does not name all rows below its margin: {listed(others)} missing")
        below = f"; the {len(self.low):,} rows below the margin are among them" if self.bounded else ""
        text = f"{len(ids):,} rows have the labels and margins that the model says{below}"
        return [Check("rows left out", not problems, "; ".join(problems) or text)]

    def bounds(self) -> tuple[float | None, float | None]:
        """The lower bound of the largest k, where it holds."""
        holds = self.bounded and self.below[-1] <= self.trimmed[-1].k
        return (self.claim.lower if holds else None), None


def _below(x: Any, signs: np.ndarray, lengths: np.ndarray, one: Trimmed) -> np.ndarray:
    """Places (m,) of labelled rows whose margin is below the claim."""
    size, n = length(one.w) or 1.0, len(one.w) + 4
    fast = signs * (x @ one.w + one.b)
    error = 2 * n * UNIT * (lengths * size + abs(one.b)) + n * TINY
    target = one.lower * size
    surely = (signs != 0) & (fast < target - error)
    again = np.flatnonzero((signs != 0) & ~surely & ~(fast > target + error))
    exact = signs[again] * dot_products(x[again], one.w, one.b) / size - n * LOST
    return np.sort(np.concatenate([np.flatnonzero(surely), again[~(exact >= one.lower)]]))
