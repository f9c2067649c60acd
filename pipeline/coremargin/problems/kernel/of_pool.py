"""What kinds whose functions are carried by a pool of rows share: what they say about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from coremargin.errors import UsageError
from coremargin.formats.function import CALLABLE, missing_function
from coremargin.problems.kernel.spec import HELP, KernelSpec
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from coremargin.engine.want import Want
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.kernel.problem import KernelMargin
    from coremargin.problems.kernel.state import KernelState


class OfPool:
    """To be mixed into a kind of problem."""

    name: ClassVar[str]
    scan_purpose = "two and more of all rows, each with a product with all rows that carry the function"
    rereads = "most data need two or three scans after the read"

    def scans_after(self, job: Any) -> int:
        """One that finds what is missing, one that proves."""
        return 2

    def retraining_options(self, options: Mapping[str, Any], kernel: str | None) -> dict[str, Any]:
        """With the function that the user names now in the place of the one that the run names."""
        before = str(options.get("kernel"))
        if ":" not in before and before != CALLABLE:
            if kernel is not None:
                raise UsageError(f"kernel: this model has the kernel {before!r}, which is no function; leave it out")
            return dict(options)
        if kernel is None:
            raise UsageError(missing_function(before))
        return {**options, "kernel": kernel}

    def is_model_of(self, job: KernelSpec, model: AnyModel) -> bool:
        """Whether a model is one that this job asks for, by its parameters and the values of its kernel."""
        if model.kind != self.name or model.parameters != job.parameters():
            return False
        function = job.function
        if function is not None:
            try:
                model.with_kernel(function)
            except UsageError:
                return False
        return True

    def terms_told(self, job: KernelSpec) -> list[str]:
        """What is claimed with a function as a kernel, in a line; none with other kernels."""
        from coremargin.models.brought import terms_of

        told = terms_of(job.parameters())
        return [f"the kernel is a function: {told}."] if told else []

    def memory_purpose(self, problem: KernelMargin) -> str:
        """Kernel values of the pool."""
        gammas = len(problem.kernels)
        each = "" if gammas == 1 else f", for each of {gammas} values of gamma"
        return f"for the kernel values of up to {problem.room.capacity:,} rows with each other{each}"

    def note(self, problem: KernelMargin) -> str:
        """How fast a kernel is that is a function, and what a scan will take; "" of others."""
        if problem.rate is None:
            return ""
        each = format_seconds(1000 * problem.source.rows / problem.rate)
        return (
            f"the kernel gives {problem.rate:.3g} values a second on one core: a scan takes it about {each} for each "
            f"1,000 rows that carry the function"
        )

    def pool_facts(self, problem: KernelMargin, state: KernelState) -> dict[str, Any]:
        """What ``run.json`` says of the pool, and of the rate of a function."""
        rate = {} if problem.rate is None else {"kernel_rate": problem.rate}
        return {"pool": {"capacity": problem.room.capacity, "dropped": state.dropped}, **rate}

    def wanted(self, problem: KernelMargin, state: KernelState) -> Want | None:
        """Where the pool was full, or will be."""
        return problem.wanted(state)

    def notice(self, record: Mapping[str, Any]) -> str:
        """That the pool will be full, as soon as that can be seen."""
        expected, room = record.get("pool_expected", 0), record.get("pool_room", 0)
        if expected <= room:
            return ""
        return (
            f"the pool will need about {expected:,} rows, and memory holds the kernel values of {room:,}: what is "
            f"beyond is not proven away; more memory, or {HELP}"
        )
