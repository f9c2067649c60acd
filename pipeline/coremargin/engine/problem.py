"""The protocol between a problem and the loop.

The loop passes states and summaries, and a ``Round`` for reports. It does not know what a hypothesis looks like: that
is part of a problem's state, and the probe sends workers what they need to evaluate rows (a vector for a hyperplane;
support vectors and their weights for a kernel; the input of the argmax for a structured output).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.engine.allowance import Allowance
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.engine.protocols import Probe


class State(Protocol):
    """The state of a problem between two scans."""

    @property
    def round(self) -> int:
        """The number of calls of ``update``, by which checkpoints identify a state."""

    @property
    def status(self) -> str:
        """Either "running", or how it ended."""

    @property
    def sample_bytes(self) -> int:
        """Bytes read so far outside of scans."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For checkpoints; the problem's ``restore`` gives the same bits back."""


S = TypeVar("S", bound=State)
A_contra = TypeVar("A_contra", contravariant=True)  #: the summary that answers a scan


@dataclass(frozen=True)
class NextScan:
    """A scan by its number, from 1, and the next stage of the first scan, if it has stages."""

    number: int
    stage: int | None = None
    stages: int | None = None


@dataclass(frozen=True)
class Round:
    """The report of a state: a line of ``rounds.jsonl``, without the cost of the scan.

    number: of the last scan, 0 before the first; the parts of a scan have the same number. part: the number of its
    finished parts, 0 when it is over; None if scans have no parts. stage: the number of its finished ``stages``, if
    parts are stages; else None. status: as in the state. lower, upper: the proven bounds, infinite if there are none;
    lower_now: the bound of the last scan alone. working_set_rows: rows in the driver's working set; coreset_rows: rows of the
    proof; new_rows: rows that the last scan sent; rows_below: rows below the upper bound in that scan, None if it did
    not count them. more: further entries of this kind of problem, by their keys in ``rounds.jsonl``.
    """

    number: int
    status: str
    lower: float
    lower_now: float
    upper: float
    working_set_rows: int
    coreset_rows: int
    new_rows: int
    rows_below: int | None = None
    part: int | None = None
    stage: int | None = None
    stages: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the last scan is over."""
        return not self.part

    @property
    def next_scan(self) -> NextScan:
        """The next scan, or the current one and its next stage; a first read that was given up has no next stage."""
        continues = self.part or not self.number
        if continues and self.stage is not None and self.stages and self.stage < self.stages:
            return NextScan(1, self.stage + 1, self.stages)
        return NextScan(self.number + self.finished)

    @property
    def figures(self) -> dict[str, Any]:
        """Bounds and counts, by their keys in ``rounds.jsonl``."""
        part: dict[str, int | None] = {} if self.part is None else {"part": self.part}
        if self.stage is not None:
            part = {"stage": self.stage, "stages": self.stages}
        return {
            "lower": self.lower,
            "lower_now": self.lower_now,
            "upper": self.upper,
            "working_set_rows": self.working_set_rows,
            "coreset_rows": self.coreset_rows,
            "new_rows": self.new_rows,
            "rows_below": self.rows_below,
            **self.more,
            **part,
        }


class Problem(Protocol[S, A_contra]):
    """One problem: its first state, its probe of every block, its update by the merged summary, and when it is done."""

    @property
    def source(self) -> Source:
        """The rows."""

    @property
    def eager(self) -> bool:
        """True when a scan may end as soon as ``enough`` holds for the blocks so far."""

    @property
    def least_block_bytes(self) -> int:
        """Blocks must be this large for the summaries of one scan to fit into the job's memory."""

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that ``start`` reads, or the first stage."""

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """How many chunks each stage of the first read has; empty if there are no stages."""

    @property
    def reads_again(self) -> bool:
        """Whether most chunks are read more than once."""

    @property
    def holds_all_rows(self) -> bool:
        """Whether the driver solves all rows in memory, so that it needs more for larger stores."""

    @property
    def memory_need(self) -> MemoryNeed | None:
        """The memory that would help for rows; None if it is not known."""

    def check(self) -> None:
        """Check before reading rows that the job can be trained. Raises LabelError, StoreError, UsageError."""

    def start(self) -> S:
        """The state before the first scan."""

    def unsolved(self) -> S:
        """The state of a job whose time limit is reached during ``start``; needs no solve."""

    def probe(self, state: S) -> Probe:
        """The probe of the next scan; a pure function of the state."""

    def skip(self, state: S) -> np.ndarray:
        """Chunks (c,) bool that the next scan need not read."""

    def ahead(self, state: S) -> np.ndarray:
        """Chunks, increasing, that the scan after the next one will read, if known before the next one."""

    def enough(self, summary: A_contra) -> bool:
        """True if the update needs no further blocks."""

    def update(self, state: S, summary: A_contra) -> S:
        """The state after a scan; a pure function of the state and the merged summary."""

    def done(self, state: S) -> bool:
        """True when no further scan can help."""

    def broken(self, state: S) -> S:
        """The final state, with its bounds, after a solve failed for lack of precision in float64."""

    def round_of(self, state: S) -> Round:
        """The report of a state."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> S:
        """A state from a checkpoint."""


