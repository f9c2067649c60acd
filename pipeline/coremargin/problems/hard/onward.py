"""A hard margin that goes on from an earlier commit of its store: what still holds, and what has to be read.

    what happened                                upper bound                lower bound
    rows appended                                holds: the coreset is there    their chunks are read, the floors of all
                                                                            others hold
    rows out, none of them in the coreset        holds                      holds
    rows of the coreset out, or relabelled       is solved for without them floors hold; what they prove of the new
                                                                            hypothesis is another matter
    rows in, by a label or a weight, or into a   holds                      these rows are fetched: the pool takes them,
    chunk that was not full                                                 or the floor of their chunk

The pool is what makes this cheap. It holds all rows whose margin was within a slack of the bound, so that the floors,
which speak of all others, still prove hypotheses that have moved: a night then reads what is new and the pool. Where
they prove too little, chunks are read again, and what lies near comes home anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import NothingToGoOnFrom
from coremargin.formats.model_files import NEAR_ROWS
from coremargin.maths.margin import is_certified
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.fetched import TOO_MANY, Fetched, appended_to_last
from coremargin.problems.common.ids import among
from coremargin.problems.common.kept import few_rows, most_kept
from coremargin.problems.common.pool import Pool
from coremargin.problems.common.sent import SentRows
from coremargin.problems.common.start import check_scale, row_bytes, signs_of
from coremargin.problems.hard.base import HardMarginBase
from coremargin.problems.hard.forecast import ONWARD_PACE
from coremargin.problems.hard.near import FiledRows
from coremargin.problems.hard.state import HardMarginState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance

#: Rows that lie near take at most this share of the room in the pool.
ROOM_SHARE = 0.125
#: Where there are more rows than may be kept, so many of these stay.
CUT = 0.75
#: Of small stores, one row in so many goes on telling where margins lie.
SKETCH_SHARE = 10
#: Where more of the rows of a chunk come in by labels or weights, it is read as a whole.
FEW_OF_CHUNK = 0.25
#: The file of near rows is written anew when more rows than such a share of them have joined the pool.
FEW_OF_NEAR = 0.25
#: Chunks that are not known are read in two stages, one of so many first, where there are enough of them.
ONE_OF, ENOUGH_FOR_STAGES = 5, 10


class Onward(HardMarginBase):
    """How it goes on."""

    def kept(self, state: HardMarginState, allowance: Allowance) -> Mapping[str, Any]:
        """The state with no more rows than may be kept; most of these are filed."""
        most = most_kept(self.source, allowance)
        if not allowance.requested:
            most = min(most, max(int(self.near_share / CUT * self.source.rows), few_rows(self.source)))
        return allowance.within(lambda rows: self._with_filed(self.lightened(state, rows)).to_file(), most)

    def _with_filed(self, state: HardMarginState) -> HardMarginState:
        """With the rows that carry no bound near, not in the pool; where few have joined it these stay in it."""
        if state.near is not None and state.near.filed.is_lost:
            state = state.at_home()
        best, few = state.best, FEW_OF_NEAR * (0 if state.near is None else len(state.near))
        spare = ~((state.pool.weights > 0) | among(state.pool.ids, state.coreset.ids))
        if best is None or state.reading or np.count_nonzero(spare) <= few:
            return state
        state = state.at_home()
        spare = np.append(spare, np.ones(len(state.pool) - len(spare), bool))
        near = FiledRows.of(state.pool.take(spare), best.w, self.source.chunk_rows)
        return replace(state, pool=state.pool.take(~spare), near=near)

    def lightened(self, state: HardMarginState, most: int) -> HardMarginState:
        """The state with at most so many rows: of the pool those with the lowest margins, and what carries the bound.

        Where there are more, some room is left: else each night would read and write all of them for a few new ones.
        """
        if len(state.known) > max(len(state.pool.support), most):
            state = state.at_home()
            best = replace(state, newest=state.best or state.newest)
            stay = max(len(state.pool.support), int(CUT * most))
            state = self._without(state, state.pool.lowest(self._margins(best, state.pool), stay))
        few = np.arange(0, len(state.sketch), 1 + SKETCH_SHARE * len(state.sketch) // self.source.rows)
        return replace(state, sketch=state.sketch.take(few))

    def onward(self, arrays: Mapping[str, Any], difference: Difference) -> HardMarginState:
        """The state after the difference; nothing is read but rows that came in by labels or weights."""
        return self.gone_on(HardMarginState.from_arrays(arrays), difference, Fetched(self.source, self.pool_rows))

    def gone_on(self, old: HardMarginState, difference: Difference, fetched: Fetched) -> HardMarginState:
        """The same, from a state; fetched: what reads rows. Raises NothingToGoOnFrom."""
        if not self.rule.staged:
            raise NothingToGoOnFrom(f"strategy {self.strategy!r} looks at all rows again and again")
        check_scale(self.source)
        if not np.isfinite(old.upper) or not len(old.pool):
            raise NothingToGoOnFrom("the model had not come to a bound")
        if not difference and is_certified(old.lower, old.upper, self.epsilon):
            return replace(
                old, status="certified", round=0, stage=0, stages=0, new_rows=0, sample_bytes=0, near_lost=False
            )  # fmt: skip
        now = signs_of(difference.codes_after, difference.weights_after, self.codes)
        other = signs_of(difference.codes_before, difference.weights_before, self.codes) != now
        ids, now = difference.ids[other], now[other]
        hurt = bool(among(old.coreset.ids, ids).any())
        if old.status == "not_separable" and hurt:
            raise NothingToGoOnFrom("rows that proved that nothing separates the classes have other labels or are out")
        state = self._carried(old, ids, ids[now != 0], difference)
        state = state.at_home() if hurt else state
        if not (state.both_classes if self.intercept else len(state.known)):
            left = "no row near the hyperplane is left of one of the classes"
            raise NothingToGoOnFrom(
                f"{NEAR_ROWS} of the model is damaged, without which {left}" if state.near_lost else left
            )
        if state.status == "running" and hurt:
            before, nothing = state.newest, state.pool.take(np.arange(0))
            state = self._solve(replace(state, upper=np.inf, coreset=nothing), state.pool)
            state = self._forecast(state, before, ONWARD_PACE)
        if state.status == "running":
            new, codes, weights = appended_to_last(self.source, difference)
            beside = self.source.nbytes // self.source.rows - row_bytes(self.source)  # labels, and weights
            state = replace(state, sample_bytes=state.sample_bytes + len(new) * beside)
            every, signs = np.append(ids, new), np.append(now, signs_of(codes, weights, self.codes))
            state = self._with_entering(state, every[signs != 0], signs[signs != 0], fetched)
        return state if state.status != "running" else self._begun(state)

    def _slack(self, state: HardMarginState, every: Pool) -> float:
        """How far above the bound the margins are of so many rows as are to stay; every: the rows of a sample."""
        room = ROOM_SHARE * self.pool_rows / self.source.rows
        share = min(self.near_share, room)
        if share * len(every) < 1 or not np.isfinite(state.upper):
            return 0.0
        return max(0.0, float(np.quantile(self._margins(state, every), share)) - (1 - self.epsilon) * state.upper)

    def _carried(
        self, old: HardMarginState, ids: NDArray[np.int64], entering: NDArray[np.int64], difference: Difference
    ) -> HardMarginState:
        """The earlier state without rows ``ids``, which count otherwise now; some of them are ``entering`` a class."""
        source, core = self.source, old.coreset
        pool = old.pool.add(SentRows.of(core.ids, core.rows, core.signs))  # what proves the bound, if it had to go
        chunks, counts = np.unique(entering // source.chunk_rows, return_counts=True)
        unknown = chunks[counts > FEW_OF_CHUNK * source.chunk_rows]
        ledger = old.ledger.unknown(unknown, source.chunks)
        histogram = old.histogram + self._histogram(old, old.pool) if old.reading else old.histogram
        return replace(
            old, round=0, status="not_separable" if old.status == "not_separable" else "running", ledger=ledger,
            pool=self._rebalanced(pool.take(np.flatnonzero(~among(pool.ids, ids)))),
            near=None if old.near is None else old.near.without(ids),
            near_lost=old.near_lost and len(old.ledger.unread) > 0,  # if it was found out when all was proven
            newest=old.best or old.newest, best=None, lower=-np.inf, lower_now=-np.inf, rows_below=None, new_rows=0,
            upper_at_eviction=np.inf, sample_bytes=difference.nbytes, histogram=histogram, in_stages=True, stage=0,
            stages=0, onward=True,
        )  # fmt: skip

    def _with_entering(
        self, state: HardMarginState, ids: NDArray[np.int64], signs: NDArray[np.int8], fetched: Fetched
    ) -> HardMarginState:
        """With rows (m,) that did not count in these classes before, of chunks that will not be read."""
        chunks, before, broken = ids // self.source.chunk_rows, fetched.rows, False
        for chunk in np.unique(chunks[state.ledger.which[chunks] >= 0]).tolist():
            may_stop()
            mine = np.flatnonzero(chunks == chunk)
            coming = Pool.of(ids[mine], fetched(ids[mine]), signs[mine])
            broken |= self._breaks(state, coming)
            at_home = self._margins(state, coming) < (1 - self.epsilon) * state.upper + state.slack
            at_home |= state.ledger.lowering(chunks[mine], coming.rows, coming.signs)  # floors stay as high as they are
            if len(state.known) + np.count_nonzero(at_home) > self.pool_rows:
                raise NothingToGoOnFrom(TOO_MANY)
            beyond, come = coming.take(np.flatnonzero(~at_home)), coming.take(np.flatnonzero(at_home))
            state = replace(
                state, ledger=state.ledger.lowered(np.full(len(beyond), chunk), beyond.rows, beyond.signs),
                pool=state.pool.add(SentRows.of(come.ids, come.rows, come.signs)),
            )  # fmt: skip
        read = (fetched.rows - before) * row_bytes(self.source)
        state = replace(state, sample_bytes=state.sample_bytes + read)
        return self._forecast(self._solve(state, state.pool), state.newest, ONWARD_PACE) if broken else state

    def _begun(self, state: HardMarginState) -> HardMarginState:
        """At the first stage of the chunks that are not known, or with what is proven where all are."""
        unread = len(state.ledger.unread)
        if unread:
            return replace(state, stages=2 if unread >= ENOUGH_FOR_STAGES else 1)
        return self._stands_or_solved(state)

    def _stands_or_solved(self, state: HardMarginState) -> HardMarginState:
        """With what is proven of the newest hypothesis and, where that is too little, of the pool's own."""
        stands = self._proven(state)
        if stands.status == "certified":
            return stands
        state = self._solve(state, state.pool)
        return self._proven(state) if state.status == "running" else state

    def onward_chunks(self, state: HardMarginState) -> NDArray[np.intp]:
        """Of the chunks that are not known those of the next stage: a few all over, then the others."""
        unread = state.ledger.unread
        return unread if state.stage + 1 == state.stages else unread[::ONE_OF]

    def _rebalanced(self, pool: Pool) -> Pool:
        """The pool with dual weights that sum to 1 once more, of each class or in all; none where a class has none."""
        sides = [pool.signs > 0, pool.signs < 0] if self.intercept else [np.ones(len(pool), bool)]
        sums = [pool.weights[side].sum() for side in sides]
        weights = np.zeros(len(pool))
        if min(sums) > 0:
            for side, total in zip(sides, sums, strict=True):
                weights[side] = pool.weights[side] / total
        return pool.weighted(weights)
