"""The fleet that a job describes: how many members there are, and what memory each gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from msgspec.structs import replace

from coremargin.data.mapped_each import MappedEach
from coremargin.problems.fleet.gammas import GammaFleet
from coremargin.problems.fleet.member_kinds import HardMargins, MemberKind, first_together
from coremargin.problems.fleet.members import fleet_plan
from coremargin.problems.fleet.problem import Fleet
from coremargin.problems.fleet.segments import InSegments
from coremargin.problems.fleet.stages import StagedMargins
from coremargin.problems.hard.kind import hard_margin
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.make import base_of, in_scans
from coremargin.problems.soft.staged import StagedSoftMargin
from coremargin.spec import Size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.fleet.members import FleetPlan, MemberProblem
    from coremargin.problems.fleet.spec import FleetJob

    Make: TypeAlias = Callable[[Source, float | None], MemberProblem]


def problem_of(job: FleetJob, source: Source) -> Fleet | GammaFleet:
    """The fleet; of several gammas, whose rows ``source`` has side by side, one of fleets that share the memory.

    Raises LabelError (a class without rows in a fold) before rows are read.
    """
    views: Sequence[Source] = source.each if isinstance(source, MappedEach) else [source]
    memory = max(1, job.memory_bytes // len(views))
    alone = replace(job, memory=Size(memory))
    fleets = [fleet_of(alone, view, gamma) for view, gamma in zip(views, job.asked_gammas, strict=True)]
    return fleets[0] if len(fleets) == 1 else GammaFleet(source, tuple(fleets))


def fleet_of(job: FleetJob, source: Source, gamma: str | float | None = None) -> Fleet:
    """The members for rows that are mapped alike, if at all; gamma: of their map, where it is one of several."""
    costs: tuple[float | None, ...] = (None,) if job.loss is None else job.costs
    present = int(np.count_nonzero(source.scalars().counts.sum(axis=0)))
    sides = present if job.classes == "ovr" and present > 2 else 1
    count = sides * len(costs) * (1 + (job.folds or 0))

    def planned(make: Make) -> FleetPlan:
        return fleet_plan(
            source, make, against_rest=job.classes == "ovr", costs=costs, folds=job.folds or 0, seed=job.seed,
            gamma=gamma,
        )  # fmt: skip

    kind, plan = _members(job, source, count, planned)
    return Fleet(source, plan, kind, job.memory_bytes)


def _members(
    job: FleetJob, source: Source, count: int, planned: Callable[[Make], FleetPlan]
) -> tuple[MemberKind[Any, Any], FleetPlan]:
    """The kind of all members, and what they are: they share the memory, and their rows are of the same size."""
    if job.loss is None:
        return HardMargins(), first_together(planned(lambda view, _: hard_margin(job, view, sharing=count)))

    memory, loss = job.memory_bytes, LOSSES[job.loss]
    kind = InSegments(memory, count)

    def staged(view: Source, cost: float | None) -> StagedSoftMargin:
        return StagedSoftMargin(
            view, job.epsilon, loss, 1.0 if cost is None else cost, job.class_weight, job.intercept, memory, count,
            copies=3 if job.folds else 1, sample_share=job.sample, near_bytes=memory // 4 if count > 1 else None,
            duals_fit=kind.duals_fit(source),
        )  # fmt: skip

    plan = planned(staged)
    together = first_together(plan)
    members = [cast("StagedSoftMargin", member.problem) for member in together.members]
    alike = len({member.code for member in plan.members}) == 1
    # Held-out rows are counted by a scan with the final models: one that proves them is all that is needed then.
    one_scan = bool(job.folds) and all(own.sample_is_enough for own in members)
    if not one_scan and all(own.fits_stages and own.pays_together(alike=alike) for own in members):
        return StagedMargins(judged_in_stages=not job.folds), together
    if not in_scans(staged(source, None)).in_segments:
        scans = plan.with_problems(lambda own: in_scans(cast("StagedSoftMargin", own)))
        return StagedMargins(judged_in_stages=not job.folds), scans
    return kind, plan.with_problems(lambda own: kind.member(base_of(cast("StagedSoftMargin", own))))
