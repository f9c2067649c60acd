"""Where an outlier job begins: soft-margin directions of a sample, and the heuristic on the sample's lowest rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Found, good_hyperplane, soft_directions
from coremargin.maths.rows import lengths, take
from coremargin.problems.outliers.probe import OutlierProbe, dense
from coremargin.problems.outliers.state import OutlierPool, unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.maths.margin import Array
    from coremargin.problems.common.start import Sample

#: Rows of the sample that soft directions are found on, and ordinary rows that the pool of the search gets at least:
#: without some of them deep outliers find no disjoint certificates (measured: 195 nodes with 200 of them, 19,685
#: without; 50 flips of 2,000 rows of 20 features: 109 nodes with 2,000 of them, 800 with 500).
SAMPLE_ROWS, ORDINARY = 10_000, 500
#: Times that the heuristic's answer is measured on the sample, and its lowest rows taken in, before the first scan.
ROUNDS = 3


@dataclass(frozen=True)
class OutlierStart:
    """Directions (m, d) for the first scan, the best first, with its offset; ordinary rows; where z is centred, and its
    radius; where margins lie.
    """

    directions: Array
    offset: float
    ordinary: OutlierPool
    centre: Array
    radius: float
    low: float
    high: float


def begin(
    sample: Sample, share: float, ks: Sequence[int], keep: int, ordinary: int, *, intercept: bool
) -> OutlierStart:
    """From a sample of both classes that is this share of all rows: outliers are taken to be spread evenly.

    keep: lowest rows of a class that are looked at; ordinary: how many ordinary rows are wanted.
    """
    spread = np.linspace(0, len(sample.ids) - 1, min(SAMPLE_ROWS, len(sample.ids))).astype(int)
    for sign in (1, -1):  # a rare class is taken whole, as far as that goes
        mine = np.flatnonzero(sample.signs == sign)
        spread = np.union1d(spread, mine[np.linspace(0, len(mine) - 1, min(len(mine), ORDINARY)).astype(int)])
    some = OutlierPool(sample.ids[spread], dense(take(sample.rows, spread)), sample.signs[spread])
    centre = np.asarray(some.x.mean(axis=0))
    search_rows = SearchRows(some.x, some.signs, centre, intercept=intercept)
    soft = soft_directions(search_rows)
    directions: list[Array] = []
    for k in ks:
        most = int(min(np.sum(sample.signs > 0), np.sum(sample.signs < 0))) - 1
        here = k if share >= 1 else min(k, int(np.ceil(1.5 * k * share)), most)
        directions.append(_best_on_sample(sample, share, [*directions[-1:], *soft], here, keep, search_rows).w)
    next_directions = _some(unit([*directions[::-1], *soft]), len(centre))
    margins = some.signs * (some.x @ next_directions[0])
    offset = (float(np.median(margins[some.signs < 0])) - float(np.median(margins[some.signs > 0]))) / 2 * intercept
    margins = margins + some.signs * offset
    room = 0.25 * float(np.ptp(margins)) or 1.0
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    if ordinary > len(spread):
        more = np.linspace(0, len(sample.ids) - 1, min(ordinary, len(sample.ids))).astype(int)
        spread = np.union1d(spread, more)
    spread = spread[np.linspace(0, len(spread) - 1, min(ordinary, len(spread))).astype(int)]
    common = OutlierPool(sample.ids[spread], dense(take(sample.rows, spread)), sample.signs[spread])
    return OutlierStart(
        next_directions, offset, common, centre, radius, float(margins.min()) - room, float(margins.max()) + room
    )


def _best_on_sample(
    sample: Sample, share: float, directions: Sequence[Array], k: int, keep: int, like: SearchRows
) -> Found:
    """The heuristic on the sample's lowest rows, as scans do it on all rows; ``like`` says what the geometry is."""
    centre, intercept = like.centre, like.intercept
    measured, pool = _some(unit(directions), len(centre)), OutlierPool.nothing(len(centre))
    best = Found.nothing(len(centre))
    for _ in range(ROUNDS):
        places = _lowest(sample, measured, keep, pool.ids)
        pool = pool.add(OutlierPool(places, dense(take(sample.rows, places)), sample.signs[places]))
        search_rows = SearchRows(pool.x, pool.signs, centre, intercept=intercept)
        before, best = best, good_hyperplane(search_rows, k, [*directions, best.w], thorough=share >= 1)
        if not len(places) or best.margin == before.margin or not np.any(best.w):
            break
        measured = unit([best.w])
    return best if np.any(best.w) else Found(directions[-1], 0.0, -np.inf)


def _some(directions: Array, features: int) -> Array:
    """The directions, or an axis where hulls meet so that none is left."""
    return directions if len(directions) else np.eye(1, features)


def _lowest(sample: Sample, directions: Array, keep: int, known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places in the sample of its lowest rows under some directions, but for those known."""
    probe = OutlierProbe(
        directions=np.ascontiguousarray(directions.T), keep=keep, codes=(1, 0), known=np.sort(known), offset=0.0,
        low=0.0, high=1.0, bins=1, chunk_rows=len(sample.ids),
    )  # fmt: skip
    codes = (sample.signs > 0).astype(np.int32)
    return probe.ask(probe.empty(), sample.rows, codes, 0, float(lengths(sample.rows).max())).row_id
