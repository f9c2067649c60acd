"""Hard margins from what a job says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.hard.problem import HardMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.formats.choices import Strategy
    from coremargin.problems.hard.spec import HardMarginJob
    from coremargin.problems.job import TrainJob


def problem_of(job: HardMarginJob, source: Source) -> HardMargin:
    """The problem on these rows."""
    return hard_margin(job, source, strategy=job.strategy)


def hard_margin(job: TrainJob, source: Source, *, strategy: Strategy = "fast", sharing: int = 1) -> HardMargin:
    """A hard margin on these rows; sharing: how many problems there are, with one memory for all."""
    return HardMargin(
        source, job.epsilon, intercept=job.intercept, strategy=strategy, pool_bytes=job.memory_bytes // sharing,
        sample_share=job.sample,
    )  # fmt: skip
