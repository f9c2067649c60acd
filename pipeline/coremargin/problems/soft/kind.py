"""The soft margin as a kind of problem: the messages and the parts of a job that has a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coremargin.problems.common import messages
from coremargin.problems.common.messages import VALUE
from coremargin.problems.common.one_model import TwoClassKind
from coremargin.problems.soft.spec import SoftMarginJob, describe_loss

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.problems.common.messages import Claims
    from coremargin.problems.kind import Outcome
    from coremargin.problems.soft.block_minimisation import BlockMinimisation
    from coremargin.problems.soft.near_margin import SoftMargin

    Margin = SoftMargin | BlockMinimisation


class SoftMarginKind(TwoClassKind[SoftMarginJob, "Margin"]):
    """Rows may lie inside the margin or on the wrong side, at a cost."""

    name = "soft_margin"
    job = SoftMarginJob
    title = "a soft margin"
    selected_by = "give loss"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """See ``Kind``."""
        return "loss" in options

    def problem(self, job: SoftMarginJob, source: Source) -> Margin:
        """See ``Kind``."""
        from coremargin.problems.soft.make import problem_of

        return problem_of(job, source)

    def claims(self, model: Model) -> Claims:
        """See ``Kind``."""
        return VALUE

    def verdict(self, outcome: Outcome, job: SoftMarginJob) -> list[str]:
        """See ``Kind``; also why there is a loss, if a hard margin was tried before."""
        model = cast("Model", outcome.model)
        lines: list[str] = []
        if "tried" in model.record:
            ids, parameters = model.numbers["tried_ids"], model.parameters
            rows = f"{len(ids):,} rows meet (rows {messages.list_rows(ids)})"
            lines = [
                f"the classes overlap: no hyperplane separates them, as the hulls of {rows} to within float64;",
                f"trained with {describe_loss(parameters['loss'], parameters['C'])}, instead of a hard margin:",
            ]
        return [*lines, *super().verdict(outcome, job)]

    def describe(self, path: str | Path, model: Model, made: Sequence[tuple[str, str]]) -> list[str]:
        """See ``Kind``; also which hard margin was tried before."""
        if "tried" in model.record:
            ids = model.numbers["tried_ids"]
            proven = f"the classes overlap, proven by {len(ids):,} rows (rows {messages.list_rows(ids)})"
            made = [("tried", f"a hard margin: {proven}; so it was trained with a loss"), *made]
        return super().describe(path, model, made)

    def report(self, folder: Path, name: str) -> str:
        """See ``Kind``."""
        from coremargin.problems.soft import report

        return report.page_of(folder, name)


KIND = SoftMarginKind()
