"""A margin with outliers that goes on from an earlier commit of its store: what holds, and what has to be read.

Rows at home are known as they are, floors speak of all others. Both stand, whatever was appended; a row that has
another label or weight is taken from home, or comes home. So the incumbents of before are measured anew without reading
what they were found on, but for chunks that are new; these are a stage of their own, asked with the incumbents. Then
incumbents settle and the search proves its bound, as ever: it needs no reading of its own. Where new rows turn an
incumbent so far that floors prove too little, chunks are read again.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.problem import NothingToGoOnFrom
from coremargin.maths.outliers.search import Search
from coremargin.maths.rows import products
from coremargin.problems.common.classes import signs_of
from coremargin.problems.common.driver_rows import SignedRows
from coremargin.problems.common.warm_start import TOO_MANY, RowFetcher, appended_to_last_chunk, most_cached_rows
from coremargin.problems.outliers.candidates import OutlierCandidates
from coremargin.problems.outliers.reading import joined
from coremargin.problems.outliers.state import LeftOut, OutlierPool, unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.engine.allowance import Allowance
    from coremargin.problems.outliers.base import OutlierBase
    from coremargin.problems.outliers.state import OutlierState


@dataclass(frozen=True)
class Onward(OutlierCandidates):
    """How it goes on."""

    @abstractmethod
    def start(self) -> OutlierState:
        """Nothing is known yet."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> OutlierState:
        """A state from a checkpoint."""

    @abstractmethod
    def without_reading(self, state: OutlierState) -> OutlierState:
        """Measure without reading what waits for it, until chunks have to be read for that, or nothing waits."""

    def kept(self, state: OutlierState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """What ``onward`` takes; nothing where no incumbent separates anything, or a published algorithm ran."""
        if self.published is not None or state.reading or state.lower <= 0:
            return {}
        most = most_cached_rows(self.source, allowance)
        return allowance.within(lambda rows: _lightened(state, self.source, rows).to_arrays(), most)

    def onward(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> OutlierState:
        """The state after the difference. Raises NothingToGoOnFrom."""
        begun = self.start()
        if not arrays:
            raise NothingToGoOnFrom("the model had no hyperplane that was proven on all rows")
        state = _carried(self, begun, self.restore(arrays), difference)
        return state if state.reading else self.without_reading(state)


def _lightened(state: OutlierState, source: Source, most: int) -> OutlierState:
    """What goes on of a state that is over: so many of the lowest rows at home, floors, the incumbents."""
    home, ledger, best = state.home, state.ledger, state.main.best
    if len(home) > most:
        margins = home.signs * (products(home.rows, best.w[:, None])[0] + best.b)
        lowest = np.zeros(len(home), bool)
        lowest[np.argsort(margins, kind="stable")[:most]] = True
        far, home = home.take(np.flatnonzero(~lowest)), home.take(np.flatnonzero(lowest))
        ledger = ledger.lowered(far.ids // source.chunk_rows, far.rows, far.signs)
    searches = tuple(Search(s.k, s.epsilon, s.radius, s.best, s.upper, batch=s.batch) for s in state.searches)
    return replace(
        state, home=home, ledger=ledger, searches=searches, left_out=tuple(LeftOut.nothing() for _ in searches),
        pool=OutlierPool.nothing(source.features), next_directions=np.zeros((0, source.features)),
    )  # fmt: skip


def _carried(problem: OutlierBase, begun: OutlierState, old: OutlierState, difference: Difference) -> OutlierState:
    """The state before the new chunks are read, where there are some; begun: that of a job that starts from nothing.

    Raises NothingToGoOnFrom.
    """
    source, fetched = problem.source, RowFetcher(problem.source, problem.reading.most)
    ids, signs = _other_sides(problem, difference)
    new, codes, weights = appended_to_last_chunk(source, difference)
    coming, counted = np.append(ids, new), np.append(signs, signs_of(codes, weights, problem.codes))
    coming, counted = coming[counted != 0], counted[counted != 0]
    home = joined(old.home.take(old.home.unlike(ids)), _fetched(source, coming, counted, fetched))
    if len(home) > problem.reading.most:
        raise NothingToGoOnFrom(TOO_MANY)
    ledger = old.ledger.without(ids[:0], source.chunks)
    best = [search.best for search in old.searches[::-1] if np.any(search.best.w)]
    return replace(
        begun, home=home, ledger=ledger, spare=old.spare.take(old.spare.unlike(ids)), centre=old.centre,
        radius=old.radius, low=old.low, high=old.high, histogram=old.histogram, counted_at=old.counted_at,
        move=old.move, next_directions=unit([found.w for found in best]), offset=best[0].b, onward=True,
        stages=int(len(ledger.unread) > 0),
        sample_bytes=difference.nbytes + bytes_read(source, fetched.rows),
        searches=tuple(replace(search, radius=old.radius) for search in begun.searches),
    )  # fmt: skip


def _other_sides(problem: OutlierBase, found: Difference) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Rows (m,) that are on another side than before, or count otherwise, and their sides now."""
    now = signs_of(found.codes_after, found.weights_after, problem.codes)
    other = np.flatnonzero(now != signs_of(found.codes_before, found.weights_before, problem.codes))
    return found.ids[other], now[other]


def _fetched(source: Source, ids: NDArray[np.int64], signs: NDArray[np.int8], fetched: RowFetcher) -> SignedRows:
    """Rows by their numbers, chunk by chunk."""
    parts: list[Any] = [SignedRows.nothing(source.features, source.dtype, sparse=source.sparse)]
    for chunk in np.unique(ids // source.chunk_rows).tolist():
        mine = np.flatnonzero(ids // source.chunk_rows == chunk)
        parts.append(SignedRows(ids[mine], fetched(ids[mine]), signs[mine]))
    return SignedRows.concatenate(parts)
