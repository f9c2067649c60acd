"""Hard margins from what a job says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coremargin.problems.common.kept import most_kept
from coremargin.problems.hard.onward import CUT
from coremargin.problems.hard.problem import HardMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.formats.choices import Strategy
    from coremargin.problems.hard.spec import HardMarginJob
    from coremargin.problems.job import TrainJob

#: Share of the rows that stay with a model: so many for each feature, but a share of all within these. What moves a
#: hyperplane from night to night are some rows for each feature, however many others there are; and a night that
#: moves it reads and writes what stays. Rows that come 1 % closer every night: see jobs/bench/README.md.
ROWS_A_FEATURE, LEAST_SHARE, NEAR_SHARE = 800, 0.02, 0.04


def problem_of(job: HardMarginJob, source: Source) -> HardMargin:
    """The problem on these rows."""
    share = min(NEAR_SHARE, max(LEAST_SHARE, ROWS_A_FEATURE * source.features / source.rows))
    share = min(share, CUT * most_kept(source, job.allowance) / source.rows)
    return replace(hard_margin(job, source, strategy=job.strategy), near_share=share)


def hard_margin(job: TrainJob, source: Source, *, strategy: Strategy = "fast", sharing: int = 1) -> HardMargin:
    """A hard margin on these rows; sharing: how many problems there are, with one memory for all."""
    return HardMargin(
        source, job.epsilon, intercept=job.intercept, strategy=strategy, pool_bytes=job.memory_bytes // sharing,
        sample_share=job.sample,
    )  # fmt: skip
