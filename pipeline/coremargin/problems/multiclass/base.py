"""What the hard and the soft margin of several classes share: the store's classes, the sample, the loop's protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.problem import BaseProblem
from coremargin.errors import UsageError
from coremargin.maths.multiclass import constant
from coremargin.maths.rows import gathered
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import class_codes, class_index
from coremargin.problems.common.driver_rows import ClassRows, read_labelled_rows
from coremargin.problems.common.map_rounding import widen_margin_bounds
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE, sample_chunks
from coremargin.problems.common.zone import Zone, has_moved
from coremargin.problems.multiclass.result import ClassesResult, result, round_of
from coremargin.problems.multiclass.state import ClassesState
from coremargin.problems.multiclass.summary import ClassesSummary
from coremargin.spec import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coremargin.engine.problem import Round
    from coremargin.maths.rows import Rows

Array = NDArray[np.float64]

#: Points of the segment from the best hypothesis (0) to the newest (1) that a scan evaluates besides the newest.
LINE_POINTS = (0.25, 0.5, 0.75, 0.9)
#: Hypotheses of K x (d + 1) that the driver holds at a time, of its own and in summaries on the way.
HYPOTHESES = 16


@dataclass(frozen=True)
class ClassesBase(BaseProblem[ClassesState, ClassesSummary]):
    """Several classes at once. epsilon in (0, 1); memory_bytes: for the rows in the driver."""

    epsilon: float
    intercept: bool = True
    memory_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    soft = False  # of the class: bounds are about a value, not a margin

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """Label codes of the classes, by label. Raises StoreError, LabelError."""
        return class_codes(self.source)

    def check(self) -> None:
        """Refuse what cannot be trained, before a row is read. Raises StoreError, LabelError, UsageError: memory."""
        classes = len(self.codes)
        size = 8 * classes * (self.source.features + 1)
        if HYPOTHESES * size > max(self.memory_bytes, 32 << 20):
            raise UsageError(
                f"{self.source.name}: {classes:,} classes x {self.source.features:,} features make hypotheses of "
                f"{format_size(size)}, of which {HYPOTHESES} are kept; memory = {format_size(self.memory_bytes)} is "
                f"too small: give more memory, or fewer features or classes"
            )

    @cached_property
    def place(self) -> NDArray[np.int32]:
        """Label code -> class."""
        return class_index(self.codes)

    @cached_property
    def constant(self) -> float:
        """The last entry of every row."""
        return constant(float(self.source.scalars().max_norm.max()), intercept=self.intercept)

    @property
    def shape(self) -> tuple[int, int]:
        """(K, d + 1), of a hypothesis."""
        return len(self.codes), self.source.features + 1

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that ``start`` reads."""
        wide = not self.soft and self.source.rows < self.source.features
        limit = max(self.sample_bytes, self.memory_bytes) if wide else self.sample_bytes
        return sample_chunks(self.source, self.codes, self.sample_share, limit)

    def unsolved(self) -> ClassesState:
        """No row is known; the hypothesis is zero."""
        origin, classes = np.zeros(self.shape), self.shape[0]
        nothing = ClassRows.nothing(self.source.features, sparse=self.source.sparse)
        return ClassesState(
            round=0, status="running", newest=origin, best=None, lower=0.0 if self.soft else -np.inf, upper=np.inf,
            pool=nothing, proof=nothing.bare() if self.soft else nothing, duals=np.zeros((0, classes)),
            reference=origin, confusion=np.zeros((classes, classes), np.int64), rows_below=None, new_rows=0,
            sample_bytes=0, lower_now=-np.inf, upper_at_eviction=np.inf, pool_rows=0, zone=Zone(widen=1, idle=0),
        )  # fmt: skip

    def sampled(self) -> tuple[ClassRows, int]:
        """The rows of the sample in the store's precision, and the bytes that were read for them."""
        source, chunks = self.source, self.sample_chunks
        nothing = ClassRows.nothing(source.features, source.dtype, sparse=source.sparse)
        most, bare = sum(source.span(c)[1] - source.span(c)[0] for c in chunks), [nothing.bare()]

        def rows() -> Iterator[Rows]:
            for chunk in chunks:
                may_stop()
                found = read_labelled_rows(source, chunk, self.place)
                bare.append(found.bare())
                yield found.rows

        found = gathered(rows(), most, nothing.rows)
        return replace(ClassRows.concatenate(bare), rows=found), bytes_read(source, most)

    def skip(self, state: ClassesState) -> NDArray[np.bool_]:
        """Chunks (c,) whose rows have answered already."""
        skipped = np.zeros(self.source.chunks, bool)
        skipped[state.answered] = state.asked is not None
        return skipped

    def _of_all(self, state: ClassesState, summary: ClassesSummary) -> tuple[ClassesState, ClassesSummary]:
        """A scan's answer with what other rows have answered before, and the state without that."""
        if state.asked is None:
            return state, summary
        whole = state.asked.merge(summary)
        return replace(state, asked=None, answered=state.answered[:0]), replace(whole, near=whole.near.in_order())

    @property
    def least_block_bytes(self) -> int:
        """A block's summary holds one sum of K x (d + 1): no more of them than fit into the memory."""
        source, size = self.source, 8 * self.shape[0] * self.shape[1]
        return source.nbytes * size // self.memory_bytes + 1 if self.soft else 1

    def round_of(self, state: ClassesState) -> Round:
        """What is told of a state."""
        return round_of(state)

    def result(self, state: ClassesState) -> ClassesResult:
        """The model that a state stands for."""
        return self.claimed(result(state, self.constant, soft=self.soft))

    def claimed(self, found: ClassesResult) -> ClassesResult:
        """A result as it is claimed: of mapped rows a little less."""
        return widen_margin_bounds(found, self.source, self.epsilon)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> ClassesState:
        """A state from a checkpoint."""
        return ClassesState.from_arrays(arrays)

    def points(self, state: ClassesState) -> Array:
        """Where on the segment from the best hypothesis to the newest a scan looks, the newest first."""
        return np.array([1.0, *LINE_POINTS]) if has_moved(state.newest, state.best) else np.ones(1)

    def at(self, state: ClassesState, t: float) -> Array:
        """The hypothesis at a point of that segment."""
        return state.newest if t == 1 or state.best is None else t * state.newest + (1 - t) * state.best
