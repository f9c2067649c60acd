"""Several classes at once (Crammer, Singer) as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.problems.common.messages import MARGIN, VALUE
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.multiclass.spec import CrammerSingerJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.multiclass import MulticlassModel
    from coremargin.problems.common.messages import Claims
    from coremargin.problems.multiclass.crammer_singer import CrammerSinger
    from coremargin.problems.multiclass.kesler import KeslerMargin
    from coremargin.problems.multiclass.state import ClassesState

    Margin = KeslerMargin | CrammerSinger


class CrammerSingerKind(OneModel[CrammerSingerJob, "Margin", "MulticlassModel"]):
    """One hypothesis for all classes, hard or soft."""

    name = "crammer_singer"
    job = CrammerSingerJob
    title = "a margin of several classes at once"
    thing = "hypothesis"
    selected_by = 'give classes "crammer-singer"'
    losses = ("hinge",)

    def matches(self, options: Mapping[str, Any]) -> bool:
        """The name of the method."""
        return options.get("classes") == "crammer-singer"

    def problem(self, job: CrammerSingerJob, source: Source) -> Margin:
        """The hard margin, or with a loss the soft one."""
        from coremargin.problems.multiclass.make import problem_of

        return problem_of(job, source)

    def model(self, job: CrammerSingerJob, problem: Margin, state: ClassesState) -> MulticlassModel:
        """The hypothesis that a state stands for."""
        from coremargin.problems.multiclass.outcome import multiclass_of

        return multiclass_of(problem.source, problem.codes, problem.result(state), self.name, job.parameters())

    def claims(self, model: MulticlassModel) -> Claims:
        """A margin, or with a loss a value."""
        return VALUE if model.certificate.is_value else MARGIN

    def facts(self, problem: Margin, state: ClassesState) -> dict[str, Any]:
        """Why the run ended, and the confusion matrix of the last scan."""
        found = problem.result(state)
        return {
            "reason": found.reason, "confusion": found.confusion.tolist(),
            "confusion_of": "final" if found.final else "last scan",
            "margins": {"rows_below_upper": problem.round_of(state).rows_below},
        }  # fmt: skip

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.multiclass import report

        return report.page_of(folder, name)


KIND = CrammerSingerKind()
