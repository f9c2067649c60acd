"""Few labels for many rows: the coreset method of Har-Peled, Roth and Zimak (2006, section 4.2, Figure 2) out of core.

Any row within (1 - epsilon) of the margin of the rows answered improves the hypothesis, whatever its label is: so rows
that lie in memory are asked for first, without reading the store. When none of them is that near, a scan says whether
any row of the store is, and brings the nearest ones along. When none is, fresh rows are drawn uniformly from all rows
without an answer: their labels try the hypothesis (VERIFY). A draw that it gets wrong joins the rows answered, and all
begins again; when it gets none wrong, few can be.

Of several classes each has a hyperplane against the rest, and a margin and a slab of its own. With a loss answers may
contradict each other: rows within |w.x + b| < 1 are asked about until there are as many new answers as a trial has
draws, and as there were before; wrong draws are counted then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.scaled import unscaled
from coremargin.engine.problem import BaseProblem, Round
from coremargin.maths.rows import concatenate, take
from coremargin.problems.active.answered import Answered
from coremargin.problems.active.fit import largest_margins, least_values
from coremargin.problems.active.hypothesis import NONE, Hypothesis
from coremargin.problems.active.methods.method import Asking
from coremargin.problems.active.methods.table import METHODS
from coremargin.problems.active.order import Order
from coremargin.problems.active.probe import SlabProbe
from coremargin.problems.active.spread import furthest
from coremargin.problems.active.state import ActiveState, Draws, Scanned
from coremargin.problems.active.summary import NO_ROW, SlabSummary
from coremargin.problems.active.trial import Trial
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.start import SAMPLE_BYTES, SAMPLE_SHARE, check_scale, pool_row_bytes

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss, Method

#: Rows in memory from which questions are chosen, and so many that are sent from a scan.
RESIDENT_ROWS = 20_000
#: Questions before two classes are seen that go to rows far from each other; after them rows are drawn.
SPREAD = 20
#: Where too few rows of a stratum were drawn, so many times as many are.
REACH = 8
#: Places of the order of draws that are looked at, at most: of what is rarer less is claimed.
MOST_DRAWN = 4_000_000
#: Rows that are looked up one by one, at most, for a draw that nobody could label; then another attempt begins.
MOST_LOOKED_UP = 2_048
#: Bytes of rows drawn that come along with their scan: needed when their attempt is void, they need not be read again.
HELD_BYTES = 64 << 20


@dataclass(frozen=True)
class ActiveMargin(BaseProblem[ActiveState, SlabSummary]):
    """The largest margins between classes whose labels are asked for, or with a loss the least values.

    method: which rows are asked about, and what stands for the largest margin of them (``methods/table.py``).
    epsilon: what may be missing of the margin, as a share. error, confidence: at most so many rows are labelled
    wrongly, as a share, and how sure that is to be; by_class: of the rows that are given each class, which says more
    where one is rare. seed: of the draws. classes: how many there are; answers are their places. loss, cost: for
    answers that contradict each other, with the number of draws of a trial.
    """

    method: Method = "coreset"
    epsilon: float = 0.1
    error: float = 0.01
    confidence: float = 0.99
    by_class: bool = False
    seed: int = 0
    intercept: bool = True
    classes: int = 2
    loss: Loss | None = None
    cost: float = 1.0
    trial: int | None = None
    resident_rows: int = RESIDENT_ROWS
    blocks: int = 1
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def __post_init__(self) -> None:
        if (self.loss is None) != (self.trial is None):
            raise ValueError(f"expected a trial with a loss, and none without; found {self.loss} and {self.trial}")

    @property
    def planes(self) -> int:
        """How many hyperplanes there are."""
        return 1 if self.classes == 2 else self.classes

    @cached_property
    def trials(self) -> Trial:
        """What is asked of draws."""
        return Trial(self.error, self.confidence, self.classes, self.by_class, self.trial)

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

    def start(self, unsure: NDArray[np.int64] | None = None) -> ActiveState:
        """No row is answered; some of the sample's lie in memory. unsure: rows that nobody can label."""
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
        planes, features = self.planes, source.features
        state = ActiveState(
            round=0, status="running", answered=Answered.nothing(features, planes, sparse=source.sparse),
            unsure=np.zeros(0, np.int64) if unsure is None else unsure, resident=resident,
            hypothesis=Hypothesis.nothing(features, planes, soft=self.loss is not None), lower=np.zeros(planes),
            upper=np.full(planes, np.inf), failed=NONE, scanned=Scanned.nothing(planes), attempt=1,
            draws=Draws.none(), reach=0, tried=0, wanted=np.zeros(0, np.int64), new_rows=0,
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
        """The state that knows these labels, places of classes, of any rows that have been asked for."""
        codes = {row: int(code) for row, code in labels.items() if row not in state.answered.ids}
        if not set(codes.values()) <= set(range(self.classes)):
            raise ValueError(f"expected places of {self.classes} classes, found {sorted(set(codes.values()))}")
        others = np.array([row for row in codes if row not in state.draws.ids], np.int64)
        state = replace(state, draws=state.draws.told(codes))
        if not len(others):
            return self._tried(state)
        state = self._joined(self.voided(state), others, np.array([codes[int(row)] for row in others], np.int32))
        return self._next(self._solved(state))

    def voided(self, state: ActiveState) -> ActiveState:
        """Without the attempt on the way: its draws are rows like any other, or may be drawn again, none answered.

        Its number is spent as soon as there are draws: somebody may have seen them, and told what they show.
        """
        draws, spent = state.draws, bool(len(state.draws))
        empty = replace(state, draws=Draws.none(), attempt=state.attempt + spent, reach=0)
        state = self._joined(empty, draws.ids[draws.seen], draws.codes[draws.seen])
        return replace(state, tried=len(state.answered)) if spent else state

    def unsolved(self, state: ActiveState, answered: Answered) -> ActiveState:
        """As if nothing were known of these rows but their answers."""
        return replace(
            state, status="running", answered=answered.weighted(np.zeros_like(answered.weights)),
            hypothesis=Hypothesis.nothing(self.source.features, self.planes, soft=self.loss is not None),
            lower=np.zeros(self.planes), upper=np.full(self.planes, np.inf), failed=NONE,
            scanned=Scanned.nothing(self.planes), wanted=np.zeros(0, np.int64),
        )  # fmt: skip

    def _joined(self, state: ActiveState, ids: NDArray[np.int64], codes: NDArray[np.int32]) -> ActiveState:
        """With these rows among those answered."""
        known = np.flatnonzero(np.isin(ids, state.resident.ids))
        missing = np.setdiff1d(np.arange(len(ids)), known)
        order = np.argsort(state.resident.ids, kind="stable")
        places = order[np.searchsorted(state.resident.ids[order], ids[known])]
        answered = state.answered.add(ids[known], take(state.resident.rows, places), codes[known])
        if len(missing):  # asked for long ago, and the rows in memory have changed since; or drawn, and too wide
            answered = answered.add(ids[missing], self.source.rows_at(ids[missing])[0], codes[missing])
        return replace(state, answered=answered, unsure=np.setdiff1d(state.unsure, ids))

    def _solved(self, state: ActiveState) -> ActiveState:
        """What the rows answered give; nothing is known of others by it, nor by what ended it before."""
        answered, last = state.answered, state.hypothesis
        if self.loss is None:
            fitted = largest_margins(answered, last, self.method, intercept=self.intercept, epsilon=self.epsilon)
        else:
            fitted = least_values(answered, last, self.loss, self.cost, intercept=self.intercept)
        failed = NONE if fitted.failed is None else fitted.failed
        state = replace(
            state, status=fitted.status, scanned=Scanned.nothing(self.planes), hypothesis=fitted.hypothesis,
            answered=answered.weighted(fitted.weights), upper=fitted.upper, failed=failed,
        )  # fmt: skip
        if fitted.failed is not None:
            return replace(state, wanted=np.zeros(0, np.int64))
        return replace(state, lower=fitted.lower)

    # draws

    def _tried(self, state: ActiveState) -> ActiveState:
        """With what the draws say so far: wrong, not yet known, or as good as was asked for."""
        draws, seen, state = state.draws, state.draws.seen, replace(state, status="running")
        if self.loss is None and (draws.codes[seen] != draws.sides[seen]).any():
            return self._next(self._solved(self.voided(state)))
        if not seen.all():
            return replace(state, wanted=draws.ids[~seen])
        state = replace(state, wanted=np.zeros(0, np.int64))
        if self.loss is not None:
            parts = self.trials.parts(state.scanned.sides, draws, state.attempt)
            if not (self.trials.complete(parts) and self.trials.certifies(parts)):
                return state  # what it shows is there until the next answer
        return replace(state, status="certified")

    def gone_on(self, state: ActiveState) -> ActiveState:
        """What comes after a trial that has not shown what was asked for: its draws are rows like any other."""
        if state.status != "running" or not state.draws.finished:
            return state
        return self._next(self._solved(self.voided(state)))

    def untried(self, state: ActiveState) -> ActiveState:
        """As if its draws were rows like any other: with a loss they change the hypothesis, right or wrong."""
        state = self.voided(state)
        return state if self.loss is None else self._solved(state)

    def set_aside(self, state: ActiveState, row: int) -> ActiveState:
        """The state that knows that nobody can label a row: it is not asked about, drawn nor counted any more."""
        if row in state.known or row in state.draws.ids[state.draws.seen]:
            return state
        side = self.sides_of(state, [row])[0]
        state = replace(state, unsure=np.union1d(state.unsure, np.array([row], np.int64)))
        if not len(state.draws):
            return self._next(replace(state, scanned=Scanned.nothing(self.planes)))
        sides = state.scanned.sides.copy()
        sides[side] -= 1
        state = replace(state, scanned=replace(state.scanned, sides=sides))
        return self._redrawn(replace(state, draws=state.draws.take(np.flatnonzero(state.draws.ids != row))))

    def sides_of(self, state: ActiveState, rows: Iterable[int]) -> NDArray[np.int32]:
        """The classes that the hypothesis gives rows of the store."""
        found = []
        for row in rows:
            if len(drawn := np.flatnonzero(state.draws.ids == row)):
                found.append(int(state.draws.sides[drawn[0]]))
                continue
            place = np.flatnonzero(state.resident.ids == row)
            x = take(state.resident.rows, place) if len(place) else self.source.rows_at(np.array([row]))[0]
            found.append(int(state.hypothesis.sides(state.hypothesis.decisions(x))[0]))
        return np.array(found, np.int32)

    def _redrawn(self, state: ActiveState) -> ActiveState:
        """With as many draws of each stratum as are needed: the next of the order, where one was set aside."""
        lacking = np.array(self._lacking(state))
        if not (lacking > 0).any():
            return self._tried(state)
        order, looked = self._first(state, max(state.reach, len(state.draws))), 0
        while True:
            fresh = order[np.isin(order, state.draws.ids, invert=True)]
            looked += len(fresh)
            sides = self.sides_of(state, fresh) if looked <= MOST_LOOKED_UP else None
            if sides is None:  # too much to look up row by row
                return self._next(self._solved(self.voided(state)))
            strata, chosen = self.trials.strata(sides), np.zeros(len(fresh), bool)
            for k, most in enumerate(lacking.tolist()):
                chosen[np.flatnonzero(strata == k)[: max(0, most)]] = True
            found = np.bincount(strata[chosen], minlength=len(lacking))
            if (found >= lacking).all() or len(order) >= self._drawable(state):
                break
            order = self._first(state, len(order) + REACH)
        draws = state.draws.joined(Draws.fresh(fresh[chosen], sides[chosen]))
        places = np.argsort(np.argsort(order)[np.searchsorted(np.sort(order), draws.ids)])
        return self._tried(replace(state, draws=draws.take(places), reach=len(order)))

    def _lacking(self, state: ActiveState) -> list[int]:
        """How many draws more each stratum needs."""
        counts = np.bincount(self.trials.strata(state.draws.sides), minlength=self.classes)
        populations = self.trials.populations(state.scanned.sides)
        return [self.trials.needed(rows, state.attempt) - int(counts[k]) for k, rows in enumerate(populations)]

    # what is next

    def _next(self, state: ActiveState) -> ActiveState:
        """With the rows that are wanted now; none: a scan is next."""
        if state.status != "running":
            return state
        if state.answered.both_classes:
            return replace(state, wanted=np.zeros(0, np.int64) if self._due(state) else self._near(state))
        rows = self._open(state)
        if len(state.answered) < min(SPREAD, len(state.resident)) and len(rows):
            return replace(state, wanted=rows.ids[[furthest(rows.rows, state.answered.rows)]])
        return replace(state, wanted=np.zeros(0, np.int64))

    def _due(self, state: ActiveState) -> bool:
        """Whether a trial is next, with a loss: as many new answers are there as it has draws, and as there were."""
        return self.trial is not None and len(state.answered) - state.tried >= max(self.trial, state.tried)

    def among(self, state: ActiveState, rows: DriverRows) -> ActiveState:
        """With these rows in memory instead, and what is wanted of them."""
        return self._next(replace(state, resident=rows))

    def _open(self, state: ActiveState) -> DriverRows:
        """The resident rows without an answer."""
        return state.resident.take(np.flatnonzero(np.isin(state.resident.ids, state.known, invert=True)))

    def _near(self, state: ActiveState) -> NDArray[np.int64]:
        """A row in memory, while one lies within a slab."""
        rows, hypothesis = self._open(state), state.hypothesis
        if not len(rows):
            return np.zeros(0, np.int64)
        each = hypothesis.distances(rows.rows)
        sides = hypothesis.sides(hypothesis.decisions(rows.rows)) if self.planes > 1 else np.zeros(len(rows), np.int32)
        sizes = hypothesis.nearness(each, sides)
        within = sizes < hypothesis.limit
        if not within.any():
            return np.zeros(0, np.int64)
        plane = int(hypothesis.in_slabs(each)[int(sizes.argmin())].argmin())
        asking = Asking(rows, sizes, within, state.answered.against(plane), self.intercept, self.seed)
        return rows.ids[[METHODS[self.method].pick(asking)]]

    # scan

    def probe(self, state: ActiveState) -> SlabProbe:
        """The question of the next scan, which brings the rows along that are drawn where the slabs are empty."""
        order = self._drawn(state)
        return SlabProbe(
            hypothesis=state.hypothesis, known=state.known, drawn=np.sort(order),
            held=np.sort(order[: HELD_BYTES // pool_row_bytes(self.source)]),
            keep=max(1, self.resident_rows // (2 * self.blocks)), dtype=self.source.dtype.name,
            chunk_rows=self.source.chunk_rows, sparse=self.source.sparse,
        )  # fmt: skip

    def _drawn(self, state: ActiveState) -> NDArray[np.int64]:
        """Rows of the next attempt in the order drawn, of those without an answer: as many as can be needed."""
        needed = self.trials.needed(self.source.rows - len(state.known), state.attempt)
        return self._first(state, max(state.reach, REACH * needed if self.by_class else needed))

    def _first(self, state: ActiveState, count: int) -> NDArray[np.int64]:
        attempt = unscaled(self.source).digest, self.seed, state.attempt, self.source.rows
        return self._order.first(attempt, min(count, MOST_DRAWN), state.known)

    def _drawable(self, state: ActiveState) -> int:
        """How many rows there are to draw from."""
        return min(MOST_DRAWN, state.scanned.population)

    @cached_property
    def _order(self) -> Order:
        return Order(self._counts)

    # update

    def update(self, state: ActiveState, summary: SlabSummary) -> ActiveState:
        """More questions about rows near the hyperplanes or, where none is, draws to try them."""
        resident, new = self._residents(state, summary)
        scanned = Scanned(summary.nearest, summary.sides)
        state = replace(state, round=state.round + 1, resident=resident, scanned=scanned, new_rows=new)
        near = state.answered.both_classes and state.hypothesis.within(scanned.nearest, scanned.sides)
        if near and not self._due(state):
            state = self._next(state)
            return state if len(state.wanted) else replace(state, wanted=_nearest(state, summary))
        return self._drawing(state, summary)

    def _drawing(self, state: ActiveState, summary: SlabSummary) -> ActiveState:
        """With rows that try the hypothesis; where too few of a stratum came along, the next scan brings more."""
        order = self._drawn(state)
        places = np.argsort(summary.drawn_id)[np.searchsorted(np.sort(summary.drawn_id), order)]
        found = summary.drawn_side[places]
        strata, populations = self.trials.strata(found), self.trials.populations(summary.sides)
        needed = [self.trials.needed(rows, state.attempt) for rows in populations]
        chosen = np.sort(np.concatenate([np.flatnonzero(strata == k)[:most] for k, most in enumerate(needed)]))
        if len(chosen) < sum(needed) and len(order) < self._drawable(state):
            return replace(state, reach=REACH * len(order), wanted=np.zeros(0, np.int64))
        draws = Draws.fresh(order[chosen], found[chosen])
        held = np.isin(summary.held_id, draws.ids) & np.isin(summary.held_id, state.resident.ids, invert=True)
        more = DriverRows(summary.held_id, summary.held_x).take(np.flatnonzero(held))
        resident = DriverRows.joined([state.resident, more]).in_order()
        return self._tried(replace(state, draws=draws, resident=resident, reach=len(order)))

    def _residents(self, state: ActiveState, summary: SlabSummary) -> tuple[DriverRows, int]:
        """The rows that were sent and those from before, the nearest to a hyperplane of all, by their ids."""
        fresh, hypothesis = np.isin(summary.row_id, state.resident.ids, invert=True), state.hypothesis
        both = DriverRows.joined([self._open(state), DriverRows(summary.row_id, summary.row_x).take(fresh)])
        values = hypothesis.decisions(both.rows)
        near = hypothesis.nearness(np.abs(values), hypothesis.sides(values))
        return both.take(np.argsort(near, kind="stable")[: self.resident_rows]).in_order(), int(fresh.sum())

    def round_of(self, state: ActiveState) -> Round:
        """What is told of a state; of several classes the bounds are those of the one that has least."""
        lower, upper = self.bounds_of(state)
        draws = int(state.draws.seen.sum())
        return Round(
            number=state.round, status=state.status, lower=lower, lower_now=lower, upper=upper,
            pool_rows=len(state.resident), coreset_rows=len(state.answered.support), new_rows=state.new_rows,
            more={"labels": len(state.answered) + draws, "attempt": state.attempt, "draws": draws},
        )  # fmt: skip

    def bounds_of(self, state: ActiveState) -> tuple[float, float]:
        """(lower, upper) of the hyperplane whose ratio of both is the smallest."""
        lower = self.proven(state) if state.answered.both_classes else np.zeros(self.planes)
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = int(np.argmin(np.where(state.upper > 0, lower / state.upper, 0.0)))
        return float(lower[worst]), float(state.upper[worst])

    def proven(self, state: ActiveState) -> NDArray[np.float64]:
        """What is proven of each hyperplane (k,): its margin on the rows answered and on all others, or its value."""
        return state.lower if self.loss is not None else np.minimum(state.lower, state.scanned.nearest)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> ActiveState:
        """A state from a checkpoint."""
        return ActiveState.from_arrays(arrays)


def _nearest(state: ActiveState, summary: SlabSummary) -> NDArray[np.int64]:
    """The row that lies nearest to a hyperplane, where none that was sent is worth a question."""
    if summary.homeless_id[0] != NO_ROW:
        return summary.homeless_id
    return summary.nearest_id[[int(state.hypothesis.in_slabs(summary.nearest[None, :])[0].argmin())]]
