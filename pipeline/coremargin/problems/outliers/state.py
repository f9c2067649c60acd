"""What an outlier job knows between two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.named import below, under
from coremargin.maths.outliers.storage import (
    enumerated_from_arrays,
    enumerated_to_arrays,
    search_from_arrays,
    search_to_arrays,
)
from coremargin.maths.rows import dense
from coremargin.problems.common.driver_rows import SignedRows
from coremargin.problems.hard.block_bounds import BlockBounds

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.published import Enumerated
    from coremargin.maths.outliers.search import Search

Status = Literal["running", "certified", "stalled", "heuristic", "published"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled", "heuristic", "published")

#: What a job is at: its incumbents settle, the heuristic climbs from many starts, an upper bound is looked for; a
#: published algorithm tries subsets.
Phase = Literal["settle", "climb", "search", "enumerate"]
PHASES: tuple[Phase, ...] = ("settle", "climb", "search", "enumerate")

_NUMBERS = (
    "round", "settling", "radius", "low", "high", "offset", "new_rows", "lower_now", "stage", "stages", "least",
    "sample_bytes",
)  # fmt: skip
_COUNTS = ("round", "settling", "new_rows", "stage", "stages", "least", "sample_bytes")


@dataclass(frozen=True)
class OutlierPool(SignedRows):
    """Rows of the store in the driver, with signs (n,); dense. New ones come at the end: certificates know rows by
    their place.
    """

    ROWS: ClassVar[str] = "x"

    @property
    def x(self) -> Array:
        """The rows (n, d) float64."""
        return dense(self.rows)

    def add(self, coming: OutlierPool) -> OutlierPool:
        """With those of these rows that are not there yet."""
        return self.concatenate([self, coming.take(np.isin(coming.ids, self.ids, invert=True))])


@dataclass(frozen=True)
class LeftOut:
    """The rows below the margin of an incumbent: ids (m,), their lowest values y w.x, signs (m,); m <= k."""

    ids: NDArray[np.int64]
    values: Array
    signs: NDArray[np.int8]

    @classmethod
    def nothing(cls) -> LeftOut:
        """No rows."""
        return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int8))


@dataclass(frozen=True)
class OutlierState:
    """Between two scans.

    stage: so many of the ``stages`` of the first read are done. While it lasts next_directions (m, d) are the best of
    the rows before, the first of them is what floors are taken at, and move (d + 1,) is how far it may still go with
    its ``offset``. home: rows that came from stages and scans, in the order of their ids; ledger: floors of all others.
    Then next_directions are those that wait to be measured, and wanted (c,) the chunks that the next scan reads for it.

    searches: one for each k, in increasing order; left_out: the rows that its incumbent leaves out. settling: times
    that the incumbents may still be measured to settle. histogram (2, bins) over [low, high]: of margins at the first
    direction of each stage, for rows at home at counted_at (d,), or all at that of a scan of all chunks.
    climbed: whether many starts were tried for a better incumbent. wrong: rows on the wrong side of the best direction
    known, with the best offset for that. least: so many rows must be left out, provably.
    onward: it goes on from an earlier commit; the one stage is then of the chunks that nothing is known of.
    sample_bytes: read to find out what has changed; all else is read by stages and scans.
    enumerated: the published algorithm for each k, over the pool, which then is all rows; none where another one runs.
    """

    round: int
    status: Status
    pool: OutlierPool
    spare: OutlierPool
    centre: Array
    radius: float
    searches: tuple[Search, ...]
    left_out: tuple[LeftOut, ...]
    phase: Phase
    settling: int
    next_directions: Array
    histogram: NDArray[np.int64]
    low: float
    high: float
    offset: float
    new_rows: int
    home: SignedRows
    ledger: BlockBounds
    move: Array
    wanted: NDArray[np.int64]
    counted_at: Array
    stages: int
    stage: int = 0
    climbed: bool = False
    wrong: int | None = None
    least: int = 0
    lower_now: float = -np.inf
    enumerated: tuple[Enumerated, ...] = ()
    onward: bool = False
    sample_bytes: int = 0

    @property
    def reading(self) -> bool:
        """Whether the first read is going on, or has not begun."""
        return self.stage < self.stages

    @property
    def rows_held(self) -> int:
        """How many rows of the store the driver has."""
        ids = self.home.ids  # in order: quickly found among them
        if not len(ids):
            return len(self.pool)
        places = np.minimum(np.searchsorted(ids, self.pool.ids), len(ids) - 1)
        return len(ids) + int(np.count_nonzero(ids[places] != self.pool.ids))

    @property
    def main(self) -> Search:
        """The search for the largest k: the model is its incumbent."""
        return self.searches[-1]

    @property
    def lower(self) -> float:
        """Margin that the main incumbent provably has."""
        return self.main.best.margin

    @property
    def upper(self) -> float:
        """No set of k rows left out allows more."""
        return self.main.upper

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        arrays: dict[str, NDArray[Any]] = {name: np.array(getattr(self, name), np.float64) for name in _NUMBERS}
        arrays |= {"climbed": np.array(self.climbed), "wrong": np.array(-1 if self.wrong is None else self.wrong)}
        arrays |= {"onward": np.array(self.onward)}
        arrays |= {"status": np.array(STATUSES.index(self.status)), "phase": np.array(PHASES.index(self.phase))}
        arrays |= {"histogram": self.histogram, "centre": self.centre, "next_directions": self.next_directions}
        arrays |= self.pool.to_arrays("pool") | self.spare.to_arrays("spare") | self.home.to_arrays("home")
        arrays |= {
            "move": self.move,
            "wanted": self.wanted,
            "counted_at": self.counted_at,
            **self.ledger.to_arrays("block_bounds"),
        }
        for place, (search, out) in enumerate(zip(self.searches, self.left_out, strict=True)):
            own = search is self.main or search.certificates is not self.main.certificates
            arrays |= under(f"search{place}", search_to_arrays(search, own=own))
            arrays |= under(f"out{place}", {"ids": out.ids, "values": out.values, "signs": out.signs})
        for place, one in enumerate(self.enumerated):
            arrays |= under(f"enumerated{place}", enumerated_to_arrays(one))
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], searches: int) -> OutlierState:
        """Inverse of ``to_arrays``; ``searches``: how many values of k there are."""
        numbers: dict[str, Any] = {name: float(arrays[name]) for name in _NUMBERS}
        numbers |= {name: int(numbers[name]) for name in _COUNTS}
        pool, spare = (OutlierPool.from_arrays(name, arrays) for name in ("pool", "spare"))
        outs = [below(f"out{place}", arrays) for place in range(searches)]
        each = [below(f"enumerated{place}", arrays) for place in range(searches)]
        *before, last = (below(f"search{place}", arrays) for place in range(searches))
        main = search_from_arrays(last)
        return cls(
            **numbers, climbed=bool(arrays["climbed"]), onward=bool(arrays["onward"]),
            wrong=int(arrays["wrong"]) if arrays["wrong"] >= 0 else None, pool=pool, spare=spare,
            status=STATUSES[int(arrays["status"])], phase=PHASES[int(arrays["phase"])], centre=arrays["centre"],
            next_directions=arrays["next_directions"], histogram=arrays["histogram"],
            home=SignedRows.from_arrays("home", arrays), move=arrays["move"],
            wanted=arrays["wanted"], counted_at=arrays["counted_at"],
            ledger=BlockBounds.from_arrays("block_bounds", arrays),
            searches=(*(search_from_arrays(one, main.certificates) for one in before), main),
            left_out=tuple(LeftOut(out["ids"], out["values"], out["signs"]) for out in outs),
            enumerated=tuple(enumerated_from_arrays(one) for one in each if one),
        )  # fmt: skip


def unit(directions: Sequence[Array]) -> Array:
    """The directions (m, d), each of length 1, but for those of no length, and none twice."""
    kept: list[Array] = []
    for w in directions:
        length = float(np.linalg.norm(w))
        if length > 0 and not any(np.array_equal(w / length, other) for other in kept):
            kept.append(w / length)
    return np.array(kept)
