"""The logistic loss as a kind of problem: the options of a job, and messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coremargin.problems.common.messages import VALUE
from coremargin.problems.common.one_model import TwoClassKind
from coremargin.problems.soft.spec import LossJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.problems.common.messages import Claims
    from coremargin.problems.kind import Outcome
    from coremargin.problems.logistic.logistic import Logistic, LogisticState


class LogisticJob(LossJob, frozen=True, kw_only=True):
    """The logistic loss of two classes: its decision values are log odds."""

    loss: Literal["logistic"]
    C: float | tuple[float, ...] | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Raise ValueError for values out of range."""
        if isinstance(self.C, tuple):
            raise ValueError(
                f"C: expected one, found {list(self.C)}: with the logistic loss every value of C takes a job of its own"
            )
        super().__post_init__()


class LogisticKind(TwoClassKind[LogisticJob, "Logistic"]):
    """Every row has a loss, which decreases with its margin."""

    name = "logistic"
    job = LogisticJob
    title = "the logistic loss"
    selected_by = 'give loss "logistic", one C and two classes'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whether the loss is logistic. Other options that the job cannot have are errors."""
        return options.get("loss") == "logistic"

    def problem(self, job: LogisticJob, source: Source) -> Logistic:
        """The problem on these rows."""
        from coremargin.problems.logistic.logistic import Logistic

        return Logistic(source, job.epsilon, job.cost, job.class_weight, job.intercept, job.memory_bytes, job.sample)

    def memory_purpose(self, problem: Logistic) -> str:
        """Rows and sums."""
        return "for sums of d x d numbers, and for rows, which are read once where half of it holds them"

    def claims(self, model: Model) -> Claims:
        """A value."""
        return VALUE

    def facts(self, problem: Logistic, state: LogisticState) -> dict[str, Any]:
        """Why the run ended, and how many rows were on the wrong side in the last scan."""
        return {"reason": problem.result(state).reason} | ({"wrong": state.wrong} if state.round else {})

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """A sample."""
        return (
            "rows",
            f"{outcome.run['working_set_rows']:,} rows of a sample were in memory one by one, all others as sums",
        )

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.logistic import report

        return report.page_of(folder, name)


KIND = LogisticKind()
