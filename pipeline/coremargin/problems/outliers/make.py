"""Margins with outliers from what a job says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.common.start import rows_that_count
from coremargin.problems.outliers.problem import OutlierMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.outliers.spec import OutlierJob

#: From this many outliers on the exact search is not tried unless it is asked for.
MANY = 1000


def problem_of(job: OutlierJob, source: Source) -> OutlierMargin:
    """The problem on these rows."""
    ks = job.counts(lambda: int(rows_that_count(source).sum()))
    exact = job.outlier_search == "exact" or (job.outlier_search is None and ks[-1] <= MANY)
    return OutlierMargin(
        source, ks, job.epsilon, intercept=job.intercept, exact=exact, pool_bytes=job.memory, sample_share=job.sample
    )
