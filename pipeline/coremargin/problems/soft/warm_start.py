"""Warm start of a soft margin after its store has changed: which sums of far rows still hold, and what is read again.

The sums of a stage are those of one hypothesis; they hold as long as their rows do not change. Changed rows near the
margin are in the driver and get their new labels and weights. Changed far rows are read once more, by their ids,
subtracted from the sums, and become near rows. New rows in a chunk that was not full are read by their ids and added to
the sums of its stage, or to the near rows. New chunks form a stage of their own, at the last hypothesis, and so do
chunks of which many rows have changed, whose rows are all subtracted; a stage of which most chunks are affected is read
as a whole. From there the model of all rows proves the next hypothesis as after a first read, and stages that leave too
much of the gap open are read again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.problem import CannotWarmStart
from coremargin.maths.margin import gamma
from coremargin.maths.rows import as_float64, take
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sample import weights_of
from coremargin.problems.common.warm_start import TOO_MANY, ids_appended_to_last_chunk
from coremargin.problems.soft.first_read import CROSSING
from coremargin.problems.soft.probe import Counted, NearMarginProbe, StageProbe, decisions, wanted
from coremargin.problems.soft.rows_with_c import RowsWithC, evenly
from coremargin.problems.soft.state import Bounds

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.warm_start import RowFetcher
    from coremargin.problems.soft.problem import SoftProblem
    from coremargin.problems.soft.state import FarRows, Reading, SoftState
    from coremargin.problems.soft.summary import StageSummary

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: A chunk with a larger share of changed far rows is read again.
MANY = 0.05
#: A stage is read as a whole if at least this share of its chunks would be read again.
MOST = 0.5
#: Rows of the sample that a warm start keeps: enough to say how far a model leads astray.
SAMPLE_ROWS = 2000
#: Least expected move, as a share of the one before.
LEAST_MOVE = 0.5
#: Why a model that was not proven by sums cannot be retrained by a warm start.
NO_SUMS = (
    "the model keeps no sums of rows that are far from the margin; of rows that fit into memory they are kept where "
    "keep_for_retraining asks for them, or they are cheap"
)


@dataclass(frozen=True)
class Room:
    """Limits: edges of the rings of a stage; near: rows in the driver; stages: in all.

    few: with more stages than that, new rows are added to the sums of an existing one.
    """

    edges: int
    near: int
    stages: int
    few: int


def warm_start(
    problem: SoftProblem, room: Room, before: SoftState | None, difference: Difference, fetched: RowFetcher
) -> SoftState:
    """The state of a problem from which the usual rounds start; before: the last state, on an earlier commit.

    Raises CannotWarmStart.
    """
    source, already = problem.source, fetched.rows
    if before is None or before.reading is None or not before.reading.complete:
        raise CannotWarmStart(NO_SUMS)
    if before.reading.far.edges.shape[1] != room.edges:
        raise CannotWarmStart("sums of far rows are made otherwise now")
    check_scale(source, problem.class_c, problem.totals)
    plain = problem.near_probe(before, keep=0, cached=np.zeros(0, np.int64))
    rows = ChangedRows(source, plain, difference, fetched)
    reading = _with_expected_move(_in_current_terms(problem, before.reading), source.rows, difference)
    reading = _with_changes(problem, room, reading, rows, before.newest)
    if len(reading.near) > room.near:
        raise CannotWarmStart(TOO_MANY)
    sample = replace(before.rows.sample, rows=as_float64(before.rows.sample.rows))
    return replace(
        before,
        round=0,
        status="running",
        stages=0,
        bounds=Bounds.unknown(before.newest),
        reading=reading,
        rows=replace(before.rows, sample=sample),
        total_rows=int(source.scalars().counts.sum(axis=0)[list(problem.codes)].sum()),
        sample_bytes=difference.nbytes + bytes_read(source, fetched.rows - already),
    )


def lightened(state: SoftState, dtype: np.dtype[Any]) -> SoftState:
    """The parts of a final state that a warm start needs; dtype: of the store."""
    sample = state.rows.sample.take(evenly(len(state.rows.sample), SAMPLE_ROWS))
    few = replace(sample, rows=cast("Rows", sample.rows.astype(dtype)))
    bounds = Bounds.of_hypothesis(state.newest, state.upper, state.lower)
    return replace(state, bounds=bounds, rows=replace(state.rows, sample=few))


def _in_current_terms(problem: SoftProblem, reading: Reading) -> Reading:
    """The same sums with the present C. Raises CannotWarmStart if rows or classes are not the same."""
    then, now, near = reading.terms, problem.terms, reading.near
    if not (np.array_equal(then.codes, now.codes) and np.array_equal(then.scaling, now.scaling)):
        raise CannotWarmStart("the rows are scaled otherwise, or are of other classes, than before")
    ratio = now.class_c / then.class_c
    if (ratio == 1.0).all():
        return reading
    if problem.loss.curves and ratio[0] != ratio[1]:
        raise CannotWarmStart("rows of one class cost more, those of the other less, than before")
    each: Array = np.where(near.signs > 0, now.class_c[0], now.class_c[1])
    chunks: list[int] = np.unique(near.ids // problem.source.chunk_rows).tolist()
    weights = weights_of(problem.source, near.ids, chunks) if len(near) else None
    if weights is not None:
        each = np.asarray(each * weights)  # also of changed rows
    return replace(reading, terms=now, far=reading.far.scaled(ratio), near=replace(near, row_c=each))


def _with_expected_move(reading: Reading, rows: int, difference: Difference) -> Reading:
    """The reading with the expected move to a hypothesis of a few rows more, as in ``FirstRead.with_forecast``."""
    more = (rows - difference.before + len(difference.ids)) / difference.before
    seen, share = 1.0 / (1.0 + more), 1.0
    if 0.0 < reading.seen < 1.0:
        share = max(LEAST_MOVE, float(np.sqrt((1.0 - seen) / (1.0 / reading.seen - 1.0))))
    return replace(reading, move=share * reading.move, seen=seen)


def _with_changes(problem: SoftProblem, room: Room, reading: Reading, rows: ChangedRows, hypothesis: Array) -> Reading:
    """With the changed and the new rows, and the chunks to read marked; hypothesis: the last one (d + 1,)."""
    source, near_ids = problem.source, reading.near.ids
    before = rows.difference.before
    changed_far = np.setdiff1d(rows.difference.ids, near_ids, assume_unique=True)
    stage_of = np.append(reading.stage_of, np.full(source.chunks - len(reading.stage_of), -1))

    # Chunks to scan: new ones, and those with many changed far rows.
    counts = np.bincount(changed_far // source.chunk_rows, minlength=source.chunks)
    scan: Flags = counts > MANY * source.chunk_rows
    scan[-(-before // source.chunk_rows) :] = True
    known = stage_of >= 0
    sizes = np.bincount(stage_of[known], minlength=reading.count)
    affected = np.bincount(stage_of[known & scan], minlength=reading.count)
    reread: Flags = affected / np.maximum(sizes, 1) >= MOST

    far, near = reading.far, [rows.with_current_costs(reading.near)]
    for chunk in np.flatnonzero(known & (scan | np.isin(np.arange(len(stage_of)), changed_far // source.chunk_rows))):
        may_stop()
        stage = int(stage_of[chunk])
        if reread[stage]:
            continue
        if scan[chunk]:  # subtract all far rows that the commit before had
            start, stop = source.span(int(chunk))
            ids = np.setdiff1d(np.arange(start, min(stop, before)), near_ids, assume_unique=True)
        else:
            ids = changed_far[changed_far // source.chunk_rows == chunk]
        found = rows.subtracted(far, stage, ids, rings=problem.loss.curves)
        if found is None:
            reread[stage] = True
        else:
            far, read = found
            if not scan[chunk]:
                near.append(rows.as_near(ids, read, reading.near.rows))

    appended = ids_appended_to_last_chunk(source, rows.difference)  # rows in a chunk that was not full
    last = before // source.chunk_rows
    if len(appended) and not (scan[last] or reread[stage_of[last]]):
        most = math.ceil(len(appended) * len(near_ids) / before)  # the same share as of other rows
        far, come = rows.added(far, int(stage_of[last]), appended, most)
        near.append(come)

    stage_of[scan] = -1
    if scan.any() and not reread.any() and reading.count >= room.few:
        # No stage of their own: add the rows to the stage whose hypothesis is nearest to the last one.
        there = np.unique(stage_of[stage_of >= 0])
        stage = int(there[np.linalg.norm(far.hypotheses[there] - hypothesis, axis=1).argmin()])
        for chunk in np.flatnonzero(scan):
            may_stop()
            ids = np.setdiff1d(np.arange(*source.span(int(chunk))), near_ids, assume_unique=True)
            far, come = rows.added(far, stage, ids, math.ceil(len(ids) * len(near_ids) / before))
            near.append(come)
        stage_of[scan] = stage
    reading = replace(reading, far=far, near=RowsWithC.concatenate(near).in_order())
    return _with_new_stage(reading, stage_of, reread, room.stages)


def _with_new_stage(reading: Reading, stage_of: NDArray[np.int64], reread: Flags, most: int) -> Reading:
    """With chunks that belong to no stage, -1, as a stage of their own, to be read with those that are read again.

    Without room for one more stage, the smallest ones are read with it.
    """
    if not ((stage_of < 0).any() or reread.any()):
        return replace(reading, stage_of=stage_of)
    sizes = np.bincount(stage_of[stage_of >= 0], minlength=reading.count)
    if not reread.any() and sizes.all() and reading.count >= most:
        reread = np.isin(np.arange(reading.count), np.argsort(sizes, kind="stable")[: max(2, reading.count // 4)])
    free = np.flatnonzero((sizes == 0) | reread)
    stage = int(free[0]) if len(free) else reading.count
    count = max(reading.count, stage + 1)
    reread = np.append(reread, np.zeros(count - reading.count, bool))
    stage_of = np.where(stage_of < 0, stage, stage_of)
    reread[stage] = True
    empty = np.bincount(stage_of, minlength=count) == 0
    far = reading.far.resized(count).cleared(reread | empty)
    return replace(reading, far=far, stage_of=stage_of, reread=reread, stage=count)


@dataclass(frozen=True)
class ChangedRows:
    """Changed and new rows, one chunk at a time: signs and C as they are and as they were, and their part in the sums.

    plain: the probe for the loss of each row.
    """

    source: Source
    plain: NearMarginProbe
    difference: Difference
    fetched: RowFetcher

    def costs_now(self, ids: Ids) -> tuple[NDArray[np.int8], Array]:
        """Signs (m,), 0 for rows that do not count, and row_c (m,)."""
        return self._costs(*self._read(ids))

    def costs_before(self, ids: Ids) -> tuple[NDArray[np.int8], Array]:
        """The same at the commit before."""
        codes, weights = self._read(ids)
        codes = codes.copy()
        place = np.searchsorted(self.difference.ids, ids)
        inside = place < len(self.difference.ids)
        changed = np.flatnonzero(inside)[self.difference.ids[place[inside]] == ids[inside]]
        codes[changed] = self.difference.codes_before[place[changed]]
        weights = np.ones(len(ids)) if weights is None else weights.copy()
        weights[changed] = self.difference.weights_before[place[changed]]
        return self._costs(codes, weights)

    def _read(self, ids: Ids) -> tuple[NDArray[np.int32], Array | None]:
        chunk = int(ids[0]) // self.source.chunk_rows
        places = ids - self.source.span(chunk)[0]
        weights = self.source.weights(chunk)
        return self.source.labels(chunk)[places], None if weights is None else weights[places]

    def _costs(self, codes: NDArray[np.int32], weights: Array | None) -> tuple[NDArray[np.int8], Array]:
        found = self.plain.counted(0, codes, weights)
        signs, row_c = np.zeros(len(codes), np.int8), np.zeros(len(codes))
        signs[found.places], row_c[found.places] = found.signs, found.row_c
        return signs, row_c

    def with_current_costs(self, near: RowsWithC) -> RowsWithC:
        """Near rows with their present labels and weights, without those that do not count."""
        signs, row_c = near.signs.copy(), near.row_c.copy()
        places = np.flatnonzero(np.isin(near.ids, self.difference.ids, assume_unique=True))
        for mine in np.split(places, np.flatnonzero(np.diff(near.ids[places] // self.source.chunk_rows)) + 1):
            if len(mine):
                signs[mine], row_c[mine] = self.costs_now(near.ids[mine])
        now = replace(near, signs=signs, row_c=row_c)
        return now if signs.all() else now.take(np.flatnonzero(signs))  # copies rows only if some are gone

    def as_near(self, ids: Ids, rows: Rows, like: Rows) -> RowsWithC:
        """Rows (m, d) of one chunk with their present costs, those that count, in the precision of others."""
        signs, row_c = self.costs_now(ids)
        every = RowsWithC(ids, rows.astype(like.dtype), signs, row_c)
        return every.take(np.flatnonzero(signs))

    def subtracted(self, far: FarRows, stage: int, ids: Ids, *, rings: bool) -> tuple[FarRows, Rows] | None:
        """The sums without some far rows (m,) of one chunk, and these rows (m, d).

        None if rounding may decide in which ring, or on which side, one of them was, and ``rings`` count.
        """
        read = self.fetched(ids)
        if not len(ids):
            return far, read
        probe, counted, some, longest = self._stage_question(far, stage, ids, *self.costs_before(ids))
        margins = decisions(some, probe.base) * counted.signs
        if rings and not _certain(margins[0], probe.edges, far.hypotheses[stage], longest):
            return None
        gone = probe.answer(some, counted, margins, np.zeros(0, np.intp), longest)
        return far.subtract(stage, gone, rings=rings), read

    def added(self, far: FarRows, stage: int, ids: Ids, near: int) -> tuple[FarRows, RowsWithC]:
        """The sums with new rows (m,) of one chunk, except for so many near the margin; and these near rows."""
        probe, counted, some, longest = self._stage_question(far, stage, ids, *self.costs_now(ids))
        margins = decisions(some, probe.base) * counted.signs
        nearest = wanted(probe.urgency(counted, margins), near)
        come: StageSummary = probe.answer(some, counted, margins, nearest, longest).with_rows(take(some, nearest))
        return far.add(stage, come), RowsWithC(come.row_id, come.row_x, come.row_sign, come.row_c)

    def _stage_question(
        self, far: FarRows, stage: int, ids: Ids, signs: NDArray[np.int8], row_c: Array
    ) -> tuple[StageProbe, Counted, Rows, float]:
        """The probe of a stage; those of the rows (m,) of one chunk that count, and the length of its longest row."""
        places = np.flatnonzero(signs)
        counted = Counted(ids[places], signs[places], row_c[places], np.zeros(len(places), bool), 0)
        probe = stage_probe_at(self.plain, far, stage, zone=float(far.edges[stage][CROSSING]))
        longest = float(self.source.scalars().max_norm[ids[0] // self.source.chunk_rows])
        return probe, counted, take(self.fetched(ids), places), longest


def stage_probe_at(plain: NearMarginProbe, far: FarRows, stage: int, zone: float) -> StageProbe:
    """The probe that a stage had, for some of its rows; zone: rows nearer to the margin may be sent."""
    plain = replace(plain, base=far.hypotheses[stage][:, None], points=np.ones(1))
    return StageProbe(plain, far.edges[stage], CROSSING, zone, np.zeros(0, np.intp), 0)


def _certain(margins: Array, edges: Array, hypothesis: Array, longest: float) -> bool:
    """Whether margins (n,), rounded in another way, would be on the same side and between the same edges."""
    length = longest * float(np.linalg.norm(hypothesis[:-1]))
    error = 8.0 * gamma(len(hypothesis) + 8) * (length + abs(float(hypothesis[-1])) + 1.0)
    away = np.abs(margins - 1.0)
    nearest = np.abs(away[:, None] - edges).min(axis=1, initial=np.inf)
    return bool((nearest > error).all())
