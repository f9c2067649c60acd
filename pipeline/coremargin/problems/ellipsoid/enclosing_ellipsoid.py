"""The ellipsoid of least volume around the rows of a store, or those of one class, to 1 - epsilon of its volume.

The driver holds a *working set*: the rows that may lie on the surface. Solving it gives an ellipsoid and, by weights of
a few rows, a lower bound: no ellipsoid around all rows has less volume than the least one around some of them. The
upper bound is the ellipsoid scaled to the outermost of all rows. Bounds are volume radii
(maths/enclosing_ellipsoid.py).

The algorithm, in the order of this file, is that of the enclosing ball (problems/ball/) with levels for distances:

1.  *First stage.* Workers send all rows of a sample. They define the frame: coordinates in which they have mean 0 and
    covariance I, and the span, if columns are linear functions of others. Rows that cannot become extreme leave.
2.  *Later stages.* Each reads some of the other chunks. Workers send the rows that the bounds of their chunk, in the
    frame and in the newest ellipsoid, would not prove to lie inside once the ellipsoid stops moving.
3.  *Certificate.* If the bounds that stages left (block_bounds.py) prove the last ellipsoid, one read was enough.
4.  *Scans.* Otherwise the chunks whose bounds prove too little are read again, until the bounds meet.
5.  *A row off the span* enlarges it, and one that is very far from the sample leaves float64 too few digits in its
    frame. The frame is made again of the rows in memory, and all chunks are read again.
6.  *Warm start.* With the working set and the block bounds of an earlier commit, only new rows are read, and what they
    leave unproven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import BaseProblem, CannotWarmStart, Round
from coremargin.errors import BadRow, UsageError
from coremargin.maths.enclosing_ellipsoid import (
    WORK,
    WORK_EACH,
    Ellipsoid,
    Frame,
    frame_of,
    is_certified,
    least_ellipsoid,
    lower_bound,
    rounding,
    safe_level,
    take_columns,
    volume_radius,
    weighted_ellipsoid,
)
from coremargin.maths.rows import dense, tiles
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.driver_rows import WorkingSet, isin_ids
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE
from coremargin.problems.common.sizes import working_set_row_bytes
from coremargin.problems.common.stages import Stages, plan_stages, scan_position
from coremargin.problems.common.state_arrays import part_from_arrays, state_from_arrays, state_to_arrays
from coremargin.problems.common.warm_start import ids_appended_to_last_chunk, most_cached_rows
from coremargin.problems.ellipsoid.block_bounds import LevelBounds, unit_ball
from coremargin.problems.ellipsoid.probe import LevelProbe, LevelSummary
from coremargin.problems.one_class.rows import BINS, EnclosedRows, binned, outermost
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

STATUSES = ("running", "certified", "stalled")
#: How many times as large as the stage before a stage is: small, for solves are cheap.
GROWTH = 2
#: The ellipsoid may still move by so many times what it has moved; what levels in the frame may still gain.
FORECAST, FRAME_FORECAST = 1.2, 0.97
#: Share of a chunk's rows that it may send. Rows of the sample stay from this share of what is sent on: the forecast
#: is poorest there, and of 1e6 x 20 normal rows chunks of the sample would be read again.
KEEP, SAMPLE_KEPT = 0.12, 0.85
#: The upper end of the histogram, in levels.
HIGH = 1.25
#: A solve ends when squared levels exceed the best by this share of epsilon, or by this share; stages are solved to
#: less.
SHARE_OF_EPSILON, TOLERANCE, STAGE_TOLERANCE = 0.1, 1e-10, 1e-5
#: A level in the frame beyond which covariances lose too many digits there.
FAR = 1e5


@dataclass(frozen=True)
class EllipsoidState:
    """What is known between two scans.

    frame: the coordinates of all that follows. ellipsoid: the least one around the working set, about which the next
    scan asks; best: the one behind ``upper``, which reaches to ``level``. support: the rows and weights behind
    ``lower``. cuts (2,): the levels that were safe in the last two moves: rows below them stayed inside. residual
    (d - r,): how far rows are from the flat at most, by column. histogram (bins,): of the levels from 0 to ``high``,
    each in the ellipsoid of the stage that read the row.
    stage: how many of the ``stages`` of the first read are done; in_stages: there was more than one.
    """

    round: int
    status: str
    working_set: WorkingSet
    frame: Frame
    ellipsoid: Ellipsoid
    best: Ellipsoid
    lower: float
    upper: float
    support: WorkingSet
    block_bounds: LevelBounds
    cuts: Array
    residual: Array
    histogram: NDArray[np.int64]
    high: float
    stage: int
    stages: int
    in_stages: bool = False
    warm_started: bool = False
    new_rows: int = 0
    sample_bytes: int = 0

    @property
    def reading(self) -> bool:
        """Whether stages of the first read are still to come."""
        return self.stage < self.stages

    @property
    def solved(self) -> bool:
        """Whether there is an ellipsoid."""
        return bool(len(self.support))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return state_to_arrays(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> EllipsoidState:
        """Inverse of ``to_arrays``."""
        makers: dict[str, Any] = dict.fromkeys(("working_set", "support"), WorkingSet.from_arrays)
        makers |= dict.fromkeys(("ellipsoid", "best"), Ellipsoid.from_arrays)
        makers |= {"block_bounds": LevelBounds.from_arrays, "frame": part_from_arrays(Frame)}
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES))


@dataclass(frozen=True)
class EnclosingEllipsoid(BaseProblem[EllipsoidState, LevelSummary]):
    """The ellipsoid of least volume around all rows of weight above 0.

    epsilon in (0, 1), of the volume. only: the label of the rows that count; None: all do. working_set_bytes: memory
    for the working set.
    """

    epsilon: float
    only: Any = None
    working_set_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def check(self) -> None:
        """Refuse a store without rows that count, or too many features. Raises StoreError, LabelError, UsageError."""
        self.enclosed.check()
        source = self.source
        need, most = solver_bytes(source.features), source.features
        if need > self.working_set_bytes:
            while most > 1 and solver_bytes(most) > self.working_set_bytes:
                most -= 1
            raise UsageError(
                f"{source.name}: expected at most {most:,} features for an ellipsoid in "
                f"{format_size(self.working_set_bytes)} of memory, found {source.features:,}: Newton's method takes "
                f"{format_size(need)}; give more memory, leave out columns, or choose one_class ball"
            )

    @cached_property
    def enclosed(self) -> EnclosedRows:
        """The rows that count."""
        return EnclosedRows(self.source, self.only)

    # Sizes

    @property
    def working_set_rows(self) -> int:
        """How many rows the working set may hold, with their coordinates in float64."""
        size = working_set_row_bytes(self.source) + 8 * self.source.features
        return max(min(4 * (self.source.features + 2), 1000), self.working_set_bytes // size)

    @property
    def memory_need(self) -> MemoryNeed:
        """Room for the rows that the first read may send."""
        sample = sum(np.ptp(self.source.span(chunk)) for chunk in self.sample_chunks)
        rows = min(self.source.rows, int(sample + KEEP * self.source.rows))
        size = rows * (working_set_row_bytes(self.source) + 8 * self.source.features)
        return MemoryNeed(self.working_set_bytes, size, rows, "outer rows", "with less, chunks are read again")

    @cached_property
    def sample_chunks(self) -> list[int]:
        """The chunks of the first stage; all chunks of a small store."""
        return self.enclosed.sample_chunks(self.sample_share, min(self.sample_bytes, self.working_set_bytes))

    @cached_property
    def stages(self) -> Stages:
        """Which chunks each stage of the first read is about."""
        return plan_stages(self.source.chunks, self.sample_chunks, GROWTH)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """The number of chunks of each stage."""
        return self.stages.sizes

    # Start

    def start(self) -> EllipsoidState:
        """The state without any row. Raises BadRow for rows whose squares overflow."""
        check_scale(self.source)
        return self.unsolved()

    def unsolved(self) -> EllipsoidState:
        """No row is known, and there is no frame."""
        source, d = self.source, self.source.features
        nowhere, none = Ellipsoid(np.zeros(0), np.zeros((0, 0))), np.zeros(0)
        empty = WorkingSet.nothing(d, source.dtype, sparse=source.sparse)
        return EllipsoidState(
            round=0,
            status="running",
            working_set=empty,
            frame=Frame(
                d, np.zeros(0, np.int64), none, np.zeros((0, 0)), np.zeros((d, 0)), np.zeros(d), np.zeros(d), 0.0
            ),
            ellipsoid=nowhere,
            best=nowhere,
            lower=0.0,
            upper=np.inf,
            support=empty,
            block_bounds=LevelBounds.unknown(source.chunks, 0),
            cuts=np.zeros(2),
            residual=np.zeros(d),
            histogram=np.zeros(BINS, np.int64),
            high=1.0,
            stage=0,
            stages=self.stages.count,
        )

    # Scans

    def probe(self, state: EllipsoidState) -> LevelProbe:
        """Rows that may be outermost: of the first stage all; of scans after the first read those outside."""
        source, level = self.source, float(np.sqrt(max(1, state.frame.rank)))
        chunks = np.flatnonzero(~self.skip(state))
        coming = sum(np.ptp(source.span(chunk)) for chunk in chunks[[0, -1]]) / 2 * len(chunks) if len(chunks) else 1
        room = max(1, self.working_set_rows - len(state.working_set)) / coming
        cut_reference, cut_centre = 1e-100, level
        if state.solved:
            cut_centre = max(level - FORECAST * (level - float(state.cuts.min())), level / 2)
        if state.solved and state.reading:
            in_frame = safe_level(unit_ball(state.frame.rank), state.ellipsoid, level)
            cut_reference = max(FRAME_FORECAST * in_frame, 1e-100)
        return LevelProbe(
            frame=state.frame,
            ellipsoid=state.ellipsoid,
            cut_reference=cut_reference,
            cut_centre=cut_centre,
            keep=min(KEEP, room),
            everything=not len(state.working_set),
            code=self.enclosed.code,
            known_ids=np.sort(state.working_set.ids),
            high=state.high,
            bins=BINS,
            dtype=source.dtype.name,
            chunk_rows=source.chunk_rows,
            sparse=source.sparse,
        )

    def skip(self, state: EllipsoidState) -> NDArray[np.bool_]:
        """Chunks (c,) that the next scan leaves out: of other stages, and those whose rows are proven to be inside."""
        proven = np.zeros(self.source.chunks, bool)
        if state.solved:
            enough = self._enough(state)
            proven = state.block_bounds.screen(self.source, state.frame, state.ellipsoid, enough) <= enough
        if not state.reading:
            return proven
        if state.warm_started:
            return proven | ~state.block_bounds.unread
        return proven | self.stages.skipping(state.stage)

    def ahead(self, state: EllipsoidState) -> NDArray[np.intp]:
        """The chunks of the stage after the next."""
        in_first_read = state.reading and not state.warm_started
        return self.stages.chunks(state.stage + 1) if in_first_read else super().ahead(state)

    def _enough(self, state: EllipsoidState) -> float:
        """The largest level in the present ellipsoid that the lower bound certifies; -inf if none does."""
        at_zero, at_one = (volume_radius(state.ellipsoid, state.frame, level) for level in (0.0, 1.0))
        largest = state.lower * float((1.0 - self.epsilon) ** (-1.0 / state.frame.rank))
        return (largest - at_zero) / (at_one - at_zero) * (1.0 - 1e-14)

    # Updates

    def update(self, state: EllipsoidState, summary: LevelSummary) -> EllipsoidState:
        """Bounds, working set and ellipsoid after a stage or a scan."""
        grown = state.working_set.add(summary.sent)
        was_reading = state.reading
        state = replace(
            state,
            round=state.round + 1,
            working_set=grown,
            new_rows=len(grown) - len(state.working_set),
            residual=np.maximum(state.residual, summary.residual),
        )
        if was_reading:
            in_stages = state.warm_started or state.stages > 1
            histogram = state.histogram + summary.histogram
            state = replace(state, stage=state.stage + 1, histogram=histogram, in_stages=in_stages)
        if not len(grown):
            return replace(state, status="stalled") if not state.reading else state
        far = state.solved and _farthest(state.frame, summary.sent.rows) > FAR
        # What is left of the others may be too little for a span, as of rows 1e12 times as far out as all others.
        far = far and frame_of(grown.rows, self.source.dtype).rank >= state.frame.rank
        if summary.off_span or far or not state.solved:
            state = self._with_frame(state, summary.chunks, again=bool(summary.off_span) or far)
            if not state.solved:
                return state
        else:
            bounds = state.block_bounds.record(summary.chunks, summary.upper, state.ellipsoid)
            state = replace(state, block_bounds=bounds)
            if state.new_rows:
                state = self._solve(state)
            else:
                state = replace(state, cuts=np.array([state.cuts[1], np.sqrt(state.frame.rank)]))
        state = self._certify(self._with_room(state))
        stalled = state.status == "running" and not was_reading and not state.new_rows
        return replace(state, status="stalled") if stalled else state

    def _with_frame(self, state: EllipsoidState, chunks: NDArray[np.int64], *, again: bool) -> EllipsoidState:
        """The state in a frame of the rows in memory, solved; again: the last frame did not suit, read all chunks.

        Otherwise all rows of the ``chunks`` that were read are in memory. Raises BadRow if all rows are equal.
        """
        source, working_set = self.source, state.working_set
        frame = frame_of(working_set.rows, source.dtype)
        residual = np.zeros(frame.features - frame.rank)
        if frame.rank < frame.features:
            for tile in tiles(working_set.rows):
                found = frame.residuals(dense(working_set.rows[tile]))[0]
                residual = np.maximum(residual, found.max(axis=0, initial=0.0))
        stage = state.stages if again else state.stage
        state = replace(state, frame=frame, residual=residual, stage=stage, lower=0.0, upper=np.inf)
        state = replace(state, histogram=np.zeros(BINS, np.int64)) if again else state
        if not frame.rank:
            if state.reading:
                first = working_set.take(np.arange(1))
                return replace(state, working_set=first, ellipsoid=unit_ball(0), best=unit_ball(0))
            raise BadRow(
                f"{source.name}: expected rows that differ, found that {self.enclosed} are equal: no ellipsoid around "
                f"them has a volume; choose one_class ball, whose radius is then 0"
            )
        level = float(np.sqrt(frame.rank))
        state = replace(
            state,
            block_bounds=LevelBounds.unknown(source.chunks, frame.rank),
            support=working_set.take(np.arange(0)),
            working_set=working_set.weighted(np.zeros(len(working_set))),
            ellipsoid=unit_ball(frame.rank),
            best=unit_ball(frame.rank),
            high=HIGH * level,
        )
        z = self._coordinates(state)
        state = self._solve(state)
        half = z[::2]
        try:
            weights = least_ellipsoid(half, STAGE_TOLERANCE) if len(half) > 2 * frame.rank else None
        except BadRow:
            weights = None
        safe = level / 2
        if weights is not None:
            before = weighted_ellipsoid(half[weights > 0], weights[weights > 0])
            safe = safe_level(before, state.ellipsoid, level)
        state = replace(state, cuts=np.repeat(safe, 2))
        if again:
            return state
        bounds = state.block_bounds.record(chunks, np.full((len(chunks), 2), -np.inf), state.ellipsoid)
        histogram = binned(state.ellipsoid.levels(z), state.high, BINS)
        state = replace(state, block_bounds=bounds, histogram=histogram)
        if not state.reading:
            return state
        probe = self.probe(state)
        in_frame = np.sqrt(np.einsum("ij,ij->i", z, z))
        harm = np.minimum(in_frame / probe.cut_reference, state.ellipsoid.levels(z) / probe.cut_centre)
        return self._keep_only(state, (harm > SAMPLE_KEPT) | (state.working_set.weights > 0))

    def _solve(self, state: EllipsoidState) -> EllipsoidState:
        """The least ellipsoid around the working set, and the lower bound that its weights prove."""
        working_set, frame, level = state.working_set, state.frame, float(np.sqrt(state.frame.rank))
        z = self._coordinates(state)
        tolerance = max(TOLERANCE, SHARE_OF_EPSILON * 2 * self.epsilon / frame.rank)
        start = working_set.weights if working_set.weights.any() else None
        weights = least_ellipsoid(z, max(tolerance, STAGE_TOLERANCE) if state.reading else tolerance, start)
        used = np.flatnonzero(weights)
        found = weighted_ellipsoid(z[used], weights[used])
        working_set = working_set.weighted(weights)
        support = working_set.take(used)
        lower = lower_bound(take_columns(support.rows, frame.columns), support.weights, found.of_frame(frame))
        if lower > state.lower or not state.solved:
            state = replace(state, lower=lower, support=support)
        safe = min(safe_level(state.ellipsoid, found, level), level)
        return replace(state, working_set=working_set, ellipsoid=found, cuts=np.array([state.cuts[1], safe]))

    def _coordinates(self, state: EllipsoidState) -> Array:
        """Coordinates (m, r) of the working set."""
        rows, found = state.working_set.rows, np.empty((len(state.working_set), state.frame.rank))
        for tile in tiles(rows):
            found[tile] = state.frame.coordinates(dense(rows[tile]))
        return found

    def _levels(self, state: EllipsoidState) -> Array:
        """Upper bounds (m,) of the levels of the working set."""
        return state.ellipsoid.levels(self._coordinates(state)) * (1.0 + rounding(state.ellipsoid))

    def _with_room(self, state: EllipsoidState) -> EllipsoidState:
        """The state with at most as many rows as there is room for: the outermost."""
        if len(state.working_set) <= self.working_set_rows:
            return state
        return self._keep_only(state, outermost(state.working_set, self._levels(state), self.working_set_rows // 2))

    def _keep_only(self, state: EllipsoidState, stay: NDArray[np.bool_]) -> EllipsoidState:
        """The state with these rows of the working set; the bounds of their chunks hold for the others again."""
        gone = np.flatnonzero(~stay)
        chunks = state.working_set.ids[gone] // self.source.chunk_rows
        bounds = state.block_bounds.raised(chunks, self._coordinates(state)[gone], state.ellipsoid)
        return replace(state, working_set=state.working_set.take(np.flatnonzero(stay)), block_bounds=bounds)

    def _certify(self, state: EllipsoidState) -> EllipsoidState:
        """The state with the upper bound of the newest ellipsoid: of the working set, and of the chunks."""
        chunks = state.block_bounds.screen(self.source, state.frame, state.ellipsoid, self._enough(state))
        level = max(float(chunks.max()), float(self._levels(state).max()))
        upper = volume_radius(state.ellipsoid, state.frame, level)
        if upper < state.upper or np.isinf(state.upper):
            state = replace(state, upper=upper, best=state.ellipsoid)
        proven = is_certified(state.lower, state.upper, self.epsilon, state.frame.rank)
        return replace(state, status="certified") if proven else state

    # Results

    def round_of(self, state: EllipsoidState) -> Round:
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
            **scan_position(state.round, state.stage, state.stages, going_on=going_on),
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> EllipsoidState:
        """A state from a checkpoint."""
        return EllipsoidState.from_arrays(arrays)

    # Warm start: bounds survive changes as those of a ball do (problems/ball/enclosing_ball.py)

    def warm_start_state(self, state: EllipsoidState, allowance: Allowance) -> Mapping[str, Any]:
        """The state with as many outer rows as the allowance permits."""
        if not state.solved:
            return state.to_arrays()
        levels = self._levels(state)

        def with_rows(most: int) -> Mapping[str, Any]:
            return self._keep_only(state, outermost(state.working_set, levels, most)).to_arrays()

        return allowance.within(with_rows, min(len(levels), most_cached_rows(self.source, allowance)))

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> EllipsoidState:
        """See ``WarmStarts``."""
        check_scale(self.source)
        old = EllipsoidState.from_arrays(arrays)
        removed, entering = self.enclosed.changes(difference)
        working_set = old.working_set.take(np.flatnonzero(~isin_ids(old.working_set.ids, removed)))
        if len(working_set) <= 2 * old.frame.rank or not old.solved:
            raise CannotWarmStart("too few outer rows are left")
        again = np.append(entering, ids_appended_to_last_chunk(self.source, difference)) // self.source.chunk_rows
        bounds = old.block_bounds.without(np.unique(again[again < len(old.block_bounds.index)]), self.source.chunks)
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
            cuts=np.repeat(np.sqrt(old.frame.rank), 2),
        )
        if isin_ids(old.support.ids, removed).any():
            unweighted = working_set.weighted(np.zeros(len(working_set)))
            state = replace(state, working_set=unweighted, lower=0.0, support=working_set.take(np.arange(0)))
            try:
                state = self._solve(state)
            except BadRow:
                raise CannotWarmStart("the outer rows that are left span less than all rows did") from None
        return self._certify(state)


def _farthest(frame: Frame, rows: Rows) -> float:
    """The largest level of rows in a frame; 0 of none."""
    levels = [float(np.linalg.norm(frame.coordinates(dense(rows[tile])), axis=1).max()) for tile in tiles(rows)]
    return max(levels, default=0.0)


def solver_bytes(features: int) -> int:
    """About how many bytes Newton's method takes for rows of so many features."""
    rows = 4 * max(WORK, WORK_EACH * features)
    return 16 * min(rows, (features + 1) * (features + 2) // 2) * rows
