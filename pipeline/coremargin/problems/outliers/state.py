"""The state of an outlier job between two scans, and its form in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.named import below, under
from coremargin.maths.outliers.published import Enumeration
from coremargin.maths.outliers.search import Search
from coremargin.maths.rows import dense
from coremargin.problems.common.driver_rows import SignedRows
from coremargin.problems.hard.block_bounds import BlockBounds

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Status = Literal["running", "certified", "stalled", "heuristic", "published"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled", "heuristic", "published")

#: Incumbents settle; the heuristic climbs from many starts; the search looks for an upper bound; a published algorithm
#: tries subsets.
Phase = Literal["settle", "climb", "search", "enumerate"]
PHASES: tuple[Phase, ...] = ("settle", "climb", "search", "enumerate")

_COUNTS = ("round", "settling", "new_rows", "stage", "stages", "least", "sample_bytes")
_FLOATS = ("radius", "low", "high", "offset", "lower_now")
_ARRAYS = ("centre", "next_directions", "histogram", "move", "chunks_to_read", "counted_at")


@dataclass(frozen=True)
class OutlierWorkingSet(SignedRows):
    """Rows that the search works on, dense, with signs (n,). New rows are appended: certificates refer to positions."""

    ROWS: ClassVar[str] = "x"

    @property
    def x(self) -> Array:
        """The rows (n, d) in float64."""
        return dense(self.rows)

    def add(self, rows: OutlierWorkingSet) -> OutlierWorkingSet:
        """Append the rows that are not in the working set yet."""
        return self.concatenate([self, rows.take(np.isin(rows.ids, self.ids, invert=True))])


@dataclass(frozen=True)
class ExcludedRows:
    """The rows below the margin of an incumbent: ids (m,), lower bounds on their margins (m,), signs (m,); m <= k."""

    ids: NDArray[np.int64]
    values: Array
    signs: NDArray[np.int8]

    @classmethod
    def none(cls) -> ExcludedRows:
        """No rows."""
        return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int8))


@dataclass(frozen=True)
class OutlierState:
    """The state between two scans.

    First read: ``stage`` of its ``stages`` are done. Meanwhile next_directions (m, d) are the best on the rows read so
    far; lower bounds are taken at the first of them, and move (d + 1,) is how far it and its ``offset`` may still go.
    cached: rows that stages and scans have sent, ordered by id; block_bounds: lower bounds of all others.

    Then next_directions wait to be measured, and the next scan reads chunks_to_read (c,) for that.

    searches: one for each k, increasing; excluded: the rows that each incumbent excludes. settling: how often
    incumbents may still be measured to settle. ordinary: rows that join the working set when the search begins. centre,
    radius: of the rows z of the search. histogram (2, bins) over [low, high]: margins at the first direction of each
    stage, then of cached rows at counted_at (d,), or of all rows at that of a full scan. climbed: whether the climb has
    run. wrong: rows misclassified by the best known direction with its best offset. least: rows that must be excluded,
    proven. warm_started: the state comes from an earlier commit, and its one stage reads the new chunks. sample_bytes:
    read to find out what has changed. enumerations: of a published algorithm, one for each k, over all rows.
    """

    round: int
    status: Status
    working_set: OutlierWorkingSet
    ordinary: OutlierWorkingSet
    centre: Array
    radius: float
    searches: tuple[Search, ...]
    excluded: tuple[ExcludedRows, ...]
    phase: Phase
    settling: int
    next_directions: Array
    histogram: NDArray[np.int64]
    low: float
    high: float
    offset: float
    new_rows: int
    cached: SignedRows
    block_bounds: BlockBounds
    move: Array
    chunks_to_read: NDArray[np.int64]
    counted_at: Array
    stages: int
    stage: int = 0
    climbed: bool = False
    wrong: int | None = None
    least: int = 0
    lower_now: float = -np.inf
    enumerations: tuple[Enumeration, ...] = ()
    warm_started: bool = False
    sample_bytes: int = 0

    @property
    def in_first_read(self) -> bool:
        """Whether stages of the first read are left."""
        return self.stage < self.stages

    @property
    def rows_held(self) -> int:
        """Number of distinct rows in the driver."""
        ids = self.cached.ids  # sorted
        if not len(ids):
            return len(self.working_set)
        places = np.minimum(np.searchsorted(ids, self.working_set.ids), len(ids) - 1)
        return len(ids) + int(np.count_nonzero(ids[places] != self.working_set.ids))

    @property
    def main(self) -> Search:
        """The search for the largest k, whose incumbent is the model."""
        return self.searches[-1]

    @property
    def lower(self) -> float:
        """The margin that the main incumbent is proven to have."""
        return self.main.best.margin

    @property
    def upper(self) -> float:
        """The upper bound over all choices of excluded rows."""
        return self.main.upper

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` returns the same bits."""
        arrays = {name: np.array(getattr(self, name), np.int64) for name in _COUNTS}
        arrays |= {name: np.array(getattr(self, name), np.float64) for name in _FLOATS}
        arrays |= {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {
            "climbed": np.array(self.climbed),
            "warm_started": np.array(self.warm_started),
            "wrong": np.array(-1 if self.wrong is None else self.wrong),
            "status": np.array(STATUSES.index(self.status)),
            "phase": np.array(PHASES.index(self.phase)),
        }
        arrays |= self.working_set.to_arrays("working_set") | self.ordinary.to_arrays("ordinary")
        arrays |= self.cached.to_arrays("cached") | self.block_bounds.to_arrays("block_bounds")
        for place, (search, rows) in enumerate(zip(self.searches, self.excluded, strict=True)):
            own = search is self.main or search.certificates is not self.main.certificates
            arrays |= under(f"search{place}", search.to_arrays(own=own))
            arrays |= under(f"excluded{place}", {"ids": rows.ids, "values": rows.values, "signs": rows.signs})
        for place, enumeration in enumerate(self.enumerations):
            arrays |= under(f"enumeration{place}", enumeration.to_arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], searches: int) -> OutlierState:
        """Inverse of ``to_arrays``; ``searches``: the number of values of k."""
        numbers: dict[str, Any] = {name: int(arrays[name]) for name in _COUNTS}
        numbers |= {name: float(arrays[name]) for name in _FLOATS}
        numbers |= {name: arrays[name] for name in _ARRAYS}
        excluded = [below(f"excluded{place}", arrays) for place in range(searches)]
        enumerations = [below(f"enumeration{place}", arrays) for place in range(searches)]
        *others, last = (below(f"search{place}", arrays) for place in range(searches))
        main = Search.from_arrays(last)
        return cls(
            **numbers,
            climbed=bool(arrays["climbed"]),
            warm_started=bool(arrays["warm_started"]),
            wrong=int(arrays["wrong"]) if arrays["wrong"] >= 0 else None,
            working_set=OutlierWorkingSet.from_arrays("working_set", arrays),
            ordinary=OutlierWorkingSet.from_arrays("ordinary", arrays),
            status=STATUSES[int(arrays["status"])],
            phase=PHASES[int(arrays["phase"])],
            cached=SignedRows.from_arrays("cached", arrays),
            block_bounds=BlockBounds.from_arrays("block_bounds", arrays),
            searches=(*(Search.from_arrays(one, main.certificates) for one in others), main),
            excluded=tuple(ExcludedRows(one["ids"], one["values"], one["signs"]) for one in excluded),
            enumerations=tuple(Enumeration.from_arrays(one) for one in enumerations if one),
        )


def unit_directions(directions: Sequence[Array]) -> Array:
    """Directions (m, d) scaled to length 1, without zeros and duplicates."""
    unit: list[Array] = []
    for w in directions:
        length = float(np.linalg.norm(w))
        if length > 0 and not any(np.array_equal(w / length, other) for other in unit):
            unit.append(w / length)
    return np.array(unit)