AnyProblem: TypeAlias = Problem[Any, Any]


@dataclass(frozen=True)
class BaseProblem(Generic[S, A_contra]):
    """Defaults of most problems: every scan reads all rows, and there are scans while the status is "running".

    source: the rows.
    """

    source: Source

    @property
    def eager(self) -> bool:
        """No scan ends early."""
        return False

    @property
    def least_block_bytes(self) -> int:
        """Any size: what a scan sends is bounded in another way."""
        return 1

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """No stages."""
        return ()

    @property
    def reads_again(self) -> bool:
        """True unless the first read is made in stages."""
        return not self.stage_chunks

    @property
    def holds_all_rows(self) -> bool:
        """No."""
        return False

    @property
    def memory_need(self) -> MemoryNeed | None:
        """Not known."""
        return None

    def skip(self, state: S) -> np.ndarray:
        """Nothing."""
        return np.zeros(self.source.chunks, bool)

    def ahead(self, state: S) -> np.ndarray:
        """Not known."""
        return np.zeros(0, np.intp)

    def enough(self, summary: A_contra) -> bool:
        """Never before the last block."""
        return False

    def done(self, state: S) -> bool:
        """True if the status is no longer "running"."""
        return state.status != "running"

    def broken(self, state: S) -> S:
        """The state, "stalled"."""
        return replace(state, status="stalled")  # type: ignore[type-var]

    def warm_start_state(self, state: S, allowance: Allowance) -> Mapping[str, np.ndarray]:
        """All of the state."""
        return state.to_arrays()

    def extend_for_warm_start(self, state: S) -> S | None:
        """None: no further rounds are needed."""
        return None


@runtime_checkable
class WorksBetweenScans(Protocol[S]):
    """Further methods of a problem with long solves between scans. It has a hypothesis and a bound at any time."""

    def work(self, state: S, run: Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Any]) -> Iterator[S]:
        """States before the next scan; ``run(function, tasks)`` runs tasks on the workers, in order.

        Ends when a scan is needed or the problem is done. A run can resume from each state.
        """


@runtime_checkable
class QueriesLabels(Protocol[S]):
    """Further methods of a problem that needs labels from a person or a file, as the store does not have them.

    Labels may be for some of the queried rows, in any order. Without any, the job ends with the bounds proven so far,
    and can be resumed. A killed job may query the same rows again, so the caller has to store the labels.
    """

    def questions(self, state: S) -> Sequence[int]:
        """Ids of the rows whose labels are needed before the next scan, the most useful first; none: a scan is next."""

    def answered(self, state: S, labels: Mapping[int, Any]) -> S:
        """The state with these labels, by row id: at least one, and only of queried rows."""


class CannotWarmStart(Exception):
    """The warm-start state is of no use for these rows: training starts from scratch. The message has the reason."""


@runtime_checkable
class WarmStarts(Protocol[S]):
    """Further methods of a problem that can start from an earlier commit of its rows: the basis of retraining.

    The certificate is about all rows, as usual. Only changed rows are read, and chunks whose bounds no longer suffice.
    """

    def warm_start_state(self, state: S, allowance: Allowance) -> Mapping[str, Any]:
        """The part of the last state to store with the model, as plain arrays, within the allowance.

        Large arrays that are seldom needed may be ``LazyArrays`` (data/lazy_arrays.py), under one name.
        """

    def extend_for_warm_start(self, state: S) -> S | None:
        """A last state with further rounds, which prove no more and collect warm-start state; None if it is complete.

        Called for a model that was retrained from scratch: it is likely to be retrained again.
        """

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> S:
        """The state from which the usual rounds continue; arrays: from ``warm_start_state``, at the earlier commit.

        Rows that it reads count as ``sample_bytes``. Raises CannotWarmStart if training from scratch is as good.
        """
