"""Where an outlier job begins: soft-margin directions of a sample, and the heuristic on the sample's lowest rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Found, good_hyperplane, soft_directions
from coremargin.maths.rows import lengths, take
from coremargin.problems.outliers.home import at_home, fewest
from coremargin.problems.outliers.probe import dense
from coremargin.problems.outliers.state import OutlierPool, unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.maths.margin import Array
    from coremargin.problems.common.driver_rows import SignedRows

#: Rows of the sample that soft directions are found on, and ordinary rows that the pool of the search gets at least:
#: without some of them deep outliers find no disjoint certificates (measured: 195 nodes with 200 of them, 19,685
#: without; 50 flips of 2,000 rows of 20 features: 109 nodes with 2,000 of them, 800 with 500).
SAMPLE_ROWS, ORDINARY = 10_000, 500
#: Outliers among a share of the rows are taken to be so many standard deviations more than that share of them. One too
#: few left out is a direction that has little to do with that of all rows; one too many moves it as a row less does.
SIGMAS = 3.0
#: Of so many numbers of outliers, evenly spread, directions are looked for before the first read; then of all.
MOST_KS = 16
#: Times that the heuristic's answer is measured on the sample, and its lowest rows taken in, before the first scan.
ROUNDS = 3


@dataclass(frozen=True)
class OutlierStart:
    """Directions (m, d) to go on with, the best first; before (d,): that on half of the rows; ordinary rows; where z is
    centred, and its radius; where margins lie.
    """

    directions: Array
    before: Array
    ordinary: OutlierPool
    centre: Array
    radius: float
    low: float
    high: float


def begin(
    rows: SignedRows, share: float, ks: Sequence[int], keep: int, ordinary: int, *, intercept: bool
) -> OutlierStart:
    """From this share of all rows: outliers are taken to be spread evenly.

    keep: lowest rows of a class that are looked at; ordinary: how many ordinary rows are wanted.
    """
    spread = np.linspace(0, len(rows) - 1, min(SAMPLE_ROWS, len(rows))).astype(int)
    for sign in (1, -1):  # a rare class is taken whole, as far as that goes
        mine = np.flatnonzero(rows.signs == sign)
        spread = np.union1d(spread, mine[np.linspace(0, len(mine) - 1, min(len(mine), ORDINARY)).astype(int)])
    sample = pooled(rows, spread)
    centre = np.asarray(sample.x.mean(axis=0))
    search_rows = SearchRows(sample.x, sample.signs, centre, intercept=intercept)
    soft = soft_directions(search_rows)
    seen = Seen(rows, share, keep, centre, intercept)
    near, starts = soft, soft
    if share < 1:
        half = replace(seen, rows=rows.take(np.arange(0, len(rows), 2)), share=share / 2)
        near = [half.best(ks[-1], soft).w]
        starts = [*near, *soft]
    next_directions = seen.directions(ks, near, starts)
    if share >= 1:
        next_directions = unit([*next_directions, *soft])
    margins = sample.signs * (sample.x @ next_directions[0])
    room = 0.25 * float(np.ptp(margins)) or 1.0
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    if ordinary > len(spread):
        spread = np.union1d(spread, np.linspace(0, len(rows) - 1, min(ordinary, len(rows))).astype(int))
    spread = spread[np.linspace(0, len(spread) - 1, min(ordinary, len(spread))).astype(int)]
    return OutlierStart(
        next_directions, some(unit(near[:1]), len(centre))[0], pooled(rows, spread), centre, radius,
        float(margins.min()) - room, float(margins.max()) + room,
    )  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """Rows in the order of their ids that are a share of all, and how the heuristic looks for directions on them.

    keep: lowest rows of each class under a direction that it looks at; centre (d,): of z; wrong: so many of the rows
    are on the wrong side already, outliers most likely, which may all lie in one place.
    """

    rows: SignedRows
    share: float
    keep: int
    centre: Array
    intercept: bool
    wrong: int = 0

    def directions(self, ks: Sequence[int], near: Sequence[Array], starts: Sequence[Array]) -> Array:
        """The best directions (m, d), the largest k first, down to those that separate nothing: of a few of many ks."""
        found: dict[int, Found] = {}
        for k in ks[:: -(1 + len(ks) // MOST_KS)]:
            if self._few(k) in found:
                continue
            last = [one.w for one in found.values()][-1:]
            best = self.best(k, [*last, *near], [*last, *starts])
            if found and not best.margin > 0:
                break
            found[self._few(k)] = best
        return some(unit([one.w for one in found.values()]), len(self.centre))

    def best(self, k: int, near: Sequence[Array], starts: Sequence[Array] = ()) -> Found:
        """The best that the heuristic finds from ``starts`` (else ``near``) on the lowest rows, first those ``near``.

        With fewer outliers than k where these are not all rows, if the others can then be separated.
        """
        most = fewest(self.rows) - 1
        best = Found(near[-1], 0.0, -np.inf)
        for here in sorted({min(self._few(k), most), min(k, most)}):
            if here >= 0 and not best.margin > 0:
                best = self._best(here, near, starts or near)
        return best

    def _few(self, k: int) -> int:
        """How many of k outliers are taken to be among these rows at most."""
        spread = SIGMAS * np.sqrt(k * self.share * (1 - min(self.share, 1.0)))
        return min(k, max(self.wrong, int(np.ceil(k * self.share + spread))))

    def _best(self, k: int, near: Sequence[Array], starts: Sequence[Array]) -> Found:
        features = len(self.centre)
        measured, pool = some(unit(near), features), OutlierPool.nothing(features)
        best, longest = Found.nothing(features), float(lengths(self.rows.rows).max())
        for _ in range(ROUNDS):
            lowest = at_home(self.rows, measured, self.keep, longest, pool.ids)
            pool = pool.add(OutlierPool(lowest.row_id, lowest.row_x, lowest.row_sign))
            search_rows = SearchRows(pool.x, pool.signs, self.centre, intercept=self.intercept)
            before, best = best, good_hyperplane(search_rows, k, list(starts), thorough=False)
            if not len(lowest.row_id) or best.margin == before.margin or not np.any(best.w):
                break
            starts = [best.w]
            measured = unit(starts)
        return best if np.any(best.w) else Found(near[-1], 0.0, -np.inf)


def pooled(rows: SignedRows, places: NDArray[np.int64]) -> OutlierPool:
    """Some of the rows as rows of a pool."""
    return OutlierPool(rows.ids[places], dense(take(rows.rows, places)), rows.signs[places])


def some(directions: Array, features: int) -> Array:
    """The directions, or an axis where hulls meet so that none is left."""
    return directions if len(directions) else np.eye(1, features)
