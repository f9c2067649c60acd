"""The protocol between a problem and the loop.

Hypotheses have no form here. A problem keeps them in its state, and its probe carries to the workers what it takes to
judge rows by them: a vector for a hyperplane; for a kernel the rows that carry it, and their weights; for a structure
whatever its argmax needs. The loop moves states and summaries, and asks for a ``Round`` to tell people.
What model the last state stands for, a vector or another one, is between a problem and its kind.
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
    from coremargin.engine.protocols import Probe
    from coremargin.engine.want import Want


class State(Protocol):
    """What a problem knows between two scans."""

    @property
    def round(self) -> int:
        """How many times ``update`` was called: checkpoints go by it."""

    @property
    def status(self) -> str:
        """A word: "running", or how it ended."""

    @property
    def sample_bytes(self) -> int:
        """Read so far besides scans."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For checkpoints; the problem's ``restore`` gives the same bits back."""


S = TypeVar("S", bound=State)
A_contra = TypeVar("A_contra", contravariant=True)  #: the summary that answers a scan


@dataclass(frozen=True)
class NextScan:
    """A scan by its number, from 1; the stage of the first one that is to be made, of so many, where it has any."""

    number: int
    stage: int | None = None
    stages: int | None = None


@dataclass(frozen=True)
class Round:
    """What is told of a state: a line of ``rounds.jsonl``, but for what the scan cost.

    number: of the last scan, 0 before the first; a scan that is made in parts has one number for all of them. part: so
    many of its parts are done, 0 when it is over; None where scans are never made in parts. stage: so many of its
    ``stages`` are done, where these parts are told one by one; None outside of them. status: as in the state.
    lower, upper: what is proven, infinite where nothing is; lower_now: what the last scan alone proved. pool_rows: held
    in the driver; coreset_rows: those that carry the proof; new_rows: those that the last scan sent; rows_below: those
    that it found below the upper bound, None where it did not count them. more: what only this kind of problem tells,
    by its key in ``rounds.jsonl``.
    """

    number: int
    status: str
    lower: float
    lower_now: float
    upper: float
    pool_rows: int
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
        """The scan that comes next, or goes on, and the stage of it; a read that was given up does not go on."""
        goes_on = self.part or not self.number
        if goes_on and self.stage is not None and self.stages and self.stage < self.stages:
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
            "pool_rows": self.pool_rows,
            "coreset_rows": self.coreset_rows,
            "new_rows": self.new_rows,
            "rows_below": self.rows_below,
            **self.more,
            **part,
        }


