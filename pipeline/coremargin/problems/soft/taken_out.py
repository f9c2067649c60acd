"""Rows that have changed, or come, one by one: what they were and are, and what they add to the sums of a stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import gamma
from coremargin.maths.rows import take
from coremargin.problems.common.warm_start import ids_appended_to_last_chunk
from coremargin.problems.soft.first_read import CROSSING
from coremargin.problems.soft.probe import Counted, NearMarginProbe, decisions, wanted
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.stage_probe import StageProbe

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.warm_start import RowFetcher
    from coremargin.problems.soft.far_rows import FarRows

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Rowwise:
    """Signs and C of rows of one chunk at a time, as they are and as they were; plain: who knows what each costs."""

    source: Source
    plain: NearMarginProbe
    difference: Difference
    fetched: RowFetcher

    def now(self, ids: Ids) -> tuple[NDArray[np.int8], Array]:
        """Signs (m,), 0 of rows that do not count, and row_c (m,)."""
        return self._costs(*self._read(ids))

    def then(self, ids: Ids) -> tuple[NDArray[np.int8], Array]:
        """The same of the commit before."""
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

    @property
    def in_grown_chunk(self) -> Ids:
        """The rows that were appended to a chunk that had some."""
        return ids_appended_to_last_chunk(self.source, self.difference)

    def known(self, chunk: int, home: Ids) -> Ids:
        """Rows of a chunk that the commit before had, but for those at ``home``."""
        start, stop = self.source.span(chunk)
        return np.setdiff1d(np.arange(start, min(stop, self.difference.before)), home, assume_unique=True)

    def at_home(self, ids: Ids, rows: Rows, like: Rows) -> RowsWithC:
        """Rows (m, d) of one chunk as they are now, those that count, in the precision of others."""
        signs, row_c = self.now(ids)
        every = RowsWithC(ids, rows.astype(like.dtype), signs, row_c)
        return every.take(np.flatnonzero(signs))


def taken_out(rows: Rowwise, far: FarRows, stage: int, ids: Ids, curves: bool) -> tuple[FarRows, Rows] | None:
    """The sums without some far rows (m,) of one chunk, and these rows (m, d).

    None where rounding may decide in which ring, or on which side, one of them was, and that counts.
    """
    read = rows.fetched(ids)
    if not len(ids):
        return far, read
    probe, counted, some, longest = _asked(rows, far, stage, ids, *rows.then(ids))
    margins = decisions(some, probe.base) * counted.signs
    if curves and not _certain(margins[0], probe.edges, far.at[stage], longest):
        return None
    gone = probe.answer(some, counted, margins, np.zeros(0, np.intp), longest)
    return far.less(stage, gone, curves=curves), read


def added(rows: Rowwise, far: FarRows, stage: int, ids: Ids, near: int) -> tuple[FarRows, RowsWithC]:
    """The sums with rows (m,) that have come to one chunk, but for so many near the margin; and these rows."""
    probe, counted, some, longest = _asked(rows, far, stage, ids, *rows.now(ids))
    margins = decisions(some, probe.base) * counted.signs
    home = wanted(probe.urgency(counted, margins), near)
    come = probe.answer(some, counted, margins, home, longest).with_rows(take(some, home))
    return far.more(stage, come), RowsWithC(come.row_id, come.row_x, come.row_sign, come.row_c)


def _asked(
    rows: Rowwise, far: FarRows, stage: int, ids: Ids, signs: NDArray[np.int8], row_c: Array
) -> tuple[StageProbe, Counted, Rows, float]:
    """What a stage was asked; and those rows (m,) of one chunk that count, and how long the chunk's rows may be."""
    places = np.flatnonzero(signs)
    counted = Counted(ids[places], signs[places], row_c[places], np.zeros(len(places), bool), 0)
    plain = replace(rows.plain, base=far.at[stage][:, None], points=np.ones(1))
    edges = far.edges[stage]
    probe = StageProbe(plain, edges, CROSSING, float(edges[CROSSING]), np.zeros(0, np.intp), 0)
    longest = float(rows.source.scalars().max_norm[ids[0] // rows.source.chunk_rows])
    return probe, counted, take(rows.fetched(ids), places), longest


def _certain(margins: Array, edges: Array, at: Array, longest: float) -> bool:
    """Whether margins (n,), rounded otherwise, would be on the same side and between the same edges."""
    error = 8.0 * gamma(len(at) + 8) * (longest * float(np.linalg.norm(at[:-1])) + abs(float(at[-1])) + 1.0)
    away = np.abs(margins - 1.0)
    nearest = np.abs(away[:, None] - edges).min(axis=1, initial=np.inf)
    return bool((nearest > error).all())
