"""Kernel machines as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from coremargin.errors import UsageError
from coremargin.formats.function import CALLABLE, missing_function
from coremargin.problems.common import messages
from coremargin.problems.common.messages import MARGIN, RELATIVE_VALUE, TRIMMED_MARGIN, VALUE
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.kernel.spec import HELP, KernelJob, KernelSpec
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.models.fleet import AnyModel
    from coremargin.models.kernel import KernelModel
    from coremargin.problems.common.messages import Claims
    from coremargin.problems.kernel.kernel_margin import KernelMargin, KernelState
    from coremargin.problems.kind import Outcome


class WorkingSetMessages:
    """Mixed into the kinds of one kernel machine and of several: what both say of working set and kernel."""

    name: ClassVar[str]
    scan_purpose = "two and more of all rows, each with a product with all rows that carry the function"
    rereads = "most data need two or three scans after the read"

    def problem(self, job: Any, source: Source) -> KernelMargin:
        """The problem on these rows."""
        from coremargin.problems.kernel.kernel_margin import kernel_problem

        return kernel_problem(job, source)

    def scans_after(self, job: Any) -> int:
        """Two: one sends missing rows, one proves."""
        return 2

    def retraining_options(self, options: Mapping[str, Any], kernel: str | None) -> dict[str, Any]:
        """The options with the function that the user names now in place of the one in the run's record."""
        before = str(options.get("kernel"))
        if ":" not in before and before != CALLABLE:
            if kernel is not None:
                raise UsageError(f"kernel: this model has the kernel {before!r}, which is no function; leave it out")
            return dict(options)
        if kernel is None:
            raise UsageError(missing_function(before))
        return {**options, "kernel": kernel}

    def is_model_of(self, job: KernelSpec, model: AnyModel) -> bool:
        """Whether a model has the job's parameters and the values of its kernel."""
        if model.kind != self.name or model.parameters != job.parameters():
            return False
        function = job.function
        if function is not None:
            try:
                model.with_kernel(function)
            except UsageError:
                return False
        return True

    def describe_assumption(self, job: KernelSpec) -> list[str]:
        """A line about what a proof with a user-defined kernel assumes; none for other kernels."""
        from coremargin.models.user_kernel import terms_of

        terms = terms_of(job.parameters())
        return [f"the kernel is a function: {terms}."] if terms else []

    def memory_purpose(self, problem: KernelMargin) -> str:
        """The kernel matrices of the working set."""
        gammas = len(problem.kernels)
        each = "" if gammas == 1 else f", for each of {gammas} values of gamma"
        return f"for the kernel matrix of up to {problem.capacity.rows:,} rows{each}"

    def note(self, problem: KernelMargin) -> str:
        """The speed of a user-defined kernel and the time of a scan; "" for other kernels."""
        if problem.rate is None:
            return ""
        each = format_seconds(1000 * problem.source.rows / problem.rate)
        return (
            f"the kernel gives {problem.rate:.3g} values a second on one core: a scan takes it about {each} for each "
            f"1,000 rows that carry the function"
        )

    def describe_working_set(self, problem: KernelMargin, state: KernelState) -> dict[str, Any]:
        """What ``run.json`` states about the working set, and the speed of a user-defined kernel."""
        rate = {} if problem.rate is None else {"kernel_rate": problem.rate}
        return {"working_set": {"capacity": problem.capacity.rows, "dropped": state.dropped}, **rate}

    def wanted(self, problem: KernelMargin, state: KernelState) -> MemoryNeed | None:
        """The memory of the expected working set, if it does not fit."""
        return problem.wanted(state)

    def notice(self, record: Mapping[str, Any]) -> str:
        """A warning as soon as the working set is expected to become full."""
        expected, room = record.get("expected_working_set_rows", 0), record.get("working_set_room", 0)
        if expected <= room:
            return ""
        return (
            f"the working set will need about {expected:,} rows, and memory holds the kernel values of {room:,}: the "
            f"proof may stay incomplete; give more memory, or {HELP}"
        )


