"""The relative margin as a kind of problem: the options of a job, and messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coremargin.problems.common import messages
from coremargin.problems.common.one_model import TwoClassKind
from coremargin.problems.relative_margin.spec import BoundOfDecisions, check_relative_margin
from coremargin.problems.soft.spec import LossJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.models.single import SingleModel
    from coremargin.problems.kind import Outcome
    from coremargin.problems.relative_margin.relative_margin import RelativeMargin, RelativeMarginState


class RelativeMarginJob(LossJob, frozen=True, kw_only=True):
    """The hinge loss of two classes, with a bound on the decision values of all rows."""

    loss: Literal["hinge"] | None = None
    C: float | tuple[float, ...] | None = None  # type: ignore[assignment]
    relative_margin: BoundOfDecisions

    def __post_init__(self) -> None:
        """Raises ValueError for values out of range."""
        check_relative_margin(self.relative_margin, self.loss)
        if isinstance(self.C, tuple):
            raise ValueError(
                f"C: expected one, found {list(self.C)}: with a relative margin every value of C takes a job of its "
                f"own, or give kernel 'linear', with which several are trained together"
            )
        super().__post_init__()

    def parameters(self) -> dict[str, Any]:
        """Adds the bound."""
        return {**super().parameters(), "relative_margin": self.relative_margin}


class HyperplaneClaims(messages.RelativeValueClaims):
    """The value of a hyperplane that keeps all rows within the bound."""

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The rows that the last scan sent."""
        sent = f"{outcome.run['working_set_rows']:,} rows near the margin and the bound were sent one by one"
        return "rows", f"{sent}, the others as sums; the proof names {model.certificate.coreset_rows:,} of them"


class RelativeMarginKind(TwoClassKind[RelativeMarginJob, "RelativeMargin"]):
    """A loss for rows with small margins, and a bound for large ones."""

    name = "relative_margin"
    job = RelativeMarginJob
    title = "a relative margin"
    selected_by = 'give relative_margin, loss "hinge", one C and two classes'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whether there is a bound and no kernel. Other options that the job cannot have are errors."""
        return options.get("relative_margin") is not None and "kernel" not in options

    def problem(self, job: RelativeMarginJob, source: Source) -> RelativeMargin:
        """The problem on these rows."""
        from coremargin.problems.relative_margin.relative_margin import RelativeMargin

        return RelativeMargin(
            source,
            job.epsilon,
            job.relative_margin,
            job.cost,
            job.class_weight,
            job.intercept,
            job.memory_bytes,
            job.sample,
        )

    def claims(self, model: Model) -> HyperplaneClaims:
        """A value."""
        return HyperplaneClaims()

    def facts(self, problem: RelativeMargin, state: RelativeMarginState) -> dict[str, Any]:
        """Why the run ended, and the histogram of decision values of the last scan."""
        from coremargin.problems.relative_margin.relative_margin import HIGH

        facts: dict[str, Any] = {"reason": problem.result(state).reason}
        if not state.round:
            return facts
        positive, negative = state.histogram.tolist()
        return facts | {
            "wrong": state.wrong,
            "projections": {
                "high": HIGH * problem.bound * (state.scale or 1.0),
                "positive": positive,
                "negative": negative,
                "hypothesis": "final" if state.scale else "last scan",
            },
        }

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.relative_margin import report

        return report.page_of(folder, name)


KIND = RelativeMarginKind()
