"""Make the problem of a job, with the method that fits the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coremargin.problems.soft.block_minimisation import BlockMinimisation
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.soft.spec import SoftMarginJob


def problem_of(job: SoftMarginJob, source: Source) -> SoftMargin | BlockMinimisation:
    """The problem on these rows."""
    problem = SoftMargin(
        source,
        job.epsilon,
        LOSSES[job.loss],
        job.cost,
        job.class_weight,
        job.intercept,
        job.memory_bytes,
        sample_share=job.sample,
        in_stages=True,
    )
    return problem if problem.fits_stages else by_memory(replace(problem, in_stages=False))


def by_memory(problem: SoftMargin) -> SoftMargin | BlockMinimisation:
    """The problem by scans or, if its rows fit in no form, by block minimisation."""
    return BlockMinimisation.of(problem) if problem.in_segments else problem
