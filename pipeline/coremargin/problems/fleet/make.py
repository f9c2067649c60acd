"""The fleet that a job describes: how many members there are, and what memory each gets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.problems.fleet.member_kinds import HardMargins, MemberKind, SoftMargins
from coremargin.problems.fleet.members import fleet_plan
from coremargin.problems.fleet.problem import Fleet
from coremargin.problems.fleet.segments import InSegments
from coremargin.problems.hard.make import hard_margin
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.make import base_of
from coremargin.problems.soft.problem import SoftMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.fleet.members import MemberProblem
    from coremargin.problems.fleet.spec import FleetJob


def problem_of(job: FleetJob, source: Source) -> Fleet:
    """The fleet; its time, that of the job, begins now.

    Raises LabelError (a class without rows in a fold) before rows are read.
    """
    costs: tuple[float | None, ...] = (None,) if job.loss is None else job.costs
    present = int(np.count_nonzero(source.scalars().counts.sum(axis=0)))
    sides = present if job.classes == "ovr" and present > 2 else 1
    count = sides * len(costs) * (1 + (job.folds or 0))
    kind, make = _members(job, source, count)
    plan = fleet_plan(
        source, make, against_rest=job.classes == "ovr", costs=costs, folds=job.folds or 0, seed=job.fold_seed
    )
    plan = kind.read_together(plan)
    deadline = time.perf_counter() + (math.inf if job.time_limit is None else job.time_limit)
    return Fleet(source, plan, kind, job.memory, late=lambda: time.perf_counter() >= deadline)


def _members(
    job: FleetJob, source: Source, count: int
) -> tuple[MemberKind[Any, Any], Callable[[Source, float | None], MemberProblem]]:
    """The kind of all members, and what makes one: they share the memory, and their rows are of the same size."""
    if job.loss is None:
        return HardMargins(), lambda view, cost: hard_margin(job, view, sharing=count)

    kind, loss = InSegments(job.memory, count), LOSSES[job.loss]

    def soft(view: Source, cost: float | None) -> SoftMargin:
        return SoftMargin(
            view, job.epsilon, loss, 1.0 if cost is None else cost, job.class_weight, job.intercept, job.memory, count,
            copies=3 if job.folds else 1, sample_share=job.sample, near_bytes=job.memory // 4 if count > 1 else None,
            duals_fit=kind.duals_fit(source),
        )  # fmt: skip

    if not soft(source, None).in_segments:
        return SoftMargins(), soft
    return kind, lambda view, cost: kind.member(base_of(soft(view, cost)))
