"""The ball outside of which a share nu of the rows may lie (SVDD), to a gap epsilon of its value, out of core.

maths/soft_ball.py states the problem and its dual. The algorithm:

1.  *Sample.* The rows of some chunks are solved in memory; they give the first centre and radius.
    *First read.* Of larger stores of dense rows, these chunks are the first of several stages (first_read.py), and one
    read of the store often is enough. If it is not, scans follow.
2.  *Scan.* Workers send the rows nearest to the sphere, and sum up those outside. The value of the centre follows:
    for radii that no unsent row is nearer to than the sphere is, all rows beyond are in the sums or were sent.
3.  *Band.* Rows outside keep their dual weight C, rows inside 0; the driver solves the rows that were sent exactly. For
    any such weights the dual value is exact, so that it bounds the value of every ball, and sum_i a_i x_i is the next
    centre. The next scan proves it, or shows what moved.
    If the bounds are far apart, the sample was not like the store: a scan sends rows from all of it, which are solved
    in its place. Scans that gain little send more rows, all of them if there is memory.
4.  *Warm start.* The centre of an earlier commit takes the place of the sample.

A row that was not sent has the weight of its side of the sphere of its scan or stage. So a model names only the rows
that were sent and have another weight, and those so near to the sphere that the verifier might see them on the other
side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.moments import moments
from coremargin.data.transformed import untransformed
from coremargin.data.view import bytes_read
from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import BaseProblem, CannotWarmStart, Round
from coremargin.errors import StoreError
from coremargin.maths.margin import VANISHED, Array, gamma, is_certified
from coremargin.maths.rows import dense, take, weighted_sum
from coremargin.maths.soft_ball import Outside, best_square, solve_band, solve_soft_ball, squares_to
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE
from coremargin.problems.common.stages import plan_stages, scan_position
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.one_class.rows import BINS, EnclosedRows
from coremargin.problems.one_class.soft import box_of, check_share, square_of_mass
from coremargin.problems.soft_ball.first_read import RINGS, ZONE, Reading
from coremargin.problems.soft_ball.probe import SphereProbe, SphereSummary

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.maths.rows import Rows
    from coremargin.maths.soft_ball import BandSolution
    from coremargin.maths.soft_ball import SoftBall as Ball
    from coremargin.problems.common.stages import Stages

STATUSES = ("running", "certified", "stalled")
#: Share of the rows that a scan sends; so many at least, and at most that a step of the band's solver takes so many
#: multiplications.
BAND_SHARE, BAND_LEAST, BAND_COST = 0.05, 5000, 2e8
#: Share of the memory for a band, of whose rows there are copies in float64.
BAND_PART = 0.25
#: Rows of larger stores are read in stages, if they have at most so many features. Each stage is so many times as large
#: as all before it, and sends no less than this share of what it may send.
SMALL_BYTES, MOST_FEATURES, GROWTH, LEAST_SENT = 4 << 20, 256, 2, 0.1
#: A gap of this share of the value shows that the sample was not like the store.
UNLIKE = 0.1
#: The histogram of distances ends at so many times the sample's largest distance, or so many radii.
HIGH, FARTHEST = 1.05, 3.0
#: A scan that brings the bounds nearer by no more than this share of epsilon is idle; after so many all rows are sent,
#: or, if there is no memory for them, after more of them the job ends.
IDLE_SHARE, IDLE_BEFORE_ALL, IDLE_SCANS = 0.1, 2, 8
#: Gap of the sample's solution: when it is all rows, as a share of epsilon, else of the value.
WHOLE_SAMPLE, PART_SAMPLE = 0.1, 1e-5
#: What a product of a weight and a square may lose by underflow.
UNDERFLOW = 2.0**-1070


@dataclass(frozen=True)
class SoftBallState:
    """What is known between two scans.

    centre (d,), square: the sphere of the next scan. best (d,), best_square: the ball that has the value ``primal``.
    reference (s, d), threshold (s,): the spheres of the scan or of the stages that proved ``dual``, reference_of (c,):
    which of them is that of each chunk, (0,) if there is one; named_ids, named_weights (m,): the dual
    weights of rows that do not follow from their side of it. share_outside: upper bound on the share of the weight of
    all rows that lies outside of the best ball. widen: of the band. idle: scans in a row that gained little. band_rows,
    histogram (bins,): of the last scan; ``high``: the histogram's upper end. tied: rows that a scan did not send,
    though only rounding decides on which side of the sphere they lie. evenly: the next scan sends rows that are spread
    over the store; spread: one has been asked to. reading: while the first read is made in stages; stages: their
    number, 0 if the job did not begin with them. in_stages: the histogram is of several stages.
    """

    round: int
    status: str
    centre: Array
    square: float
    best: Array
    best_square: float
    primal: float
    dual: float
    reference: Array
    threshold: Array
    reference_of: NDArray[np.int64]
    share_outside: float
    named_ids: NDArray[np.int64]
    named_weights: Array
    widen: int
    idle: int
    band_rows: int
    tied: int
    histogram: NDArray[np.int64]
    high: float
    evenly: bool = False
    spread: bool = False
    reading: Reading | None = None
    stages: int = 0
    in_stages: bool = False
    sample_rows: int = 0
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class SoftBall(BaseProblem[SoftBallState, SphereSummary]):
    """The soft ball around all rows of weight above 0.

    epsilon, nu in (0, 1). only: the label of the rows that count; None: all do. memory_bytes: for the sample and bands.
    """

    epsilon: float
    nu: float
    only: Any = None
    memory_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def check(self) -> None:
        """Refuse what the smallest ball refuses, and rows of which none may lie outside.

        Raises LabelError, StoreError, UsageError.
        """
        check_share(self.enclosed, self.nu, "the smallest ball")
        if bool(moments(untransformed(self.source)).constant.all()):
            raise StoreError(
                f"{self.source.name}: expected different rows, found that all are equal: the smallest ball around them "
                f"has radius 0, whatever nu is; leave nu out"
            )

    @cached_property
    def enclosed(self) -> EnclosedRows:
        """The rows that count."""
        return EnclosedRows(self.source, self.only)

    @cached_property
    def box(self) -> float:
        """C of a row of weight 1: 1 / (nu sum_i s_i); infinite for weights that ``check`` refuses."""
        return box_of(self.enclosed, self.nu)

    # Sizes

    @property
    def band_rows(self) -> int:
        """How many rows a band has at first."""
        p, n = self.source.features + 1, self.source.rows
        affordable = max(5 * p, min(BAND_COST / p**2, max(BAND_LEAST, BAND_SHARE * n)))
        return int(max(2 * p, min(affordable, BAND_PART * self.memory_bytes / (8 * p))))

    @cached_property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first scan."""
        return self.enclosed.sample_chunks(self.sample_share, min(self.sample_bytes, self.memory_bytes // 4))

    @cached_property
    def stages(self) -> Stages | None:
        """Which chunks each stage of the first read is about; None if it has none."""
        source, sample = self.source, self.sample_chunks
        small = source.nbytes <= SMALL_BYTES or len(sample) == source.chunks
        if small or source.sparse or source.features > MOST_FEATURES:
            return None
        return plan_stages(source.chunks, sample, GROWTH)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """The number of chunks of each stage."""
        return () if self.stages is None else self.stages.sizes

    @property
    def reads_again(self) -> bool:
        """True: if one read is not enough, all chunks are read again."""
        return True

    @property
    def holds_all_rows(self) -> bool:
        """Whether all rows fit in half of the memory: each is then read once."""
        return not self.memory_need.short

    @property
    def memory_need(self) -> MemoryNeed:
        """The memory for all rows."""
        return MemoryNeed.of_all_rows(self.source, self.memory_bytes)

    # Start

    def unsolved(self) -> SoftBallState:
        """No row is known."""
        nothing = np.zeros(self.source.features)
        return SoftBallState(
            round=0,
            status="running",
            centre=nothing,
            square=0.0,
            best=nothing,
            best_square=0.0,
            primal=np.inf,
            dual=0.0,
            reference=nothing[None],
            threshold=np.zeros(1),
            reference_of=np.zeros(0, np.int64),
            share_outside=1.0,
            named_ids=np.zeros(0, np.int64),
            named_weights=np.zeros(0),
            widen=1,
            idle=0,
            band_rows=0,
            tied=0,
            histogram=np.zeros(BINS, np.int64),
            high=1.0,
        )

    def start(self) -> SoftBallState:
        """Solve the rows of a sample, or none before the first stage. Raises BadRow for rows whose squares overflow."""
        source, chunks = self.source, self.sample_chunks
        check_scale(source)
        if self.stages is not None:
            reading = Reading.empty(self.stages, source.features, source.dtype)
            return replace(self.unsolved(), reading=reading, stages=self.stages.count)
        rows, weights = self.enclosed.read(chunks)
        total = float(weights.sum())
        mean = weighted_sum(rows, weights / total)
        whole = len(chunks) == source.chunks
        found = solve_soft_ball(
            rows,
            weights / (self.nu * total),
            mean,
            epsilon=WHOLE_SAMPLE * self.epsilon if whole else self._sample_gap,
            most=self._sample_work,
        )
        spans = [source.span(chunk) for chunk in chunks]
        return replace(
            self.unsolved(),
            centre=found.centre,
            square=found.square,
            best=found.centre,
            best_square=found.square,
            high=self._histogram_end(rows, found),
            sample_rows=len(weights),
            sample_bytes=bytes_read(source, sum(stop - start for start, stop in spans)),
        )

    # Probes

    def probe(self, state: SoftBallState) -> SphereProbe:
        """The sphere of a state; the first stage sends all of its rows."""
        source, reading = self.source, state.reading
        keep, zone, edges = min(1.0, state.widen * self.band_rows / source.rows), np.inf, np.zeros(1)
        if reading is not None and not reading.stage:
            keep = 1.0
        elif reading is not None:
            keep, move = self._band_of_stage(reading.stage), reading.expected_move(state.square)
            zone, edges = ZONE * move, move * RINGS
        return SphereProbe(
            centre=state.centre,
            square=state.square,
            box=self.box,
            keep=keep,
            least=LEAST_SENT * keep,
            zone=zone,
            edges=edges,
            evenly=state.evenly,
            clear=self._clear(state.square),
            code=self.enclosed.code,
            high=state.high,
            bins=BINS,
            dtype=source.dtype.name,
            sparse=source.sparse,
        )

    def skip(self, state: SoftBallState) -> NDArray[np.bool_]:
        """The chunks of other stages."""
        if self.stages is None or state.reading is None:
            return super().skip(state)
        return self.stages.skipping(state.reading.stage)

    def ahead(self, state: SoftBallState) -> NDArray[np.intp]:
        """The chunks of the stage after the next."""
        if self.stages is None or state.reading is None:
            return super().ahead(state)
        return self.stages.chunks(state.reading.stage + 1)

    def _band_of_stage(self, stage: int) -> float:
        """Share of the rows of a stage that it sends at most: its sphere is off by one over the root of rows seen."""
        sizes = np.array(self.stage_chunks, float)
        uncertain = sizes / np.sqrt(np.maximum(np.cumsum(sizes) - sizes, sizes[0]))
        share = uncertain[stage] / uncertain.sum() * sizes.sum() / sizes[stage]
        return min(1.0, float(share) * self.band_rows / self.source.rows)

    def update(self, state: SoftBallState, summary: SphereSummary) -> SoftBallState:
        """Bounds after a scan, and the sphere of the next one."""
        if state.reading is not None:
            return self._after_stage(state, state.reading, summary)
        known, before = state.primal - state.dual, state.primal
        outside = Outside(float(summary.mass[0]), summary.pull, float(summary.squares[0]))
        squares = squares_to(summary.sent.rows, state.centre)
        state = replace(
            state,
            round=state.round + 1,
            band_rows=len(squares),
            tied=0 if np.isinf(summary.nearest[0]) else max(state.tied, int(summary.tied[0])),
            histogram=summary.histogram,
            in_stages=False,
        )
        state = self._with_value(state, summary, squares, outside)
        improved = state.primal < before
        if state.evenly:
            return self._with_sample(state, summary)
        state, move = self._with_dual(state, summary, squares, outside)
        if is_certified(state.dual, state.primal, self.epsilon):
            return replace(state, status="certified")
        gained = known - (state.primal - state.dual)
        idle = 0 if gained > IDLE_SHARE * self.epsilon * state.primal else state.idle + 1
        state = replace(state, idle=idle)
        if idle >= IDLE_BEFORE_ALL and self._may_send_all(state):
            state = replace(state, widen=self._widen_to_all, idle=0)
        if idle >= IDLE_SCANS:
            return replace(state, status="stalled")
        if not state.spread and state.primal - state.dual > UNLIKE * state.primal:
            return replace(state, evenly=True, spread=True)
        return self._next_sphere(state, summary, squares, outside, move, improved=improved)

    # The first read

    def _after_stage(self, state: SoftBallState, reading: Reading, summary: SphereSummary) -> SoftBallState:
        """The sphere of the next stage; after the last one bounds, and the sphere of a scan, should there be need."""
        state, first = replace(state, round=state.round + 1), not reading.stage
        if first:
            state, reading, summary = self._first_stage(state, reading, summary)
        clear = self._clear(state.square)
        edges = reading.expected_move(state.square) * RINGS
        reading = reading.recorded(state.centre, state.square, edges, summary, clear)
        state = replace(
            state,
            histogram=state.histogram + summary.histogram,
            tied=max(state.tied, int(summary.tied[0])),
            band_rows=len(reading.boxes),
            reading=reading,
            in_stages=True,
        )
        seen = 1.0 if reading.complete else min(1.0, self.nu * float(reading.total.sum()))
        outside, boxes = reading.outside(state.centre, 1.0 / seen), reading.boxes / seen  # rows seen stand for all
        rows = dense(reading.band.rows)
        found = solve_band(rows - state.centre, boxes, outside)
        if found is None:  # the bands miss the radius beyond which a share nu of the weight lies
            return replace(state, reading=None, stages=state.round)
        centre = state.centre + found.move
        squares = squares_to(rows, centre)
        square = best_square(squares, boxes, outside.mass)
        if not reading.complete:
            if not first:
                reading = reading.with_forecast((state.centre, state.square), (centre, square), seen)
            return replace(state, centre=centre, square=square, reading=reading)
        state = replace(self._with_bounds_of_stages(state, reading, found, centre, square), reading=None)
        status = "certified" if is_certified(state.dual, state.primal, self.epsilon) else "running"
        return replace(state, status=status, centre=centre, square=square)

    def _first_stage(
        self, state: SoftBallState, reading: Reading, summary: SphereSummary
    ) -> tuple[SoftBallState, Reading, SphereSummary]:
        """The sphere of all rows of the first stage, its forecast by that of half of them, and their summary there."""
        rows, total = summary.sent.rows, float(summary.boxes.sum())
        start, halves = weighted_sum(rows, summary.boxes / total), []
        for step in (2, 1):
            boxes = summary.boxes[::step]
            some = take(rows, np.arange(0, len(summary.boxes), step))
            scaled = boxes / (self.nu * float(boxes.sum()))
            halves.append(solve_soft_ball(some, scaled, start, epsilon=self._sample_gap, most=self._sample_work))
        half, found = halves
        state = replace(
            state,
            centre=found.centre,
            square=found.square,
            best=found.centre,
            best_square=found.square,
            high=self._histogram_end(rows, found),
            sample_rows=len(summary.boxes),
        )
        seen = min(1.0, self.nu * total)
        reading = replace(reading, seen=seen / 2).with_forecast(
            (half.centre, half.square), (found.centre, found.square), seen
        )
        probe = replace(
            self.probe(replace(state, reading=replace(reading, stage=1))),
            keep=self._band_of_stage(0),
            least=LEAST_SENT * self._band_of_stage(0),
        )
        return state, reading, probe.summarise(summary.sent.ids, rows, summary.boxes)

    def _with_bounds_of_stages(
        self, state: SoftBallState, reading: Reading, found: BandSolution, centre: Array, square: float
    ) -> SoftBallState:
        """With the value of a ball, and the dual bound of the weights of all bands."""
        rows, boxes, lift = reading.band.rows, reading.boxes, self._clear(square)
        square += lift  # so that rows on the sphere are inside
        outside, squares = reading.outside(centre, 1.0), squares_to(rows, centre)
        clear = self._clear(float(reading.squares.max()))
        lost, crossed = reading.crossed(centre, square, self._error, clear)
        value = square + outside.squares - square * outside.mass + lost
        value += float(boxes @ np.maximum(squares - square, 0.0))
        value += self._error * (value + outside.squares + square * outside.mass) + self._absolute_error
        if value < state.primal:
            mass = outside.mass + crossed + float(boxes[squares > square].sum())
            share = min(1.0, self.nu * mass * (1.0 + self._error))
            state = replace(state, best=centre, best_square=square, primal=value, share_outside=share)
        if not (reading.nearest > self._clear(float(reading.squares.max()))).all():
            return state
        named = np.flatnonzero((found.weights != reading.by_side) | ~reading.clear)
        return self._with_better_dual(
            state,
            found,
            replace(
                state,
                reference=reading.centres,
                threshold=reading.squares,
                reference_of=reading.stage_of,
                named_ids=reading.band.ids[named],
                named_weights=found.weights[named],
            ),
        )

    # Scans

    def _with_sample(self, state: SoftBallState, summary: SphereSummary) -> SoftBallState:
        """The sphere of the rows that a scan sent from all of the store."""
        rows, total = summary.sent.rows, float(summary.boxes.sum())
        boxes = summary.boxes / (self.nu * total)
        found = solve_soft_ball(rows, boxes, state.centre, epsilon=self._sample_gap, most=self._sample_work)
        high = self._histogram_end(rows, found)
        return replace(state, centre=found.centre, square=found.square, high=high, evenly=False)

    @property
    def _sample_work(self) -> int:
        """How many rows of a sample are solved at a time."""
        return min(self.band_rows, max(BAND_LEAST, 5 * (self.source.features + 1)))

    @property
    def _sample_gap(self) -> float:
        return max(PART_SAMPLE, self.epsilon)

    def _histogram_end(self, rows: Rows, found: Ball) -> float:
        farthest = float(squares_to(rows, found.centre).max())
        return HIGH * min(math.sqrt(farthest), FARTHEST * math.sqrt(found.square)) or 1.0

    def _with_value(
        self, state: SoftBallState, summary: SphereSummary, squares: Array, outside: Outside
    ) -> SoftBallState:
        """With the value of the scan's centre, if it is the least so far, at its best radius that the band covers."""
        least, most = state.square + np.array([-1.0, 1.0]) * summary.nearest[0]  # no unsent row changes sides here
        best = best_square(squares, summary.boxes, outside.mass) if len(squares) else state.square
        square = max(0.0, float(np.clip(best, least, most)))
        lift = self._clear(square)  # so that rows on the sphere are inside
        within = min(square + lift, most) if most >= square else square
        value = within + outside.squares - within * outside.mass
        value += float((summary.boxes * np.maximum(squares - within, 0.0)).sum()) + (square + lift - within)
        value += self._error * (value + outside.squares + square * outside.mass) + self._absolute_error
        square += lift
        if not value < state.primal:
            return state
        mass = outside.mass + float(summary.boxes[squares > square].sum())
        share = min(1.0, self.nu * mass * (1.0 + self._error))
        return replace(state, best=state.centre, best_square=square, primal=value, share_outside=share)

    def _with_dual(
        self, state: SoftBallState, summary: SphereSummary, squares: Array, outside: Outside
    ) -> tuple[SoftBallState, Array | None]:
        """With the bound of the band's solution, if it is the best so far; the move of the centre, None: no solution.

        Rows that no scan sent must be so far from the sphere that the verifier sees them on the same side.
        """
        found = solve_band(dense(summary.sent.rows) - state.centre, summary.boxes, outside)
        if found is None:
            return state, None
        clear = self._clear(state.square)
        if not summary.nearest[0] > clear:
            return state, found.move
        by_side = np.where(squares > state.square, summary.boxes, 0.0)
        named = np.flatnonzero((found.weights != by_side) | (np.abs(squares - state.square) <= clear))
        proven = replace(
            state,
            reference=state.centre[None],
            threshold=np.array([state.square]),
            reference_of=np.zeros(0, np.int64),
            named_ids=summary.sent.ids[named],
            named_weights=found.weights[named],
        )
        return self._with_better_dual(state, found, proven), found.move

    def _with_better_dual(self, state: SoftBallState, found: BandSolution, proven: SoftBallState) -> SoftBallState:
        """The state ``proven`` with the bound of its dual point, rounded down; the same state if that is no better.

        The verifier's sums are about the best centre, whose distance from the dual point's is at most the root of the
        gap.
        """
        length = max(float(found.move @ found.move), state.primal - found.dual)
        total = found.dual + length
        terms = total + 2.0 * math.sqrt(length) * math.sqrt(total)
        bound = found.dual - self._error * terms - 2.0 * self._absolute_error
        if not bound > state.dual:
            return state
        order = np.argsort(proven.named_ids, kind="stable")
        return replace(proven, dual=bound, named_ids=proven.named_ids[order], named_weights=proven.named_weights[order])

    def _next_sphere(
        self,
        state: SoftBallState,
        summary: SphereSummary,
        squares: Array,
        outside: Outside,
        move: Array | None,
        *,
        improved: bool,
    ) -> SoftBallState:
        """Where the next scan looks: at the band's solution or, where the last one was worse, half as far away."""
        if move is None:  # the band missed the radius beyond which a share nu of the weight lies
            high = 2.0 * state.high if summary.masses[-1] >= 1.0 else state.high
            return replace(state, square=square_of_mass(summary.masses, state.high), high=high)
        if improved or np.isinf(summary.nearest[0]):  # or all rows were sent
            centre, widen = state.centre + move, state.widen
        else:
            centre, widen = 0.5 * (state.best + state.centre), self._wider(state)
        if np.array_equal(centre, state.centre):
            if not self._may_send_all(state):
                return replace(state, status="stalled")
            widen = self._widen_to_all
        away = squares_to(summary.sent.rows, centre)
        square = best_square(away, summary.boxes, outside.mass) if len(away) else state.square
        return replace(state, centre=centre, square=square, widen=widen)

    def _wider(self, state: SoftBallState) -> int:
        return max(state.widen, min(2 * state.widen, self._widest, self._widen_to_all))

    def _may_send_all(self, state: SoftBallState) -> bool:
        """Whether there is memory for all rows, of which the last scan sent some."""
        return state.widen < self._widen_to_all <= self._widest

    @property
    def _widest(self) -> int:
        """How many times as many rows as a band has at first there is memory for."""
        return max(1, int(BAND_PART * self.memory_bytes / (8 * (self.source.features + 1)) / self.band_rows))

    @property
    def _widen_to_all(self) -> int:
        """How many times as many rows as a band has at first are all rows."""
        return -(-self.source.rows // self.band_rows)

    # Rounding: outward by more than the verifier's

    @property
    def _error(self) -> float:
        """Error of sums of squares, relative to their terms."""
        return 4.0 * (gamma(1024 + 256) + gamma(self.source.features + 16) + gamma(self.source.chunks + 16))

    @property
    def _absolute_error(self) -> float:
        """Error of the squared distance of a sparse row, which is a difference of squares; and underflow of any."""
        underflow = 16.0 * (self.source.features * VANISHED**2 + self.box * self.source.rows * UNDERFLOW)
        if not self.source.sparse:
            return underflow
        longest = 2.0 * float(self.source.scalars().max_norm.max())
        return underflow + 8.0 * gamma(self.source.features + 16) * longest * longest

    def _clear(self, square: float) -> float:
        """Distance from the square of a sphere's radius beyond which rounding does not decide on a row's side."""
        return 4.0 * (self._error * square + self._absolute_error)

    # Results

    def round_of(self, state: SoftBallState) -> Round:
        """The report of a round."""
        going_on = state.reading is not None and state.status == "running"
        lower = state.dual if np.isfinite(state.primal) else -np.inf
        return Round(
            status=state.status,
            lower=lower,
            lower_now=lower,
            upper=state.primal,
            working_set_rows=state.band_rows if state.round else state.sample_rows,
            coreset_rows=len(state.named_ids),
            new_rows=state.band_rows,
            **scan_position(state.round, state.round, state.stages, going_on=going_on),
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> SoftBallState:
        """A state from a checkpoint."""
        makers = {"reading": Reading.from_arrays}
        return SoftBallState(**state_from_arrays(SoftBallState, arrays, makers, STATUSES))

    # Warm start

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> SoftBallState:
        """See ``WarmStarts``: the best ball of the earlier commit; its bounds are not those of the present rows."""
        check_scale(self.source)
        old = self.restore(arrays)
        if not np.isfinite(old.primal):
            raise CannotWarmStart("no ball was proven")
        state = replace(self.unsolved(), centre=old.best, square=old.best_square, best=old.best)
        return replace(state, best_square=old.best_square, high=old.high, sample_bytes=difference.nbytes)
