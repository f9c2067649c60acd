"""Several classes at once that go on from an earlier commit of their store: what rows have answered stands.

What a scan knows of a store are sums, counts and a smallest margin, all at one hypothesis, and rows near a change of
sides. Of rows whose label or weight has changed, what they had added is taken out, and what they add now is put in;
they are read once more for that, by their numbers. New rows are asked at the same hypothesis. Then the bounds are those
of all rows, as after a scan of all of them. Where they prove too little, all rows are scanned at another hypothesis.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.problem import NothingToGoOnFrom
from coremargin.maths.margin import is_certified
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.common.sizes import row_bytes
from coremargin.problems.common.warm_start import AppendedRows, RowFetcher, appended_to_last_chunk
from coremargin.problems.multiclass.base import ClassesBase
from coremargin.problems.multiclass.state import ClassesState

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.problems.multiclass.probe import ClassesProbe
    from coremargin.problems.multiclass.summary import ClassesSummary

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

#: Where more than this share of the rows has changed, all of them are asked anew: sums that are nearly taken out again
#: keep the rounding of what they were.
MANY = 0.1
_CODES, _CONSTANT, _CLASS_C = "terms_codes", "terms_constant", "terms_class_c"


@dataclass(frozen=True)
class Onward(ClassesBase):
    """How they go on."""

    @property
    @abstractmethod
    def class_c(self) -> Array | None:
        """c (K,) of a row of weight 1 of each class; None for the hard margin."""

    @abstractmethod
    def probe(self, state: ClassesState) -> ClassesProbe:
        """The question of the next scan."""

    @abstractmethod
    def update(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """The state after a scan."""

    @abstractmethod
    def before(self, old: ClassesState, hurt: Ids) -> ClassesState:
        """A last state as one that goes on, with what rows have answered at its hypothesis, if that still matters.

        hurt (m,): rows with other labels or weights. Raises NothingToGoOnFrom.
        """

    @abstractmethod
    def kept(self, state: ClassesState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """What ``onward`` takes."""

    def in_terms(self, state: ClassesState) -> Mapping[str, NDArray[Any]]:
        """The state, and what its numbers are in terms of."""
        terms = {_CODES: np.array(self.codes), _CONSTANT: np.array(self.constant)}
        return state.to_arrays() | terms | ({} if self.class_c is None else {_CLASS_C: self.class_c})

    def onward(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> ClassesState:
        """The state after the difference, at the hypothesis of before; chunks that are new wait for a scan.

        Raises NothingToGoOnFrom.
        """
        if not arrays:
            raise NothingToGoOnFrom("the model was not proven by sums that its rows could be taken out of")
        factor, old = self._factor(arrays), ClassesState.from_arrays(arrays)
        if len(difference.ids) > MANY * difference.before:
            raise NothingToGoOnFrom("labels or weights of too many rows have changed")
        if not difference and is_certified(old.lower, old.upper, self.epsilon):
            return replace(old, status="certified", round=1, new_rows=0, sample_bytes=0)
        state = replace(self.before(old, difference.ids), round=0, rows_below=None, new_rows=0)
        if state.asked is None or state.status != "running":
            return replace(state, sample_bytes=difference.nbytes)
        fetched = RowFetcher(self.source, self.memory_bytes // max(1, row_bytes(self.source)))
        answer = self._answered(state, state.asked.times(factor), difference, fetched)
        known = -(-difference.before // self.source.chunk_rows)
        read = difference.nbytes + bytes_read(self.source, fetched.rows)
        state = replace(state, asked=answer, answered=np.arange(known), sample_bytes=read)
        return state if known < self.source.chunks else self.update(state, self.probe(state).empty())

    def _factor(self, arrays: Mapping[str, NDArray[Any]]) -> float:
        """How many times as much a row costs now. Raises NothingToGoOnFrom: hypotheses are other numbers now."""
        if not np.array_equal(arrays[_CODES], self.codes):
            raise NothingToGoOnFrom("the rows are of other classes than before")
        if float(arrays[_CONSTANT]) != self.constant:
            raise NothingToGoOnFrom("rows are longer than before: the constant beside them is another one")
        if self.class_c is None:
            return 1.0
        ratio = self.class_c / arrays[_CLASS_C]
        if np.ptp(ratio) > 0:
            raise NothingToGoOnFrom("rows of one class cost more, those of another less, than before")
        return float(ratio[0])

    def _answered(
        self, state: ClassesState, answer: ClassesSummary, difference: Difference, fetched: RowFetcher
    ) -> ClassesSummary:
        """What all rows of chunks that there were before answer, from what they answered then."""
        source, probe = self.source, self.probe(state)
        new = appended_to_last_chunk(source, difference)
        touched = np.concatenate([difference.ids, new[0]])
        for chunk in np.unique(touched // source.chunk_rows).tolist():
            may_stop()
            then, now = self._rows(chunk, difference, new, fetched)
            close = np.isin(then.ids, answer.near.ids)
            for some, near in ((then.take(np.flatnonzero(close)), len(then)), (then.take(np.flatnonzero(~close)), 0)):
                answer = answer.less(replace(probe, keep=near).in_memory(source, [chunk], some))
            answer = answer.merge(probe.in_memory(source, [chunk], now))
        return replace(answer, near=answer.near.in_order())

    def _rows(
        self, chunk: int, found: Difference, new: AppendedRows, fetched: RowFetcher
    ) -> tuple[ClassRows, ClassRows]:
        """Rows of a chunk that changed, as they were; and as they are, with those that were appended to it."""
        size = self.source.chunk_rows
        mine, more = np.flatnonzero(found.ids // size == chunk), np.flatnonzero(new[0] // size == chunk)
        ids = np.concatenate([found.ids[mine], new[0][more]])
        codes = np.concatenate([found.codes_after[mine], new[1][more]])
        now = ClassRows(ids, fetched(ids), self.place[codes], np.concatenate([found.weights_after[mine], new[2][more]]))
        old = now.take(np.arange(len(mine)))
        then = replace(old, classes=self.place[found.codes_before[mine]], shares=found.weights_before[mine])
        return _counting(then), _counting(now)


def _counting(rows: ClassRows) -> ClassRows:
    """Those that have a label and a weight above 0."""
    return rows.take(np.flatnonzero((rows.classes >= 0) & (rows.shares > 0)))
