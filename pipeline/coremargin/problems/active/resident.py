"""Rows in memory: those from which questions are chosen, the nearest to the hyperplanes as far as is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.maths.rows import as_float64, concatenate, take
from coremargin.problems.active.drawing import counted
from coremargin.problems.active.summary import NO_ROW
from coremargin.problems.common.driver_rows import DriverRows

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows
    from coremargin.problems.active.state import ActiveState, Draws
    from coremargin.problems.active.summary import SlabSummary


def sampled(source: Source, chunks: Sequence[int], most: int) -> DriverRows:
    """Rows spread over these chunks, about so many, of those that count."""
    each, ids, rows = -(-most // len(chunks)), [], []
    for chunk in chunks:
        start, stop = source.span(chunk)
        some = np.linspace(0, stop - start - 1, min(each, stop - start)).astype(np.int64)
        some = some[counted(source, some + start)]
        ids.append(some + start)
        for part in parts_of(source, chunk):
            first, last = np.searchsorted(some, [part.start - start, part.stop - start])
            rows.append(take(part.rows, some[first:last] + start - part.start))
    return DriverRows(np.concatenate(ids), concatenate(rows))


def open_rows(state: ActiveState) -> DriverRows:
    """Those without an answer, of which one can be asked for."""
    return state.resident.take(np.flatnonzero(np.isin(state.resident.ids, state.known, invert=True)))


def nearest_rows(state: ActiveState, summary: SlabSummary, most: int) -> tuple[DriverRows, int]:
    """The rows that were sent and those from before, the nearest to a hyperplane, by their ids; how many came."""
    fresh, hypothesis = np.isin(summary.row_id, state.resident.ids, invert=True), state.hypothesis
    both = DriverRows.concatenate([open_rows(state), DriverRows(summary.row_id, summary.row_x).take(fresh)])
    values = hypothesis.decisions(both.rows)
    near = hypothesis.nearness(np.abs(values), hypothesis.sides(values))
    return both.take(np.argsort(near, kind="stable")[:most]).in_order(), int(fresh.sum())


def with_drawn(state: ActiveState, draws: Draws, summary: SlabSummary) -> DriverRows:
    """With those of the draws that came along with the scan."""
    held = np.isin(summary.held_id, draws.ids) & np.isin(summary.held_id, state.resident.ids, invert=True)
    more = DriverRows(summary.held_id, summary.held_x).take(np.flatnonzero(held))
    return DriverRows.concatenate([state.resident, more]).in_order()


def rows_of(source: Source, state: ActiveState, ids: NDArray[np.int64]) -> Rows:
    """Rows by their numbers, float64; read where they are not in memory: asked for long ago, or drawn, and too wide."""
    order = np.argsort(state.resident.ids, kind="stable")
    known = np.isin(ids, state.resident.ids)
    places = order[np.searchsorted(state.resident.ids[order], ids[known])]
    parts = [as_float64(take(state.resident.rows, places))]
    if not known.all():
        parts.append(source.rows_at(ids[~known])[0])
    at = np.argsort(np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)]), kind="stable")
    return take(concatenate(parts), at)


def nearest_row(state: ActiveState, summary: SlabSummary) -> NDArray[np.int64]:
    """The row that lies nearest to a hyperplane, where none that was sent is worth a question."""
    if summary.homeless_id[0] != NO_ROW:
        return summary.homeless_id
    return summary.nearest_id[[int(state.hypothesis.in_slabs(summary.nearest[None, :])[0].argmin())]]
