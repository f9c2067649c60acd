"""A machine with a kernel from what a job says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from coremargin.data.spread import gamma_scale
from coremargin.errors import LabelError
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.kernel.functions import Kernel
from coremargin.problems.kernel.columns import Setting
from coremargin.problems.kernel.problem import KernelMargin
from coremargin.problems.kernel.spec import OWN

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.formats.choices import KernelName
    from coremargin.problems.kernel.spec import KernelJob, KernelSpec


def problem_of(job: KernelJob, source: Source) -> KernelMargin:
    """The problem on these rows. Raises LabelError for more than two classes of which nothing is said."""
    problem = KernelMargin(
        source, (kernel_of(job, job.gamma, source),), (Setting(0, job.cost, None),), job.epsilon, loss=job.loss,
        class_weight=job.class_weight, intercept=job.intercept, memory_bytes=job.memory_bytes, sample_share=job.sample,
    )  # fmt: skip
    check_classes(job, problem)
    return problem


def check_classes(job: KernelSpec, problem: KernelMargin) -> None:
    """Raises LabelError for more than two classes of which nothing is said."""
    source = problem.source
    labels = [repr(source.classes[code]) for code in problem.codes]
    if job.classes is None and len(labels) > 2:
        raise LabelError(
            f"{source.name}: expected two classes, found {len(labels)} ({', '.join(labels[:8])}"
            f"{', ...' if len(labels) > 8 else ''}); train each against the rest with --classes ovr, or ingest the "
            f"pair you mean with --only"
        )


def kernel_of(job: KernelSpec, gamma: str | float, source: Source) -> Kernel:
    """The kernel with numbers for its parameters, or the function.

    Raises DataError where "scale" means none, UsageError for a function that is not there.
    """
    function = job.function
    if function is not None:
        return CallableKernel(function=function, eta=job.error)
    own: dict[str, Any] = {name: gamma if name == "gamma" else getattr(job, name) for name in OWN[job.kernel]}
    if own.get("gamma") == "scale":
        own["gamma"] = gamma_scale(source)
    centre = None
    if job.kernel == "rbf" and not source.sparse:
        centre = source.centres(0, 1)[0]
    return Kernel(cast("KernelName", job.kernel), **own, centre=centre)
