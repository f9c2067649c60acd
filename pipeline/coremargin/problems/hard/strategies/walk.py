"""Strategies that carry numbers from row to row, in the order of the store, like published stream algorithms. A pass is
a scan in parts of one chunk each. A worker walks through the chunk, starting with the numbers after the chunk before,
and the driver passes them on to the next one. So the bits do not depend on the workers, and a checkpoint after any
chunk contains the numbers.

The same read measures the results of the pass before: the strategy's own hyperplane, and the exact solution of the rows
that the walk used, which also gives the upper bound. A pass without an update therefore proves the last hyperplane.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.maths.named import below, under
from coremargin.maths.rows import as_float64, precision, products, take
from coremargin.problems.common.classes import mask_zero_weights
from coremargin.problems.common.driver_rows import isin_ids
from coremargin.problems.common.sent import ChunkRows, SentRows
from coremargin.problems.hard.probe import MarginProbe, MarginSummary
from coremargin.problems.hard.strategies.strategy import Strategy

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.rows import Rows
    from coremargin.problems.hard.state import Carried, HardMarginState, Hypothesis


@dataclass(frozen=True)
class WalkBlock:
    """The rows (n, d) float64 of a chunk that count, with signs and ids (n,), in the order of the store; n may be 0.

    name: the store's.
    """

    rows: Rows
    signs: NDArray[np.int8]
    ids: NDArray[np.int64]
    name: str


class Walk(Strategy):
    """A strategy that walks through the rows, pass after pass, until a pass changes nothing."""

    walks = True

    @abstractmethod
    def begin(self, source: Source, *, intercept: bool) -> Carried:
        """The numbers before the first row; "updates" is the number of updates."""

    @abstractmethod
    def walk(self, block: WalkBlock, carried: Carried) -> tuple[Carried, NDArray[np.intp]]:
        """The numbers after the rows of a block, and the positions of the rows that changed them."""

    @abstractmethod
    def hypothesis(self, carried: Carried) -> Hypothesis | None:
        """The hyperplane of these numbers; None before there is one."""

    def most_updates(self, state: HardMarginState, longest: float, *, intercept: bool) -> float | None:
        """The theorem's bound on the number of updates, from the proven margin; None without a theorem or a margin.

        longest: the length of the longest row.
        """
        return None

    def rows_sent(self, source: Source, working_set_rows: int) -> int:
        """0: only the rows that the walk used are sent."""
        return 0

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """All rows that the walk used."""
        return summary.sent


@dataclass(frozen=True)
class WalkSummary:
    """The numbers after a chunk, and its margins at the hypotheses; ``margins.sent``: new rows that the walk used."""

    carried: Carried
    margins: MarginSummary

    def merge(self, later: WalkSummary) -> WalkSummary:
        """The summary that has a chunk: a part of a pass reads only one."""
        return later if later.carried else self

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return under("carried", self.carried) | under("margins", self.margins.to_arrays())


@dataclass(frozen=True)
class WalkProbe:
    """Walk through a chunk; margins: the probe of the hypotheses to prove, if ``proves``, with ids of known rows."""

    strategy: Walk
    carried: Carried
    proves: bool
    margins: MarginProbe

    def narrow(self, block: Block) -> WalkProbe:
        """The same probe with only what this block needs."""
        return replace(self, margins=self.margins.narrow(block))

    def empty(self) -> WalkSummary:
        """The summary of no chunk."""
        return WalkSummary({}, self.margins.empty())

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> WalkSummary:
        """Inverse of ``WalkSummary.to_arrays``."""
        return WalkSummary(below("carried", arrays), MarginSummary.from_arrays(below("margins", arrays)))

    def __call__(self, source: Source, block: Block) -> WalkSummary:
        """Each row of the block's chunk is read once, for its margins and for the walk."""
        probe, carried = self.margins, self.carried
        summary, sent, lowest = probe.empty(), probe.empty().sent, probe.lowest_rows()
        longest = source.scalars().max_norm
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                codes = mask_zero_weights(part.codes, part.weights)
                if self.proves:
                    data = ChunkRows(chunk, part.start, part.rows, codes, float(longest[chunk]))
                    values = products(part.rows, probe.base, precision(part.rows))
                    summary = summary.merge(probe.evaluate(data, probe.directions, lowest, values))
                counted = np.flatnonzero(np.isin(codes, probe.codes))
                signs = np.where(codes[counted] == probe.codes[0], 1, -1).astype(np.int8)
                rows, ids = take(part.rows, counted), part.start + counted
                walked = WalkBlock(as_float64(rows), signs, ids, source.name)
                carried, touched = self.strategy.walk(walked, carried)
                new = touched[~isin_ids(ids[touched], probe.known_ids)]
                sent = sent.merge(SentRows.one_part(ids[new], take(rows, new), signs[new]))
        nothing = probe.empty()
        return WalkSummary(carried, replace(summary, sent=sent, chunks=nothing.chunks, chunk_lower=nothing.chunk_lower))
