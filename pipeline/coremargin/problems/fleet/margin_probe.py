"""What a worker does with a chunk for many hard margins at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import concatenate, many_products, precision, take
from coremargin.problems.fleet.probe import SLAB_BYTES, Columns, FleetProbe
from coremargin.problems.fleet.summary import without_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.problems.common.sent import ChunkRows
    from coremargin.problems.fleet.probe import Answer
    from coremargin.problems.fleet.summary import FleetSummary
    from coremargin.problems.hard.probe import MarginProbe


@dataclass(frozen=True)
class MarginFleetProbe(FleetProbe):
    """The questions of hard margins, which are judged by nobody on the way."""

    probes: tuple[MarginProbe, ...]

    def begun(self) -> Answer:
        """Of chunks as a whole; which rows are sent is decided when all of the block are known."""
        return MarginScan(self)


class MarginScan:
    """The answers to hard margins over the chunks of a block."""

    def __init__(self, probe: MarginFleetProbe) -> None:
        self._probe, self._probes, self._member_views = probe, probe.probes, probe.member_views
        self._answers = [own.empty() for own in self._probes]
        self._directions = [own.directions for own in self._probes]
        self._lowest = [own.lowest_rows() for own in self._probes]

    def ask(self, source: Source, chunk: int) -> None:
        """Take one chunk: one product with all hypotheses, or a few where their values would fill the memory."""
        for data, fold, _ in self._probe.parts_of(source, chunk):
            self._take(data, fold)

    def _take(self, data: ChunkRows, fold: NDArray[np.int64] | None) -> None:
        """Take a part of a chunk."""
        step = max(1, SLAB_BYTES // (2 * data.rows.dtype.itemsize * len(data.codes)))
        for first in range(0, len(self._probes), step):
            group = range(first, min(first + step, len(self._probes)))
            columns = Columns.of([self._probes[k].base for k in group])
            values = many_products(data.rows, columns.base, precision(data.rows))
            for k, places in zip(group, columns.places, strict=True):
                seen = replace(data, codes=self._member_views[k].codes(data.codes, fold))
                found = self._probes[k].evaluate(seen, self._directions[k], self._lowest[k], values[places])
                self._answers[k] = self._answers[k].merge(found)

    def finished(self) -> FleetSummary:
        """The answers without their rows, and the rows that any of them sends."""
        parts = [
            probe.finish(answer, lowest)
            for probe, answer, lowest in zip(self._probes, self._answers, self._lowest, strict=True)
        ]
        ids, first = np.unique(np.concatenate([part.row_id for part in parts]), return_index=True)
        rows = take(concatenate([part.sent.rows for part in parts]), first)
        return replace(self._probe.empty(), parts=tuple(map(without_rows, parts)), row_id=ids, row_x=rows)
