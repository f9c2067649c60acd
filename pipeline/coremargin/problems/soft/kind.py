"""The soft margin as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coremargin.problems.common.messages import VALUE
from coremargin.problems.common.one_model import TwoClassKind
from coremargin.problems.soft.spec import SoftMarginJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.problems.common.messages import Claims
    from coremargin.problems.kind import Outcome
    from coremargin.problems.soft.block_minimisation import BlockMinimisation
    from coremargin.problems.soft.problem import SoftMargin

    Margin = SoftMargin | BlockMinimisation


class SoftMarginKind(TwoClassKind[SoftMarginJob, "Margin"]):
    """Rows may lie inside of the margin or on the wrong side, at a cost."""

    name = "soft_margin"
    job = SoftMarginJob
    title = "a soft margin"
    selected_by = "give loss"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """A loss."""
        return "loss" in options

    def problem(self, job: SoftMarginJob, source: Source) -> Margin:
        """The problem on these rows, with the method that fits them."""
        from coremargin.problems.soft.make import problem_of

        return problem_of(job, source)

    def claims(self, model: Model) -> Claims:
        """A value."""
        return VALUE

    def verdict(self, outcome: Outcome, job: SoftMarginJob) -> list[str]:
        """The value; and why there is a loss, where a hard margin was tried before."""
        from coremargin.problems.soft.tried import verdict_on

        return [*verdict_on(cast("Model", outcome.model)), *super().verdict(outcome, job)]

    def describe(self, path: Path, model: Model, made: Sequence[tuple[str, str]]) -> list[str]:
        """Classes and value, and what was tried before."""
        from coremargin.problems.soft.tried import described

        return super().describe(path, model, [*described(model), *made])

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.soft import report

        return report.page_of(folder, name)


KIND = SoftMarginKind()
