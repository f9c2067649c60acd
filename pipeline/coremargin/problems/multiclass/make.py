"""Problems about several classes at once from what a job says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.engine.plan import plan_blocks
from coremargin.problems.multiclass.crammer_singer import CrammerSinger
from coremargin.problems.multiclass.kesler import KeslerMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.multiclass.spec import CrammerSingerJob


def problem_of(job: CrammerSingerJob, source: Source) -> CrammerSinger | KeslerMargin:
    """The hard margin, or with a loss the soft one."""
    if job.loss is None:
        return KeslerMargin(
            source, job.epsilon, job.intercept, memory_bytes=job.memory_bytes, sample_share=job.sample,
            blocks=len(plan_blocks(source, job.block)),
        )  # fmt: skip
    return CrammerSinger(
        source, job.epsilon, job.intercept, memory_bytes=job.memory_bytes, sample_share=job.sample, cost=job.cost,
        class_weight=job.class_weight,
    )  # fmt: skip
