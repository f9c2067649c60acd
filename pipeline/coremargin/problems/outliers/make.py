"""Margins with outliers from what a job says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.common.classes import count_weighted_rows
from coremargin.problems.outliers.problem import OutlierMargin
from coremargin.problems.outliers.spec import PUBLISHED

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.outliers.spec import OutlierJob

#: From this many outliers on the exact search is not tried unless it is asked for.
MANY = 1000


def problem_of(job: OutlierJob, source: Source) -> OutlierMargin:
    """The problem on these rows."""
    ks = job.counts(lambda: int(count_weighted_rows(source).sum()))
    exact = job.outlier_search == "exact" or (job.outlier_search is None and ks[-1] <= MANY)
    published = PUBLISHED.get(job.outlier_search or "")
    # these need all rows in the driver: the first stage is all of the read
    all_at_once = {} if published is None else {"sample_bytes": source.nbytes}
    return OutlierMargin(
        source, ks, job.epsilon, intercept=job.intercept, exact=exact, published=published, pool_bytes=job.memory_bytes,
        sample_share=job.sample, **all_at_once,
    )  # fmt: skip
