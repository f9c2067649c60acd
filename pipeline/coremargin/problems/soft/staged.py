"""The soft margin, its first read in stages: of most stores one read proves it (``first_read.py``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.formats.limits import CURVE_FEATURES
from coremargin.maths.margin import is_certified
from coremargin.problems.common.fetched import Fetched
from coremargin.problems.common.sent import BringRows, Brought
from coremargin.problems.common.stages import Stages, growth_of, stages_of
from coremargin.problems.common.start import check_scale, row_bytes
from coremargin.problems.soft.base import KNOWN, NEAR_PART
from coremargin.problems.soft.far_rows import FarRows
from coremargin.problems.soft.first_read import CROSSING, FirstRead
from coremargin.problems.soft.hinge_read import HingeRead
from coremargin.problems.soft.onward import STAGES, Room, lightened, onward
from coremargin.problems.soft.problem import NEAR_BYTES_LEAST, SoftMargin
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.squared_read import SquaredRead
from coremargin.problems.soft.stage_probe import StageProbe, rings_of
from coremargin.problems.soft.stage_summary import StageSummary
from coremargin.problems.soft.start import BINS
from coremargin.problems.soft.state import Reading, SoftState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.difference import Difference
    from coremargin.problems.common.start import Sample
    from coremargin.problems.soft.probe import NearMarginProbe
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]
Question: TypeAlias = "BringRows | StageProbe | NearMarginProbe"
Answer: TypeAlias = "Brought | StageSummary | NearMarginSummary"

#: Shares of the memory for the matrices of all stages, and for rows at home.
STAGES_PART, HOME_PART = 0.25, 0.5
#: The first stage's hypothesis is compared with that of one of so many of its rows.
FEWER = 4
#: The squared hinge's dual takes hypotheses that are near the last one: so many of its stages grow slowly.
SLOWLY = 4
#: Values of rows at home, of all problems that share a read, for each row of the store, up to which one read less saves
#: more than solving them costs: jobs/bench/README.md has what was measured. Hinges that differ in C and folds have
#: nearly the same rows at home, and each begins with the solution before.
PAYS, PAYS_ALIKE = 8, 64
#: Rows of a sample for each number of a hypothesis, times epsilon, and room for rows near the margin, as a share of
#: all, with which the scan behind the sample proved hinges on noisy rows.
ENOUGH, ROOM = 1.5, 0.1
#: Stages are read again until so many times as many questions were asked as there are stages.
READ_AGAIN = 2


@dataclass(frozen=True)
class StagedSoftMargin(SoftMargin):
    """``SoftMargin`` that asks each stage of the first read with the hypothesis of those before it.

    What this leaves open is read again, the loosest stages first; what they leave open, by scans of all rows.
    """

    #: Of the first stage, where several problems are read together.
    first_chunks: tuple[int, ...] | None = None

    @cached_property
    def fits_stages(self) -> bool:
        """Whether that can be done: by sums, where there are stages, and room for their matrices."""
        by_sums = not self.all_cached and not self.in_segments
        checked = self.loss.names_duals or self.source.features <= CURVE_FEATURES
        return by_sums and checked and 1 < self.stages.count <= STAGES_PART * self.memory_bytes / self._matrices

    def pays_together(self, *, alike: bool) -> bool:
        """Whether problems that share a read gain by stages: each has its rows at home to solve, the read is shared.

        alike: they differ in C and folds only.
        """
        most = PAYS_ALIKE if alike and self.loss.names_duals else PAYS
        at_home = self.sharing * self._first_read.at_home
        return self.sharing == 1 or at_home * self.source.features <= most * self.source.rows

    @property
    def sample_is_enough(self) -> bool:
        """Whether one scan is likely to prove what a sample says, so that stages would save no read of all rows."""
        shown = self.source.scalars().counts[np.ix_(self.sample_chunks, self.codes)].sum()
        wanted = ENOUGH * (self.source.features + 1) / self.epsilon
        room = self.memory_bytes * HOME_PART / row_bytes(self.source)
        return bool(self.loss.names_duals and min(shown, self._solvable) >= wanted and room >= ROOM * self.source.rows)

    @property
    def _matrices(self) -> int:
        """Bytes of the matrices of a stage, those of all problems that share the memory."""
        return 8 * (self.source.features + 1) ** 2 * self._rings * self.sharing

    @property
    def _reads(self) -> type[FirstRead]:
        return HingeRead if self.loss.names_duals else SquaredRead

    @property
    def _rings(self) -> int:
        return rings_of(self.edges, CROSSING, curves=self.loss.curves)

    @property
    def edges(self) -> int:
        """Of the rings of a stage."""
        return CROSSING + 1 + len(self._reads.BEYOND)

    @property
    def sample_chunks(self) -> list[int]:
        """Those of the first stage."""
        return super().sample_chunks if self.first_chunks is None else list(self.first_chunks)

    @cached_property
    def stages(self) -> Stages:
        """Which chunks the stages of the first read are about."""
        growth = growth_of(self.source.rows, self.source.features)
        return stages_of(self.source.chunks, self.sample_chunks, growth, slowly=SLOWLY if self.loss.curves else 0)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """Of the first read."""
        return self.stages.sizes

    @property
    def reads_again(self) -> bool:
        """Where stages leave too much open."""
        return True

    @property
    def least_block_bytes(self) -> int:
        """A stage's summaries hold a matrix for each ring: no more of them than fit into the memory."""
        source = self.source
        return source.nbytes * self._matrices // self.memory_bytes + source.nbytes // source.chunks + 1

    @property
    def most_at_home(self) -> int:
        """Rows at home that there is room for."""
        return int(self.memory_bytes * HOME_PART / (row_bytes(self.source) + KNOWN))

    @property
    def _most_stages(self) -> int:
        """Stages whose matrices there is room for, where the store has changed since they were read."""
        return max(2, min(STAGES, int(STAGES_PART * self.memory_bytes / self._matrices)))

    @cached_property
    def _first_read(self) -> FirstRead:
        size, total_c = 8 * (self.source.features + 1), self.class_c * self.totals
        least, room = NEAR_BYTES_LEAST // size, self.most_at_home
        live = min(self._solvable, int(self.memory_bytes * NEAR_PART[False] / size))
        return self._reads(self.objective, total_c, self.stages, least, room, live, self.sharing)

    # questions

    def start(self) -> SoftState:
        """Nothing is known: stages bring the rows to begin with."""
        source, p, stages = self.source, self.source.features + 1, self.stages
        check_scale(source, self.class_c, self.totals)
        nothing = RowsWithC.nothing(source.features, source.dtype, sparse=source.sparse)
        far = FarRows.nothing(stages.count, source.features, self.edges, self._rings, BINS)
        again = np.zeros(stages.count, bool)
        reading = Reading(far, nothing, 0, stages.of, again, np.zeros(p), 0.0, 0.0, self.terms)
        return replace(super().unsolved(), stages=stages.count, reading=reading)

    def unsolved(self) -> SoftState:
        """That of the start."""
        return self.start()

    def onward(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> SoftState:
        """A state to go on from, where the store has changed since a state of these arrays was the last one.

        Raises NothingToGoOnFrom: that state does not know far rows by stages, or rows are scaled otherwise, or there is
        no room for what it knows.
        """
        return self.gone_on(
            self.restore(arrays) if arrays else None, difference, Fetched(self.source, self.most_at_home)
        )

    def gone_on(self, before: SoftState | None, difference: Difference, fetched: Fetched) -> SoftState:
        """The same, from a state; fetched: what reads rows."""
        return onward(self, Room(self.edges, self.most_at_home, self._most_stages), before, difference, fetched)

    def kept(self, state: SoftState) -> Mapping[str, NDArray[Any]]:
        """What ``onward`` takes: all but the proof, which is the model's, and a few of the sample's rows."""
        return lightened(state, self.source.dtype).to_arrays() if state.reading is not None else {}

    def probe(self, state: SoftState) -> Question:  # type: ignore[override]
        """The question of the next stage, or of the next scan."""
        if state.reading is None:
            return super().probe(state)
        if state.reading.stage == 0:
            return BringRows(self.codes, self.source.features, self.source.dtype.name, self.source.sparse)
        return self._stage_probe(state, state.reading, state.reading.asked)

    def _stage_probe(self, state: SoftState, reading: Reading, chunks: NDArray[np.intp]) -> StageProbe:
        """What these chunks are asked."""
        read = self._first_read
        keep, together = read.keep(reading, len(chunks))
        plain = self.near_probe(replace(state, best=None), keep=keep, cached=reading.home.ids)
        return StageProbe(plain, read.edges(reading, chunks), CROSSING, chunks, together)

    def skip(self, state: SoftState) -> NDArray[np.bool_]:
        """Chunks (c,) that are not asked: of other stages."""
        if state.reading is None:
            return super().skip(state)
        skipped = np.ones(self.source.chunks, bool)
        skipped[state.reading.asked] = False
        return skipped

    def ahead(self, state: SoftState) -> NDArray[np.intp]:
        """The next stage but one."""
        reading = state.reading
        return super().ahead(state) if reading is None or reading.over else self.stages.chunks(reading.stage + 1)

    # answers

    def update(self, state: SoftState, summary: Answer) -> SoftState:
        """Bounds and the next hypothesis after a stage or a scan."""
        if isinstance(summary, Brought):
            chunks = cast("Reading", state.reading).asked.tolist()
            return self._first_stage(state, summary.sample(self.source, chunks))
        if isinstance(summary, StageSummary):
            return self._next_stage(state, cast("Reading", state.reading), summary)
        return super().update(state, summary)

    def begin_stages(self, sample: Sample, near: Array | None = None) -> SoftState:
        """The state after the first stage, whose rows somebody has read; otherwise as ``begin``."""
        return self._first_stage(self.start(), sample, near)

    def _first_stage(self, state: SoftState, sample: Sample, near: Array | None = None) -> SoftState:
        """Solve on these rows, all of the first stage; then ask them in memory what later stages are asked."""
        reading, read = cast("Reading", state.reading), self._first_read
        chunks = reading.asked
        before = self.begin(sample.thin(FEWER), near).newest
        begun = self.begin(sample, before)
        state = replace(state, round=1, newest=begun.newest, last_scan=begun.last_scan, rows=begun.rows)
        seen = read.seen(0)
        reading = read.forecast(replace(reading, seen=seen / FEWER), before, state.newest, seen, begun.rows.sample)
        probe = self._stage_probe(state, reading, chunks)
        every = RowsWithC.of_sample(sample, None, self.class_c)
        return self._recorded(state, reading, chunks, probe, probe.in_memory(self.source, chunks.tolist(), every))

    def _next_stage(self, state: SoftState, reading: Reading, found: StageSummary) -> SoftState:
        """The hypothesis of the next stage; after the last one what is proven, and whether that is enough."""
        chunks, read, before = reading.asked, self._first_read, state.newest
        probe = self._stage_probe(state, reading, chunks)
        state = self._recorded(replace(state, round=state.round + 1), reading, chunks, probe, found)
        reading = cast("Reading", state.reading)
        last = reading.over
        newest, duals = read.minimum(reading, before, state.rows.sample, last=last)
        seen = 1.0 if last else read.seen(reading.stage - 1)
        ahead = read.forecast(reading, before, newest, seen, state.rows.sample)
        if not last:
            return replace(state, newest=newest, reading=ahead)
        if not state.stages:  # gone on: moves like this one are to be reckoned with
            ahead = read.as_moved(reading, before, newest, state.rows.sample)
            reading = replace(reading, move=ahead.move, spread=ahead.spread)
            state = replace(state, reading=reading)
        state = self._counted(read.proven(replace(state, newest=newest), reading, duals), probe)
        if is_certified(state.lower, state.upper, self.epsilon):
            return replace(state, status="certified")
        again = state.round < READ_AGAIN * reading.count
        return replace(state, reading=read.loosest(state, ahead) if again else None)

    def _counted(self, state: SoftState, probe: StageProbe) -> SoftState:
        """With the rows at home counted, at the newest hypothesis; a stage has counted its far rows."""
        home, last_scan = cast("Reading", state.reading).home, state.last_scan
        margins, positive = home.margins(state.newest), home.signs > 0
        histogram = np.stack([probe.plain.bin(margins[positive]), probe.plain.bin(margins[~positive])])
        below = cast("int", last_scan.rows_below) + int(np.count_nonzero(margins < 1.0))
        counted = replace(last_scan, histogram=last_scan.histogram + histogram, rows_below=below)
        return replace(state, last_scan=counted)

    def _recorded(
        self, state: SoftState, reading: Reading, chunks: NDArray[np.intp], probe: StageProbe, found: StageSummary
    ) -> SoftState:  # fmt: skip
        """With what a question found about these chunks: from now on they are those of one stage."""
        reading = self._first_read.recorded(reading, chunks, state.newest, probe.edges, found)
        histogram, below = reading.far.histogram.sum(axis=0), int(reading.far.below.sum())
        last_scan = replace(state.last_scan, near_rows=len(found.row_id), histogram=histogram, rows_below=below)
        return replace(state, reading=reading, last_scan=last_scan)
