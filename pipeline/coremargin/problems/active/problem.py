"""Few labels for many rows: the coreset method of Har-Peled, Roth and Zimak (2006, section 4.2, Figure 2) out of core.

Any row within (1 - epsilon) of the margin of the rows answered improves the hypothesis, whatever its label is: so rows
that lie in memory are asked for first, without reading the store. When none of them is that near, a scan says whether
any row of the store is, and brings the nearest ones along. When none is, fresh rows are drawn uniformly from all rows
without an answer: their labels try the hypothesis (VERIFY). A draw that it gets wrong joins the rows answered, and all
begins again; when it gets none wrong, few can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.scaled import unscaled
from coremargin.engine.problem import BaseProblem, Round
from coremargin.maths.evidence import draws_needed, share_of
from coremargin.maths.pool import hulls_meet
from coremargin.maths.rows import concatenate, take
from coremargin.problems.active.methods.method import Asking
from coremargin.problems.active.methods.table import METHODS
from coremargin.problems.active.order import Order
from coremargin.problems.active.probe import SlabProbe, decisions, distances_below, margin_below
from coremargin.problems.active.spread import furthest
from coremargin.problems.active.state import ActiveState, Draws, Scanned, Status
from coremargin.problems.active.summary import SlabSummary
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.pool import Pool
from coremargin.problems.common.start import SAMPLE_BYTES, SAMPLE_SHARE, check_scale, pool_row_bytes

if TYPE_CHECKING:
    from coremargin.formats.choices import Method

#: Rows in memory from which questions are chosen, and so many that are sent from a scan.
RESIDENT_ROWS = 20_000
#: Questions before both classes are seen that go to rows far from each other; after them rows are drawn.
SPREAD = 20
#: Where too few rows of a side were drawn, so many times as many are.
REACH = 8
#: Bytes of rows drawn that come along with their scan: needed when their attempt is void, they need not be read again.
HELD_BYTES = 64 << 20


@dataclass(frozen=True)
class ActiveMargin(BaseProblem[ActiveState, SlabSummary]):
    """The largest margin between two classes whose labels are asked for.

    method: which rows are asked about, and what stands for the largest margin of them (``methods/table.py``).
    epsilon: what may be missing of the margin, as a share. error, confidence: at most so many rows are labelled
    wrongly, as a share, and how sure that is to be; by_class: of the rows on each side of the hyperplane, which says
    more where one class is rare. seed: of the draws. Labels are signs.
    """

    method: Method = "coreset"
    epsilon: float = 0.1
    error: float = 0.01
    confidence: float = 0.99
    by_class: bool = False
    seed: int = 0
    intercept: bool = True
    resident_rows: int = RESIDENT_ROWS
    blocks: int = 1
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    # start

    @property
    def sample_chunks(self) -> list[int]:
        """Chunks spread evenly over the store."""
        source = self.source
        each = max(1, source.nbytes // source.chunks)
        wanted = max(1, min(round(self.sample_share * source.chunks), self.sample_bytes // each))
        if source.nbytes <= self.sample_bytes:
            wanted = source.chunks
        spread = (np.arange(wanted) + 0.5) * source.chunks / wanted
        return sorted(set(spread.astype(int).tolist()))

    def check(self) -> None:
        """Refuse what would under- or overflow. Raises BadRow."""
        check_scale(self.source)

    def start(self) -> ActiveState:
        """No row is answered; some of the sample's lie in memory."""
        self.check()
        source, chunks = self.source, self.sample_chunks
        each, ids, rows = -(-self.resident_rows // len(chunks)), [], []
        for chunk in chunks:
            start, stop = source.span(chunk)
            some = np.linspace(0, stop - start - 1, min(each, stop - start)).astype(np.int64)
            some = some[self._counts(some + start)]
            ids.append(some + start)
            rows.append(take(source.read(chunk)[0], some))
        resident = DriverRows(np.concatenate(ids), concatenate(rows))
        state = ActiveState(
            round=0, status="running", answered=Pool.nothing(source.features, sparse=source.sparse), resident=resident,
            w=np.zeros(source.features), b=0.0, lower=0.0, upper=np.inf, scanned=Scanned.nothing(), attempt=1,
            draws=Draws.none(), reach=0, wanted=np.zeros(0, np.int64), new_rows=0,
            sample_bytes=sum(source.span(c)[1] - source.span(c)[0] for c in chunks) * source.nbytes // source.rows,
        )  # fmt: skip
        return self._next(state)

    def _counts(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows (n,) count: those of a weight above 0."""
        counts = np.ones(len(ids), bool)
        for chunk in np.unique(ids // self.source.chunk_rows):
            weights = self.source.weights(int(chunk))
            if weights is None:
                break
            mine = np.flatnonzero(ids // self.source.chunk_rows == chunk)
            counts[mine] = weights[ids[mine] - self.source.span(int(chunk))[0]] > 0
        return counts

    # questions

    def questions(self, state: ActiveState) -> Sequence[int]:
        """The row whose label is wanted now; none: a scan is next."""
        return [int(row) for row in state.wanted[:1]]

    def answered(self, state: ActiveState, labels: Mapping[int, Any]) -> ActiveState:
        """The state that knows these labels, 1 or -1, of any rows that have been asked for."""
        signs = {row: np.int8(sign) for row, sign in labels.items() if row not in state.answered.ids}
        given = np.array([signs.get(int(row), 0) for row in state.draws.ids], np.int8)
        draws = replace(state.draws, signs=np.where(state.draws.signs == 0, given, state.draws.signs))
        others = np.array([row for row in signs if row not in draws.ids], np.int64)
        state = replace(state, draws=draws)
        if not len(others):
            return self._tried(state)
        state = self._joined(self.voided(state), others, np.array([signs[int(row)] for row in others]))
        return self._next(self._solved(state))

    def voided(self, state: ActiveState) -> ActiveState:
        """Without the attempt on the way: its draws are rows like any other, or may be drawn again, none answered.

        Its number is spent as soon as there are draws: somebody may have seen them, and told what they show.
        """
        draws, spent = state.draws, bool(len(state.draws))
        empty = replace(state, draws=Draws.none(), attempt=state.attempt + spent, reach=0)
        return self._joined(empty, draws.ids[draws.seen], draws.signs[draws.seen])

    def _joined(self, state: ActiveState, ids: NDArray[np.int64], signs: NDArray[np.int8]) -> ActiveState:
        """With these rows among those answered."""
        known = np.flatnonzero(np.isin(ids, state.resident.ids))
        missing = np.setdiff1d(np.arange(len(ids)), known)
        order = np.argsort(state.resident.ids, kind="stable")
        places = order[np.searchsorted(state.resident.ids[order], ids[known])]
        answered = state.answered.add(ids[known], take(state.resident.rows, places), signs[known])
        if len(missing):  # asked for long ago, and the rows in memory have changed since; or drawn, and too wide
            answered = answered.add(ids[missing], self.source.rows_at(ids[missing])[0], signs[missing])
        return replace(state, answered=answered)

    def _tried(self, state: ActiveState) -> ActiveState:
        """With what the draws say so far: wrong, not yet known, or right, all of them."""
        draws, seen = state.draws, state.draws.seen
        if (draws.signs[seen] != draws.sides[seen]).any():
            return self._next(self._solved(self.voided(state)))
        if seen.all():
            return replace(state, status="certified", wanted=np.zeros(0, np.int64))
        return replace(state, wanted=draws.ids[~seen])

    def _solved(self, state: ActiveState) -> ActiveState:
        """The largest margin of the rows answered; nothing is known of others by it, nor by what ended it before."""
        state, pool = replace(state, status="running", scanned=Scanned.nothing()), state.answered
        if not pool.both_classes:
            return replace(state, w=np.zeros(self.source.features), b=float(pool.signs[0]))
        solution = METHODS[self.method].solve(pool, intercept=self.intercept, epsilon=self.epsilon)
        meet, solution = hulls_meet(pool.rows, pool.signs, solution, intercept=self.intercept)
        state = replace(state, answered=pool.weighted(solution.weights), upper=solution.upper)
        if solution.status == "zero":
            status: Status = "contradiction" if meet else "stalled"  # float64 has come to its end
            return replace(state, status=status, wanted=np.zeros(0, np.int64))
        lower = margin_below(pool.rows, pool.signs, solution.w, solution.b)
        return replace(state, w=solution.w, b=solution.b, lower=lower)

    # what is next

    @property
    def _share(self) -> float:
        return 1.0 - self.epsilon

    def _next(self, state: ActiveState) -> ActiveState:
        """With the rows that are wanted now; none: a scan is next."""
        if state.status != "running":
            return state
        if state.answered.both_classes:
            return replace(state, wanted=self._near(state))
        if len(state.answered) < min(SPREAD, len(state.resident)):
            rows = self._open(state)
            return replace(state, wanted=rows.ids[[furthest(rows.rows, state.answered.rows)]])
        return replace(state, wanted=np.zeros(0, np.int64))

    def _open(self, state: ActiveState) -> DriverRows:
        """The resident rows without an answer."""
        return state.resident.take(np.flatnonzero(np.isin(state.resident.ids, state.answered.ids, invert=True)))

    def _near(self, state: ActiveState) -> NDArray[np.int64]:
        """A row in memory, while one lies within the slab."""
        rows = self._open(state)
        sizes = distances_below(rows.rows, state.w, state.b)
        within = sizes < self._share * state.upper
        if not within.any():
            return np.zeros(0, np.int64)
        asking = Asking(rows, sizes, within, state.answered, self.intercept, self.seed)
        return rows.ids[[METHODS[self.method].pick(asking)]]

    # scan

    def probe(self, state: ActiveState) -> SlabProbe:
        """The question of the next scan, which brings the rows along that are drawn where the slab is empty."""
        order = self._drawn(state)
        return SlabProbe(
            w=state.w, b=state.b, known=state.answered.ids, drawn=np.sort(order),
            held=np.sort(order[: HELD_BYTES // pool_row_bytes(self.source)]),
            keep=max(1, self.resident_rows // (2 * self.blocks)), dtype=self.source.dtype.name,
            chunk_rows=self.source.chunk_rows, sparse=self.source.sparse,
        )  # fmt: skip

    def _drawn(self, state: ActiveState) -> NDArray[np.int64]:
        """Rows of the next attempt in the order drawn, of those without an answer: as many as can be needed."""
        needed = max(state.reach, self._needed(state, self.source.rows - len(state.answered)))
        attempt = unscaled(self.source).digest, self.seed, state.attempt, self.source.rows
        return self._order.first(attempt, needed, state.answered.ids)

    @cached_property
    def _order(self) -> Order:
        return Order(self._counts)

    def _needed(self, state: ActiveState, rows: int) -> int:
        """Draws of a side, or of all rows, that has so many."""
        spent = share_of(1.0 - self.confidence, state.attempt)
        return draws_needed(rows, self.error, spent / 2 if self.by_class else spent)

    # update

    def update(self, state: ActiveState, summary: SlabSummary) -> ActiveState:
        """More questions about rows near the hyperplane or, where none is, draws to try it."""
        resident, new = self._residents(state, summary)
        scanned = Scanned(float(summary.nearest[0]), summary.sides)
        state = replace(state, round=state.round + 1, resident=resident, scanned=scanned, new_rows=new)
        if state.answered.both_classes and scanned.nearest < self._share * state.upper:
            state = self._next(state)
            return state if len(state.wanted) else replace(state, wanted=summary.nearest_id)
        return self._drawing(state, summary)

    def _drawing(self, state: ActiveState, summary: SlabSummary) -> ActiveState:
        """With rows that try the hypothesis; where too few of a side came along, the next scan brings more of them."""
        order = self._drawn(state)
        places = np.argsort(summary.drawn_id)[np.searchsorted(np.sort(summary.drawn_id), order)]
        found = summary.drawn_side[places]
        sides = (found < 0).astype(np.intp) * self.by_class
        counts = summary.sides if self.by_class else summary.sides.sum(keepdims=True)
        needed = [self._needed(state, int(rows)) for rows in counts]
        chosen = np.sort(np.concatenate([np.flatnonzero(sides == k)[:most] for k, most in enumerate(needed)]))
        if len(chosen) < sum(needed) and len(order) < summary.sides.sum():
            return replace(state, reach=REACH * len(order))
        draws = Draws(order[chosen], found[chosen], np.zeros(len(chosen), np.int8))
        held = np.isin(summary.held_id, draws.ids) & np.isin(summary.held_id, state.resident.ids, invert=True)
        more = DriverRows(summary.held_id, summary.held_x).take(np.flatnonzero(held))
        resident = DriverRows.joined([state.resident, more]).in_order()
        return self._tried(replace(state, draws=draws, resident=resident))

    def _residents(self, state: ActiveState, summary: SlabSummary) -> tuple[DriverRows, int]:
        """The rows that were sent and those from before, the nearest to the hyperplane of all, by their ids."""
        fresh = np.isin(summary.row_id, state.resident.ids, invert=True)
        both = DriverRows.joined([self._open(state), DriverRows(summary.row_id, summary.row_x).take(fresh)])
        order = np.argsort(np.abs(decisions(both.rows, state.w, state.b)), kind="stable")[: self.resident_rows]
        return both.take(order).in_order(), int(fresh.sum())

    def round_of(self, state: ActiveState) -> Round:
        """What is told of a state."""
        clear = min(state.lower, state.scanned.nearest) if state.answered.both_classes else 0.0
        draws = np.count_nonzero(state.draws.signs)
        return Round(
            number=state.round, status=state.status, lower=clear, lower_now=clear, upper=state.upper,
            pool_rows=len(state.resident), coreset_rows=len(state.answered.support), new_rows=state.new_rows,
            more={"labels": len(state.answered) + int(draws), "attempt": state.attempt, "draws": int(draws)},
        )  # fmt: skip

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> ActiveState:
        """A state from a checkpoint."""
        return ActiveState.from_arrays(arrays)
