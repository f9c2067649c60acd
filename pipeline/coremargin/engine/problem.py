"""The protocol between a problem and the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Probe
    from coremargin.engine.result import Result


class State(Protocol):
    """What a problem knows between two scans."""

    round: int
    lower: float
    upper: float

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For checkpoints; the problem's ``restore`` gives the same bits back."""


@runtime_checkable
class Works(Protocol):
    """What a problem has besides when it works long between scans: it has an answer, and a bound, at any time."""

    def work(self, state: Any, run: Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Any]) -> Iterator[Any]:
        """States on the way to the next scan; ``run(function, tasks)`` has tasks done by the workers, in order.

        Ends where a scan is needed, or the problem is done. A state on the way is one to go on from.
        """


class Problem(Protocol):
    """One problem: where it starts, what it asks of every block, what it makes of the answer, when it is done."""

    @property
    def eager(self) -> bool:
        """True when a scan may end as soon as ``enough`` holds for the blocks so far."""

    @property
    def source(self) -> Source:
        """The rows."""

    @property
    def codes(self) -> tuple[int, ...]:
        """Label codes of the positive and the negative class, or of all classes. Raises LabelError, StoreError."""

    @property
    def least_block_bytes(self) -> int:
        """Blocks must be this large for the summaries of one scan to fit into the job's memory."""

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that ``start`` reads."""

    def start(self) -> Any:
        """The state before the first scan."""

    def probe(self, state: Any) -> Probe:
        """The question of the next scan; a pure function of the state."""

    def skip(self, state: Any) -> np.ndarray:
        """Chunks (c,) bool that the next scan need not read."""

    def enough(self, summary: Any) -> bool:
        """True when the blocks so far are all that the update needs."""

    def update(self, state: Any, summary: Any) -> Any:
        """The state after a scan; a pure function of the state and the merged summary."""

    def done(self, state: Any) -> bool:
        """True when no further scan can help."""

    def figures(self, state: Any) -> dict[str, Any]:
        """What a round is described by: lower, lower_now, upper, pool_rows, coreset_rows, new_rows, rows_below."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """A state from a checkpoint."""


class OneProblem(Problem, Protocol):
    """A problem with one model of two classes as its result; a fleet has many."""

    @property
    def codes(self) -> tuple[int, int]:
        """Label codes of the positive and the negative class. Raises LabelError, StoreError."""

    def result(self, state: Any) -> Result:
        """The model that a state stands for."""
