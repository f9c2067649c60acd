"""From a job to a fleet: the kind of its members, and their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replace_field
from typing import TYPE_CHECKING, cast

import numpy as np
from msgspec.structs import replace

from coremargin.data.mapped import MappedEach
from coremargin.problems.fleet.fleet import Fleet
from coremargin.problems.fleet.gammas import GammaFleet
from coremargin.problems.fleet.member_kinds import HardMargins, PartitionedMargins, SoftMargins
from coremargin.problems.fleet.plan import fleet_plan
from coremargin.problems.fleet.risk import check_rows
from coremargin.problems.hard.kind import hard_margin
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.spec import Size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.fleet.plan import FleetPlan, MakeMember
    from coremargin.problems.fleet.spec import FleetJob


def problem_of(job: FleetJob, source: Source) -> Fleet | GammaFleet:
    """The fleet; with several gammas one for each, which share the memory equally: ``source`` has the mapped rows.

    Raises LabelError for a class without rows in a fold, before rows are read.
    """
    views: Sequence[Source] = source.each if isinstance(source, MappedEach) else [source]
    memory = max(1, job.memory_bytes // len(views))
    alone = replace(job, memory=Size(memory))
    fleets = [fleet_of(alone, view, gamma) for view, gamma in zip(views, job.asked_gammas, strict=True)]
    return fleets[0] if len(fleets) == 1 else GammaFleet(source, tuple(fleets))


def fleet_of(job: FleetJob, source: Source, gamma: str | float | None = None) -> Fleet:
    """The fleet on rows that are mapped alike, if at all; gamma: of their map, if the job has a list of gammas.

    Members share the memory, and their rows are of equal size. Hard margins have pools of their own. Soft margins read
    the store in stages if the rows near the margin fit and reading dominates, else by scans. If neither their rows nor
    their sums fit, they go over partitions of the rows, with dual weights for each row.
    """
    memory, folds, against_rest = job.memory_bytes, job.folds or 0, job.classes == "ovr"
    costs: tuple[float | None, ...] = (None,) if job.loss is None else job.costs
    present = int(np.count_nonzero(source.scalars().counts.sum(axis=0)))
    sides = present if against_rest and present > 2 else 1
    count = sides * len(costs) * (1 + folds)

    def planned(make: MakeMember) -> FleetPlan:
        return fleet_plan(source, make, against_rest=against_rest, costs=costs, folds=folds, seed=job.seed, gamma=gamma)

    if job.choose == "risk":
        check_rows(source, present)
    if job.loss is None:
        plan = planned(lambda view, _: hard_margin(job, view, sharing=count))
        return Fleet(source, plan.with_same_stages(), HardMargins(), memory)

    loss, partitioned = LOSSES[job.loss], PartitionedMargins(memory, count)

    def staged(view: Source, cost: float | None) -> SoftMargin:
        return SoftMargin(
            view,
            job.epsilon,
            loss,
            1.0 if cost is None else cost,
            job.class_weight,
            job.intercept,
            memory,
            count,
            copies=3 if folds else 1,
            sample_share=job.sample,
            near_bytes=memory // 4 if count > 1 else None,
            duals_fit=partitioned.duals_fit(source),
            in_stages=True,
        )

    plan = planned(staged)
    in_stages = plan.with_same_stages()
    problems = [cast("SoftMargin", member.problem) for member in in_stages.members]
    alike = len({member.code for member in plan.members}) == 1
    # What chooses is counted by a scan with the final models: one that proves them as well is all that is needed.
    by_risk = job.choose == "risk"
    final = folds > 0 or by_risk
    one_scan = final and all(own.sample_is_enough for own in problems)
    if not one_scan and all(own.fits_stages and own.pays_together(alike=alike) for own in problems):
        return Fleet(source, in_stages, SoftMargins(not final, by_risk), memory)
    if not staged(source, None).in_segments:
        scans = plan.with_problems(lambda own: replace_field(cast("SoftMargin", own), in_stages=False))
        return Fleet(source, scans, SoftMargins(not final, by_risk), memory)
    partitions = plan.with_problems(lambda own: partitioned.member(cast("SoftMargin", own)))
    return Fleet(source, partitions, partitioned, memory)
