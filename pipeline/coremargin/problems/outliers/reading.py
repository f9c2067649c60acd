"""The first read of a store for outliers: in stages, each asked with the best directions on the rows before it.

Of a stage's chunks the rows come home that any of these directions, by as much as they may still move, can have below
its margin; the others leave floors (home.py). Outliers are taken to be spread evenly over the store: a direction on a
share of the rows leaves out as many of them, and some more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import Found, soft_directions
from coremargin.problems.common.driver_rows import SignedRows
from coremargin.problems.hard.forecast import cuts, forecast
from coremargin.problems.hard.probe import MarginProbe
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.outliers.home import at_home, margins_of, standing
from coremargin.problems.outliers.start import Seen, begin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.margin import Array
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.common.stages import Stages
    from coremargin.problems.hard.probe import MarginSummary
    from coremargin.problems.outliers.state import OutlierState


@dataclass(frozen=True)
class Reading:
    """How a store is read once: its stages, rows of each class that directions need, rows that there is memory for."""

    source: Source
    codes: tuple[int, int]
    stages: Stages
    ks: tuple[int, ...]
    intercept: bool
    keep: int
    ordinary: int
    most: int

    def question(self, state: OutlierState) -> MarginProbe:
        """What the chunks of the next stage are asked."""
        chunks, room = self.chunks(state), max(0, self.most - len(state.home))
        rows = room if state.stage + 1 == state.stages else room // 2
        return self._question(state, chunks, state.home, rows)

    def chunks(self, state: OutlierState) -> NDArray[np.intp]:
        """Those of the next stage; where a job goes on all that nothing is known of."""
        return state.ledger.unread if state.onward else self.stages.chunks(state.stage)

    def first(self, state: OutlierState, sent: SentRows) -> OutlierState:
        """After the first stage, with all of its rows."""
        rows = _as_rows(sent)
        found = begin(rows, self._share(0), self.ks, self.keep, self.ordinary, intercept=self.intercept)
        state = replace(
            state, round=state.round + 1, stage=1, spare=found.ordinary, centre=found.centre, radius=found.radius,
            low=found.low, high=found.high, next_directions=found.directions, new_rows=len(rows),
        )  # fmt: skip
        before = self._main(rows, found.before)
        state = self._turned(state, rows, before, 1.0)
        chunks = self.stages.chunks(0)
        if self.stages.count == 1 and len(rows) <= self.most:  # what need not be read again stays, all of it
            nothing_else = np.full((len(chunks), 2), np.inf)
            return replace(state, home=rows, ledger=state.ledger.record(chunks, nothing_else, state.next_directions[0]))
        probe = self._question(state, chunks, rows, self.most // 2)
        return self._recorded(state, probe.evaluate_in_memory(self.source, chunks, rows.ids, rows.rows, rows.signs))

    def later(self, state: OutlierState, answer: MarginSummary) -> OutlierState:
        """After one of the other stages."""
        read, before = state.stage, Hypothesis(state.next_directions[0], state.offset)
        state = self._recorded(state, answer)
        state = replace(state, round=state.round + 1, stage=state.stage + 1, new_rows=len(answer.sent))
        if not state.reading:
            return state
        pace = self.stages.pace(read)
        starts = list(state.next_directions)
        if len(state.home):  # none came home where all lie far from where they could matter
            starts += soft_directions(self._search_rows(state, starts))
        at = Found(before.w, before.b, 0.0)
        wrong = int(margins_of(state.home, at, -1.0, 1.0, 2)[:, 0].sum())
        seen = Seen(state.home, self._share(state.stage - 1), self.keep, state.centre, self.intercept, wrong)
        state = replace(state, next_directions=seen.directions(self.ks, starts[:1], starts))
        return self._turned(state, state.home, before, pace)

    def _share(self, stage: int) -> float:
        return float(np.count_nonzero(self.stages.stage_of_chunk <= stage) / len(self.stages.stage_of_chunk))

    @property
    def longest(self) -> float:
        """No row is longer."""
        return float(self.source.scalars().max_norm.max())

    def _search_rows(self, state: OutlierState, directions: list[Array]) -> SearchRows:
        """The lowest rows at home under these directions."""
        lowest = at_home(state.home, np.array(directions), self.keep, self.longest)
        return SearchRows(lowest.row_x, lowest.row_sign, state.centre, intercept=self.intercept)

    def _main(self, rows: SignedRows, w: Array) -> Hypothesis:
        """The direction for the most outliers, with its offset on these rows."""
        found = standing(rows, w[None], self.ks[-1:], self.intercept, self.longest)[0]
        return Hypothesis(w, found.b)

    def _turned(self, state: OutlierState, rows: SignedRows, before: Hypothesis, pace: float) -> OutlierState:
        """With the offset of the first direction on these rows, and what is to be reckoned with after this move."""
        now = self._main(rows, state.next_directions[0])
        return replace(state, offset=now.b, move=forecast(before, now, pace, state.move))

    def _question(self, state: OutlierState, chunks: NDArray[Any], rows: SignedRows, most: int) -> MarginProbe:
        """For the rows that may matter to directions whose margins on ``rows`` are known; so many at most."""
        source, w = self.source, state.next_directions[0]
        known = standing(rows, state.next_directions, self.ks, self.intercept, self.longest)
        return MarginProbe(
            base=w[:, None], mix=np.ones((1, 1)), offset=state.offset, codes=self.codes,
            level=known[-1].margin, keep=1, keep_per_chunk=most / (2 * max(1, len(chunks))),
            known_ids=state.home.ids, low=state.low, high=state.high, bins=state.histogram.shape[1],
            dtype=source.dtype.name, chunk_rows=source.chunk_rows, sparse=source.sparse,
            cut_chunks=chunks, cuts=self._cuts(state, chunks, known),
        )  # fmt: skip

    def _cuts(self, state: OutlierState, chunks: NDArray[Any], known: list[Found]) -> Array:
        """Values of y w.x (m, 2), w the first direction, above which no row matters to the best direction of any k."""
        found = np.full((len(chunks), 2), -np.inf)
        main = np.append(state.next_directions[0], state.offset)
        for each in known:
            if each is not known[-1] and not each.margin > 0:  # nothing is separated: no floor could help
                continue
            mine = cuts(self.source, chunks, state.move, each.margin, state.offset)
            away = np.append(each.w, each.b) - main
            if away.any():
                mine = mine + cuts(self.source, chunks, away, 0.0, 0.0)
            found = np.maximum(found, mine)
        return found

    def _recorded(self, state: OutlierState, answer: MarginSummary) -> OutlierState:
        """With the rows that a stage sent, and floors of the others at the first direction."""
        home = joined(state.home, _as_rows(answer.sent))
        ledger = state.ledger.record(answer.chunks, answer.chunk_lower, state.next_directions[0])
        return replace(state, home=home, ledger=ledger, histogram=state.histogram + answer.histogram)


def joined(home: SignedRows, coming: SignedRows) -> SignedRows:
    """All of them in the order of their ids."""
    if not len(home) or not len(coming):
        return (home if len(home) else coming).in_order()
    return SignedRows.concatenate([home, coming]).in_order()


def _as_rows(sent: SentRows) -> SignedRows:
    return SignedRows(sent.ids, sent.rows, sent.signs)
