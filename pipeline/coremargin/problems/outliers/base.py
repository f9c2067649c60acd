"""What an outlier problem is: what a job says, sizes that follow from it, and what measured directions change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.want import Want
from coremargin.errors import UsageError
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Found, measure
from coremargin.maths.outliers.search import CANDIDATES, Search, improved
from coremargin.maths.rows import of_dense
from coremargin.problems.common.driver_rows import SignedRows
from coremargin.problems.common.result import TwoClassProblem
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE, sample_chunks
from coremargin.problems.common.sent import AllRows
from coremargin.problems.common.sizes import pool_row_bytes, pool_wanted
from coremargin.problems.common.stages import Stages, plan_stages, stage_growth
from coremargin.problems.hard.probe import MarginSummary
from coremargin.problems.outliers.enumerate import check_subsets
from coremargin.problems.outliers.reading import Reading, joined
from coremargin.problems.outliers.start import ORDINARY
from coremargin.problems.outliers.state import LeftOut, OutlierPool, OutlierState
from coremargin.problems.outliers.summary import OutlierSummary
from coremargin.problems.outliers.update import left_out_of, measured_best

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.published import Published

#: Lowest rows that the pool of the search begins with.
POOL_ROWS = 1_000
#: Rows beyond k that a scan sends for each class and direction are at most so many.
MOST_EXTRA = 1_000
#: Values that a block may send for its directions: bounds how many there are where k is large.
VALUES = 400_000

#: What the first stage, the others, and scans are answered with.
Answer: TypeAlias = AllRows | MarginSummary | OutlierSummary


@dataclass(frozen=True)
class OutlierBase(TwoClassProblem[OutlierState, Answer]):
    """The largest margin with k rows left out, to a share 1 - epsilon of the best; for each k in ``ks``, increasing.

    exact: False for the heuristic's answer with an upper bound, whatever the distance. published: that of one of the
    published algorithms instead; exact is False then. epsilon in [0, 1), above 0 for these.
    """

    ks: tuple[int, ...]
    epsilon: float
    intercept: bool = True
    exact: bool = True
    published: Published | None = None
    pool_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def check(self) -> None:
        """Refuse what cannot be trained, before a row is read.

        Raises UsageError when k rows may be all of one class, when a published algorithm may have too many subsets to
        try, or the pool's rows, which are dense, need more than the memory.
        """
        codes = self.codes
        counts = self.source.scalars().counts[:, list(codes)].sum(axis=0)
        self._check_counts(counts, codes)
        rows = 4 * self.keep + POOL_ROWS
        if self.published is not None:
            rows = max(rows, 2 * int(counts.sum()))  # half of the memory is for rows at home: all of them
            check_subsets(int(counts.sum()), self.source.features, self.ks, self.epsilon, self.published)
        need = 8 * self.source.features * rows
        if need > self.pool_bytes:
            raise UsageError(
                f"outliers: the search keeps some {rows:,} rows of {self.source.features:,} "
                f"features in memory, dense, and these need {need:,} bytes; found memory for {self.pool_bytes:,}: give "
                f"more with --memory, or fewer outliers"
            )

    @property
    def want(self) -> Want:
        """Room for the search's rows, dense, and beside them for what the read sends."""
        rows = min(self.source.rows, max(4 * self.keep + POOL_ROWS, pool_wanted(self.source)))
        size = rows * max(8 * self.source.features, 2 * pool_row_bytes(self.source))
        return Want(self.pool_bytes, size, rows, "candidates", "with less, chunks are read again")

    def _check_counts(self, counts: NDArray[np.int64], codes: tuple[int, int]) -> None:
        """Raises UsageError when one of the classes, of so many rows (2,), may vanish."""
        smaller = int(np.argmin(counts))
        if counts[smaller] <= self.ks[-1]:
            why = "the margin has no bound" if self.intercept else "the others are of one class"
            raise UsageError(
                f"outliers: {self.ks[-1]:,} rows may be left out, and class {self.source.classes[codes[smaller]]!r} of "
                f"{self.source.name} has {counts[smaller]:,}: with all of it left out {why}; give a "
                f"number below {counts[smaller]:,}"
            )

    def search_rows(self, state: OutlierState, *, compiled: bool = False) -> SearchRows:
        """The pool as the search sees it; compiled: whether its solves are. The last one is kept: pools are large."""
        known = (state.pool, state.centre, compiled)
        if not self._seen or any(a is not b for a, b in zip(known, self._seen[0], strict=True)):
            rows = SearchRows(state.pool.x, state.pool.signs, state.centre, intercept=self.intercept, compiled=compiled)
            self._seen[:] = [(known, rows)]
        return self._seen[0][1]

    @cached_property
    def _seen(self) -> list[tuple[tuple[OutlierPool, Array, bool], SearchRows]]:
        return []

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks of the first stage: of a small store all."""
        return sample_chunks(self.source, self.codes, self.sample_share, self.sample_bytes)

    @cached_property
    def stages(self) -> Stages:
        """Which chunks the stages of the first read are about."""
        growth = stage_growth(self.source.rows, self.source.features)
        return plan_stages(self.source.chunks, self.sample_chunks, growth)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """How many chunks each stage of the first read has."""
        return self.stages.sizes

    @property
    def reads_again(self) -> bool:
        """What the search asks may be about any chunk, where not all rows came home at once."""
        return self.stages.count > 1

    @cached_property
    def reading(self) -> Reading:
        """How the store is read once."""
        return Reading(
            self.source, self.codes, self.stages, self.ks, self.intercept, self.keep, self.ordinary,
            self.pool_bytes // (2 * pool_row_bytes(self.source)),
        )  # fmt: skip

    @property
    def keep(self) -> int:
        """Rows of each class that a scan sends for a direction."""
        return self.ks[-1] + 1 + min(4 * (self.source.features + 2), MOST_EXTRA)

    @property
    def ordinary(self) -> int:
        """Ordinary rows that the pool gets: enough for k + 1 certificates of d + 2 rows without a common row."""
        room = self.pool_bytes // (4 * 8 * self.source.features)
        return max(ORDINARY, min((self.source.features + 2) * (self.ks[-1] + 1), room))

    @property
    def batch(self) -> int:
        """Directions that one scan measures at most."""
        return max(1, min(CANDIDATES, VALUES // (2 * self.keep)))

    def _improved(self, state: OutlierState, summary: OutlierSummary) -> OutlierState:
        """With the incumbents that the directions which wait are by now: what a job has that ends before the scan."""
        found = self._best_measured(state, summary)
        searches = tuple(improved(search, best) for search, (best, _) in zip(state.searches, found, strict=True))
        return replace(state, searches=searches, left_out=self._left_out(state, summary, found))

    def _best_measured(self, state: OutlierState, summary: OutlierSummary) -> list[tuple[Found, int]]:
        return [measured_best(state.next_directions, summary, search.k, self.intercept) for search in state.searches]

    def _left_out(
        self, state: OutlierState, summary: OutlierSummary, measured: list[tuple[Found, int]]
    ) -> tuple[LeftOut, ...]:
        """What each incumbent leaves out, the better of the one before and that of the directions measured."""
        directions = state.next_directions
        return tuple(
            left_out_of(summary, directions[j], j, found, search.k) if found.margin > search.best.margin else before
            for (found, j), search, before in zip(measured, state.searches, state.left_out, strict=True)
        )

    def _expected(self, state: OutlierState, k: int) -> Array:
        """What the pool says of each direction that waits (m,); while incumbents settle, of the best of them."""
        search_rows = self.search_rows(state)
        margins = np.array([measure(search_rows, w, k).margin for w in state.next_directions])
        return np.full_like(margins, margins.max()) if state.phase == "settle" else margins

    def _grown(self, state: OutlierState, summary: OutlierSummary) -> OutlierState:
        """With the rows that a scan sent at home, as far as there is room, and its floors where they say more."""
        source, before, w = self.source, state.ledger, state.next_directions[0]
        read = summary.floor_chunk
        better = (summary.floors >= before.screen(source, w[:, None], read)[0].T).all(axis=1)
        ledger = before.record(read[better], summary.floors[better], w)
        fresh = np.flatnonzero(np.isin(summary.row_id, state.home.ids, invert=True))
        fresh, vain = np.split(fresh, [max(0, self.reading.most - len(state.home))])
        ledger = ledger.lowered(summary.row_id[vain] // source.chunk_rows, summary.row_x[vain], summary.row_sign[vain])
        rows = of_dense(summary.row_x[fresh].astype(source.dtype), sparse=source.sparse)
        coming = SignedRows(summary.row_id[fresh], rows, summary.row_sign[fresh])
        return replace(state, home=joined(state.home, coming), ledger=ledger)

    def _is_news(self, found: Found, search: Search) -> bool:
        """Whether a hyperplane has more on the pool than the incumbent has on all rows, by what matters."""
        slack = max(0.5 * self.epsilon, 1e-9) * abs(found.margin) + 1e-10 * search.radius
        return found.margin > max(search.best.margin, 0.0) + slack
