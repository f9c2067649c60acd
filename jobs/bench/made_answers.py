"""Answers about rows that are made from a seed, without making most of them: what is left is the driver's work.

A hard-margin probe needs the rows of a chunk that lie lowest, and a bound for the others. Made chunks begin with their
lowest rows and tell the bound. Wherever that settles which rows a block sends, only these are made; elsewhere, while a
hypothesis still moves far, the real probe asks all rows. Rows sent are those that the real probe sends, floors are
true; the histogram counts the rows that were made.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from made import LOW, MARGIN

from coremargin.maths.margin import safe_projections
from coremargin.problems.common.sent import AllRowsProbe, SentRows
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.hard.probe import MarginProbe, binned

if TYPE_CHECKING:
    from made import MadeSource
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.problems.hard.probe import MarginSummary
    from coremargin.problems.hard.state import HardMarginState


@dataclass(frozen=True)
class MadeProbe(MarginProbe):
    """The question of a hard-margin scan to chunks that are made."""

    def __call__(self, source: Source, block: Block) -> MarginSummary:
        """The answer for one block; the source counts what it took."""
        started = time.thread_time()
        found = self._answer(source, block)
        cast("MadeSource", source).answering_s += time.thread_time() - started
        return found

    def _answer(self, source: Source, block: Block) -> MarginSummary:
        made, w = cast("MadeSource", source), self.base[:, 0]
        chunks = np.array(block.chunks)
        cuts = np.full((len(chunks), 2), np.inf)
        asked = np.isin(chunks, self.cut_chunks)
        cuts[asked] = self.cuts[np.searchsorted(self.cut_chunks, chunks[asked])]
        # No row has a smaller y w.x than its t allows: z is no longer than the longest.
        along = float(w @ made.u)
        astray = float(np.linalg.norm(w - along * made.u)) * made.across + 1e-5
        wanted = ((cuts.max() + astray) / along - MARGIN) / made.step if along > 0 else np.inf
        if self.mix.shape[1] > 1 or not wanted < LOW / 2:
            return super().__call__(source, block)
        low = max(2, int(np.ceil(wanted)))
        ids = (chunks[:, None] * made.chunk_rows + np.arange(low)).ravel()
        bound = (MARGIN + low * made.step) * along - astray
        return self._of_lowest(made, ids[ids < made.rows], cuts, bound)

    def _of_lowest(self, source: MadeSource, ids: NDArray[np.int64], cuts: NDArray[Any], bound: float) -> MarginSummary:
        """The answer of some chunks from their lowest rows ``ids`` (n,): others are above ``bound``, and all cuts."""
        rows, codes = source.make(ids)
        chunks, place = np.unique(ids // source.chunk_rows, return_inverse=True)
        kind = (codes != self.codes[0]).astype(int)
        signs = np.where(kind == 0, 1, -1).astype(np.int8)
        values = safe_projections(rows, signs, self.directions)[:, 0]
        fresh = np.isin(ids, self.known_ids, invert=True)
        sent = np.flatnonzero(fresh & (values < cuts[place, kind]))
        for k in range(2):
            mine = sent[kind[sent] == k]
            gone = mine[np.argsort(values[mine], kind="stable")[self.keep :]]
            sent = np.setdiff1d(sent, gone)
        left = fresh.copy()
        left[sent] = False
        floor = np.full((len(chunks), 2), bound)
        np.minimum.at(floor, (place[left], kind[left]), values[left])
        nothing = self.empty()
        smallest, where = nothing.smallest, nothing.smallest_id
        for k in range(2):
            mine = np.flatnonzero(kind == k)
            lowest = mine[values[mine].argmin()]
            smallest[k], where[k] = min(values[lowest], bound), ids[lowest]
        margins = values + signs * self.offset
        return replace(
            nothing, smallest=smallest, smallest_id=where, chunks=chunks, chunk_lower=floor,
            sent=SentRows.one_part(ids[sent], rows[sent], signs[sent]),
            below=np.array([np.count_nonzero(margins < self.level)]),
            histogram=np.stack([
                binned(margins[left & (kind == k)], self.low, self.high, self.bins) for k in range(2)
            ]),
        )  # fmt: skip


@dataclass(frozen=True)
class MadeMargin(HardMargin):
    """The hard margin, with its own block bounds, stages and solves; its questions are answered as above."""

    def probe(self, state: HardMarginState) -> MarginProbe | AllRowsProbe:
        """The same question."""
        found = super().probe(state)
        if not isinstance(found, MarginProbe):
            return found
        return MadeProbe(**{field.name: getattr(found, field.name) for field in fields(found)})
