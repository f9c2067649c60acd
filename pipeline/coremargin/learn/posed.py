"""The problem that a job describes. Kinds that are not wanted are not imported: a small job starts in no time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coremargin.data.scaled import scaled
from coremargin.engine.plan import plan_blocks
from coremargin.problems.common.start import rows_that_count
from coremargin.problems.hard.problem import HardMargin
from coremargin.problems.soft.block_minimisation import soft_margin
from coremargin.problems.soft.problem import SoftMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.problem import Problem
    from coremargin.learn.job import TrainJob
    from coremargin.problems.fleet.members import MemberProblem
    from coremargin.problems.outliers.problem import OutlierMargin

#: From this many outliers on the exact search is not tried unless it is asked for.
MANY = 1000


def problem_of(job: TrainJob, source: Source) -> Problem:
    """The problem that a job describes, on rows scaled as it says.

    Raises LabelError, StoreError, BadRow (a column that cannot be scaled) before anything is read.
    """
    source = scaled(source, job.scaling)
    make = partial(_single, job)
    problem: Problem
    if job.outliers is not None:
        problem = _outliers(job, source)
    elif job.classes == "crammer-singer":
        from coremargin.learn.classes_job import classes_of

        problem = classes_of(job, source)
    elif job.is_fleet:
        from coremargin.learn.fleet_job import fleet_of

        problem = fleet_of(job, source, make)
    else:
        problem = make(source, job.costs[0], 1)
    problem.codes  # noqa: B018  refuses what cannot be trained, now
    return problem


def _single(job: TrainJob, source: Source, cost: float | None, sharing: int) -> MemberProblem:
    """One problem; sharing: how many there are, with one memory for all."""
    if job.loss is None or cost is None:
        return HardMargin(
            source, job.epsilon, intercept=job.intercept, strategy=job.strategy, pool_bytes=job.memory // sharing,
            sample_share=job.sample, blocks=len(plan_blocks(source, job.block)),
        )  # fmt: skip
    problem = SoftMargin(
        source, job.epsilon, job.loss, cost, job.class_weight, job.intercept, job.memory, sharing,
        copies=3 if job.folds else 1, sample_share=job.sample, band_bytes=job.memory // 4 if sharing > 1 else None,
        held_bytes=job.memory * len(job.costs) // sharing // 2 if sharing > 1 else None,
    )  # fmt: skip
    return soft_margin(problem) if sharing == 1 else problem


def _outliers(job: TrainJob, source: Source) -> OutlierMargin:
    from coremargin.problems.outliers.problem import OutlierMargin

    ks = job.counts(partial(rows_that_count, source))
    exact = job.outlier_search == "exact" or (job.outlier_search is None and ks[-1] <= MANY)
    return OutlierMargin(
        source, ks, job.epsilon, intercept=job.intercept, exact=exact, pool_bytes=job.memory, sample_share=job.sample
    )
