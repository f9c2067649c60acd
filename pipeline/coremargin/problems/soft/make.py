"""Soft margins from what a job says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.soft.block_minimisation import soft_margin
from coremargin.problems.soft.problem import SoftMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.soft.spec import SoftMarginJob


def problem_of(job: SoftMarginJob, source: Source) -> SoftMargin:
    """The problem on these rows, by the method that fits them."""
    problem = SoftMargin(
        source, job.epsilon, job.loss, job.C, job.class_weight, job.intercept, job.memory, 1, sample_share=job.sample
    )
    return soft_margin(problem)
