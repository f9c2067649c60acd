"""The relative margin as a kind of problem: the options of a job, and messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.limits import LARGEST_RELATIVE_MARGIN
from coremargin.problems.common import messages
from coremargin.problems.common.one_model import TwoClassKind
from coremargin.problems.soft.spec import LossJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.models.single import SingleModel
    from coremargin.problems.common.messages import Pairs
    from coremargin.problems.kind import Outcome
    from coremargin.problems.relative_margin.relative_margin import RelativeMargin, RelativeMarginState


class RelativeMarginJob(LossJob, frozen=True, kw_only=True):
    """The hinge loss of two classes, with a bound on the decision values of all rows."""

    loss: Literal["hinge"] | None = None
    C: float | tuple[float, ...] | None = None  # type: ignore[assignment]
    relative_margin: Annotated[
        float,
        Meta(
            description="With --loss hinge: bound of the decision values of all rows, above 1.",
            extra={"metavar": "B"},
        ),
    ]

    def __post_init__(self) -> None:
        """Raises ValueError for values out of range."""
        if not 1 < self.relative_margin <= LARGEST_RELATIVE_MARGIN:  # NaN is none
            raise ValueError(
                f"relative_margin: expected a number above 1, up to {LARGEST_RELATIVE_MARGIN:g}, as decision values of "
                f"rows without a loss are beyond -1 and 1; found {self.relative_margin}"
            )
        if self.loss is None:
            raise ValueError(
                "relative_margin: a hard margin has none; give loss 'hinge' too, or leave relative_margin out"
            )
        if isinstance(self.C, tuple):
            raise ValueError(
                f"C: expected one, found {list(self.C)}: with a relative margin every value of C takes a job of its own"
            )
        super().__post_init__()

    def parameters(self) -> dict[str, Any]:
        """Adds the bound."""
        return {**super().parameters(), "relative_margin": self.relative_margin}


class RelativeValueClaims(messages.ValueClaims):
    """The value of a hypothesis that keeps all rows within the bound."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """Adds the bound to what is certified."""
        bound = f"{model.parameters['relative_margin']:g}"
        return super().verdict(outcome, model, epsilon, f"{thing} with decision values from -{bound} to {bound}")

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The rows that the last scan sent."""
        rows = f"{outcome.run['working_set_rows']:,} rows near the margin and the bound were sent one by one, the others as sums"
        return "rows", f"{rows}; the proof names {model.certificate.coreset_rows:,} of them"

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """Adds the bound."""
        bound = model.parameters["relative_margin"]
        loss, *others = super().describe(model, rows)
        return [loss, ("relative margin", f"decision values of {rows} from -{bound:g} to {bound:g}"), *others]


class RelativeMarginKind(TwoClassKind[RelativeMarginJob, "RelativeMargin"]):
    """A loss for rows with small margins, and a bound for large ones."""

    name = "relative_margin"
    job = RelativeMarginJob
    title = "a relative margin"
    selected_by = 'give relative_margin, loss "hinge", one C and two classes'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whether there is a bound. Other options that the job cannot have are errors."""
        return options.get("relative_margin") is not None

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

    def claims(self, model: Model) -> RelativeValueClaims:
        """A value."""
        return RelativeValueClaims()

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
