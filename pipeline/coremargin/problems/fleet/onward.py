"""A fleet that goes on after its store has changed: each member as it would alone, rows being read once for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of
from coremargin.engine.problem import NothingToGoOnFrom
from coremargin.maths.rows import take
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.fetched import Fetched
from coremargin.problems.fleet.stages import StagedMargins
from coremargin.problems.fleet.state import MemberState, rows_of, with_rows, without_rows
from coremargin.problems.soft.onward import lightened

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.problems.fleet.base import FleetBase
    from coremargin.problems.fleet.probe import MemberView
    from coremargin.problems.fleet.state import FleetState
    from coremargin.problems.soft.staged import StagedSoftMargin
    from coremargin.problems.soft.state import SoftState

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

_CODES, _COSTS = "plan_codes", "plan_costs"


def kept(fleet: FleetBase, state: FleetState) -> Mapping[str, NDArray[Any]]:
    """A state as arrays, with what says whose members' they are; nothing where members never go on."""
    if not isinstance(fleet.kind, StagedMargins):
        return {}
    members = [lightened(cast("SoftState", own), fleet.source.dtype) for own in state.members]
    shared = fleet.shared_rows(members, [DriverRows(state.shared_rows.ids, state.shared_rows.rows)])
    return replace(state, members=tuple(members), shared_rows=shared).to_arrays() | _plan(fleet)


def _plan(fleet: FleetBase) -> dict[str, NDArray[Any]]:
    members = fleet.plan.members
    codes = [-1 if member.code is None else member.code for member in members]
    return {_CODES: np.array(codes), _COSTS: np.array([member.cost for member in members], np.float64)}


def check_members(fleet: FleetBase, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raises NothingToGoOnFrom where a fleet has other members than the one that kept these arrays, or keeps none."""
    if not isinstance(fleet.kind, StagedMargins) or not arrays:
        raise NothingToGoOnFrom("models that are read together go on only where sums of far rows prove them")
    if not all(np.array_equal(arrays[name], value) for name, value in _plan(fleet).items()):
        raise NothingToGoOnFrom("the rows are of other classes than before")


def onward(fleet: FleetBase, before: FleetState, difference: Difference) -> FleetState:
    """The state of a fleet on a commit from which the usual rounds go on. Raises NothingToGoOnFrom."""
    fetched = Fetched(fleet.source)
    members, parts = list[MemberState](), [DriverRows(before.shared_rows.ids, before.shared_rows.rows)]
    fold = fold_of(difference.ids, fleet.plan.folds, fleet.plan.seed) if fleet.plan.folds else None
    for member, view, own in zip(fleet.plan.members, fleet.member_views, before.members, strict=True):
        may_stop()
        problem = cast("StagedSoftMargin", member.problem)
        held = cast("Any", with_rows(own, before.shared_rows, as_it_is=True))
        state = problem.gone_on(held, _seen(difference, view, fold), fetched)
        for some in rows_of(state).values():
            new = np.flatnonzero(np.isin(some.ids, before.shared_rows.ids, invert=True))
            parts += [DriverRows(some.ids[new], take(some.rows, new))] if len(new) else []
        members.append(without_rows(state))
    shared = fleet.shared_rows(members, parts)
    if len(shared) > cast("StagedSoftMargin", fleet.plan.members[0].problem).most_at_home:
        raise NothingToGoOnFrom("more rows lie near the margin, or have changed, than there is memory for")
    read = difference.nbytes + fetched.rows * fleet.source.nbytes // fleet.source.rows
    return replace(
        before, round=0, scans=0, members=tuple(members), shared_rows=shared, evaluated=False, as_read=False,
        confusion=np.zeros_like(before.confusion), sample_bytes=read,
    )  # fmt: skip


def _seen(found: Difference, view: MemberView, fold: NDArray[np.int64] | None) -> Difference:
    """What has changed for a member, by how it sees labels; fold (m,): of the rows."""
    then, now = (view.codes(codes, fold) for codes in (found.codes_before, found.codes_after))
    other = np.flatnonzero((then != now) | ((found.weights_before != found.weights_after) & (now >= 0)))
    return replace(
        found, ids=found.ids[other], codes_before=then[other], codes_after=now[other], nbytes=0,
        weights_before=found.weights_before[other], weights_after=found.weights_after[other],
    )  # fmt: skip
