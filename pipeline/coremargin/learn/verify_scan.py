"""What ``verify`` asks of every row of the store: margin, length, and whether coreset rows are what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.errors import DamagedChunk
from coremargin.learn.verify_checks import Check, apart, typed
from coremargin.learn.verify_sums import UNIT, dot_products, length, row_lengths

if TYPE_CHECKING:
    from coremargin.learn.verify_claim import Claim
    from coremargin.learn.verify_rows import Chunk, Rows

_SLAB = 1 << 17  # numbers converted to float64 at a time: 1 MiB, stays in the cache
_LISTED = 5  # examples in a message
_LONGEST = 1e290  # beyond this the arithmetic here overflows


@dataclass(frozen=True)
class Answer:
    """What one chunk says; margins of length ||w||."""

    lowest: tuple[float, int, int]  #: (margin, row, sign) of the lowest row, (inf, -1, 0) without labelled rows
    below: int  #: rows whose margin is below the claim
    unlabelled: int
    radius: float
    strangers: tuple[int, ...]  #: coreset rows that are not what the store holds
    turned: tuple[int, ...]  #: coreset rows of another class in the store
    matched: int


class Scan:
    """One scan: what each chunk is asked, and the answers taken together."""

    def __init__(self, claim: Claim, rows: Rows) -> None:
        self.claim, self.rows = claim, rows
        self.size = length(claim.w) or 1.0
        side = {typed(claim.negative): -1, typed(claim.positive): 1}
        self.signs = np.array([side[typed(label)] for label in rows.classes] + [0])  # code -1 is the last: unlabelled
        self.order = np.argsort(claim.ids, kind="stable")
        self.ids = claim.ids[self.order]
        self.lowest: tuple[float, int, int] = (np.inf, -1, 0)
        self.below = self.unlabelled = self.matched = 0
        self.radius = 0.0
        self.strangers: list[int] = []
        self.turned: list[int] = []

    def ask(self, chunk: Chunk) -> Answer:
        """One chunk, in slabs of float64."""
        claim, signs = self.claim, self.signs[chunk.codes]
        lowest: tuple[float, int, int] = (np.inf, -1, 0)
        below, radius = 0, 0.0
        step = max(1, _SLAB // claim.features)
        for start in range(0, len(chunk.x), step):
            x = chunk.x[start : start + step].astype(np.float64)
            found, count, longest = self._slab(x, signs[start : start + step], chunk.start + start)
            lowest, below, radius = min(lowest, found), below + count, max(radius, longest)
        strangers, turned, matched = self._members(chunk, signs)
        return Answer(lowest, below, int((signs == 0).sum()), radius, strangers, turned, matched)

    def _slab(self, x: np.ndarray, signs: np.ndarray, first: int) -> tuple[tuple[float, int, int], int, float]:
        claim = self.claim
        lengths = row_lengths(x)
        longest = float(lengths.max())
        if not longest < _LONGEST:
            row = first + int(np.argmin(lengths < _LONGEST))
            raise DamagedChunk(
                f"{self.rows.path}: row {row} is not finite or too long to check; ingest refuses such rows"
            )
        labelled = np.flatnonzero(signs)
        if not len(labelled):
            return (np.inf, -1, 0), 0, longest
        fast = (signs * (x @ claim.w + claim.b))[labelled]
        n = claim.features + 4
        error = 2 * n * UNIT * (lengths[labelled] * self.size + abs(claim.b)) + n * 1e-307
        target = -np.inf if claim.lower is None else claim.lower * self.size
        surely = fast < target - error
        again = (fast <= target + error) & ~surely
        again[np.argmin(fast)] = True
        where = labelled[again]
        margins = signs[where] * dot_products(x[where], claim.w, claim.b) / self.size
        below = int((surely & ~again).sum())
        if claim.lower is not None:
            below += int((margins < claim.lower).sum())
        k = int(np.argmin(margins))
        return (float(margins[k]), first + int(where[k]), int(signs[where[k]])), below, longest

    def _members(self, chunk: Chunk, signs: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        a, b = np.searchsorted(self.ids, (chunk.start, chunk.start + len(chunk.codes)))
        ids, members = self.ids[a:b], self.order[a:b]
        local = ids - chunk.start
        stored = chunk.x[local].astype(np.float64)
        same = (stored.view(np.int64) == np.ascontiguousarray(self.claim.x[members]).view(np.int64)).all(axis=1)
        turned = signs[local] != self.claim.y[members]
        return tuple(ids[~same].tolist()), tuple(ids[turned].tolist()), len(ids)

    def add(self, answer: Answer) -> None:
        """Take one chunk's answer; chunks come in order, so that ties are decided by the lower row."""
        self.lowest = min(self.lowest, answer.lowest)
        self.below += answer.below
        self.unlabelled += answer.unlabelled
        self.radius = max(self.radius, answer.radius)
        self.strangers += answer.strangers
        self.turned += answer.turned
        self.matched += answer.matched

    def content(self) -> Check:
        """Whether the certificate is about these rows and labels."""
        rows, claimed = self.rows, self.claim.store_digest
        if rows.digest == claimed:
            text = f"{rows.digest}: all {rows.chunks:,} chunks are there and their checksums hold"
            return Check("content", ok=True, text=text)
        text = f"model claims {claimed}, the store's rows and labels have {rows.digest}: it is not what was trained on"
        return Check("content", ok=False, text=text)

    def coreset(self) -> Check:
        """Whether the coreset rows are rows of the store."""
        problems = []
        outside = [int(row) for row in self.ids if not 0 <= row < self.rows.rows]
        if outside:
            problems.append(f"{_rows(outside)} not in the store, which ends at row {self.rows.rows - 1:,}")
        if self.strangers:
            problems.append(f"{_rows(self.strangers)} not what the store holds under that id")
        if self.turned:
            problems.append(f"{_rows(self.turned)} of another class in the store")
        text = f"all {self.matched:,} rows are the store's, bit for bit, with its labels"
        return Check("coreset", not problems, "; ".join(problems) or text)

    def bound(self) -> Check:
        """Whether every row has at least the claimed margin."""
        margin, row, sign = self.lowest
        if row < 0:
            return Check("lower bound", ok=False, text="the store has no labelled row, nothing can be claimed about it")
        label = self.claim.positive if sign > 0 else self.claim.negative
        if self.claim.lower is None:
            return Check("lower bound", ok=True, text="nothing is claimed")
        claimed, found = apart(self.claim.lower, margin)
        lowest = f"row {row} (class {label!r}) has margin {found}"
        aside = f", {self.unlabelled:,} without label apart" if self.unlabelled else ""
        comma = "," if aside else ""
        count = self.rows.rows - self.unlabelled
        if self.below:
            text = f"model claims {claimed}, {lowest}; {self.below:,} of {count:,} rows are below{aside}"
            return Check("lower bound", ok=False, text=text)
        text = f"all {count:,} rows{aside}{comma} have at least {claimed}; lowest: {lowest}"
        return Check("lower bound", ok=True, text=text)

    def norms(self) -> Check:
        """Whether no row is longer than the claimed radius."""
        ok = self.radius * (1 - (self.claim.features + 4) * UNIT) <= self.claim.radius
        text = f"the longest row has norm {self.radius:.12g}"
        return Check("radius", ok, text if ok else f"model claims {self.claim.radius:.12g}, {text}")


def _rows(ids: list[int]) -> str:
    listed = ", ".join(map(str, ids[:_LISTED]))
    more = f" and {len(ids) - _LISTED:,} more" if len(ids) > _LISTED else ""
    return f"row {listed} is" if len(ids) == 1 else f"rows {listed}{more} are"
