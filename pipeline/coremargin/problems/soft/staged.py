"""The soft margin, its first read in stages: of most stores one read proves it (``first_read.py``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.resident import at_hand
from coremargin.engine.protocols import Block
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import as_float64, dense
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sent import AllRows, AllRowsProbe
from coremargin.problems.common.warm_start import RowFetcher
from coremargin.problems.common.zone import smallest_positions
from coremargin.problems.soft.far_rows import FarRows
from coremargin.problems.soft.first_read import CROSSING
from coremargin.problems.soft.onward import SAMPLE_ROWS, Room, lightened, onward
from coremargin.problems.soft.probe import Counted, decisions
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.stage_probe import StageProbe
from coremargin.problems.soft.stage_room import RoomForStages
from coremargin.problems.soft.stage_summary import StageSummary
from coremargin.problems.soft.start import BINS, evenly
from coremargin.problems.soft.state import Reading, RowCache, SoftState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.problems.common.result import Result
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.soft.probe import NearMarginProbe
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]
Question: TypeAlias = "AllRowsProbe | StageProbe | NearMarginProbe"
Answer: TypeAlias = "AllRows | StageSummary | NearMarginSummary"

#: The first stage's hypothesis is compared with that of one of so many of its rows.
FEWER = 4
#: Sums are made anew where so many times as many rows are at home as are needed, and all rows are at hand.
MANY_AT_HOME = 1.5
#: Where chunks are read for others, one that is proven asks them again if they leave this share of its gap open.
JOINS = 0.1
#: Stages are read again until so many times as many questions were asked as there are stages.
READ_AGAIN = 2


@dataclass(frozen=True)
class StagedSoftMargin(RoomForStages):
    """``SoftMargin`` that asks each stage of the first read with the hypothesis of those before it.

    What this leaves open is read again, the loosest stages first; what they leave open, by scans of all rows.
    """

    # questions

    def start(self) -> SoftState:
        """Nothing is known: stages bring the rows to begin with, or a sample does."""
        if not self.in_stages:
            return super().start()
        source, p, stages = self.source, self.source.features + 1, self.stages
        check_scale(source, self.class_c, self.totals)
        nothing = RowsWithC.nothing(source.features, source.dtype, sparse=source.sparse)
        far = FarRows.nothing(stages.count, source.features, self.edges, self._rings, BINS)
        again = np.zeros(stages.count, bool)
        reading = Reading(far, nothing, 0, stages.stage_of_chunk, again, np.zeros(p), 0.0, 0.0, self.terms)
        return replace(super().unsolved(), stages=stages.count, reading=reading)

    def unsolved(self) -> SoftState:
        """That of the start of stages."""
        return self.start() if self.in_stages else super().unsolved()

    def onward(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> SoftState:
        """A state to go on from, where the store has changed since a state of these arrays was the last one.

        Raises NothingToGoOnFrom: that state does not know far rows by stages, or rows are scaled otherwise, or there is
        no room for what it knows.
        """
        return self.gone_on(
            self.restore(arrays) if arrays else None, difference, RowFetcher(self.source, self.most_at_home)
        )

    def gone_on(self, before: SoftState | None, difference: Difference, fetched: RowFetcher) -> SoftState:
        """The same, from a state; fetched: what reads rows."""
        room = Room(self.edges, self.most_at_home, self._most_stages, self._few_stages)
        return onward(self, room, before, difference, fetched)

    def kept(self, state: SoftState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """What ``onward`` takes: all but the proof, which is the model's, and a few of the sample's rows.

        Rows at home that are more than may be kept join the sums of their stages, the farthest from the margin first.
        """
        pays = self._matrices // self.sharing <= allowance.bytes and allowance.pays(self.work_of_sums)
        if pays and at_hand(self.source) and (asking := self.asking_all(state)) is not None:
            chunks = tuple(range(self.source.chunks))
            state = self.summed(asking, self.probe(asking)(self.source, Block(0, chunks)))
        reading = state.reading
        if reading is None or reading.far.rings.nbytes > allowance.bytes:
            return {}
        light = lightened(state, self.source.dtype)
        return allowance.within(
            lambda rows: replace(light, reading=self._with_fewer_at_home(state, reading, rows)).to_arrays(),
            len(reading.home),
        )

    @property
    def work_of_sums(self) -> float:
        """Multiply-adds of the sums of all rows, at most."""
        return float(self.source.rows) * (self.source.features + 1) ** 2

    def _with_fewer_at_home(self, state: SoftState, reading: Reading, most: int) -> Reading:
        """With so many rows at home: those nearest to the margin now, and when their stage was asked."""
        home, far = reading.home, reading.far
        if len(home) <= most:
            return reading
        of = reading.of[home.ids // self.source.chunk_rows]
        away = np.abs(home.margins(state.newest) - 1.0)
        for stage in np.unique(of):
            mine = np.flatnonzero(of == stage)
            away[mine] = np.minimum(away[mine], np.abs(home.take(mine).margins(far.at[stage]) - 1.0))
        stay = np.zeros(len(home), bool)
        stay[smallest_positions(away, most)] = True
        plain = self.near_probe(replace(state, best=None), keep=0, cached=home.ids[:0])
        for stage in np.unique(of[~stay]):
            some = home.take(np.flatnonzero(~stay & (of == stage)))
            far = far.more(int(stage), self._as_far(plain, far, int(stage), some))
        return replace(reading, far=far, home=home.take(np.flatnonzero(stay)))

    def _as_far(self, plain: NearMarginProbe, far: FarRows, stage: int, some: RowsWithC) -> StageSummary:
        """What a stage would have found of some of its rows, had they been far ones."""
        plain = replace(plain, base=far.at[stage][:, None], points=np.ones(1))
        probe = StageProbe(plain, far.edges[stage], CROSSING, 0.0, np.zeros(0, np.intp), 0)
        longest = float(self.source.scalars().max_norm[some.ids // self.source.chunk_rows].max())
        counted = Counted(some.ids, some.signs, some.row_c, np.zeros(len(some), bool), 0)
        margins = decisions(some.rows, probe.base) * some.signs
        return probe.answer(some.rows, counted, margins, np.zeros(0, np.intp), longest)

    def joining(self, state: SoftState, chunks: NDArray[np.intp]) -> SoftState | None:
        """A last state that goes on from an earlier night, to ask stages of these chunks again, which others have read.

        None where it leaves little of its gap open by them.
        """
        reading = state.reading
        if reading is None or state.stages or state.status != "certified":
            return None
        mine = np.bincount(reading.of[chunks], minlength=reading.count)
        again = (mine > 0) & (mine == np.bincount(reading.of, minlength=reading.count))
        left = float(self._first_read.left_open(reading, state.newest)[again].sum())
        if left <= JOINS * self.epsilon * state.lower:
            return None
        return replace(state, status="running", reading=replace(reading, again=again))

    def result(self, state: SoftState) -> Result:
        """The model that a state stands for; one that was proven, and asks again, is proven as it was."""
        if state.status == "running" and is_certified(state.lower, state.upper, self.epsilon):
            state = replace(state, status="certified")
        return super().result(state)

    # sums of far rows, where no stages have made them

    def asking_more(self, state: SoftState) -> SoftState | None:
        """Where rows are not at hand, which ``kept`` asks for nothing: all of them, if no stages have made sums."""
        return None if state.reading is not None or at_hand(self.source) else self.asking_all(state)

    def asking_all(self, state: SoftState) -> SoftState | None:
        """A last state that was proven by scans of all rows, with all chunks to be asked once more, as one stage.

        They are asked at its best hypothesis; so are those of a state that has far more rows at home than it needs.
        None where that is not so, or there is no room for what they say.
        """
        most = MANY_AT_HOME * min(self._first_read.at_home, self.source.rows // 2)
        enough = state.reading is not None and len(state.reading.home) <= most
        if enough or state.status != "certified" or state.best is None or not self.keeps_sums:
            return None
        source, some = self.source, state.rows.cached if len(state.rows.cached) else state.rows.sample
        some = some.take(evenly(len(some), SAMPLE_ROWS))
        some = replace(some, rows=as_float64(some.rows if source.sparse else dense(some.rows)))
        far = FarRows.nothing(1, source.features, self.edges, self._rings, BINS)
        none, of = RowsWithC.nothing(source.features, source.dtype, sparse=source.sparse), np.zeros(source.chunks, int)
        reading = Reading(far, none, 1, of, np.ones(1, bool), np.zeros(len(state.best)), 0.0, 0.0, self.terms)
        return replace(
            state, status="running", newest=state.best, rows=RowCache(some, some.take(evenly(0, 0)), np.zeros(0)),
            reading=self._first_read.as_far_as_home(reading, state.best, some),
        )  # fmt: skip

    def summed(self, state: SoftState, found: Answer) -> SoftState:
        """The last state, after that."""
        assert isinstance(found, StageSummary)  # noqa: S101 - for the type checker: a stage was asked
        reading = cast("Reading", state.reading)
        chunks = reading.asked
        probe = self._stage_probe(state, reading, chunks)
        known = cast("Reading", self._recorded(state, reading, chunks, probe, found).reading)
        return replace(state, status="certified", reading=replace(known, seen=1.0))

    def probe(self, state: SoftState) -> Question:  # type: ignore[override]
        """The question of the next stage, or of the next scan."""
        if state.reading is None:
            return super().probe(state)
        if state.reading.stage == 0:
            return AllRowsProbe(self.codes, self.source.features, self.source.dtype.name, self.source.sparse)
        return self._stage_probe(state, state.reading, state.reading.asked)

    def _stage_probe(self, state: SoftState, reading: Reading, chunks: NDArray[np.intp]) -> StageProbe:
        """What these chunks are asked."""
        read = self._first_read
        keep, together = read.keep(reading, len(chunks), first=state.stages > 0)
        plain = self.near_probe(replace(state, best=None), keep=keep, cached=reading.home.ids)
        edges, zone = read.edges(reading, chunks), read.zone(reading, chunks)
        return StageProbe(plain, edges, CROSSING, zone, chunks, together)

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
        if isinstance(summary, AllRows):
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
        solved = reading if state.stages else read.of_one_night(reading)
        newest, duals = read.minimum(solved, before, state.rows.sample, last=last)
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
        state = replace(state, reading=read.loosest(state, ahead) if again else None)
        return self._on_all_rows(state) if state.reading is None and self.all_cached else state

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
