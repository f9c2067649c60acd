"""The smallest ball around the rows of a store, or around those of one class, to a share 1 - epsilon of its radius.

The driver holds a *working set*: the rows that may lie on the sphere. Solving it gives a centre and, by dual weights of
a few rows, a lower bound: no ball around all rows is smaller than the smallest one around some of them. The upper bound
is the distance of the farthest of all rows from the centre.

The algorithm, in the order of this file:

1.  *First stage.* Workers send all rows of a sample, the driver solves them. Those that cannot become extreme leave.
2.  *Later stages.* Each reads some of the other chunks. Workers send the rows that the bounds of their chunk, around
    the mean of all rows and around the newest centre, would not prove to lie inside once the centre stops moving.
3.  *Certificate.* Each chunk's rows are within the bounds that its stage left (block_bounds.py), or within the ball
    that ingest has written down. If that proves the last centre, one read was enough; chunks whose ball fits are not
    read at all.
4.  *Scans.* Otherwise the chunks whose bounds prove too little are read again, until the bounds meet.
5.  *Warm start.* With the working set and the block bounds of an earlier commit, only new rows are read, and what they
    leave unproven.
6.  *Outliers.* If k rows may be left out, the radius is the (k + 1)-th largest distance, and the centre that of the
    working set without the k rows that are farthest from it. Once all other chunks are proven to be inside, a search
    over the working set proves that no other k rows do better, or finds them (maths/outliers/row_search.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import BaseProblem, CannotWarmStart, Round
from coremargin.errors import UsageError
from coremargin.formats.outliers import outlier_counts
from coremargin.maths.enclosing_ball import lower_bound, solve_rows, upper_bounds
from coremargin.maths.margin import Array, is_certified
from coremargin.maths.outliers.forecast import forecast_gap
from coremargin.maths.outliers.row_search import NEAR, Proof
from coremargin.maths.rows import dense, take
from coremargin.maths.trimmed_ball import concentrate, search_trimmed
from coremargin.problems.ball.block_bounds import BlockBounds
from coremargin.problems.ball.probe import DistanceProbe, DistanceSummary
from coremargin.problems.common.balls import SLAB_BYTES
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.driver_rows import WorkingSet, isin_ids
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE
from coremargin.problems.common.sizes import working_set_row_bytes
from coremargin.problems.common.stages import Stages, plan_stages, scan_position
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.common.warm_start import ids_appended_to_last_chunk, most_cached_rows
from coremargin.problems.one_class.rows import BINS, EnclosedRows, binned, outermost

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.maths.outliers.row_search import Trimmed

STATUSES = ("running", "certified", "stalled", "unfinished")
#: A store of at most so many bytes is read at once; of larger ones some chunks may not have to be read at all.
SMALL_BYTES = 4 << 20
#: How many times as large as the stage before a stage is: small, for solves are cheap.
GROWTH = 2
#: The centre may still move by so many times what it has moved.
FORECAST = 1.3
#: Share of a chunk's rows that it may send.
KEEP = 0.12
#: The upper end of the histogram, in radii.
HIGH = 1.25
#: Distances are measured in float32 if rows are at most so long, and the radius is at least so large.
LONGEST_FAST, SMALLEST_FAST = 1e15, 1e-12
#: Rows that a search for outliers looks at: at most so many numbers, but so many rows in any case, and k more.
FAR_NUMBERS, LEAST_FAR = 1 << 25, 200
#: Rows may lie outside of the ball of the working set by this share of the radius, after many steps by a share of
#: epsilon.
TOLERANCE, SHARE_OF_EPSILON = 1e-12, 0.1


@dataclass(frozen=True)
class BallState:
    """What is known between two scans.

    centre (d,): of the smallest ball around the working set, about which the next scan asks; best (d,): the one behind
    ``upper``. radius: of that ball, from which on rows are of interest. support: the rows and dual weights behind
    ``lower``; with outliers the rows that ``proof`` names. moves (2,): how far the centre moved in the last two stages;
    drift: how far any centre so far was from the reference of the block bounds. histogram (bins,): of the distances
    from 0 to ``high``, each at the centre of the stage that read the row.
    stage: how many of the ``stages`` of the first read are done; in_stages: there was more than one. trace (t, 3): the
    nodes of a search for outliers, and the bounds by then. The status "unfinished" is that of a search that gave up.
    """

    round: int
    status: str
    working_set: WorkingSet
    centre: Array
    best: Array
    lower: float
    upper: float
    support: WorkingSet
    block_bounds: BlockBounds
    moves: Array
    drift: float
    histogram: NDArray[np.int64]
    high: float
    stage: int
    stages: int
    radius: float = 0.0
    proof: Proof | None = None
    in_stages: bool = False
    warm_started: bool = False
    new_rows: int = 0
    sample_bytes: int = 0
    trace: Array = field(default_factory=lambda: np.zeros((0, 3)))

    @property
    def reading(self) -> bool:
        """Whether stages of the first read are still to come."""
        return self.stage < self.stages

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return state_to_arrays(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> BallState:
        """Inverse of ``to_arrays``."""
        makers: dict[str, Any] = dict.fromkeys(("working_set", "support"), WorkingSet.from_arrays)
        makers["block_bounds"] = BlockBounds.from_arrays
        if "proof_rows" in arrays:
            makers["proof"] = Proof.from_arrays
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES, ("proof",)))


@dataclass(frozen=True)
class EnclosingBall(BaseProblem[BallState, DistanceSummary]):
    """The smallest ball around all rows of weight above 0.

    epsilon in (0, 1). only: the label of the rows that count; None: all do. working_set_bytes: memory for the working
    set.
    """

    epsilon: float
    only: Any = None
    working_set_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def check(self) -> None:
        """Refuse a store without rows that count. Raises StoreError, LabelError, UsageError."""
        self.enclosed.check()

    @cached_property
    def enclosed(self) -> EnclosedRows:
        """The rows that count."""
        return EnclosedRows(self.source, self.only)

    # Sizes

    @property
    def working_set_rows(self) -> int:
        """How many rows the working set may hold."""
        return max(
            min(4 * (self.source.features + 2), 1000), self.working_set_bytes // working_set_row_bytes(self.source)
        )

    @property
    def memory_need(self) -> MemoryNeed:
        """Room for the rows that the first read may send."""
        sample = sum(np.ptp(self.source.span(chunk)) for chunk in self.sample_chunks)
        rows = min(self.source.rows, int(sample + KEEP * self.source.rows))
        size = rows * working_set_row_bytes(self.source)
        return MemoryNeed(self.working_set_bytes, size, rows, "far rows", "with less, chunks are read again")

    @cached_property
    def sample_chunks(self) -> list[int]:
        """The chunks of the first stage; all chunks of a small store."""
        most = max(SMALL_BYTES, int(self.sample_share * self.source.nbytes))
        return self.enclosed.sample_chunks(self.sample_share, min(most, self.sample_bytes, self.working_set_bytes))

    @cached_property
    def stages(self) -> Stages:
        """Which chunks each stage of the first read is about."""
        return plan_stages(self.source.chunks, self.sample_chunks, GROWTH)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """The number of chunks of each stage."""
        return self.stages.sizes

    # Start

    def start(self) -> BallState:
        """The state without any row. Raises BadRow for rows whose squares overflow."""
        check_scale(self.source)
        return self.unsolved()

    def unsolved(self) -> BallState:
        """No row is known; ingest's balls bound the distances from the mean of all rows."""
        source, reference = self.source, self._mean()
        empty = WorkingSet.nothing(source.features, source.dtype, sparse=source.sparse)
        bounds = BlockBounds.unknown(source.chunks, reference)
        return BallState(
            round=0,
            status="running",
            working_set=empty,
            centre=reference,
            best=reference,
            lower=0.0,
            upper=float(bounds.screen(source, reference, -np.inf).max()),
            support=empty,
            block_bounds=bounds,
            moves=np.zeros(2),
            drift=0.0,
            histogram=np.zeros(BINS, np.int64),
            high=1.0,
            stage=0,
            stages=self.stages.count,
        )

    def _mean(self) -> Array:
        """The mean (d,) of the chunks' centres, as a row of the store's precision; the origin for sparse rows."""
        source = self.source
        total = np.zeros(source.features)
        if source.sparse:
            return total
        known = source.scalars()
        code = self.enclosed.code
        rows = known.rows if code is None else known.counts[:, code]
        shares, step = rows / rows.sum(), max(1, SLAB_BYTES // (8 * source.features))
        for first in range(0, source.chunks, step):
            total += shares[first : first + step] @ source.centres(first, min(first + step, source.chunks))
        return total.astype(source.dtype).astype(np.float64)

    # Scans

    def probe(self, state: BallState) -> DistanceProbe:
        """Rows that may be farthest: of the first stage all; of scans after the first read those beyond the radius."""
        source, radius = self.source, state.radius
        chunks = np.flatnonzero(~self.skip(state))
        coming = sum(np.ptp(source.span(chunk)) for chunk in chunks[[0, -1]]) / 2 * len(chunks) if len(chunks) else 1
        room = max(1, self.working_set_rows - len(state.working_set)) / coming
        first = not len(state.working_set)
        longest = float(source.scalars().max_norm.max())
        # Rows that a read leaves unproven may differ by less than float32's rounding, as rows on a sphere do.
        coarse = state.reading and not source.sparse and radius > SMALLEST_FAST and longest < LONGEST_FAST
        fast = source.dtype if coarse else np.dtype(np.float64)
        return DistanceProbe(
            reference=state.block_bounds.reference.astype(source.dtype),
            centre=state.centre,
            cut_reference=radius - FORECAST * state.drift if state.reading and not first else -np.inf,
            cut_centre=-np.inf if first else radius - FORECAST * float(state.moves.max()),
            keep=min(1.0 if first else KEEP, room),
            exact_above=radius,
            code=self.enclosed.code,
            known_ids=np.sort(state.working_set.ids),
            high=state.high,
            bins=BINS,
            dtype=source.dtype.name,
            fast=fast.name,
            chunk_rows=source.chunk_rows,
            sparse=source.sparse,
        )

    def skip(self, state: BallState) -> NDArray[np.bool_]:
        """Chunks (c,) that the next scan leaves out: of other stages, and those whose rows are proven to be inside."""
        enough = self._enough(state)
        proven = state.block_bounds.screen(self.source, state.centre, enough) <= enough
        if not len(state.working_set):
            proven[:] = False
        if not state.reading:
            return proven
        if state.warm_started:
            return proven | ~state.block_bounds.unread
        return proven | self.stages.skipping(state.stage)

    def ahead(self, state: BallState) -> NDArray[np.intp]:
        """The chunks of the stage after the next."""
        in_first_read = state.reading and not state.warm_started
        return self.stages.chunks(state.stage + 1) if in_first_read else super().ahead(state)

    def _enough(self, state: BallState) -> float:
        """The largest upper bound that the lower one certifies."""
        return float(np.nextafter(state.lower / (1.0 - self.epsilon), 0.0))

    # Updates

    def update(self, state: BallState, summary: DistanceSummary) -> BallState:
        """Bounds, working set and centre after a stage or a scan."""
        grown, first = state.working_set.add(summary.sent), not len(state.working_set)
        state = replace(
            state,
            round=state.round + 1,
            working_set=grown,
            new_rows=len(grown) - len(state.working_set),
            block_bounds=state.block_bounds.record(summary.chunks, summary.upper, state.centre),
        )
        was_reading = state.reading
        if was_reading:
            in_stages = state.warm_started or state.stages > 1
            histogram = state.histogram + summary.histogram
            state = replace(state, stage=state.stage + 1, histogram=histogram, in_stages=in_stages)
        if not len(grown):
            return replace(state, status="stalled") if not state.reading else state
        if first:
            state = self._first_solution(state, summary)
        elif state.new_rows:
            state = self._solve(state)
        else:
            state = replace(state, moves=np.array([state.moves[1], 0.0]))
        state = self._certify(self._with_room(state))
        waits = state.status == "running" and not was_reading and not state.new_rows
        return replace(state, status="stalled") if waits and not self._searches(state) else state

    def _searches(self, state: BallState) -> bool:
        """Whether there is something to do before the next scan."""
        return False

    def _first_solution(self, state: BallState, summary: DistanceSummary) -> BallState:
        """Solve the rows of the first stage; the move of the centre from that of half of them is the first forecast."""
        working_set = state.working_set
        state = self._solve(replace(state, working_set=working_set.take(np.arange(0, len(working_set), 2))))
        weights = np.zeros(len(working_set))
        weights[::2] = state.working_set.weights
        state = self._solve(replace(state, working_set=working_set.weighted(weights)))
        state = replace(state, moves=np.repeat(state.moves[1:], 2), high=HIGH * state.radius or 1.0)
        bounds = state.block_bounds
        if np.isneginf(summary.upper).all():  # all rows are here: bounds may as well be around the new centre
            distances = self._distances(state)
            bounds = bounds.record(summary.chunks, summary.upper, state.centre)
            state = replace(state, block_bounds=bounds, histogram=binned(distances, state.high, BINS))
        if not state.reading:
            return state
        harm = np.minimum(
            upper_bounds(working_set.rows, bounds.reference) - (state.radius - FORECAST * state.drift),
            upper_bounds(working_set.rows, state.centre) - (state.radius - FORECAST * float(state.moves.max())),
        )
        return self._keep_only(state, (harm > 0) | (state.working_set.weights > 0))

    def _solve(self, state: BallState) -> BallState:
        """The centre of the smallest ball around the working set, and the lower bound that its weights prove."""
        working_set = state.working_set
        found = solve_rows(
            working_set.rows,
            working_set.weights if working_set.weights.any() else None,
            tolerance=min(TOLERANCE, SHARE_OF_EPSILON * self.epsilon),
            loose=SHARE_OF_EPSILON * self.epsilon,
        )
        working_set = working_set.weighted(found.weights)
        support = working_set.take(working_set.support)
        lower = lower_bound(support.rows, support.weights, found.centre)
        if lower > state.lower or not len(state.support):
            state = replace(state, lower=lower, support=support)
        return self._moved(replace(state, working_set=working_set, radius=state.lower), found.centre)

    def _moved(self, state: BallState, centre: Array) -> BallState:
        """The state with another centre."""
        move = float(np.linalg.norm(centre - state.centre))
        drift = float(np.linalg.norm(centre - state.block_bounds.reference))
        moves = np.array([state.moves[1], move])
        return replace(state, centre=centre, moves=moves, drift=max(state.drift, drift))

    def _distances(self, state: BallState) -> Array:
        """Upper bounds (m,) of the distances of the working set from the centre."""
        return upper_bounds(state.working_set.rows, state.centre)

    def _with_room(self, state: BallState) -> BallState:
        """The state with at most as many rows as there is room for: those farthest from the centre."""
        if len(state.working_set) <= self.working_set_rows:
            return state
        stay = outermost(state.working_set, self._distances(state), self.working_set_rows // 2)
        return self._keep_only(state, stay)

    def _keep_only(self, state: BallState, stay: NDArray[np.bool_]) -> BallState:
        """The state with these rows of the working set; the bounds of their chunks hold for the others again."""
        gone = state.working_set.take(np.flatnonzero(~stay))
        bounds = state.block_bounds.raised(gone.ids // self.source.chunk_rows, gone.rows, state.centre)
        return replace(state, working_set=state.working_set.take(np.flatnonzero(stay)), block_bounds=bounds)

    def _certify(self, state: BallState) -> BallState:
        """The state with the upper bound of the newest centre: of the working set, and of the chunks of all others."""
        chunks = state.block_bounds.screen(self.source, state.centre, self._enough(state))
        upper = max(float(chunks.max()), float(self._distances(state).max()))
        if upper < state.upper:
            state = replace(state, upper=upper, best=state.centre)
        return replace(state, status="certified") if proves(state.lower, state.upper, self.epsilon) else state

    # Results

    def round_of(self, state: BallState) -> Round:
        """The report of a round."""
        going_on = state.reading and state.status == "running"
        return Round(
            status=state.status,
            lower=state.lower,
            lower_now=state.lower,
            upper=state.upper,
            working_set_rows=len(state.working_set),
            coreset_rows=len(state.support),
            new_rows=state.new_rows,
            more=self._describe_search(state),
            **scan_position(state.round, state.stage, state.stages, going_on=going_on),
        )

    def _describe_search(self, state: BallState) -> dict[str, Any]:
        """Further entries of a round."""
        return {}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> BallState:
        """A state from a checkpoint."""
        return BallState.from_arrays(arrays)

    # Warm start
    #
    #     what happened                           lower bound                 upper bound
    #     rows appended                           holds                       their chunks are read
    #     rows removed, none of them of the       holds                       holds
    #     support
    #     rows of the support removed             solved again without them   block bounds hold, but may prove less of
    #                                                                         the new centre
    #     rows returned, or got the label         holds                       their chunks are read

    def warm_start_state(self, state: BallState, allowance: Allowance) -> Mapping[str, Any]:
        """The state with as many far rows as the allowance permits."""
        distances = self._distances(state)

        def with_rows(most: int) -> Mapping[str, Any]:
            return self._keep_only(state, outermost(state.working_set, distances, most)).to_arrays()

        return allowance.within(with_rows, min(len(distances), most_cached_rows(self.source, allowance)))

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> BallState:
        """See ``WarmStarts``."""
        check_scale(self.source)
        old = BallState.from_arrays(arrays)
        removed, entering = self.enclosed.changes(difference)
        working_set = old.working_set.take(np.flatnonzero(~isin_ids(old.working_set.ids, removed)))
        if not len(working_set) or not len(old.support):
            raise CannotWarmStart("no far row is left")
        again = np.append(entering, ids_appended_to_last_chunk(self.source, difference)) // self.source.chunk_rows
        bounds = old.block_bounds.without(np.unique(again[again < len(old.block_bounds.upper)]), self.source.chunks)
        state = replace(
            old,
            round=0,
            status="running",
            working_set=working_set,
            block_bounds=bounds,
            upper=np.inf,
            stage=0,
            stages=1 if bounds.unread.any() else 0,
            in_stages=True,
            warm_started=True,
            new_rows=0,
            sample_bytes=difference.nbytes,
            moves=np.zeros(2),
        )
        if isin_ids(old.support.ids, removed).any():
            total = working_set.weights.sum()
            weights = working_set.weights / total if total > 0 else np.zeros(len(working_set))
            nothing = working_set.take(np.arange(0))
            state = replace(state, working_set=working_set.weighted(weights), lower=0.0, radius=0.0, support=nothing)
            state = self._solve(state)
        return self._certify(state)


# Outliers


@dataclass(frozen=True)
class BallWithOutliers(EnclosingBall):
    """The smallest ball around all rows but some: ``outliers`` is their number, as ``outlier_counts`` reads it."""

    outliers: int | str = 0

    def check(self) -> None:
        """Refuse a store without enough rows that count. Raises StoreError, LabelError, UsageError."""
        super().check()
        if self.enclosed.count <= self.left_out:
            raise UsageError(f"outliers: expected fewer than the {self.enclosed.count:,} rows, found {self.outliers!r}")

    @cached_property
    def left_out(self) -> int:
        """How many rows may be left out."""
        return outlier_counts(self.outliers, lambda: self.enclosed.count)[0]

    def outlier_ids(self, state: BallState) -> NDArray[np.int64]:
        """Ids of the rows outside of the best ball, increasing: those of the working set, if all others are inside.

        Before the first scan, or if that is no better, all rows are inside by ingest's bounds, which round less.
        """
        outside = upper_bounds(state.working_set.rows, state.best) > state.upper
        if np.count_nonzero(outside) > self.left_out:
            outside[:] = False
        return np.sort(state.working_set.ids[outside])

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> BallState:
        """Always refused."""
        raise CannotWarmStart("with outliers the search starts from scratch")

    def _enough(self, state: BallState) -> float:
        """The radius: the lower bound comes last."""
        return state.radius

    def _far_places(self, state: BallState) -> NDArray[np.intp]:
        """Places of the rows of the working set that are farthest from the centre, increasing: those to search."""
        k, d = self.left_out, self.source.features
        most = max(LEAST_FAR + k, min(NEAR + k, FAR_NUMBERS // d))
        return np.sort(np.argsort(-self._distances(state), kind="stable")[:most])

    def _solve(self, state: BallState) -> BallState:
        """The centre of the ball around the working set but the k rows that it leaves out."""
        working_set, far = state.working_set, self._far_places(state)
        if len(working_set) <= self.left_out:
            return replace(state, radius=0.0)
        centre, weights = concentrate(dense(take(working_set.rows, far)), self.left_out, state.centre)
        every = np.zeros(len(working_set))
        every[far] = weights
        state = replace(state, working_set=working_set.weighted(every))
        return self._moved(replace(state, radius=self._reached(state, centre)), centre)

    def _reached(self, state: BallState, centre: Array) -> float:
        """The (k + 1)-th largest distance of the working set from a centre, rounded up."""
        distances = upper_bounds(state.working_set.rows, centre)
        return float(-np.sort(-distances)[self.left_out]) if len(distances) > self.left_out else 0.0

    def _certify(self, state: BallState) -> BallState:
        """The state with the upper bound of its centre; the lower one is found by the search."""
        return self._with_upper_bound(state)[0]

    def _with_upper_bound(self, state: BallState) -> tuple[BallState, bool]:
        """The state with the upper bound of its centre, and whether all chunks but the working set are inside."""
        beyond = float(state.block_bounds.screen(self.source, state.centre, state.radius).max())
        if max(beyond, state.radius) < state.upper:
            state = replace(state, upper=max(beyond, state.radius), best=state.centre)
        return state, beyond <= state.radius

    def _searches(self, state: BallState) -> bool:
        """Whether all rows that may be left out are in the working set."""
        enough = state.status == "running" and not state.reading and len(state.working_set) > self.left_out
        return enough and self._with_upper_bound(state)[1]

    def work(self, state: BallState, run: object) -> Iterator[BallState]:
        """Search the best ball of the working set, once all other rows are inside: its proof, or another centre.

        Until it is done, centre and working set stay the same: a resumed run searches from scratch, for the same ball.
        """
        if not self._searches(state):
            return
        far = self._far_places(state)
        state = replace(state, trace=np.zeros((0, 3)))
        while True:
            rows = dense(take(state.working_set.rows, far))
            for found in search_trimmed(rows, self.left_out, self.epsilon, state.centre):
                state = self._with_search(state, found, far)
                yield state
            outside = upper_bounds(state.working_set.rows, found.hypothesis) > found.reached * (1.0 + TOLERANCE)
            not_searched = np.setdiff1d(np.flatnonzero(outside), far)
            if not len(not_searched):
                break
            far = np.union1d(far, not_searched)
        radius = self._reached(state, found.hypothesis)
        inside = True
        if radius < state.radius:
            state, inside = self._with_upper_bound(self._moved(replace(state, radius=radius), found.hypothesis))
        if inside:
            ended = proves(state.lower, state.upper, self.epsilon)
            state = replace(state, status="certified" if ended else "stalled" if found.complete else "unfinished")
        yield state

    def _with_search(self, state: BallState, found: Trimmed[Array], far: NDArray[np.intp]) -> BallState:
        """The state with the bounds that a search of the rows at ``far`` (m,) has come to."""
        radius = self._reached(state, found.hypothesis)
        if radius < state.upper:
            after, _ = self._with_upper_bound(replace(state, centre=found.hypothesis, radius=radius))
            state = replace(state, upper=after.upper, best=after.best)
        if found.proof is not None and found.bound > state.lower:
            named, proof = found.proof.about(far)
            support = state.working_set.take(named)
            support = support.weighted(np.zeros(len(support)))
            state = replace(state, lower=found.bound, support=support, proof=proof)
        return replace(state, trace=np.vstack([state.trace, [found.nodes, state.lower, state.upper]]))

    def _describe_search(self, state: BallState) -> dict[str, Any]:
        """The nodes of the search, and the gap that is expected after ten times as many."""
        if not len(state.trace):
            return {}
        nodes = int(state.trace[-1, 0])
        forecast = forecast_gap([(int(at), lower, upper) for at, lower, upper in state.trace.tolist()], nodes)
        return {"nodes": nodes} | ({} if forecast is None else {"gap_later": forecast.later})


def proves(lower: float, upper: float, epsilon: float) -> bool:
    """Whether two bounds of a radius prove epsilon; a radius of 0 needs no share: all rows are equal."""
    return lower == upper == 0.0 or is_certified(lower, upper, epsilon)