class Problem(Protocol[S, A_contra]):
    """One problem: where it starts, what it asks of every block, what it makes of the answer, when it is done."""

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
        """How many chunks each stage of the first read has; none where it is not made in stages."""

    @property
    def reads_again(self) -> bool:
        """Whether most chunks are read more than once."""

    @property
    def holds_all_rows(self) -> bool:
        """Whether the driver solves all rows, in memory; else it needs no more of larger stores."""

    @property
    def want(self) -> Want | None:
        """What memory would serve for rows; None where nobody knows."""

    def check(self) -> None:
        """Refuse what cannot be trained, before a row is read. Raises LabelError, StoreError, UsageError."""

    def start(self) -> S:
        """The state before the first scan."""

    def unsolved(self) -> S:
        """The state before anything was solved, of a job whose time is over before ``start`` is; found at once."""

    def probe(self, state: S) -> Probe:
        """The question of the next scan; a pure function of the state."""

    def skip(self, state: S) -> np.ndarray:
        """Chunks (c,) bool that the next scan need not read."""

    def ahead(self, state: S) -> np.ndarray:
        """Chunks, increasing, that the scan after the next is about, where that is known before the next is made."""

    def enough(self, summary: A_contra) -> bool:
        """True when the blocks so far are all that the update needs."""

    def update(self, state: S, summary: A_contra) -> S:
        """The state after a scan; a pure function of the state and the merged summary."""

    def done(self, state: S) -> bool:
        """True when no further scan can help."""

    def broken(self, state: S) -> S:
        """The state at which float64 came to its end in a solve: with its bounds, and done."""

    def round_of(self, state: S) -> Round:
        """What is told of a state."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> S:
        """A state from a checkpoint."""


AnyProblem: TypeAlias = Problem[Any, Any]


@dataclass(frozen=True)
class BaseProblem(Generic[S, A_contra]):
    """What most problems say: every scan reads all rows to the last, and goes on until the status is no longer running.

    source: the rows.
    """

    source: Source

    @property
    def eager(self) -> bool:
        """No scan ends early."""
        return False

    @property
    def least_block_bytes(self) -> int:
        """Any size will do: what a scan sends is bounded in another way."""
        return 1

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """No stages."""
        return ()

    @property
    def reads_again(self) -> bool:
        """Where the first read is not made in stages."""
        return not self.stage_chunks

    @property
    def holds_all_rows(self) -> bool:
        """Some of them."""
        return False

    @property
    def want(self) -> Want | None:
        """Nobody knows."""
        return None

    def skip(self, state: S) -> np.ndarray:
        """Nothing."""
        return np.zeros(self.source.chunks, bool)

    def ahead(self, state: S) -> np.ndarray:
        """Nobody knows."""
        return np.zeros(0, np.intp)

    def enough(self, summary: A_contra) -> bool:
        """Never before the last block."""
        return False

    def done(self, state: S) -> bool:
        """True when there is nothing left to prove or to gain."""
        return state.status != "running"

    def broken(self, state: S) -> S:
        """The state, "stalled"."""
        return replace(state, status="stalled")  # type: ignore[type-var]

    def warm_start_state(self, state: S, allowance: Allowance) -> Mapping[str, np.ndarray]:
        """Of a problem that goes on with another commit, what it needs for that: all of the state."""
        return state.to_arrays()

    def asking_more(self, state: S) -> S | None:
        """Nothing more has to be asked for that."""
        return None


@runtime_checkable
class WorksBetweenScans(Protocol[S]):
    """What a problem has besides when it works long between scans: it has an answer, and a bound, at any time."""

    def work(self, state: S, run: Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Any]) -> Iterator[S]:
        """States on the way to the next scan; ``run(function, tasks)`` has tasks done by the workers, in order.

        Ends where a scan is needed, or the problem is done. A state on the way is one to go on from.
        """


@runtime_checkable
class QueriesLabels(Protocol[S]):
    """What a problem has besides when it needs to know what no row says: labels that a person or a file has.

    Answers come as they come: some of those asked for, in any order. Where none comes the job ends, with what is
    proven, and can be gone on with. A job that is killed may ask once more: whoever answers keeps the answers.
    """

    def questions(self, state: S) -> Sequence[int]:
        """Ids of the rows whose labels are needed before the next scan, the most wanted first; none: a scan is next."""

    def answered(self, state: S, labels: Mapping[int, Any]) -> S:
        """The state that knows these labels, by row id; at least one, and of no rows that were not asked for."""


class CannotWarmStart(Exception):
    """The warm-start state is of no use for the present rows, as the message says: training is from scratch."""


@runtime_checkable
class WarmStarts(Protocol[S]):
    """What a problem has in addition if it can start from an earlier commit of its rows: the basis of retraining.

    The certificate is the usual one, of all rows. Only changed rows are read, and what their change leaves unproven.
    """

    def warm_start_state(self, state: S, allowance: Allowance) -> Mapping[str, Any]:
        """The part of the last state to store with the model, as plain arrays, within the allowance.

        Large arrays that are seldom needed may be ``LazyArrays`` (data/lazy_arrays.py), under one name.
        """

    def asking_more(self, state: S) -> S | None:
        """A last state with further rounds, which prove no more and collect warm-start state; None if it is complete.

        Called for a model that was retrained from scratch: it is likely to be retrained again.
        """

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> S:
        """The state from which the usual rounds continue; arrays: from ``warm_start_state``, at the earlier commit.

        Rows that it reads count as ``sample_bytes``. Raises CannotWarmStart if training from scratch is as good.
        """
