"""The soft margin by the near-margin method, with the duality gap as its certificate.

A scan at a hypothesis divides the rows. Those far from the margin are summed up: on a short way they do not change
sides. Those near it are sent. The driver minimises the sum of both exactly, and the next scan proves the result or
shows what moved. Certified means that primal - dual <= epsilon primal, both over all rows.

Where there is room for the sums of several stages, the first scan is made in stages (first_read.py): each stage scans
its chunks at the hypothesis of those before it, and for most stores one read is enough. Stages that leave too much of
the gap open are read again, the loosest first; what they leave open is left to scans of all rows. Models that were
proven by such sums can be retrained by a warm start (warm_start.py).

Where all rows fit and are better kept as rows, they are read before the first scan, which is then the proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.resident import at_hand
from coremargin.engine.protocols import Block
from coremargin.errors import UsageError
from coremargin.formats.limits import CURVE_FEATURES
from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import as_float64, dense, products
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sample import Sample, read_sample, sample_chunks
from coremargin.problems.common.sent import AllRows, AllRowsProbe
from coremargin.problems.common.sizes import row_bytes
from coremargin.problems.common.stages import Stages, plan_stages, stage_growth
from coremargin.problems.common.warm_start import RowFetcher
from coremargin.problems.common.zone import NearRows, Progress, Zone, has_moved, smallest_positions
from coremargin.problems.soft.first_read import CROSSING, FirstRead
from coremargin.problems.soft.probe import Counted, NearMarginProbe, StageProbe, decisions, distances
from coremargin.problems.soft.problem import KNOWN, NEAR_PART, NEAR_SHARE, SoftProblem
from coremargin.problems.soft.rows_with_c import RowsWithC, evenly, evenly_by_class
from coremargin.problems.soft.state import Bounds, FarRows, LastScan, Reading, RowCache, SoftState
from coremargin.problems.soft.summary import BINS, NearMarginSummary, StageSummary, histogram_range
from coremargin.problems.soft.warm_start import SAMPLE_ROWS, Room, lightened, stage_probe_at, warm_start
from coremargin.spec import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.problems.common.result import Result

Array = NDArray[np.float64]
Question: TypeAlias = AllRowsProbe | StageProbe | NearMarginProbe
Answer: TypeAlias = AllRows | StageSummary | NearMarginSummary

# Scans of all rows
#: Bytes of float64 that the rows sent from one scan have at least.
NEAR_BYTES_LEAST = 1 << 20
#: Rows of the sample that stand for the far ones in steps by sums.
SURROGATES = 20_000
#: With a longer row than this, a job by sums does not change to all rows: sums are less sensitive to scaling.
FAR = 1e6
#: Gaps of solutions over cached rows, relative to the requested gap: before the first scan, and after it.
FIRST_SHARE, LATER_SHARE = 0.25, 0.002

# Stages
#: Shares of the memory for the matrices of all stages, and for the near rows.
STAGES_PART, NEAR_ROWS_PART = 0.25, 0.5
#: Most stages; with no room for one more, the smallest ones are read with it.
STAGES = 48
#: Number of stages that grow slowly if the loss curves: its dual bound needs hypotheses close to the last one.
SLOWLY = 4
#: The hypothesis of the first stage is compared with that of one of so many of its rows.
FEWER = 4
#: Stages are read again until so many times as many scans were made as there are stages.
READ_AGAIN = 2
#: Values of near rows, of all problems that share a read, per row of the store, up to which saving a read is worth more
#: than solving them costs (jobs/bench/README.md). Problems that differ in C and folds only have nearly the same near
#: rows, and each starts from the solution before.
PAYS, PAYS_ALIKE = 8, 64
#: Rows of a sample per number of a hypothesis, times epsilon, and room for near rows as a share of all rows, with which
#: one scan after the sample proved hinges on noisy rows.
ENOUGH, ROOM = 1.5, 0.1

# Warm start
#: The sums of a warm start take at most this share of the bytes of all rows.
MOST_OF_ROWS = 0.6
#: Sums are made from scratch if there are so many times as many near rows as needed, and all rows are in memory.
MANY_NEAR_ROWS = 1.5
#: When others read its chunks, a certified problem scans them again if they leave this share of its gap open.
JOINS = 0.1


@dataclass(frozen=True)
class SoftMargin(SoftProblem):
    """``SoftProblem`` by the near-margin method.

    in_stages: a job from scratch makes its first read in stages; otherwise only retraining has stages. first_chunks: of
    the first stage, if several problems are read together.
    """

    in_stages: bool = False
    first_chunks: tuple[int, ...] | None = None

    def check(self) -> None:
        """See ``Problem``; also raises UsageError if only block minimisation fits into the memory."""
        super().check()
        if self.in_segments:
            raise UsageError(
                f"memory: expected room for all rows, or for sums of d x d numbers, found "
                f"{format_size(self.memory_bytes)}; give more memory, or use coremargin.train, which partitions rows"
            )

    # what fits, and what pays

    @property
    def _curved(self) -> bool:
        """Whether scans sum up a d x d matrix."""
        return self.loss.curves and not self.all_cached

    @property
    def _near_rows(self) -> NearRows:
        """Rows that a scan sends: as many as memory allows if models keep sparse rows, or all rows are cached."""
        # Sparse rows are small, and models keep them sparse, except for models of sums of a loss that does not curve.
        many = self.all_cached or (self.source.sparse and self.loss.curves)
        size = self.row_bytes if many else 8 * (self.source.features + 1)
        most = self.memory_bytes * NEAR_PART[many] if self.near_bytes is None else self.near_bytes
        share = np.inf if many else NEAR_SHARE
        return NearRows(self.source, size, share=share, least=NEAR_BYTES_LEAST, most=most)

    @property
    def _solvable(self) -> int:
        """Rows of a sample that d x d sums solve in seconds."""
        p = self.source.features + 1
        return max(1000, 5 * p, int(self.loss.solve_cost / p**2))

    @property
    def _first_read_class(self) -> type[FirstRead]:
        return self.loss.first_read

    @property
    def edges(self) -> int:
        """Number of edges of the rings of a stage."""
        return CROSSING + 1 + len(self._first_read_class.BEYOND)

    @property
    def _rings(self) -> int:
        return self.loss.ring_count(self.edges, CROSSING)

    @property
    def _matrices(self) -> int:
        """Bytes of the matrices of a stage, of all problems that share the memory."""
        return 8 * (self.source.features + 1) ** 2 * self._rings * self.sharing

    @property
    def _verifiable(self) -> bool:
        """Whether the verifier can check a dual point that stages prove."""
        return self.loss.names_duals or self.source.features <= CURVE_FEATURES

    @cached_property
    def fits_stages(self) -> bool:
        """Whether the first read can be made in stages: by sums, with several stages, and room for their matrices."""
        by_sums = not self.all_cached and not self.in_segments
        most = STAGES_PART * self.memory_bytes / self._matrices
        return by_sums and self._verifiable and 1 < self.stages.count <= most

    @property
    def keeps_sums(self) -> bool:
        """Whether a model may keep sums of far rows: there is room for them, and they are smaller than the rows."""
        return self._verifiable and self._few_stages > 0 and 2 * self._matrices <= STAGES_PART * self.memory_bytes

    def pays_together(self, *, alike: bool) -> bool:
        """Whether problems that share a read gain by stages: each solves its own near rows, the read is shared.

        alike: they differ in C and folds only.
        """
        most = PAYS_ALIKE if alike and self.loss.names_duals else PAYS
        near_rows = self.sharing * self._first_read.near_rows
        return self.sharing == 1 or near_rows * self.source.features <= most * self.source.rows

    @property
    def sample_is_enough(self) -> bool:
        """Whether one scan is likely to prove what a sample gives, so that stages would save no read of all rows."""
        shown = self.source.scalars().counts[np.ix_(self.sample_chunks, self.codes)].sum()
        needed = ENOUGH * (self.source.features + 1) / self.epsilon
        room = self.memory_bytes * NEAR_ROWS_PART / row_bytes(self.source)
        return bool(self.loss.names_duals and min(shown, self._solvable) >= needed and room >= ROOM * self.source.rows)

    @property
    def least_block_bytes(self) -> int:
        """See ``Problem``: summaries may hold matrices, of which no more may exist than fit into the memory."""
        source = self.source
        if self.in_stages or self.keeps_sums:
            return source.nbytes * self._matrices // self.memory_bytes + source.nbytes // source.chunks + 1
        if not self._curved:
            return 1
        matrix = 8 * (source.features + 1) ** 2
        return source.nbytes * matrix * self.sharing // self.memory_bytes + source.nbytes // source.chunks + 1

    @property
    def most_near_rows(self) -> int:
        """Near rows of all stages that there is room for."""
        return int(self.memory_bytes * NEAR_ROWS_PART / (row_bytes(self.source) + KNOWN))

    @property
    def _most_stages(self) -> int:
        """Stages whose matrices there is room for in a warm start."""
        return max(2, min(STAGES, int(STAGES_PART * self.memory_bytes / self._matrices)))

    @property
    def _few_stages(self) -> int:
        """Stages whose matrices are small compared with the rows; with more, new rows form no stage of their own."""
        return int(MOST_OF_ROWS * self.source.nbytes / self._matrices)

    # start

    @cached_property
    def stages(self) -> Stages:
        """The chunks of each stage of the first read."""
        growth = stage_growth(self.source.rows, self.source.features)
        return plan_stages(self.source.chunks, self.sample_chunks, growth, slowly=SLOWLY if self.loss.curves else 0)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """See ``Problem``."""
        return self.stages.sizes if self.in_stages else ()

    @property
    def reads_again(self) -> bool:
        """See ``Problem``: stages may be read again."""
        return True

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks of the sample, or of the first stage."""
        if self.first_chunks is not None:
            return list(self.first_chunks)
        limit = max(self.sample_bytes, self.source.nbytes) if self.all_cached else self.sample_bytes
        return sample_chunks(self.source, self.codes, self.sample_share, limit)

    def unsolved(self) -> SoftState:
        """See ``Problem``."""
        return self.start() if self.in_stages else super().unsolved()

    def start(self) -> SoftState:
        """See ``Problem``: a sample is read and solved, or the first stage sends its rows."""
        if not self.in_stages:
            return self.begin(read_sample(self.source, self.sample_chunks, self.codes, stay=self.all_cached))
        source, p, stages = self.source, self.source.features + 1, self.stages
        check_scale(source, self.class_c, self.totals)
        none = RowsWithC.nothing(source.features, source.dtype, sparse=source.sparse)
        far = FarRows.empty(stages.count, source.features, self.edges, self._rings, BINS)
        reread = np.zeros(stages.count, bool)
        reading = Reading(far, none, 0, stages.stage_of_chunk, reread, np.zeros(p), 0.0, 0.0, self.terms)
        return replace(super().unsolved(), stages=stages.count, reading=reading)

    def begin(self, found: Sample, start: Array | None = None, shares: Array | None = None) -> SoftState:
        """The state before the first scan, from some rows of both classes, with their C scaled up to all rows.

        start (d + 1,): a solution to start from, such as that for another C; shares (m,): its duals of these rows / C.
        """
        source, totals = self.source, self.totals
        check_scale(source, self.class_c, totals)
        few = None if self.all_cached else evenly_by_class(found.signs, self._solvable)
        sample = RowsWithC.of_sample(found, few, self.class_c)
        positive, counts = sample.signs > 0, source.scalars().counts.sum(axis=0)[list(self.codes)]
        shown = np.array([sample.row_c[positive].sum(), sample.row_c[~positive].sum()])
        zero, none = np.zeros(source.features + 1), np.zeros(0, np.intp)
        newest, duals = zero if start is None else start, np.zeros(len(sample))
        if shown.all():
            # The sample's sums of c become those of all rows.
            share = np.ones(2) if self.all_cached else self.class_c * totals / shown
            scaled = replace(sample, row_c=sample.row_c * np.where(positive, share[0], share[1]))
            if self.all_cached:
                known = None if shares is None else shares * self.cost
                newest, duals = self.objective.minimise(scaled, newest, known, FIRST_SHARE)
            else:
                newest = self.loss.minimise_sample(self.objective, scaled, newest)
        margins = sample.signs * (products(sample.rows, newest[:-1, None])[0] + newest[-1])
        low, high = histogram_range(margins)
        return SoftState(
            round=0,
            status="running",
            newest=newest,
            best=None,
            bounds=Bounds.unknown(zero),
            rows=RowCache(
                sample=sample.take(evenly(len(sample), 0 if self.all_cached else SURROGATES)),
                cached=sample if self.all_cached else sample.take(none),
                cached_duals=duals if self.all_cached else duals[none],
            ),
            zone=Zone(widen=1, idle=0),
            last_scan=LastScan.none(low, high),
            total_rows=int(counts.sum()),
            sample_bytes=found.nbytes(source),
        )

    # what the next scan computes

    def probe(self, state: SoftState) -> Question:
        """See ``Problem``: the probe of a stage, or of a scan of all rows."""
        reading = state.reading
        if reading is None:
            keep = self._near_rows.of_chunk(state.zone.widen)
            return self.near_probe(state, keep=keep, cached=state.rows.cached.ids, curve=self._curved)
        if reading.stage == 0:
            return AllRowsProbe(self.codes, self.source.features, self.source.dtype.name, self.source.sparse)
        return self._stage_probe(state, reading)

    def _stage_probe(self, state: SoftState, reading: Reading) -> StageProbe:
        """The probe of the next stage, or of the stages to be read again."""
        first_read, chunks = self._first_read, reading.next_chunks
        keep, together = first_read.rows_to_send(reading, len(chunks), first=state.stages > 0)
        plain = self.near_probe(replace(state, best=None), keep=keep, cached=reading.near.ids)
        edges, zone = first_read.ring_edges(reading, chunks), first_read.zone_width(reading, chunks)
        return StageProbe(plain, edges, CROSSING, zone, chunks, together)

    def skip(self, state: SoftState) -> NDArray[np.bool_]:
        """See ``Problem``: the chunks of other stages."""
        skipped = np.zeros(self.source.chunks, bool)
        if state.reading is not None:
            skipped[:] = True
            skipped[state.reading.next_chunks] = False
        return skipped

    def ahead(self, state: SoftState) -> NDArray[np.intp]:
        """See ``Problem``: the stage after the next one."""
        reading = state.reading
        return super().ahead(state) if reading is None or reading.complete else self.stages.chunks(reading.stage + 1)

    # what follows from the summary

    def update(self, state: SoftState, summary: Answer) -> SoftState:
        """See ``Problem``: bounds and the next hypothesis after a stage or a scan."""
        if isinstance(summary, AllRows):
            chunks = cast("Reading", state.reading).next_chunks.tolist()
            return self._after_first_stage(state, summary.sample(self.source, chunks))
        if isinstance(summary, StageSummary):
            return self._after_stage(state, cast("Reading", state.reading), summary)
        return self._after_scan(state, summary)

    def _after_scan(self, state: SoftState, summary: NearMarginSummary) -> SoftState:
        before, value = soft.relative_gap(state.upper, state.lower), state.upper
        last_scan = replace(
            state.last_scan,
            histogram=summary.histogram,
            rows_below=int(summary.below[0]),
            near_rows=len(summary.row_id),
        )
        state = replace(state, round=state.round + 1, last_scan=last_scan)
        crossed = _share_crossed(state, summary)
        rose = summary.losses[0] + soft.penalty(state.newest, self.objective.metric) > state.upper
        state = self.with_best_point(self.points(state), state, summary)
        if len(state.rows.cached):
            step, state = self._next_step_on_all_rows(state, summary)
        else:
            step, state = self.loss.next_step(self.objective, state, summary)
        gap = soft.relative_gap(state.upper, state.lower)
        if is_certified(state.lower, state.upper, self.epsilon):
            return replace(state, status="certified")
        same = np.array_equal(step, state.newest)
        progress = Progress((before, gap), (value, state.upper), rose=bool(rose), same=same)
        stuck = state.zone.stuck(progress, self.epsilon, self._near_rows)
        if self._may_change_to_all_rows(state, stuck):
            return self._on_all_rows(state)
        if stuck:
            return replace(state, status="stalled")
        # A small zone led too far if many near rows crossed the margin: the next scan is about the best point.
        capped = state.last_scan.near_rows < state.total_rows and self._near_rows.capped(state.zone.widen)
        exact = self._curved or len(state.rows.cached) > 0
        if not exact and capped and has_moved(state.newest, state.best) and crossed > self.loss.most_crossed:
            step = np.array(state.best)
        return replace(state, newest=step, zone=state.zone.after(progress, self.epsilon))

    def _next_step_on_all_rows(self, state: SoftState, summary: NearMarginSummary) -> tuple[Array, SoftState]:
        """The bound that a scan proves, and the minimiser over all rows, solved more sharply."""
        state = self.loss.cached_bound(self.objective, state, summary)
        if is_certified(state.lower, state.upper, self.epsilon):
            return state.newest, state
        rows = state.rows
        step, duals = self.objective.minimise(rows.cached, state.newest, rows.cached_duals, LATER_SHARE)
        state = replace(state, rows=replace(rows, cached_duals=duals))
        return step, self.loss.cached_bound(self.objective, state, summary) if self.loss.names_duals else state

    def _may_change_to_all_rows(self, state: SoftState, stuck: bool) -> bool:
        """Whether a job by sums that names duals may switch to all rows, where it is sure to end.

        If very many rows are equal, the zone is full of a few of them, perhaps of one class: no dual point of it is
        balanced, or no wider zone is possible (stuck).
        """
        if (not stuck and (state.round < 2 or state.lower > 0)) or self.objective.magnitudes.longest > FAR:
            return False
        by_sums = self.loss.names_duals and not len(state.rows.cached)
        return by_sums and self.sharing == 1 and self.fits

    def _on_all_rows(self, state: SoftState) -> SoftState:
        """The same job with all rows in memory from now on, which are read here, and the minimiser over them."""
        source = self.source
        found = read_sample(source, list(range(source.chunks)), self.codes, stay=True)
        cached = RowsWithC.of_sample(found, None, self.class_c)
        start = state.newest if state.best is None else state.best
        newest, duals = self.objective.minimise(cached, start, None, FIRST_SHARE)
        read = state.sample_bytes + found.nbytes(source)
        rows, zone = replace(state.rows, cached=cached, cached_duals=duals), replace(state.zone, idle=0)
        return replace(state, newest=newest, rows=rows, zone=zone, sample_bytes=read)

    # stages

    @cached_property
    def _first_read(self) -> FirstRead:
        size = 8 * (self.source.features + 1)
        return self._first_read_class(
            self.objective,
            self.class_c * self.totals,
            self.stages,
            least=NEAR_BYTES_LEAST // size,
            room=self.most_near_rows,
            live=min(self._solvable, int(self.memory_bytes * NEAR_PART[False] / size)),
            sharing=self.sharing,
        )

    def begin_stages(self, sample: Sample, start: Array | None = None) -> SoftState:
        """The state after the first stage, whose rows were read elsewhere; start: as in ``begin``."""
        return self._after_first_stage(self.start(), sample, start)

    def _after_first_stage(self, state: SoftState, sample: Sample, start: Array | None = None) -> SoftState:
        """Solve on all rows of the first stage, and compute in memory what workers compute for later stages."""
        reading, first_read = cast("Reading", state.reading), self._first_read
        chunks = reading.next_chunks
        before = self.begin(sample.thin(FEWER), start).newest
        begun = self.begin(sample, before)
        state = replace(state, round=1, newest=begun.newest, last_scan=begun.last_scan, rows=begun.rows)
        seen = first_read.share_read(0)
        reading = replace(reading, seen=seen / FEWER)
        reading = first_read.with_forecast(reading, before, state.newest, seen, begun.rows.sample)
        probe = self._stage_probe(state, reading)
        every = RowsWithC.of_sample(sample, None, self.class_c)
        return self._recorded(state, reading, probe, probe.in_memory(self.source, chunks.tolist(), every))

    def _after_stage(self, state: SoftState, reading: Reading, found: StageSummary) -> SoftState:
        """The hypothesis of the next stage; after the last one, what is proven, and whether that is enough."""
        first_read, before = self._first_read, state.newest
        probe = self._stage_probe(state, reading)
        state = self._recorded(replace(state, round=state.round + 1), reading, probe, found)
        reading = cast("Reading", state.reading)
        last = reading.complete
        solved = reading if state.stages else first_read.for_one_update(reading)
        newest, duals = first_read.minimise(solved, before, state.rows.sample, last=last)
        seen = 1.0 if last else first_read.share_read(reading.stage - 1)
        ahead = first_read.with_forecast(reading, before, newest, seen, state.rows.sample)
        if not last:
            return replace(state, newest=newest, reading=ahead)
        if not state.stages:  # after a warm start: expect moves like this one
            ahead = first_read.with_observed_move(reading, before, newest, state.rows.sample)
            reading = replace(reading, move=ahead.move, spread=ahead.spread)
            state = replace(state, reading=reading)
        state = first_read.with_bounds(replace(state, newest=newest), reading, duals)
        state = self._with_near_rows_counted(state, reading, probe)
        if is_certified(state.lower, state.upper, self.epsilon):
            return replace(state, status="certified")
        again = state.round < READ_AGAIN * reading.count
        state = replace(state, reading=first_read.marked_to_reread(state, ahead) if again else None)
        return self._on_all_rows(state) if state.reading is None and self.all_cached else state

    def _recorded(self, state: SoftState, reading: Reading, probe: StageProbe, found: StageSummary) -> SoftState:
        """The state with the summary of the chunks of a probe, which are those of one stage from now on."""
        reading = self._first_read.recorded(reading, probe.chunks, state.newest, probe.edges, found)
        histogram, below = reading.far.histogram.sum(axis=0), int(reading.far.below.sum())
        last_scan = replace(state.last_scan, near_rows=len(found.row_id), histogram=histogram, rows_below=below)
        return replace(state, reading=reading, last_scan=last_scan)

    def _with_near_rows_counted(self, state: SoftState, reading: Reading, probe: StageProbe) -> SoftState:
        """The state with near rows in the histogram, at the newest hypothesis; stages have counted their far rows."""
        near, last_scan = reading.near, state.last_scan
        margins, positive = near.margins(state.newest), near.signs > 0
        histogram = np.stack([probe.plain.bin(margins[positive]), probe.plain.bin(margins[~positive])])
        below = cast("int", last_scan.rows_below) + int(np.count_nonzero(margins < 1.0))
        counted = replace(last_scan, histogram=last_scan.histogram + histogram, rows_below=below)
        return replace(state, last_scan=counted)

    def result(self, state: SoftState) -> Result:
        """The result of a state; one that was certified and scans chunks again is still certified."""
        if state.status == "running" and is_certified(state.lower, state.upper, self.epsilon):
            state = replace(state, status="certified")
        return super().result(state)

    # retraining

    def warm_start(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> SoftState:
        """See ``WarmStarts``. Raises CannotWarmStart.

        There must be sums of far rows by stages, scaling must be the same, and there must be room for all of it.
        """
        before = self.restore(arrays) if arrays else None
        return self.warm_start_from(before, difference, RowFetcher(self.source, self.most_near_rows))

    def warm_start_from(self, before: SoftState | None, difference: Difference, fetched: RowFetcher) -> SoftState:
        """``warm_start`` from a state; fetched: reads rows by their ids."""
        room = Room(self.edges, self.most_near_rows, self._most_stages, self._few_stages)
        return warm_start(self, room, before, difference, fetched)

    def warm_start_state(self, state: SoftState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """See ``WarmStarts``: everything except the proof, which the model has, and most of the sample.

        Near rows in excess of the allowance are added to the sums of their stages, the farthest from the margin first.
        """
        pays = self._matrices // self.sharing <= allowance.bytes and allowance.pays(self.work_of_sums)
        if pays and at_hand(self.source) and (asking := self.asking_all(state)) is not None:
            chunks = tuple(range(self.source.chunks))
            state = self.summed(asking, cast("StageSummary", self.probe(asking)(self.source, Block(0, chunks))))
        reading = state.reading
        if reading is None or reading.far.rings.nbytes > allowance.bytes:
            return {}
        light = lightened(state, self.source.dtype)
        return allowance.within(
            lambda rows: replace(light, reading=self._with_fewer_near_rows(state, reading, rows)).to_arrays(),
            len(reading.near),
        )

    @property
    def work_of_sums(self) -> float:
        """Upper bound on the multiply-adds of the sums of all rows."""
        return float(self.source.rows) * (self.source.features + 1) ** 2

    def _with_fewer_near_rows(self, state: SoftState, reading: Reading, most: int) -> Reading:
        """The reading with so many near rows: those nearest to the margin now and at the hypothesis of their stage."""
        near, far = reading.near, reading.far
        if len(near) <= most:
            return reading
        stage_of = reading.stage_of[near.ids // self.source.chunk_rows]
        away = np.abs(near.margins(state.newest) - 1.0)
        for stage in np.unique(stage_of):
            mine = np.flatnonzero(stage_of == stage)
            away[mine] = np.minimum(away[mine], np.abs(near.take(mine).margins(far.hypotheses[stage]) - 1.0))
        stay = np.zeros(len(near), bool)
        stay[smallest_positions(away, most)] = True
        plain = self.near_probe(replace(state, best=None), keep=0, cached=near.ids[:0])
        for stage in np.unique(stage_of[~stay]):
            some = near.take(np.flatnonzero(~stay & (stage_of == stage)))
            probe = stage_probe_at(plain, far, int(stage), zone=0.0)
            longest = float(self.source.scalars().max_norm[some.ids // self.source.chunk_rows].max())
            counted = Counted(some.ids, some.signs, some.row_c, np.zeros(len(some), bool), 0)
            margins = decisions(some.rows, probe.base) * some.signs
            far = far.add(int(stage), probe.answer(some.rows, counted, margins, np.zeros(0, np.intp), longest))
        return replace(reading, far=far, near=near.take(np.flatnonzero(stay)))

    def extend_for_warm_start(self, state: SoftState) -> SoftState | None:
        """See ``WarmStarts``: all rows, if there are no sums yet and the rows are not in memory."""
        return None if state.reading is not None or at_hand(self.source) else self.asking_all(state)

    def asking_all(self, state: SoftState) -> SoftState | None:
        """A last state that was proven by scans of all rows, to scan all chunks once more as one stage.

        The scan is at its best hypothesis. The same is done for a state with far more near rows than it needs. None
        otherwise, or if there is no room for the sums.
        """
        most = MANY_NEAR_ROWS * min(self._first_read.near_rows, self.source.rows // 2)
        enough = state.reading is not None and len(state.reading.near) <= most
        if enough or state.status != "certified" or state.best is None or not self.keeps_sums:
            return None
        source, some = self.source, state.rows.cached if len(state.rows.cached) else state.rows.sample
        some = some.take(evenly(len(some), SAMPLE_ROWS))
        some = replace(some, rows=as_float64(some.rows if source.sparse else dense(some.rows)))
        far = FarRows.empty(1, source.features, self.edges, self._rings, BINS)
        none = RowsWithC.nothing(source.features, source.dtype, sparse=source.sparse)
        stage_of, move = np.zeros(source.chunks, int), np.zeros(len(state.best))
        reading = Reading(far, none, 1, stage_of, np.ones(1, bool), move, 0.0, 0.0, self.terms)
        return replace(
            state,
            status="running",
            newest=state.best,
            rows=RowCache(some, some.take(evenly(0, 0)), np.zeros(0)),
            reading=self._first_read.with_unknown_move(reading, state.best, some),
        )

    def summed(self, state: SoftState, found: StageSummary) -> SoftState:
        """The state after the scan of ``asking_all``."""
        reading = cast("Reading", state.reading)
        known = cast("Reading", self._recorded(state, reading, self._stage_probe(state, reading), found).reading)
        return replace(state, status="certified", reading=replace(known, seen=1.0))

    def joining(self, state: SoftState, chunks: NDArray[np.intp]) -> SoftState | None:
        """A certified state of a warm start, to scan stages of these chunks again, which others read anyway.

        None if these stages leave little of its gap open.
        """
        reading = state.reading
        if reading is None or state.stages or state.status != "certified":
            return None
        mine = np.bincount(reading.stage_of[chunks], minlength=reading.count)
        reread = (mine > 0) & (mine == np.bincount(reading.stage_of, minlength=reading.count))
        left = float(self._first_read.open_gap(reading, state.newest)[reread].sum())
        if left <= JOINS * self.epsilon * state.lower:
            return None
        return replace(state, status="running", reading=replace(reading, reread=reread))


def _share_crossed(state: SoftState, summary: NearMarginSummary) -> float:
    """Share of the near rows whose margins at the best and the newest hypothesis are on different sides of 1."""
    if state.best is None or not len(summary.row_id):
        return 0.0
    base = np.column_stack([state.newest, state.best])
    return float((distances(decisions(summary.row_x, base) * summary.row_sign) < 0).mean())
