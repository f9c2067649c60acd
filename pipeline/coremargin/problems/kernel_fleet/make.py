"""Many machines with kernels from what a job says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.fleet.members import member_name
from coremargin.problems.kernel.columns import Setting
from coremargin.problems.kernel.make import check_classes, kernel_of
from coremargin.problems.kernel_fleet.problem import KernelFleet

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.kernel_fleet.spec import KernelFleetJob


def problem_of(job: KernelFleetJob, source: Source) -> KernelFleet:
    """The problem on these rows.

    Raises LabelError: a class without rows in a fold, more than two classes of which nothing is said.
    """
    settings = [
        Setting(kernel, cost, fold)
        for fold in (None, *range(job.folds or 0))
        for kernel in range(len(job.gammas))
        for cost in job.costs
    ]
    problem = KernelFleet(
        source, tuple(kernel_of(job, gamma, source) for gamma in job.gammas), tuple(settings), job.epsilon,
        loss=job.loss, folds=job.folds or 0, seed=job.seed, class_weight=job.class_weight, intercept=job.intercept,
        memory_bytes=job.memory_bytes, sample_share=job.sample,
        names=tuple(member_name(None, *job.setting_of(one.kernel, one.cost), one.fold) for one in settings),
    )  # fmt: skip
    check_classes(job, problem)
    return problem
