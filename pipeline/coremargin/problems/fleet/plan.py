"""The members of a fleet: a class against the rest, a value of C and a fold each, on views of one source."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.relabelled import Relabelled
from coremargin.problems.common.classes import held_out_views
from coremargin.problems.fleet.spec import member_name
from coremargin.problems.hard.state import HardMarginState
from coremargin.problems.soft.state import SoftState

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.hard.hard_margin import HardMargin
    from coremargin.problems.soft.block_minimisation import BlockMinimisation
    from coremargin.problems.soft.near_margin import SoftMargin

    MemberProblem: TypeAlias = HardMargin | SoftMargin | BlockMinimisation
    MakeMember: TypeAlias = Callable[[Source, float | None], MemberProblem]

MemberState: TypeAlias = HardMarginState | SoftState


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
