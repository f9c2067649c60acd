"""Campaigns from what a job says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.engine.plan import plan_blocks
from coremargin.problems.active.problem import RESIDENT_ROWS, ActiveMargin
from coremargin.problems.common.map_rounding import reserve_for_rounding
from coremargin.problems.common.sizes import float64_row_bytes

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.active.spec import ActiveJob


def asked_problem(job: ActiveJob, source: Source) -> ActiveMargin:
    """The problem that a job describes, on rows scaled and mapped as it says: of mapped rows a little stricter."""
    return problem_of(reserve_for_rounding(job), source)


def problem_of(job: ActiveJob, source: Source) -> ActiveMargin:
    """The problem on these rows, of two classes unless the job names more.

    The rows in memory are as many as fit, up to what serves.
    """
    room = max(2, job.memory_bytes // (4 * max(1, float64_row_bytes(source))))
    return ActiveMargin(
        source,
        method=job.method,
        epsilon=job.epsilon,
        error=job.error,
        confidence=job.confidence,
        seed=job.seed,
        by_class=job.by_class,
        intercept=job.intercept,
        classes=max(2, len(job.classes or ())),
        loss=job.loss,
        cost=1.0 if job.cost is None else job.cost,
        trial=job.trial,
        resident_rows=min(RESIDENT_ROWS, room),
        blocks=len(plan_blocks(source, job.block)),
        sample_share=job.sample,
    )
