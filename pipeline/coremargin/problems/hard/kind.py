"""The hard margin as a kind of problem."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.problems.common import messages
from coremargin.problems.common.two_classes import TwoClasses
from coremargin.problems.hard.spec import HardMarginJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.problems.hard.problem import HardMargin
    from coremargin.problems.outcome import Outcome


#: A pool is full from this share of its room on, and this many reads are more than one.
FULL, AGAIN = 0.8, 1.05


class HardMarginKind(TwoClasses[HardMarginJob, "HardMargin"]):
    """All rows of one class on one side, as far from the hyperplane as can be."""

    name = "hard_margin"
    job = HardMarginJob
    title = "a hard margin"
    selected_by = "give neither loss nor outliers, classes or folds"
    losses = ("auto", "hinge", "squared_hinge")

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whatever is said: it is what is left."""
        return True

    def problem(self, job: HardMarginJob, source: Source) -> HardMargin:
        """The problem on these rows."""
        from coremargin.problems.hard.make import problem_of

        return problem_of(job, source)

    def facts(self, problem: HardMargin, state: Any) -> dict[str, Any]:
        """How many rows there was room for, too; whether rows were read again, for what was kept of them was lost."""
        lost = {"near_rows_lost": True} if state.near_lost else {}
        return super().facts(problem, state) | {"pool_limit_rows": problem.pool_rows} | lost

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The pool; where it was full and chunks were read again, what would help."""
        word, text = super().driver_memory(outcome)
        run = outcome.run
        full = run["pool_rows"] > FULL * run.get("pool_limit_rows", math.inf)
        if full and run.get("stages") and run["bytes_read"] > AGAIN * run["store_bytes"]:
            text += "; it was full: with more --memory less would be read again"
        return word, text

    def contradiction(self, model: Model) -> list[str]:
        """The hulls of the classes meet."""
        rows = f"{model.certificate.coreset_rows:,} rows meet (rows {messages.first_rows(model.coreset_ids)})"
        return [
            f"not separable: the hulls of {rows},",
            "so that to within float64 no hyperplane has all rows of one class on one side. The proof is in the model.",
        ]

    def met(self, rows: list[int]) -> str:
        """The hulls of the classes meet."""
        return f"no hyperplane separates the rows: the hulls of rows {rows} meet, to within float64"

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.hard import report

        return report.page_of(folder, name)


KIND = HardMarginKind()
