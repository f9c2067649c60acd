"""What a worker does with a block of examples, and its summary: losses at two hypotheses, and contradicted examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.rows import lengths
from coremargin.maths.structures.chain import Sequences, losses_at, values_of
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.structured.examples import faults_named

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.maths.structures.labellings import Labellings
    from coremargin.problems.structured.examples import ExampleReader

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StructuredSummary:
    """Sums over the examples of some blocks, and the examples that are sent.

    losses (2,): sum c_i H_i at the two hypotheses to prove, rounded up; margins (2,): of a hard margin their smallest
    ones there, times ||w||, rounded down. counts (3,): of examples, rows, and examples
    that are sent. reach (1,): sum c_i times the lengths of the rows, which bounds sums of psi.
    """

    losses: Array
    margins: Array
    counts: NDArray[np.int64]
    reach: Array
    sent: Sequences

    def merge(self, later: StructuredSummary) -> StructuredSummary:
        """The summary of both."""
        return StructuredSummary(
            self.losses + later.losses,
            np.minimum(self.margins, later.margins),
            self.counts + later.counts,
            self.reach + later.reach,
            Sequences.concatenate([self.sent, later.sent]),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return state_to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> StructuredSummary:
        """Inverse of ``to_arrays``."""
        makers = {"sent": Sequences.from_arrays}
        return cls(**state_from_arrays(cls, arrays, makers))


@dataclass(frozen=True)
class StructuredProbe:
    """The probe of a part of a pass.

    w (D,): examples are sent that contradict their duals there by more than ``settled``; all if that is below 0.
    proven (m, D): up to two hypotheses whose losses are summed up.
    """

    reader: ExampleReader
    w: Array
    proven: Array
    duals: Labellings
    settled: float
    features: int
    dtype: str
    ends: NDArray[np.int64]  #: number of the first example after each chunk

    def narrow(self, block: Block) -> StructuredProbe:
        """The probe with the duals of one block."""
        first, last = block.chunks[0], block.chunks[-1]
        start = int(self.ends[first - 1]) if first else 0
        return replace(self, duals=self.duals.between(start, int(self.ends[last])))

    def empty(self) -> StructuredSummary:
        """The summary of no examples."""
        reader = self.reader
        none = Sequences.nothing(
            self.features, np.dtype(self.dtype), reader.costs, reader.constant, chained=reader.chained
        )
        none = replace(none, structure=reader.structure)
        return StructuredSummary(np.zeros(2), np.full(2, np.inf), np.zeros(3, np.int64), np.zeros(1), none)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> StructuredSummary:
        """A summary from a checkpoint."""
        found = StructuredSummary.from_arrays(arrays)
        return replace(found, sent=replace(found.sent, structure=self.reader.structure))

    def __call__(self, source: Source, block: Block) -> StructuredSummary:
        """The summary of one block."""
        found = self.empty()
        for examples in self.reader.read(source, block.chunks):
            if len(examples):
                with faults_named(source, self.reader):
                    found = found.merge(self._summarise(examples))
        return found

    def _summarise(self, examples: Sequences) -> StructuredSummary:
        losses, margins, hard = np.zeros(2), np.full(2, np.inf), self.reader.hard
        for k, w in enumerate(self.proven):
            at = losses_at(examples, w, hard=hard)
            if hard:
                margins[k] = -float((at.values + at.errors).max())
                continue
            losses[k] = exact_sum(examples.c * (np.maximum(at.values, 0.0) + at.errors)) * (1 + 1e-15)
        c = np.ones(len(examples)) if hard else examples.c
        reach = 0.0  # of a structure of the user, the ascent adds it
        if self.reader.structure is None:
            sizes = lengths(examples.rows) + examples.constant + 1.0
            reach = float(c.repeat(np.diff(examples.offsets)) @ sizes)
        sent = examples
        if self.settled >= 0:
            here = losses_at(examples, self.w, hard=hard).values
            known = -1.0 if hard else values_of(examples, self.duals.of(examples.ids), self.w)
            sent = examples.take(np.flatnonzero(here - known > self.settled))
        counts = np.array([len(examples), len(examples.labels), len(sent)], np.int64)
        return StructuredSummary(losses, margins, counts, np.array([reach]), sent)
