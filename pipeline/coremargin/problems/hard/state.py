"""The state of a hard-margin job between two scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import DataError
from coremargin.maths.named import below, under
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays
from coremargin.problems.hard.block_bounds import BlockBounds, NearRows, in_memory
from coremargin.problems.hard.probe import MarginSummary

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Status = Literal["running", "certified", "not_separable", "stalled", "converged", "full"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Hypothesis:
    """w (d,) float64 with ||w|| = 1, and b: the decision value of x is w.x + b."""

    w: Array
    b: float

    @classmethod
    def zero(cls, features: int) -> Hypothesis:
        """The hypothesis before anything is solved."""
        return cls(np.zeros(features), 0.0)

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_w": self.w, f"{name}_b": np.array(self.b)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, Any]) -> Hypothesis:
        """Inverse of ``to_arrays``."""
        return cls(arrays[f"{name}_w"], float(arrays[f"{name}_b"]))


#: Numbers that a strategy carries from one update to the next, by name.
Carried = Mapping[str, NDArray[Any]]
_PROGRESS_NUMBERS = ("passes", "chunk", "updates_before", "proves")


@dataclass(frozen=True)
class Progress:
    """How far a strategy that carries numbers has come: finished passes, chunks of the current one, the numbers.

    updates_before: number of updates in earlier passes. proves: whether the pass also measures hypotheses, as all but
    the first do: ``newest`` and ``exact`` of the state. margins: summary of its chunks about these.
    """

    passes: int
    chunk: int
    carried: Carried
    updates_before: int
    proves: bool
    margins: MarginSummary

    @property
    def updates(self) -> int:
        """The number of updates so far."""
        return int(self.carried["updates"])

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        numbers = {field: np.asarray(getattr(self, field)) for field in _PROGRESS_NUMBERS}
        parts = {"carried": self.carried, "margins": self.margins.to_arrays()}
        return under(
            name, numbers | {key: one for part, arrays in parts.items() for key, one in under(part, arrays).items()}
        )

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Progress:
        """Inverse of ``to_arrays``."""
        own = below(name, arrays)
        return cls(
            passes=int(own["passes"]),
            chunk=int(own["chunk"]),
            carried=below("carried", own),
            updates_before=int(own["updates_before"]),
            proves=bool(own["proves"]),
            margins=MarginSummary.from_arrays(below("margins", own)),
        )


@dataclass(frozen=True)
class HardMarginState:
    """The state between two scans.

    newest: the hypothesis that the next scan proves; best: the one behind ``lower``. coreset: the rows and dual weights
    behind ``upper``. sketch: some rows for the range of margins. histogram (2, bins) over [low, high] and rows_below:
    from the last scan; rows_below is None before the first. lower_now: the bound that the last scan proved for its
    newest hypothesis.

    stage: how many of the ``stages`` of the first read are done; both are 0 if it is not made in stages. During the
    first read histogram and rows_below add up, each stage's at its own hypothesis, and the rows of the working set are
    counted at its end; in_stages: they come from that read. expected_move (d + 1,): by how much (w, b) may still move.
    slack: rows with margins up to this far above the bound are also sent, for hypotheses of later commits.

    warm_started: the state comes from an earlier commit, and the first read is that of the chunks without bounds.
    near_rows: rows that count as known like the working set, but are in a file; near_rows_lost: that file was damaged,
    and their chunks were read again.

    exact (d,), or (0,) if there is none: w of the working set's solution, if ``newest`` is a strategy's own hypothesis.
    progress: of a strategy that carries numbers.
    """

    round: int
    status: Status
    working_set: WorkingSet
    newest: Hypothesis
    best: Hypothesis | None
    lower: float
    upper: float
    coreset: WorkingSet
    block_bounds: BlockBounds
    sketch: WorkingSet
    histogram: NDArray[np.int64]
    low: float
    high: float
    rows_below: int | None
    new_rows: int
    upper_at_eviction: float
    sample_bytes: int
    expected_move: Array
    lower_now: float = -np.inf
    stage: int = 0
    stages: int = 0
    in_stages: bool = False
    slack: float = 0.0
    warm_started: bool = False
    near_rows: NearRows | None = None
    near_rows_lost: bool = False
    exact: Array = field(default_factory=lambda: np.zeros(0))
    progress: Progress | None = None

    @property
    def known_ids(self) -> NDArray[np.int64]:
        """Ids of the rows that block bounds are not about: those of the working set, and the near rows."""
        ids = self.working_set.ids
        return ids if self.near_rows is None else np.concatenate([ids, self.near_rows.ids])

    @property
    def both_classes(self) -> bool:
        """Whether rows of both classes are known."""
        signs = self.working_set.signs
        signs = signs if self.near_rows is None else np.append(signs, self.near_rows.signs)
        return bool((signs > 0).any() and (signs < 0).any())

    @property
    def reading(self) -> bool:
        """Whether stages of the first read are still to come."""
        return self.stage < self.stages

    def with_near_rows_loaded(self) -> HardMarginState:
        """Load the near rows into the working set; if their file is damaged, their chunks lose their bounds.

        Call it after a scan's block bounds are recorded, which are not about the near rows.
        """
        if self.near_rows is None:
            return self
        try:
            working_set = WorkingSet.concatenate([self.working_set, self.near_rows.read()])
        except DataError:
            bounds = self.block_bounds.without(self.near_rows.chunks, self.block_bounds.chunks)
            return replace(self, near_rows=None, near_rows_lost=True, block_bounds=bounds)
        return replace(self, near_rows=None, working_set=working_set)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return in_memory(self.to_file())

    def to_file(self) -> dict[str, Any]:
        """As ``to_arrays``, but near rows that are not loaded stay in their file."""
        return state_to_arrays(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> HardMarginState:
        """Inverse of ``to_arrays`` and of ``to_file``."""
        makers: dict[str, Any] = dict.fromkeys(("working_set", "coreset", "sketch"), WorkingSet.from_arrays)
        makers |= {"block_bounds": BlockBounds.from_arrays, "newest": Hypothesis.from_arrays}
        if "best_w" in arrays:
            makers["best"] = Hypothesis.from_arrays
        if "near_rows_ids" in arrays:
            makers["near_rows"] = NearRows.from_arrays
        if "progress.passes" in arrays:
            makers["progress"] = Progress.from_arrays
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES, ("best", "rows_below", "near_rows", "progress")))
