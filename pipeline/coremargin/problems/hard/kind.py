"""The hard margin as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coremargin.problems.common import messages
from coremargin.problems.common.two_classes import TwoClasses
from coremargin.problems.hard.spec import HardMarginJob
from coremargin.problems.kind import with_a_loss

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.problems.hard.problem import HardMargin
    from coremargin.problems.outcome import Outcome


class HardMarginKind(TwoClasses[HardMarginJob, "HardMargin"]):
    """All rows of one class on one side, as far from the hyperplane as can be."""

    name = "hard_margin"
    job = HardMarginJob
    title = "a hard margin"
    selected_by = "give neither loss nor outliers, classes or folds"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whatever is said: it is what is left."""
        return True

    def problem(self, job: HardMarginJob, source: Source) -> HardMargin:
        """The problem on these rows."""
        from coremargin.problems.hard.make import problem_of

        return problem_of(job, source)

    def verdict(self, outcome: Outcome, job: HardMarginJob) -> list[str]:
        """The margin; or the rows that contradict each other."""
        model = cast("Model", outcome.model)
        if model.status != "not_separable":
            return messages.margin_verdict(outcome, model, job.epsilon, "hyperplane")
        rows = f"{model.certificate.coreset_rows:,} rows meet (rows {messages.first_rows(model)})"
        return [
            f"not separable: the hulls of {rows},",
            "so that no hyperplane has all rows of one class on one side. The proof is in the model.",
        ]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The pool."""
        return messages.memory_for_margin(outcome, cast("Model", outcome.model))

    def next_steps(self, outcome: Outcome, job: HardMarginJob) -> list[str]:
        """Where nothing separates the classes, what to try."""
        if outcome.model.status != "not_separable":
            return super().next_steps(outcome, job)
        return with_a_loss(job)

    def described(self, path: Path, model: Model, made: Sequence[tuple[str, str]]) -> list[str]:
        """Classes and margin."""
        claims = messages.margin_claims(model, messages.rows_of(model))
        return messages.described(path, model, made, messages.two_sides(model), claims)

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.hard import report

        return report.page_of(folder, name)


KIND = HardMarginKind()
