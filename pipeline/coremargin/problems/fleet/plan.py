"""From a job to its models: a class against the rest, a value of C and a fold each, on views of one source."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from coremargin.data.mapped_each import MappedEach
from coremargin.data.relabelled import Relabelled
from coremargin.problems.common.classes import held_out_views
from coremargin.problems.fleet.fleet import Fleet
from coremargin.problems.fleet.gammas import GammaFleet
from coremargin.problems.fleet.member_kinds import HardMargins, PartitionedMargins, SoftMargins
from coremargin.problems.fleet.spec import member_name
from coremargin.problems.hard.kind import hard_margin
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.spec import Size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.fleet.spec import FleetJob
    from coremargin.problems.hard.hard_margin import HardMargin
    from coremargin.problems.hard.state import HardMarginState
    from coremargin.problems.soft.block_minimisation import BlockMinimisation
    from coremargin.problems.soft.state import SoftState

    MemberProblem: TypeAlias = HardMargin | SoftMargin | BlockMinimisation
    MemberState: TypeAlias = HardMarginState | SoftState
    MakeMember: TypeAlias = Callable[[Source, float | None], MemberProblem]


def problem_of(job: FleetJob, source: Source) -> Fleet | GammaFleet:
    """The fleet; with several gammas one for each, which share the memory equally: ``source`` has the mapped rows.

    Raises LabelError for a class without rows in a fold, before rows are read.
    """
    views: Sequence[Source] = source.each if isinstance(source, MappedEach) else [source]
    memory = max(1, job.memory_bytes // len(views))
    alone = structs.replace(job, memory=Size(memory))
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
    # Held-out rows are counted by a scan with the final models: one that proves them as well is all that is needed.
    one_scan = folds > 0 and all(own.sample_is_enough for own in problems)
    if not one_scan and all(own.fits_stages and own.pays_together(alike=alike) for own in problems):
        return Fleet(source, in_stages, SoftMargins(evaluated_in_stages=not folds), memory)
    if not staged(source, None).in_segments:
        scans = plan.with_problems(lambda own: replace(cast("SoftMargin", own), in_stages=False))
        return Fleet(source, scans, SoftMargins(evaluated_in_stages=not folds), memory)
    partitions = plan.with_problems(lambda own: partitioned.member(cast("SoftMargin", own)))
    return Fleet(source, partitions, partitioned, memory)


@dataclass(frozen=True)
class Member:
    """One problem of a fleet.

    name: of its folder. code: the class against the rest, None: the store's two classes. cost: C, None for a hard
    margin. fold: the one that is held out, None: no rows are.
    """

    name: str
    code: int | None
    cost: float | None
    fold: int | None
    problem: MemberProblem


@dataclass(frozen=True)
class FleetPlan:
    """The members: folds outermost, then classes, then C in increasing order.

    codes (k,): the classes in the order of their labels; folds, seed: of cross-validation, 0: none. gamma: of the map
    of their rows, if the job has a list of gammas.
    """

    members: tuple[Member, ...]
    codes: NDArray[np.int64]
    folds: int
    seed: int
    gamma: str | float | None = None

    def with_problems(self, change: Callable[[MemberProblem], MemberProblem]) -> FleetPlan:
        """The same members with their problems changed."""
        members = (replace(member, problem=change(member.problem)) for member in self.members)
        return replace(self, members=tuple(members))

    def with_same_stages(self) -> FleetPlan:
        """The same members with a common first stage: the chunks that any of them begins with."""
        first = tuple(sorted(set().union(*(member.problem.sample_chunks for member in self.members))))
        return self.with_problems(lambda own: replace(cast("HardMargin", own), first_chunks=first))

    @property
    def regularisation_paths(self) -> list[list[int]]:
        """Numbers of the members that differ only in C, in order: each starts from the solution of the one before."""
        paths: dict[tuple[int | None, int | None], list[int]] = {}
        for number, member in enumerate(self.members):
            paths.setdefault((member.fold, member.code), []).append(number)
        return list(paths.values())

    @property
    def ensembles(self) -> dict[tuple[int | None, float | None], list[int]]:
        """Numbers of the members that decide together, by fold and C."""
        ensembles: dict[tuple[int | None, float | None], list[int]] = {}
        for number, member in enumerate(self.members):
            ensembles.setdefault((member.fold, member.cost), []).append(number)
        return ensembles


def fleet_plan(
    source: Source,
    make: MakeMember,
    *,
    against_rest: bool,
    costs: Sequence[float | None],
    folds: int,
    seed: int,
    gamma: str | float | None = None,
) -> FleetPlan:
    """The members for all folds, classes and costs.

    make: the problem for a view and a value of C; gamma: as in the plan. Raises LabelError for a class without rows in
    a fold.
    """
    present = [int(code) for code in np.flatnonzero(source.scalars().counts.sum(axis=0))]
    codes = sorted(present, key=lambda code: source.classes[code])
    views: dict[int | None, Source] = {None: source}
    if folds:
        views |= dict(enumerate(held_out_views(source, codes, folds, seed)))
    many = against_rest and len(codes) > 2
    sides: list[int | None] = [*codes] if many else [None]
    slugs = _class_slugs(source, codes)
    members = []
    for fold, view in views.items():
        for code in sides:
            seen = view if code is None else Relabelled(view, code)
            for cost in costs:
                name = member_name(None if code is None else slugs[code], cost, gamma, fold)
                members.append(Member(name, code, cost, fold, make(seen, cost)))
    return FleetPlan(tuple(members), np.array(codes, np.int64), folds, seed, gamma)


def _class_slugs(source: Source, codes: Sequence[int]) -> dict[int, str]:
    """A part of a folder's name for each class; no two are equal, not even on case-insensitive file systems.

    They have ASCII letters, digits and underscores: at most 40 of a label's, and the code of the class if these are
    not unique.
    """
    slugs: dict[int, str] = {}
    taken = {""}
    for code in codes:
        slug = re.sub(r"[^A-Za-z0-9]+", "_", str(source.classes[code])).strip("_")[:40]
        while slug.lower() in taken:
            slug = f"{slug}_{code}"
        taken.add(slug.lower())
        slugs[code] = slug
    return slugs
