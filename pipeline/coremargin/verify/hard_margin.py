"""A hard margin: every row has the claimed margin, and the coreset allows no larger one.

Lower bound, by a scan: the least y (w.x + b) of all rows that count. Upper bound, without a scan: by duality no
hypothesis has a larger margin than the distance that the coreset's combination by its dual weights leaves. The scan
compares the coreset's rows with the store's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from msgspec import UNSET, UnsetType

from coremargin.verify.checks import CLOSE, Check, same_epsilon, same_ratio, same_two_classes, shown
from coremargin.verify.claim import Claim, two_classes
from coremargin.verify.compression import compression_check
from coremargin.verify.kind import UNCHECKED_BLOCK_BOUNDS, Kind
from coremargin.verify.margins import bounded_above, overlap, status, uncancelled, unit_length, weighed_length
from coremargin.verify.store import Members, StoreScan
from coremargin.verify.sums import LOST, TINY, UNIT, combination, dot_products, length, lift, normalised_weights, slabs

if TYPE_CHECKING:
    from coremargin.formats.hard_margin import Compression, HardMargin
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows


Lowest: TypeAlias = tuple[float, int, int]  #: margin, row and sign of the row of the least margin
NO_ROW: Lowest = (np.inf, -1, 0)


@dataclass(frozen=True, kw_only=True)
class HardClaim(Claim):
    """The claim of a hard margin."""

    compression: Compression | UnsetType  #: that few rows give the hyperplane; unset: nothing is claimed


@dataclass(frozen=True)
class MarginSummary:
    """The summary of one chunk; margins are multiplied by ||w||."""

    lowest: Lowest  #: NO_ROW without labelled rows
    below: int  #: rows whose margin is below the claim
    unlabelled: int
    radius: float
    members: Members


class HardScan(StoreScan):
    """The scan for the least margin."""

    claim: HardClaim

    def __init__(self, claim: HardClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.lowest = NO_ROW
        self.below = 0

    def probe(self, chunk: Chunk) -> MarginSummary:
        """The summary of a chunk, in slabs of float64."""
        signs = self.signs(chunk)
        counted = signs != 0
        lowest, below, radius = NO_ROW, 0, 0.0
        for part, x in slabs(chunk.x):
            first = chunk.start + part.start
            lengths = self.lengths(x, first)
            found, count = lowest_of(self.claim, x, lengths, signs[part], counted[part], first)
            lowest, below, radius = min(lowest, found), below + count, max(radius, float(lengths.max()))
        return MarginSummary(lowest, below, int((~counted).sum()), radius, self.members(chunk, signs))

    def add(self, summary: MarginSummary) -> None:
        """Add a summary; in the order of chunks, so that ties are decided by the lower row."""
        self.lowest = min(self.lowest, summary.lowest)
        self.below += summary.below
        self.count(summary.unlabelled, summary.radius, summary.members)

    def bounds(self) -> tuple[float | None, float | None]:
        """The lower bound found; the upper one needs no scan."""
        return (self.lowest[0] if self.claim.lower is not None and self.lowest[1] >= 0 else None), None

    def checks(self) -> list[Check]:
        """Whether the store is the claim's, the coreset's rows are the store's, and all rows have the margin."""
        label = self.claim.positive if self.lowest[2] > 0 else self.claim.negative
        counted = self.rows.rows - self.unlabelled, self.aside
        lower = has_margin(self.claim.lower, self.lowest, self.below, counted, f"class {label!r}")
        found = [self.content(), self.coreset(), lower]
        stated = self.claim.compression
        return (
            found
            if stated is UNSET
            else [*found, compression_check(self.claim, stated, counted[0], dual(self.claim)[0])]
        )


def lowest_of(
    claim: Claim, x: Any, lengths: np.ndarray, signs: np.ndarray, counted: np.ndarray, first: int
) -> tuple[Lowest, int]:
    """The row with the least margin, of rows x (n, d) from ``first`` on, and how many have less than is claimed.

    signs (n,): the side that a row should lie on, 1 or -1, or 0 for either; counted (n,): which rows count.
    """
    mine, size = np.flatnonzero(counted), length(claim.w) or 1.0
    if not len(mine):
        return NO_ROW, 0
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


