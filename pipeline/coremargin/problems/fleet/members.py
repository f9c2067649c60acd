"""Which problems make a fleet: a class against the rest, a value of C and a fold each, on views of one source."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.data.relabelled import Relabelled
from coremargin.problems.common.classes import held_out_views

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.hard.hard_margin import HardMargin
    from coremargin.problems.soft.block_minimisation import BlockMinimisation
    from coremargin.problems.soft.problem import SoftMargin

    MemberProblem: TypeAlias = HardMargin | SoftMargin | BlockMinimisation


@dataclass(frozen=True)
class Member:
    """One problem of a fleet.

    name: of its folder. code: the class that stands against the rest, None: the store's two classes. cost: C, None for
    a hard margin. fold: the one that is held out, None: all rows are used.
    """

    name: str
    code: int | None
    cost: float | None
    fold: int | None
    problem: MemberProblem


@dataclass(frozen=True)
class FleetPlan:
    """The members: folds outermost, then classes, then C from small to large.

    codes (k,): the classes in order of their labels; folds, seed: of cross-validation, 0: none. gamma: of the map of
    their rows, as it was asked for, where it is one of several.
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

    @property
    def regularisation_paths(self) -> list[list[int]]:
        """Numbers of the members that differ in C only, in order: each starts from the solution of the one before."""
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
    make: Callable[[Source, float | None], MemberProblem],
    *,
    against_rest: bool,
    costs: Sequence[float | None],
    folds: int,
    seed: int,
    gamma: str | float | None = None,
) -> FleetPlan:
    """The members for all classes (of two classes one is enough), values of C and folds (0: none), and all rows.

    make: the problem for a view and a value of C; gamma: as in the plan. Raises LabelError when a class has no row in
    a fold.
    """
    present = [int(code) for code in np.flatnonzero(source.scalars().counts.sum(axis=0))]
    codes = sorted(present, key=lambda code: source.classes[code])
    views: dict[int | None, Source] = {None: source}
    if folds:
        views |= dict(enumerate(held_out_views(source, codes, folds, seed)))
    many = against_rest and len(codes) > 2
    sides: list[int | None] = [*codes] if many else [None]
    slugs = _slugs(source, codes)
    members = []
    for fold, view in views.items():
        for code in sides:
            seen = view if code is None else Relabelled(view, code)
            for cost in costs:
                name = member_name(None if code is None else slugs[code], cost, gamma, fold)
                members.append(Member(name, code, cost, fold, make(seen, cost)))
    return FleetPlan(tuple(members), np.array(codes, np.int64), folds, seed, gamma)


def _slugs(source: Source, codes: Sequence[int]) -> dict[int, str]:
    """A slug for each class, which can be part of a folder's name; no two are equal, however letters are cased.

    ASCII letters, digits and underscores, at most 40 of a label's and some for its code where they are not enough.
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


def member_name(slug: str | None, cost: float | None, gamma: str | float | None, fold: int | None) -> str:
    """Such as class-3_C-0.1_fold-2, or, where gamma is one of several, C-0.1_gamma-2_fold-2."""
    parts: list[tuple[str, Any]] = [("class", slug), ("C", _short(cost)), ("gamma", _short(gamma)), ("fold", fold)]
    return "_".join(f"{kind}-{value}" for kind, value in parts if value is not None) or "all"


def _short(number: str | float | None) -> str | float | None:
    """With as few digits as tell it."""
    return f"{number:g}" if isinstance(number, float) and float(f"{number:g}") == number else number
