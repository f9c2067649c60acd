"""Going on with a soft margin after its store has changed: what the sums of far rows still say, what is asked anew.

The sums are those of a hypothesis each, and true as long as their rows are what they were. Of rows that have changed,
near ones are in the driver as they are; far ones are read once more, by their numbers, and what they added is taken out
of the sums; they are near rows from then on. New rows in a chunk that was not full are read by their numbers, too, and
added to the sums of its stage, or to the rows near the margin. New chunks are asked as a stage of their own, at the
last hypothesis. So are chunks of which many rows have changed: their rows are taken out, all of them. Where most of a
stage would be, all of it is asked anew. The model of all that proves the next hypothesis as it does after a first read,
and what it leaves open is read again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.problem import NothingToGoOnFrom
from coremargin.maths.rows import as_float64
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sample import weights_of
from coremargin.problems.common.warm_start import TOO_MANY
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.start import evenly
from coremargin.problems.soft.state import Bounds
from coremargin.problems.soft.taken_out import Rowwise, added, taken_out

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.warm_start import RowFetcher
    from coremargin.problems.soft.base import SoftBase
    from coremargin.problems.soft.far_rows import FarRows
    from coremargin.problems.soft.state import Reading, SoftState

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: A chunk of which more than this share of the rows has changed, far ones, is asked anew.
MANY = 0.05
#: A stage of which at least this share of the chunks would be asked anew is asked as a whole.
MOST = 0.5
#: Why a model is trained from nothing that was not proven by sums, or keeps none.
NO_SUMS = (
    "the model keeps no sums of rows that are far from the margin; of rows that fit into memory they are kept where "
    "keep_for_retraining asks for them, or they are cheap"
)
#: Stages there are at most: where there is no room for one more, the smallest ones are asked with it.
STAGES = 48
#: Rows of the sample that stand for the far ones where a model goes on: as many as say how far a model leads astray.
SAMPLE_ROWS = 2000
#: No move is reckoned with that is less than this share of the one before.
LEAST_MOVE = 0.5


@dataclass(frozen=True)
class Room:
    """edges: of the rings that a stage has; home: rows at home that there is room for; stages: so many of them.

    few: where there are more stages than that, new rows are added to the sums of one of them.
    """

    edges: int
    home: int
    stages: int
    few: int


def onward(
    problem: SoftBase, room: Room, before: SoftState | None, difference: Difference, fetched: RowFetcher
) -> SoftState:  # fmt: skip
    """The state of a problem on a commit from which the usual rounds go on; before: the last one on another commit.

    Raises NothingToGoOnFrom.
    """
    source, known = problem.source, fetched.rows
    if before is None or before.reading is None or not before.reading.over:
        raise NothingToGoOnFrom(NO_SUMS)
    if before.reading.far.edges.shape[1] != room.edges:
        raise NothingToGoOnFrom("sums of far rows are made otherwise now")
    check_scale(source, problem.class_c, problem.totals)
    plain = problem.near_probe(before, keep=0, cached=np.zeros(0, np.int64))
    rows = Rowwise(source, plain, difference, fetched)
    reading = _expected(_in_these_terms(problem, before.reading), source.rows, difference)
    reading = _asking(problem, room, reading, rows, before.newest)
    if len(reading.home) > room.home:
        raise NothingToGoOnFrom(TOO_MANY)
    sample = replace(before.rows.sample, rows=as_float64(before.rows.sample.rows))
    return replace(
        before, round=0, status="running", stages=0, bounds=Bounds.nothing(before.newest), reading=reading,
        rows=replace(before.rows, sample=sample),
        total_rows=int(source.scalars().counts.sum(axis=0)[list(problem.codes)].sum()),
        sample_bytes=difference.nbytes + bytes_read(source, fetched.rows - known),
    )  # fmt: skip


def lightened(state: SoftState, dtype: np.dtype[Any]) -> SoftState:
    """What ``onward`` needs of a state that is over; dtype: of the store."""
    sample = state.rows.sample.take(evenly(len(state.rows.sample), SAMPLE_ROWS))
    few = replace(sample, rows=cast("Rows", sample.rows.astype(dtype)))
    bounds = Bounds.at(state.newest, state.upper, state.lower)
    return replace(state, bounds=bounds, rows=replace(state.rows, sample=few))


def _in_these_terms(problem: SoftBase, reading: Reading) -> Reading:
    """The same with C as it is now. Raises NothingToGoOnFrom: rows or classes are not the same."""
    then, now, home = reading.terms, problem.terms, reading.home
    if not (np.array_equal(then.codes, now.codes) and np.array_equal(then.scaling, now.scaling)):
        raise NothingToGoOnFrom("the rows are scaled otherwise, or are of other classes, than before")
    ratio = now.class_c / then.class_c
    if (ratio == 1.0).all():
        return reading
    if problem.loss.curves and ratio[0] != ratio[1]:
        raise NothingToGoOnFrom("rows of one class cost more, those of the other less, than before")
    each: Array = np.where(home.signs > 0, now.class_c[0], now.class_c[1])
    weights = weights_of(problem.source, home.ids, _chunks(problem, home.ids)) if len(home) else None
    if weights is not None:
        each = np.asarray(each * weights)  # of those that have changed too
    return replace(reading, terms=now, far=reading.far.times(ratio), home=replace(home, row_c=each))


def _chunks(problem: SoftBase, ids: Ids) -> list[int]:
    found: list[int] = np.unique(ids // problem.source.chunk_rows).tolist()
    return found


def _expected(reading: Reading, rows: int, difference: Difference) -> Reading:
    """With the move that is to be reckoned with: as ``FirstRead.forecast`` has it, of a few rows more."""
    more = (rows - difference.before + len(difference.ids)) / difference.before
    seen, share = 1.0 / (1.0 + more), 1.0
    if 0.0 < reading.seen < 1.0:
        share = max(LEAST_MOVE, float(np.sqrt((1.0 - seen) / (1.0 / reading.seen - 1.0))))
    return replace(reading, move=share * reading.move, seen=seen)


def _as_they_are(home: RowsWithC, rows: Rowwise) -> RowsWithC:
    """Rows at home with labels and weights of now, of those that have changed; without those that do not count."""
    signs, row_c = home.signs.copy(), home.row_c.copy()
    places = np.flatnonzero(np.isin(home.ids, rows.difference.ids, assume_unique=True))
    for mine in np.split(places, np.flatnonzero(np.diff(home.ids[places] // rows.source.chunk_rows)) + 1):
        if len(mine):
            signs[mine], row_c[mine] = rows.now(home.ids[mine])
    now = replace(home, signs=signs, row_c=row_c)
    return now if signs.all() else now.take(np.flatnonzero(signs))  # a copy of all rows only where some are gone


def _asking(problem: SoftBase, room: Room, reading: Reading, rows: Rowwise, at: Array) -> Reading:
    """Without what is not so any more, and with the chunks that are to be asked; at: the last hypothesis (d + 1,)."""
    source, at_home = problem.source, reading.home.ids
    far_ids = np.setdiff1d(rows.difference.ids, at_home, assume_unique=True)
    of = np.append(reading.of, np.full(source.chunks - len(reading.of), -1))
    anew = _anew(rows, far_ids)
    again = _shares(of, anew, reading.count) >= MOST
    far, home = reading.far, [_as_they_are(reading.home, rows)]
    for chunk in np.flatnonzero((of >= 0) & (anew | np.isin(np.arange(len(of)), far_ids // source.chunk_rows))):
        may_stop()
        if not again[of[chunk]]:
            some = None if anew[chunk] else far_ids[far_ids // source.chunk_rows == chunk]
            ids = rows.known(int(chunk), at_home) if some is None else some
            found = taken_out(rows, far, int(of[chunk]), ids, problem.loss.curves)
            if found is None:
                again[of[chunk]] = True
            else:
                far, read = found
                home += [] if some is None else [rows.at_home(ids, read, reading.home.rows)]
    grown = rows.in_grown_chunk
    last = rows.difference.before // source.chunk_rows
    if len(grown) and not (anew[last] or again[of[last]]):
        near = math.ceil(len(grown) * len(at_home) / rows.difference.before)  # as many as of the others
        far, come = added(rows, far, int(of[last]), grown, near)
        home.append(come)
    of[anew] = -1
    if anew.any() and not again.any() and reading.count >= room.few:
        stage = _nearest(far, of, at)
        far, more = _joining(rows, far, stage, np.flatnonzero(anew), at_home)
        of[anew], home = stage, [*home, *more]
    reading = replace(reading, far=far, home=RowsWithC.concatenate(home).in_order())
    return _with_stage(reading, of, again, room.stages)


def _nearest(far: FarRows, of: NDArray[np.int64], at: Array) -> int:
    """Which of the stages that have chunks was asked at the hypothesis that is nearest to another."""
    there = np.unique(of[of >= 0])
    return int(there[np.linalg.norm(far.at[there] - at, axis=1).argmin()])


def _joining(
    rows: Rowwise, far: FarRows, stage: int, chunks: NDArray[np.intp], at_home: Ids
) -> tuple[FarRows, list[RowsWithC]]:
    """The sums with those of all rows of some chunks that are not at home; and those of them that are from now on."""
    home = list[RowsWithC]()
    for chunk in chunks:
        may_stop()
        ids = np.setdiff1d(np.arange(*rows.source.span(int(chunk))), at_home, assume_unique=True)
        near = math.ceil(len(ids) * len(at_home) / rows.difference.before)  # as many as of the others
        far, come = added(rows, far, stage, ids, near)
        home.append(come)
    return far, home


def _anew(rows: Rowwise, far_ids: Ids) -> Flags:
    """Chunks (c,) that are new, or of which many rows have changed."""
    source = rows.source
    changed = np.bincount(far_ids // source.chunk_rows, minlength=source.chunks)
    found = changed > MANY * source.chunk_rows
    found[-(-rows.difference.before // source.chunk_rows) :] = True
    return np.asarray(found)


def _shares(of: NDArray[np.int64], some: Flags, stages: int) -> Array:
    """The share (s,) of the chunks of each stage that are among some (c,)."""
    known = of >= 0
    every = np.bincount(of[known], minlength=stages)
    return np.asarray(np.bincount(of[known & some], minlength=stages) / np.maximum(every, 1))


def _with_stage(reading: Reading, of: NDArray[np.int64], again: Flags, most: int) -> Reading:
    """With chunks that belong to no stage, -1, as one of their own, to be read with those that are read again."""
    if not ((of < 0).any() or again.any()):
        return replace(reading, of=of)
    sizes = np.bincount(of[of >= 0], minlength=reading.count)
    if not again.any() and sizes.all() and reading.count >= most:
        again = np.isin(np.arange(reading.count), np.argsort(sizes, kind="stable")[: max(2, reading.count // 4)])
    free = np.flatnonzero((sizes == 0) | again)
    stage = int(free[0]) if len(free) else reading.count
    count = max(reading.count, stage + 1)
    again = np.append(again, np.zeros(count - reading.count, bool))
    of = np.where(of < 0, stage, of)
    again[stage] = True
    empty = np.bincount(of, minlength=count) == 0
    far = reading.far.of_stages(count).without(again | empty)
    return replace(reading, far=far, of=of, again=again, stage=count)