def _margins(values: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Margins of rows with these decision values (n,); of rows without a side their distances."""
    return np.asarray(np.where(signs == 0, np.abs(values), signs * values))


def rounding(claim: Claim, lengths: np.ndarray, size: float) -> np.ndarray:
    """Upper bounds (n,) on the error of w.x + b in float64, of rows of these lengths; size: ||w||."""
    n = claim.features + 4
    return np.asarray(2 * n * UNIT * (lengths * size + abs(claim.b)) + n * TINY)


def decided(fast: np.ndarray, error: np.ndarray, target: float) -> tuple[np.ndarray, np.ndarray]:
    """Which margins (n,), with errors (n,), are certainly below a target; and which have to be summed exactly.

    Exactly: those that the error leaves on either side of the target, and all that may be the least one. NaN is among
    them. A wide error costs time, but does not change the result.
    """
    surely = fast < target - error
    least = np.fmin.reduce(fast + error)
    return surely, (~(fast > target + error) & ~surely) | ~(fast - error > least)


def has_margin(claimed: float | None, lowest: Lowest, below: int, counted: tuple[int, str], whose: str) -> Check:
    """Whether every row has at least the claimed margin; counted: how many rows count, and text about the others."""
    margin, row, _ = lowest
    if row < 0:
        return Check("lower bound", ok=False, text="the store has no labelled row, nothing can be claimed about it")
    if claimed is None:
        return Check("lower bound", ok=True, text="nothing is claimed")
    stated, found, (count, others) = shown(claimed), shown(margin), counted
    least = f"row {row} ({whose}) has margin {found}"
    if below:
        text = f"model claims {stated}, {least}; {below:,} of {count:,} rows are below{others}"
        return Check("lower bound", ok=False, text=text)
    text = f"all {count:,} rows{others}{',' if others else ''} have at least {stated}; lowest: {least}"
    return Check("lower bound", ok=True, text=text)


def dual(claim: Claim) -> tuple[float | None, list[Check]]:
    """The upper bound that the coreset proves, and whether the claimed one is at least that."""
    if claim.upper is None:
        return None, overlap(claim, None, 0.0)
    signs = (-1, 1) if claim.intercept else (0,)
    names = {-1: f"class {claim.negative!r}", 1: f"class {claim.positive!r}", 0: "the coreset"}
    groups = [claim.y == sign if sign else np.ones(len(claim.y), dtype=bool) for sign in signs]
    problems = []
    bad = np.flatnonzero(~(claim.alpha >= 0))
    if len(bad):
        row = int(claim.ids[bad[0]])
        problems.append(f"the weight of row {row} is {claim.alpha[bad[0]]:.6g}, expected a number >= 0")
    else:
        for sign, group in zip(signs, groups, strict=True):
            total = float(claim.alpha[group].sum())
            if not abs(total - 1) <= CLOSE:
                problems.append(f"the weights of {names[sign]} sum to {total:.12g}, expected 1")
    text = f"{len(claim.alpha):,} weights >= 0 that sum to 1"
    check = Check("dual weights", not problems, "; ".join(problems) or text)
    if problems:
        return None, [check, *overlap(claim, None, 0.0)]
    high, low = normalised_weights(claim.alpha, groups)
    share, lifted = 2 if claim.intercept else 1, lift(claim.x)
    found = length(combination(claim.x * lifted, high * claim.y, low * claim.y)) / lifted / share
    size = weighed_length(claim.x, high, centred=claim.intercept) / share
    text = f"{len(claim.alpha):,} coreset rows prove at most"
    left = overlap(claim, found, size)
    if left and left[0].ok:
        left += uncancelled(claim, claim.x, [(high * claim.y, low * claim.y)], high, centred=claim.intercept)
    return found, [check, bounded_above(claim.upper, found, text), *left]


class HardKind(Kind[HardClaim]):
    """The claims of a hard margin."""

    unchecked = UNCHECKED_BLOCK_BOUNDS

    def claim(self, files: ModelFiles) -> HardClaim:
        """A hyperplane, and the dual weights of its coreset."""
        record = cast("HardMargin", files.record)
        return HardClaim(**two_classes(files, record.view, soft=False), compression=record.compression)

    def same_classes(self, claim: HardClaim, rows: Rows) -> Check:
        """Two, or one against the rest."""
        return same_two_classes(claim, rows)

    def consistency(self, claim: HardClaim) -> list[Check]:
        """Length of the hyperplane, epsilon, ratio, status."""
        return [*unit_length(claim), *same_epsilon(claim), *same_ratio(claim), status(claim)]

    def bound(self, claim: HardClaim) -> tuple[float | None, list[Check]]:
        """By the dual weights."""
        return dual(claim)

    def scan(self, claim: HardClaim, rows: Rows) -> HardScan:
        """The margin of each row."""
        return HardScan(claim, rows)


KIND = HardKind()
