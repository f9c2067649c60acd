"""The fleet that a job describes: how many members there are, and what memory each gets."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from coremargin.problems.fleet.members import MemberProblem, fleet_plan
from coremargin.problems.fleet.problem import Fleet
from coremargin.problems.hard.make import hard_margin
from coremargin.problems.soft.problem import SoftMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.fleet.spec import FleetJob


def problem_of(job: FleetJob, source: Source) -> Fleet:
    """The fleet; its time, that of the job, begins now.

    Raises LabelError (a class without rows in a fold) before rows are read.
    """
    costs: tuple[float | None, ...] = (None,) if job.loss is None else job.costs
    present = int(np.count_nonzero(source.scalars().counts.sum(axis=0)))
    sides = present if job.classes == "ovr" and present > 2 else 1
    count = sides * len(costs) * (1 + (job.folds or 0))
    plan = fleet_plan(
        source, lambda view, cost: _member(job, view, cost, count), against_rest=job.classes == "ovr", costs=costs,
        folds=job.folds or 0, seed=job.fold_seed,
    )  # fmt: skip
    deadline = time.perf_counter() + (math.inf if job.time_limit is None else job.time_limit)
    return Fleet(source, plan, job.memory, late=lambda: time.perf_counter() >= deadline)


def _member(job: FleetJob, view: Source, cost: float | None, count: int) -> MemberProblem:
    """The problem of one member on its view of the rows; count: how many share the memory."""
    if job.loss is None or cost is None:
        return hard_margin(job, view, sharing=count)
    return SoftMargin(
        view, job.epsilon, job.loss, cost, job.class_weight, job.intercept, job.memory, count,
        copies=3 if job.folds else 1, sample_share=job.sample, near_bytes=job.memory // 4 if count > 1 else None,
        cached_bytes=job.memory * len(job.costs) // count // 2 if count > 1 else None,
    )  # fmt: skip
