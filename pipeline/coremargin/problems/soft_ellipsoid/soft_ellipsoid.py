"""The ellipsoid outside of which a share nu of the rows may lie, to 1 - epsilon of its volume, out of core.

maths/soft_ellipsoid.py states the problem and its dual. The algorithm, in the order of this file:

1.  *Sample.* The rows of some chunks are solved in memory. They define the frame, coordinates in which all that follows
    is computed, and the span, if columns are linear functions of others; and they give the first ellipsoid.
2.  *Scan.* Workers send the rows nearest to its surface, and sum up those outside. The value of this ellipsoid follows.
3.  *Band.* Rows outside keep their dual weight C, rows inside 0; the driver solves the rows that were sent exactly. For
    any such weights the dual value is exact, so that it bounds the value of every ellipsoid, and their mean and
    covariance are the next ellipsoid. If no row that was not sent can be on its other side, its value follows as well;
    else the next scan shows what it is. Scans that gain little send more rows, all of them if there is memory.
4.  *A row off the span* enlarges it: the rows that the scan sent take the place of the sample.
5.  *Warm start.* The ellipsoid of an earlier commit takes the place of the sample.

A row that was not sent has the weight of its side of the surface of the scan. So a model names only the rows that were
sent and have another weight, and those so near to the surface that the verifier might see them on the other side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import BaseProblem, CannotWarmStart, Round
from coremargin.errors import BadRow, UsageError
from coremargin.maths.enclosing_ellipsoid import (
    Ellipsoid,
    Frame,
    frame_of,
    is_certified,
    largest_levels,
    safe_level,
    volume_radius,
)
from coremargin.maths.margin import Array, gamma
from coremargin.maths.rows import dense, tiles
from coremargin.maths.soft_ball import best_square
from coremargin.maths.soft_ellipsoid import (
    dual_bound,
    ellipsoid_of,
    moments_of,
    rounding_of_levels,
    solve_near_surface,
    solve_sample,
    sum_of_squares,
    weights_by_rank,
)
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE
from coremargin.problems.common.state_arrays import part_from_arrays, state_from_arrays, state_to_arrays
from coremargin.problems.ellipsoid.enclosing_ellipsoid import solver_bytes
from coremargin.problems.one_class.rows import BINS, EnclosedRows
from coremargin.problems.one_class.soft import box_of, check_share, square_of_mass
from coremargin.problems.soft_ellipsoid.probe import SurfaceProbe, SurfaceSummary
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.maths.rows import Rows

STATUSES = ("running", "certified", "stalled")
#: Share of the rows that a scan sends, so many at least.
BAND_SHARE, BAND_LEAST = 0.05, 5000
#: A working set takes a step of about so many multiplications, and has at most so many rows; but at least so many for
#: each number of the covariance, of which a solution determines as many.
STEP_COST, MOST_SOLVED, LEAST_EACH = 2e8, 4000, 2
#: Share of the memory for a band, and for what a step of the solver needs.
BAND_PART, SOLVER_PART = 0.25, 0.5
#: What log det S may still gain in a sample; in a band, as a share of epsilon, and at least.
SAMPLE_GAIN, SHARE_OF_EPSILON, LEAST_GAIN = 1e-2, 0.1, 1e-10
#: A frame whose ellipsoid is wider in one direction than in another by more than this, or so far off, is found again.
NEAR_FRAME = 1e3
#: The histogram of levels ends at so many times the sample's largest level, or so many levels of the surface.
HIGH, FARTHEST = 1.05, 3.0
#: A scan that closes less than this share of the gap is idle; after so many all rows are sent or, if there is no memory
#: for them, after more of them the job ends.
IDLE_SHARE, IDLE_BEFORE_ALL, IDLE_SCANS = 0.1, 2, 8


@dataclass(frozen=True)
class SoftEllipsoidState:
    """What is known between two scans.

    frame: the coordinates of all that follows. ellipsoid, square: the surface of the next scan, squared levels being
    ``square``. best, best_square: the ellipsoid whose value is ``upper``, a volume radius, as is ``lower``. reference,
    threshold: the surface of the scan that proved ``lower``; named_ids, named_weights (m,): the dual weights of rows
    that do not follow from their side of it. share_outside: upper bound on the share of the weight of all rows that is
    outside of the best one. widen: of the band. idle: scans in a row that gained little. band_rows, histogram (bins,):
    of the last scan; ``high``: the histogram's upper end. residual (d - r,): how far rows are from the flat at most.
    """

    round: int
    status: str
    frame: Frame
    ellipsoid: Ellipsoid
    square: float
    best: Ellipsoid
    best_square: float
    lower: float
    upper: float
    reference: Ellipsoid
    threshold: float
    named_ids: NDArray[np.int64]
    named_weights: Array
    share_outside: float
    widen: int
    idle: int
    band_rows: int
    histogram: NDArray[np.int64]
    high: float
    residual: Array
    sample_rows: int = 0
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class SoftEllipsoid(BaseProblem[SoftEllipsoidState, SurfaceSummary]):
    """The soft ellipsoid around all rows of weight above 0.

    epsilon, of the volume, and nu in (0, 1). only: the label of the rows that count; None: all do. memory_bytes: for
    the sample and bands.
    """

    epsilon: float
    nu: float
    only: Any = None
    memory_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def check(self) -> None:
        """Refuse what the ellipsoid of least volume refuses, and a nu that lets no row lie outside.

        Raises LabelError, StoreError, UsageError.
        """
        check_share(self.enclosed, self.nu, "the ellipsoid of least volume")
        source = self.source
        most = source.features
        while most > 1 and max(_step_bytes(most, LEAST_EACH * _numbers(most)), solver_bytes(most)) > self.memory_bytes:
            most -= 1
        if most < source.features:
            raise UsageError(
                f"{source.name}: expected at most {most:,} features for a soft ellipsoid in "
                f"{format_size(self.memory_bytes)} of memory, found {source.features:,}; give more memory, leave out "
                f"columns, or choose one_class ball"
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
        room = BAND_PART * self.memory_bytes / (8 * 4 * (self.source.features + 1))
        return int(max(2 * self.source.features, min(max(BAND_LEAST, BAND_SHARE * self.source.rows), room)))

    @property
    def solver_rows(self) -> int:
        """How many rows are solved at a time."""
        numbers = _numbers(self.source.features)
        rows = int(max(LEAST_EACH * numbers, min(MOST_SOLVED, STEP_COST / numbers**2)))
        while rows > LEAST_EACH * numbers and _step_bytes(self.source.features, rows) > SOLVER_PART * self.memory_bytes:
            rows //= 2
        return max(rows, LEAST_EACH * numbers)

    @cached_property
    def sample_chunks(self) -> list[int]:
        """The chunks that are read before the first scan."""
        return self.enclosed.sample_chunks(self.sample_share, min(self.sample_bytes, self.memory_bytes // 4))

    @property
    def reads_again(self) -> bool:
        """True: if one read is not enough, all chunks are read again."""
        return True

    @property
    def memory_need(self) -> MemoryNeed:
        """The memory for all rows."""
        return MemoryNeed.of_all_rows(self.source, self.memory_bytes)

    # Start

    def unsolved(self) -> SoftEllipsoidState:
        """No row is known, and there is no frame."""
        d, none = self.source.features, np.zeros(0)
        nowhere = Ellipsoid(none, np.zeros((0, 0)))
        frame = Frame(d, np.zeros(0, np.int64), none, np.zeros((0, 0)), np.zeros((d, 0)), np.zeros(d), np.zeros(d), 0.0)
        return SoftEllipsoidState(
            round=0,
            status="running",
            frame=frame,
            ellipsoid=nowhere,
            square=0.0,
            best=nowhere,
            best_square=0.0,
            lower=0.0,
            upper=np.inf,
            reference=nowhere,
            threshold=0.0,
            named_ids=np.zeros(0, np.int64),
            named_weights=none,
            share_outside=1.0,
            widen=1,
            idle=0,
            band_rows=0,
            histogram=np.zeros(BINS, np.int64),
            high=1.0,
            residual=np.zeros(d),
        )

    def start(self) -> SoftEllipsoidState:
        """Solve the rows of a sample. Raises BadRow for rows whose squares overflow, and if all rows are equal."""
        source, chunks = self.source, self.sample_chunks
        check_scale(source)
        sample, sizes = self.enclosed.read(chunks)
        spans = [source.span(chunk) for chunk in chunks]
        state = replace(
            self.unsolved(),
            sample_rows=len(sizes),
            sample_bytes=bytes_read(source, sum(stop - start for start, stop in spans)),
        )
        return self._with_sample(state, sample, sizes, whole=len(chunks) == source.chunks)

    def _with_sample(self, state: SoftEllipsoidState, rows: Rows, weights: Array, *, whole: bool) -> SoftEllipsoidState:
        """The frame of some rows, and the soft ellipsoid around them; whole: they are all rows."""
        frame = frame_of(rows, self.source.dtype)
        if not frame.rank:
            if whole:
                raise BadRow(
                    f"{self.source.name}: expected rows that differ, found that {self.enclosed} are equal: no "
                    f"ellipsoid around them has a volume"
                )
            one = Ellipsoid(np.zeros(0), np.zeros((0, 0)))
            return replace(
                state, frame=frame, ellipsoid=one, best=one, reference=one, residual=np.zeros(frame.features)
            )
        boxes = weights / (self.nu * float(weights.sum()))
        again = True
        while True:  # once more in the frame of the solution, if rounding is less there
            z = _coordinates(frame, rows)
            try:
                found = solve_sample(z, boxes, SAMPLE_GAIN, self.solver_rows)
                one = ellipsoid_of(moments_of(z, boxes / boxes.sum() if found is None else found))
            except np.linalg.LinAlgError:
                raise BadRow(
                    f"{self.source.name}: rows span less than their columns to within float64, by dual weights of at "
                    f"most 1 / (nu n); leave out columns that are nearly functions of others"
                ) from None
            own = one.of_frame(frame)
            moved = replace(frame, origin=own.centre, whiten=own.factor)
            if not again or np.linalg.cond(one.factor) * (1.0 + np.linalg.norm(one.factor @ one.centre)) < NEAR_FRAME:
                break
            frame, again = moved, False
        levels = one.levels(z)
        square = best_square(np.square(levels), boxes)
        unit = Ellipsoid(np.zeros(frame.rank), np.eye(frame.rank))
        frame = moved
        return replace(
            state,
            frame=frame,
            ellipsoid=unit,
            square=square,
            best=unit,
            best_square=square,
            lower=0.0,
            upper=np.inf,
            reference=unit,
            threshold=square,
            named_ids=np.zeros(0, np.int64),
            named_weights=np.zeros(0),
            high=HIGH * min(float(levels.max()), FARTHEST * math.sqrt(square)) or 1.0,
            residual=np.zeros(frame.features - frame.rank),
        )

    # Scans

    def probe(self, state: SoftEllipsoidState) -> SurfaceProbe:
        """The surface of a state."""
        return SurfaceProbe(
            frame=state.frame,
            ellipsoid=state.ellipsoid,
            level=math.sqrt(state.square),
            box=self.box,
            keep=min(1.0, state.widen * self.band_rows / self.source.rows),
            code=self.enclosed.code,
            high=state.high,
            bins=BINS,
            dtype=self.source.dtype.name,
            sparse=self.source.sparse,
        )

    def update(self, state: SoftEllipsoidState, summary: SurfaceSummary) -> SoftEllipsoidState:
        """Bounds after a scan, and the ellipsoid of the next one."""
        state = replace(state, round=state.round + 1, band_rows=len(summary.boxes), histogram=summary.histogram)
        if summary.off_span or not state.frame.rank:
            whole = len(summary.boxes) == self.enclosed.count
            return self._with_sample(state, summary.sent.rows, summary.boxes, whole=whole or not summary.off_span)
        known = _gap(state)
        state = replace(state, residual=np.maximum(state.residual, summary.residual))
        z, boxes, rank = _coordinates(state.frame, summary.sent.rows), summary.boxes, state.frame.rank
        inner, outer = max(0.0, float(summary.inner[0])), float(summary.outer[0])
        state = self._with_value(state, state.ellipsoid, z, summary, inner, outer)
        levels, mass = state.ellipsoid.levels(z), float(summary.moments[-1, -1])
        start = weights_by_rank(np.square(levels), boxes, 1.0 - mass)
        gain = max(LEAST_GAIN, SHARE_OF_EPSILON * 2.0 * self.epsilon)
        try:
            weights = solve_near_surface(z, boxes, summary.moments, start, gain, self.solver_rows)
        except np.linalg.LinAlgError:  # of many rows at one level the band has only those of one side
            weights = None
        if weights is None:  # the band misses the level beyond which a share nu of the weight lies
            high = 2.0 * state.high if summary.masses[-1] >= 1.0 else state.high
            return self._idle(replace(state, square=square_of_mass(summary.masses, state.high), high=high), known)
        moments = summary.moments + moments_of(z, weights)
        found = ellipsoid_of(moments)
        state = self._with_dual(state, summary, levels, weights, moments, found)
        within = float(largest_levels(state.ellipsoid, found, np.array([inner]))[0])
        beyond = safe_level(found, state.ellipsoid, outer) if outer < np.inf else np.inf
        square = best_square(np.square(found.levels(z)), boxes, mass) if len(z) else state.square
        state = self._with_value(state, found, z, summary, within, beyond)
        if is_certified(state.lower, state.upper, self.epsilon, rank):
            return replace(state, status="certified")
        return self._idle(replace(state, ellipsoid=found, square=square), known)

    def _with_value(
        self, state: SoftEllipsoidState, one: Ellipsoid, z: Array, summary: SurfaceSummary, inner: float, outer: float
    ) -> SoftEllipsoidState:
        """With the value of an ellipsoid, if it is the least so far, at its best square that the band covers.

        z (n, r): the rows that were sent. Of others, those inside have levels of at most ``inner``, and those outside
        of at least ``outer``.
        """
        boxes, outside = summary.boxes, summary.moments
        error = self._error(one, state.frame)
        squares, mass = np.square(one.levels(z)), float(outside[-1, -1])
        best = best_square(squares, boxes, mass) if len(z) else float(state.square)
        square = min(max(best, inner * inner), outer * outer) * (1.0 + 4.0 * error)  # rows on the surface are inside
        if not (inner * inner <= square < np.inf and square <= outer * outer * (1.0 + 8.0 * error)):
            return state
        beyond, size = sum_of_squares(outside, one)
        value = square + beyond - square * mass + float(boxes @ np.maximum(squares - square, 0.0))
        value += 4.0 * error * (value + square * (1.0 + mass) + size + 1.0)
        upper = volume_radius(one, state.frame, math.sqrt(max(0.0, value)))
        if not upper < state.upper:
            return state
        share = min(1.0, self.nu * (mass + float(boxes[squares > square].sum())) * (1.0 + error))
        return replace(state, best=one, best_square=square, upper=upper, share_outside=share)

    def _with_dual(
        self,
        state: SoftEllipsoidState,
        summary: SurfaceSummary,
        levels: Array,
        weights: Array,
        moments: Array,
        found: Ellipsoid,
    ) -> SoftEllipsoidState:
        """With the bound of the band's solution, if it is the best so far.

        Rows that no scan sent must be so far from the surface that the verifier sees them on the same side.
        """
        surface = math.sqrt(state.square)
        clear = 8.0 * self._error(state.ellipsoid, state.frame) * (surface + 1.0)
        if not (summary.inner[0] < surface - clear and summary.outer[0] > surface + clear):
            return state
        lower = dual_bound(moments, found, state.frame, self._error(found, state.frame))
        if not lower > state.lower:
            return state
        by_side = np.where(levels > surface, summary.boxes, 0.0)
        named = np.flatnonzero((weights != by_side) | (np.abs(levels - surface) <= clear))
        named = named[np.argsort(summary.sent.ids[named], kind="stable")]
        return replace(
            state,
            lower=lower,
            reference=state.ellipsoid,
            threshold=state.square,
            named_ids=summary.sent.ids[named],
            named_weights=weights[named],
        )

    def _idle(self, state: SoftEllipsoidState, known: float) -> SoftEllipsoidState:
        """The state of the next scan: with a wider band if this one closed little of the gap."""
        idle = 0 if _gap(state) < (1.0 - IDLE_SHARE) * known else state.idle + 1
        state = replace(state, idle=idle)
        to_all = -(-self.source.rows // self.band_rows)
        widest = max(1, int(BAND_PART * self.memory_bytes / (8 * 4 * (self.source.features + 1)) / self.band_rows))
        if idle >= IDLE_SCANS or (idle > 1 and state.widen >= to_all):
            return replace(state, status="stalled")
        if idle >= IDLE_BEFORE_ALL and state.widen < to_all <= widest:
            return replace(state, widen=to_all, idle=0)
        return replace(state, widen=min(2 * state.widen, to_all, widest) if idle else state.widen)

    def _error(self, one: Ellipsoid, frame: Frame) -> float:
        """Error of levels, and of sums of squares, relative to their terms; more than the verifier allows for."""
        sums = 4.0 * (gamma(1024 + 256) + gamma(self.source.chunks + 16))
        return rounding_of_levels(one, frame) + sums

    # Results

    def round_of(self, state: SoftEllipsoidState) -> Round:
        """The report of a round."""
        return Round(
            status=state.status,
            lower=state.lower,
            lower_now=state.lower,
            upper=state.upper,
            working_set_rows=state.band_rows if state.round else state.sample_rows,
            coreset_rows=len(state.named_ids),
            new_rows=state.band_rows,
            number=state.round,
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> SoftEllipsoidState:
        """A state from a checkpoint."""
        makers: dict[str, Any] = dict.fromkeys(("ellipsoid", "best", "reference"), Ellipsoid.from_arrays)
        makers["frame"] = part_from_arrays(Frame)
        return SoftEllipsoidState(**state_from_arrays(SoftEllipsoidState, arrays, makers, STATUSES))

    # Warm start

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> SoftEllipsoidState:
        """See ``WarmStarts``: the best ellipsoid of the earlier commit; its bounds are not of the present rows."""
        check_scale(self.source)
        old = self.restore(arrays)
        if not np.isfinite(old.upper):
            raise CannotWarmStart("no ellipsoid was proven")
        return replace(
            self.unsolved(),
            frame=old.frame,
            ellipsoid=old.best,
            square=old.best_square,
            best=old.best,
            best_square=old.best_square,
            reference=old.best,
            threshold=old.best_square,
            residual=np.zeros(old.frame.features - old.frame.rank),
            high=old.high,
            sample_bytes=difference.nbytes,
        )


def _gap(state: SoftEllipsoidState) -> float:
    """Of the logarithms of both bounds; infinite without both."""
    return math.log(state.upper / state.lower) if state.lower > 0 and np.isfinite(state.upper) else np.inf


def _coordinates(frame: Frame, rows: Rows) -> Array:
    """Coordinates (n, r) of rows."""
    found = np.empty((rows.shape[0], frame.rank))
    for tile in tiles(rows):
        found[tile] = frame.coordinates(dense(rows[tile]))
    return found


def _numbers(features: int) -> int:
    """Of the products of two of the coordinates and 1."""
    return (features + 1) * (features + 2) // 2


def _step_bytes(features: int, rows: int) -> int:
    """About how many bytes a step of the solver takes."""
    return 16 * min(rows, _numbers(features)) * (rows + _numbers(features))
