"""What ``verify`` asks of every row of the store about a hard margin: has it the margin that is claimed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.checks import Check, shown
from coremargin.verify.store import Members, StoreScan
from coremargin.verify.sums import LOST, TINY, UNIT, dot_products, length, slabs

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim
    from coremargin.verify.rows import Chunk, Rows


@dataclass(frozen=True)
class Answer:
    """What one chunk says; margins of length ||w||."""

    lowest: tuple[float, int, int]  #: (margin, row, sign) of the lowest row, (inf, -1, 0) without labelled rows
    below: int  #: rows whose margin is below the claim
    unlabelled: int
    radius: float
    members: Members


class Scan(StoreScan):
    """One scan: what each chunk is asked, and the answers taken together."""

    def __init__(self, claim: Claim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.size = length(claim.w) or 1.0
        self.lowest: tuple[float, int, int] = (np.inf, -1, 0)
        self.below = 0

    def ask(self, chunk: Chunk) -> Answer:
        """One chunk, in slabs of float64."""
        signs, counted = self.sides(chunk)
        lowest: tuple[float, int, int] = (np.inf, -1, 0)
        below, radius = 0, 0.0
        for part, x in slabs(chunk.x):
            found, count, longest = self._slab(x, signs[part], counted[part], chunk.start + part.start)
            lowest, below, radius = min(lowest, found), below + count, max(radius, longest)
        return Answer(lowest, below, int((~counted).sum()), radius, self.members(chunk, signs))

    def sides(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """The sides (n,) that rows are to lie on, 1 or -1 or 0 for either, and which rows (n,) count."""
        signs = self.signs(chunk)
        return signs, signs != 0

    def _slab(
        self, x: Any, signs: np.ndarray, counted: np.ndarray, first: int
    ) -> tuple[tuple[float, int, int], int, float]:
        claim = self.claim
        lengths = self.lengths(x, first)
        longest = float(lengths.max())
        mine = np.flatnonzero(counted)
        if not len(mine):
            return (np.inf, -1, 0), 0, longest
        fast = _margins((x @ claim.w + claim.b)[mine], signs[mine])
        n = claim.features + 4
        error = 2 * n * UNIT * (lengths[mine] * self.size + abs(claim.b)) + n * TINY
        target = -np.inf if claim.lower is None else claim.lower * self.size
        surely = fast < target - error
        again = ~(fast > target + error) & ~surely
        again[np.argmin(fast)] = True
        where = mine[again]
        margins = _margins(dot_products(x[where], claim.w, claim.b), signs[where]) / self.size - n * LOST
        margins = np.where(np.isnan(margins), -np.inf, margins)  # what overflows proves nothing
        below = int((surely & ~again).sum())
        if claim.lower is not None:
            below += int((~(margins >= claim.lower)).sum())
        k = int(np.argmin(margins))
        return (float(margins[k]), first + int(where[k]), int(signs[where[k]])), below, longest

    def add(self, answer: Answer) -> None:
        """Take one chunk's answer; chunks come in order, so that ties are decided by the lower row."""
        self.lowest = min(self.lowest, answer.lowest)
        self.below += answer.below
        self.count(answer.unlabelled, answer.radius, answer.members)

    def checks(self) -> list[Check]:
        """What the scan says about the claims."""
        return [self.content(), self.coreset(), self.bound()]

    def coreset(self) -> Check:
        """Whether the coreset rows are rows of the store."""
        problems = self.membership()
        text = f"all {self.matched:,} rows are the store's, bit for bit, with its labels"
        return Check("coreset", not problems, "; ".join(problems) or text)

    def bound(self) -> Check:
        """Whether every row has at least the claimed margin."""
        margin, row, sign = self.lowest
        if row < 0:
            return Check("lower bound", ok=False, text="the store has no labelled row, nothing can be claimed about it")
        if self.claim.lower is None:
            return Check("lower bound", ok=True, text="nothing is claimed")
        claimed, found = shown(self.claim.lower), shown(margin)
        lowest = f"row {row} ({self.whose(sign)}) has margin {found}"
        aside = self.aside
        comma = "," if aside else ""
        count = self.rows.rows - self.unlabelled
        if self.below:
            text = f"model claims {claimed}, {lowest}; {self.below:,} of {count:,} rows are below{aside}"
            return Check("lower bound", ok=False, text=text)
        text = f"all {count:,} rows{aside}{comma} have at least {claimed}; lowest: {lowest}"
        return Check("lower bound", ok=True, text=text)

    def whose(self, sign: int) -> str:
        """Of a row on the side that it is to lie on."""
        return f"class {self.label(sign)!r}"

    def label(self, sign: int) -> Any:
        """The label of a side."""
        return self.claim.positive if sign > 0 else self.claim.negative

    def bounds(self) -> tuple[float | None, float | None]:
        """The lower bound as found here; the upper one needs no scan."""
        return (self.lowest[0] if self.claim.lower is not None and self.lowest[1] >= 0 else None), None


def _margins(values: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """How far rows with these decision values (n,) lie on the side that they are to lie on, or on either."""
    return np.asarray(np.where(signs == 0, np.abs(values), signs * values))
