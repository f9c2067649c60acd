"""The fleet that a job describes: how many members there are, and what memory each gets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from coremargin.problems.fleet.members import MemberProblem, crew_of
from coremargin.problems.fleet.problem import Fleet

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.learn.job import TrainJob


def fleet_of(job: TrainJob, source: Source, make: Callable[[Source, float | None, int], MemberProblem]) -> Fleet:
    """The fleet; make: the problem for a view, C, and the number of members that share the memory.

    Its time, that of the job, begins now.
    Raises LabelError (a class without rows in a fold) before rows are read.
    """
    costs: tuple[float | None, ...] = (None,) if job.loss is None else job.costs
    present = int(np.count_nonzero(source.scalars().counts.sum(axis=0)))
    sides = present if job.classes == "ovr" and present > 2 else 1
    count = sides * len(costs) * (1 + (job.folds or 0))
    crew = crew_of(
        source, lambda view, cost: make(view, cost, count), against_rest=job.classes == "ovr", costs=costs,
        folds=job.folds or 0, seed=job.fold_seed,
    )  # fmt: skip
    deadline = time.perf_counter() + (math.inf if job.time_limit is None else job.time_limit)
    return Fleet(source, crew, job.memory, late=lambda: time.perf_counter() >= deadline)
