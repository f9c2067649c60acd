"""Machines with kernels as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coremargin.problems.common import messages
from coremargin.problems.common.messages import MARGIN, VALUE
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.kernel.of_pool import OfPool
from coremargin.problems.kernel.spec import KernelJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.kernel import KernelModel
    from coremargin.problems.common.messages import Claims
    from coremargin.problems.kernel.problem import KernelMargin
    from coremargin.problems.kernel.state import KernelState
    from coremargin.problems.kind import Outcome


class KernelKind(OfPool, OneModel[KernelJob, "KernelMargin", "KernelModel"]):
    """Beyond the hyperplane: of two classes, or of each class against the rest."""

    name = "kernel"
    job = KernelJob
    title = "a machine with a kernel"
    thing = "function of this kernel"
    selected_by = "give kernel"
    losses = ("squared_hinge", "hinge")

    def matches(self, options: Mapping[str, Any]) -> bool:
        """The name of a kernel."""
        return "kernel" in options

    def problem(self, job: KernelJob, source: Source) -> KernelMargin:
        """On these rows."""
        from coremargin.problems.kernel.make import problem_of

        return problem_of(job, source)

    def model(self, job: KernelJob, problem: KernelMargin, state: KernelState) -> KernelModel:
        """The functions that a state stands for."""
        from coremargin.problems.kernel.outcome import kernel_model_of

        (found,) = problem.results(state)
        return kernel_model_of(problem.source, problem.codes, found, job.parameters())

    def claims(self, model: KernelModel) -> Claims:
        """A margin, or with a loss a value."""
        return VALUE if model.certificate.is_value else MARGIN

    def facts(self, problem: KernelMargin, state: KernelState) -> dict[str, Any]:
        """Why the run ended, what the pool was, and the confusion matrix of the last scan."""
        (found,) = problem.results(state)
        return {
            "reason": found.reason, "confusion": found.confusion.tolist(),
            "confusion_of": "final" if found.final else "last scan",
            "margins": {"rows_below_upper": state.rows_below},
            **self.pool_facts(problem, state),
        }  # fmt: skip

    def verdict(self, outcome: Outcome, job: KernelJob) -> list[str]:
        """With what a function adds to the claim."""
        return [*super().verdict(outcome, job), *self.terms_told(job)]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The pool's kernel values."""
        model, rows = cast("KernelModel", outcome.model), outcome.run["pool_rows"]
        carry = model.certificate.coreset_rows
        return "pool", f"the kernel values of {rows:,} rows with each other; {carry:,} of them carry the functions"

    def describe(self, path: Path, model: KernelModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """The kernel, classes, and the margin or the value."""
        from coremargin.models.brought import terms_of
        from coremargin.problems.kernel.words import reduced_told

        terms = terms_of(model.parameters)
        about = [("kernel", model.kernel_told), *[("claims", terms)] * bool(terms), *self._columns(model)]
        claimed = [pair for pair in self.claims(model).describe(model, self.rows_meant(model)) if pair[0] != "coreset"]
        told = reduced_told(model)
        carry = "the proof" if told else "the function, and its proof"
        claimed.append(("coreset", f"{model.certificate.coreset_rows:,} rows carry {carry}"))
        claimed += [("reduced", told)] * bool(told)
        return messages.describe_model(path, model, made, [*about, *claimed])

    def _columns(self, model: KernelModel) -> messages.Pairs:
        """Of several, the worst."""
        if len(model.offsets) == 1 or model.certificate.lower is None:
            return []
        k = int((model.lowers / model.uppers).argmin())
        return [("columns", f"{len(model.offsets)}, each certified; the widest gap is that of {model.classes[k]!r}")]

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.kernel import report

        return report.page_of(folder, name)


KIND = KernelKind()