class KernelKind(WorkingSetMessages, OneModel[KernelJob, "KernelMargin", "KernelModel"]):
    """One kernel machine between two classes, or for each class against the rest."""

    name = "kernel"
    job = KernelJob
    title = "a kernel machine"
    thing = "function of this kernel"
    selected_by = "give kernel"
    losses = ("squared_hinge", "hinge")

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Jobs with a kernel."""
        return "kernel" in options

    def problem(self, job: KernelJob, source: Source) -> KernelMargin:
        """The problem on these rows, by the strategy of the job, or without outliers."""
        from coremargin.problems.kernel.outliers import with_outliers
        from coremargin.problems.kernel.published import PublishedKernelMargin
        from coremargin.problems.outliers.removal import count_left_out

        found = super().problem(job, source)
        if job.outliers is not None and (left_out := count_left_out(source, job.outliers)):
            return with_outliers(found, left_out)
        if job.strategy == "fast":
            return found
        return PublishedKernelMargin(
            **{one.name: getattr(found, one.name) for one in fields(found)}, strategy=job.strategy
        )

    def model(self, job: KernelJob, problem: KernelMargin, state: KernelState) -> KernelModel:
        """The model of a state."""
        from coremargin.problems.kernel.outcome import kernel_model

        (found,) = problem.results(state)
        return kernel_model(problem.source, problem.codes, found, job.parameters())

    def claims(self, model: KernelModel) -> Claims:
        """A margin, or with a loss a value, also one within the bound of a relative margin."""
        if not model.certificate.is_value:
            return MARGIN if model.outlier_ids is None else TRIMMED_MARGIN
        return RELATIVE_VALUE if "relative_margin" in model.parameters else VALUE

    def rows_meant(self, model: KernelModel) -> str:
        """The rows that the claims are about."""
        return super().rows_meant(model) if model.outlier_ids is None else messages.describe_left_out(model)

    def describe_work(self, bounds: str, figures: Mapping[str, Any]) -> str:
        """The progress of the search for outliers, in one line."""
        from coremargin.problems.outliers.messages import describe_search

        return describe_search(bounds, figures)

    def facts(self, problem: KernelMargin, state: KernelState) -> dict[str, Any]:
        """Why the run ended, the working set, and the confusion matrix of the last scan."""
        (found,) = problem.results(state)
        kkt = problem.kkt_classes(state)
        return {
            "reason": found.reason,
            "confusion": found.confusion.tolist(),
            "confusion_of": "final" if found.final else "last scan",
            "margins": {"rows_below_upper": state.rows_below},
            **({} if kkt is None else {"kkt": kkt.tolist()}),
            **self.describe_working_set(problem, state),
            **problem.describe_strategy(state),
        }

    def describe_run(self, run: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The KKT classes of the rows, of one column."""
        return messages.describe_kkt(run)

    def verdict(self, outcome: Outcome, job: KernelJob) -> list[str]:
        """The claim, what it assumes, and what is proven of a strategy's own hyperplane."""
        own = messages.describe_strategy(outcome.model.parameters, outcome.run)
        return [*super().verdict(outcome, job), *self.describe_assumption(job), *own]

    def describe_reading(self, job: KernelJob) -> str:
        """The strategy's reads of the store."""
        from coremargin.problems.hard.strategies.table import STRATEGIES

        return STRATEGIES[job.strategy].reading if job.strategy != "fast" else super().describe_reading(job)

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The kernel matrix."""
        model, rows = cast("KernelModel", outcome.model), outcome.run["working_set_rows"]
        carriers = model.certificate.coreset_rows
        carried = "functions" if model.outlier_ids is None else "function and the proof"
        return "working set", f"the kernel matrix of {rows:,} rows; {carriers:,} of them carry the {carried}"

    def describe(self, path: str | Path, model: KernelModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """The kernel, the classes, and the margin or the value."""
        from coremargin.models.user_kernel import terms_of

        terms = terms_of(model.parameters)
        about = [("kernel", model.kernel_text), *[("claims", terms)] * bool(terms)]
        if len(model.offsets) > 1 and model.certificate.lower is not None:
            k = int((model.lowers / model.uppers).argmin())
            widest = f"{len(model.offsets)}, each certified; the widest gap is that of {model.classes[k]!r}"
            about.append(("columns", widest))
        claimed = [pair for pair in self.claims(model).describe(model, self.rows_meant(model)) if pair[0] != "coreset"]
        reduction = describe_reduction(model)
        carry = "the proof" if reduction else "the function, and its proof"
        claimed.append(("coreset", f"{model.certificate.coreset_rows:,} rows carry {carry}"))
        claimed += [("reduced", reduction)] * bool(reduction)
        return messages.describe_model(path, model, made, [*about, *claimed])

    def report(self, folder: Path, name: str) -> str:
        """The page of a model's folder."""
        from coremargin.problems.kernel import report

        return report.page_of(folder, name)


def describe_reduction(model: KernelModel) -> str:
    """How many rows a reduced model keeps, and what that costs; "" for other models."""
    from coremargin.report.numbers import plain_bounds

    reduced = model.record.get("reduced")
    if reduced is None:
        return ""
    changed = reduced["changed"]
    rows = f"at most {changed:,} {'row is' if changed == 1 else 'rows are'}" if changed else "no row is"
    return (
        f"{reduced['rows']:,} of {model.certificate.coreset_rows:,} rows decide; on each of {model.rows:,} rows within "
        f"{plain_bounds(None, reduced['distance'])[1] or 0} of the decision values of all of these, and {rows} given "
        f"another class"
    )


KIND = KernelKind()
