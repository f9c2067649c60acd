"""What ``verify`` asks of every row of the store about a hard margin: has it the margin that is claimed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from coremargin.verify.checks import Check, shown
from coremargin.verify.store import Members, StoreScan
from coremargin.verify.sums import LOST, TINY, UNIT, dot_products, length, slabs

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim
    from coremargin.verify.rows import Chunk, Rows


Lowest: TypeAlias = tuple[float, int, int]  #: margin, row and sign of the row of the least margin
NOBODY: Lowest = (np.inf, -1, 0)


@dataclass(frozen=True)
class Answer:
    """What one chunk says; margins of length ||w||."""

    lowest: Lowest  #: NOBODY without labelled rows
    below: int  #: rows whose margin is below the claim
    unlabelled: int
    radius: float
    members: Members


class Scan(StoreScan):
    """One scan: what each chunk is asked, and the answers taken together."""

    def __init__(self, claim: Claim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.lowest = NOBODY
        self.below = 0

    def ask(self, chunk: Chunk) -> Answer:
        """One chunk, in slabs of float64."""
        signs = self.signs(chunk)
        counted = signs != 0
        lowest, below, radius = NOBODY, 0, 0.0
        for part, x in slabs(chunk.x):
            first = chunk.start + part.start
            lengths = self.lengths(x, first)
            found, count = lowest_of(self.claim, x, lengths, signs[part], counted[part], first)
            lowest, below, radius = min(lowest, found), below + count, max(radius, float(lengths.max()))
        return Answer(lowest, below, int((~counted).sum()), radius, self.members(chunk, signs))

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
        count = self.rows.rows - self.unlabelled
        return has_margin(self.claim.lower, self.lowest, self.below, (count, self.aside), self.whose(self.lowest[2]))

    def whose(self, sign: int) -> str:
        """Of a row on the side that it is to lie on."""
        return f"class {self.label(sign)!r}"

    def label(self, sign: int) -> Any:
        """The label of a side."""
        return self.claim.positive if sign > 0 else self.claim.negative

    def bounds(self) -> tuple[float | None, float | None]:
        """The lower bound as found here; the upper one needs no scan."""
        return (self.lowest[0] if self.claim.lower is not None and self.lowest[1] >= 0 else None), None


def lowest_of(
    claim: Claim, x: Any, lengths: np.ndarray, signs: np.ndarray, counted: np.ndarray, first: int
) -> tuple[Lowest, int]:
    """Of rows x (n, d) from ``first`` on: the one of the least margin, and how many have less than is claimed.

    signs (n,): the sides that they are to lie on, 1 or -1 or 0 for either; counted (n,): which are asked.
    """
    mine, size = np.flatnonzero(counted), length(claim.w) or 1.0
    if not len(mine):
        return NOBODY, 0
    fast = _margins((x @ claim.w + claim.b)[mine], signs[mine])
    n = claim.features + 4
    error = rounding(claim, lengths[mine], size)
    target = -np.inf if claim.lower is None else claim.lower * size
    surely, again = decided(fast, error, target)
    where = mine[again]
    margins = _margins(dot_products(x[where], claim.w, claim.b), signs[where]) / size - n * LOST
    margins = np.where(np.isnan(margins), -np.inf, margins)  # what overflows proves nothing
    below = int((surely & ~again).sum())
    if claim.lower is not None:
        below += int((~(margins >= claim.lower)).sum())
    k = int(np.argmin(margins))
    return (float(margins[k]), first + int(where[k]), int(signs[where[k]])), below


def decided(fast: np.ndarray, error: np.ndarray, target: float) -> tuple[np.ndarray, np.ndarray]:
    """Which margins (n,), off by an error (n,) each, are below a target for sure; and which have to be summed exactly.

    Exactly: those that the error leaves on either side of the target, and all that may be the least one. What is not a
    number is among them. A wide error costs time, and decides nothing.
    """
    surely = fast < target - error
    least = np.fmin.reduce(fast + error)
    return surely, (~(fast > target + error) & ~surely) | ~(fast - error > least)


def has_margin(claimed: float | None, lowest: Lowest, below: int, counted: tuple[int, str], whose: str) -> Check:
    """Whether every row has at least the claimed margin; counted: how many rows, and words about others."""
    margin, row, _ = lowest
    if row < 0:
        return Check("lower bound", ok=False, text="the store has no labelled row, nothing can be claimed about it")
    if claimed is None:
        return Check("lower bound", ok=True, text="nothing is claimed")
    stated, found, (count, aside) = shown(claimed), shown(margin), counted
    least = f"row {row} ({whose}) has margin {found}"
    if below:
        text = f"model claims {stated}, {least}; {below:,} of {count:,} rows are below{aside}"
        return Check("lower bound", ok=False, text=text)
    text = f"all {count:,} rows{aside}{',' if aside else ''} have at least {stated}; lowest: {least}"
    return Check("lower bound", ok=True, text=text)


def rounding(claim: Claim, lengths: np.ndarray, size: float) -> np.ndarray:
    """What w.x + b (n,) of rows of these lengths is off by at most, in plain float64; size: ||w||."""
    n = claim.features + 4
    return np.asarray(2 * n * UNIT * (lengths * size + abs(claim.b)) + n * TINY)


def _margins(values: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """How far rows with these decision values (n,) lie on the side that they are to lie on, or on either."""
    return np.asarray(np.where(signs == 0, np.abs(values), signs * values))
