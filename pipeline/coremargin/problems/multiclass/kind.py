"""Several classes at once (Crammer, Singer) as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coremargin.problems.common import messages
from coremargin.problems.kind import Kind, with_a_loss
from coremargin.problems.multiclass.spec import CrammerSingerJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.multiclass import MulticlassModel
    from coremargin.problems.multiclass.crammer_singer import CrammerSinger
    from coremargin.problems.multiclass.kesler import KeslerMargin
    from coremargin.problems.multiclass.state import ClassesState
    from coremargin.problems.outcome import Outcome

    Margin = KeslerMargin | CrammerSinger


class CrammerSingerKind(Kind[CrammerSingerJob, "Margin", "MulticlassModel"]):
    """One hypothesis for all classes, hard or soft."""

    name = "crammer_singer"
    job = CrammerSingerJob
    title = "a margin of several classes at once"
    selected_by = 'give classes "crammer-singer"'

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

        return multiclass_of(problem.source, problem.codes, problem.result(state), job.parameters())

    def facts(self, problem: Margin, state: ClassesState) -> dict[str, Any]:
        """Why the run ended, and the confusion matrix of the last scan."""
        found = problem.result(state)
        return {
            "reason": found.reason, "confusion": found.confusion.tolist(),
            "confusion_of": "final" if found.final else "last scan",
            "margins": {"rows_below_upper": problem.round_of(state).rows_below},
        }  # fmt: skip

    def summary(self, model: MulticlassModel, run: Mapping[str, Any]) -> dict[str, Any]:
        """Both bounds."""
        return messages.bounds_of(model)

    def verdict(self, outcome: Outcome, job: CrammerSingerJob) -> list[str]:
        """The margin or the value; or the rows that contradict each other."""
        model = cast("MulticlassModel", outcome.model)
        if job.loss is not None:
            return messages.value_verdict(outcome, model, job.epsilon, "hypothesis")
        if model.status != "not_separable":
            return messages.margin_verdict(outcome, model, job.epsilon, "hypothesis")
        rows = f"{model.certificate.coreset_rows:,} rows contradict each other (rows {messages.first_rows(model)})"
        return [
            f"not separable: {rows},",
            "so that no hypothesis gives all rows their own class. The proof is in the model.",
        ]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The pool, or rows near the margin."""
        model = cast("MulticlassModel", outcome.model)
        memory = messages.memory_for_margin if model.parameters.get("loss") is None else messages.memory_for_value
        return memory(outcome, model)

    def next_steps(self, outcome: Outcome, job: CrammerSingerJob) -> list[str]:
        """Where nothing separates the classes, what to try."""
        if outcome.model.status != "not_separable":
            return super().next_steps(outcome, job)
        return with_a_loss(job)

    def described(self, path: Path, model: MulticlassModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """Classes, and the margin or the value."""
        labels = model.classes
        sides = ("", "") if len(labels) > 2 else (" (negative)", " (positive)")
        names = ", ".join(f"{label!r}{sides[k % 2]}" for k, label in enumerate(labels))
        claims = messages.margin_claims if model.parameters.get("loss") is None else messages.value_claims
        return messages.described(path, model, made, names, claims(model, messages.rows_of(model)))

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.multiclass import report

        return report.page_of(folder, name)


KIND = CrammerSingerKind()
