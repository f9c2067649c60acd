"""A fleet that goes on after its store has changed: each member as it would alone, rows being read once for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of
from coremargin.data.resident import at_hand
from coremargin.data.view import bytes_read
from coremargin.engine.problem import NothingToGoOnFrom
from coremargin.engine.protocols import Block
from coremargin.maths.rows import take
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.warm_start import TOO_MANY, RowFetcher, most_cached_rows
from coremargin.problems.fleet.state import MemberState, rows_of, with_rows, without_rows

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.problems.fleet.base import FleetBase
    from coremargin.problems.fleet.probe import FleetProbe, MemberView
    from coremargin.problems.fleet.state import FleetState

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Ask: TypeAlias = "Callable[[FleetState], FleetProbe]"

_CODES, _COSTS = "plan_codes", "plan_costs"


def kept(fleet: FleetBase, state: FleetState, allowance: Allowance, probe: Ask) -> Mapping[str, NDArray[Any]]:
    """A state as arrays, with what says whose members' they are; nothing where members never go on.

    probe: the question of a state, for members that all rows are asked for once more.
    """
    if not fleet.kind.goes_on:
        return {}
    state = _summed(fleet, state, allowance, probe) if at_hand(fleet.source) else state
    most = most_cached_rows(fleet.source, allowance) // len(state.members)
    return allowance.within(lambda rows: _with_rows(fleet, state, rows), most)


def _with_rows(fleet: FleetBase, state: FleetState, most: int) -> Mapping[str, NDArray[Any]]:
    """A state as arrays; most: rows that a member may keep."""
    members, parts = list[MemberState](), [DriverRows(state.shared_rows.ids, state.shared_rows.rows)]
    for member, own in zip(fleet.plan.members, state.members, strict=True):
        held = with_rows(own, state.shared_rows) if fleet.kind.needs_rows else own
        members.append(without_rows(fleet.kind.lightened(member.problem, held, most)))
    return replace(state, members=tuple(members), shared_rows=fleet.shared_rows(members, parts)).to_arrays() | _plan(
        fleet
    )


def asking_more(fleet: FleetBase, state: FleetState) -> FleetState | None:
    """With the members that ask for all rows once more, as they would alone; how they do together is known."""
    asking = {} if at_hand(fleet.source) else _asking(fleet, state)
    if not asking:
        return None
    members = [without_rows(asking[k]) if k in asking else own for k, own in enumerate(state.members)]
    return replace(state, members=tuple(members), evaluated=False, as_read=True)


def _asking(fleet: FleetBase, state: FleetState) -> dict[int, MemberState]:
    """The members, by their numbers, that were proven by scans, as they ask for all rows once more."""
    if fleet.all_cached or not fleet.kind.goes_on:
        return {}
    asking = dict[int, MemberState]()
    for number, member in enumerate(fleet.plan.members):
        asked = fleet.kind.asking_all(member.problem, with_rows(state.members[number], state.shared_rows))
        if asked is not None:
            asking[number] = asked
    return asking


def _summed(fleet: FleetBase, state: FleetState, allowance: Allowance, probe: Ask) -> FleetState:
    """With what members go on from that were proven by scans, all rows being at hand, which are asked for it."""
    members, asking = list(state.members), _asking(fleet, state)
    work = sum(fleet.kind.work_of_asking(fleet.plan.members[number].problem) for number in asking)
    if not asking or not allowance.pays(work):
        return state
    for number, asked in asking.items():
        members[number] = without_rows(asked)
    asks = probe(replace(state, members=tuple(members)))
    found = asks(fleet.source, Block(0, tuple(range(fleet.source.chunks))))
    for place, (number, asked) in enumerate(asking.items()):
        own = fleet.kind.summed(fleet.plan.members[number].problem, asked, found.part(place))
        members[number] = without_rows(own)
    parts = [state.shared_rows, DriverRows(found.row_id, found.row_x)]
    return replace(state, members=tuple(members), shared_rows=fleet.shared_rows(members, parts))


def _plan(fleet: FleetBase) -> dict[str, NDArray[Any]]:
    members = fleet.plan.members
    codes = [-1 if member.code is None else member.code for member in members]
    return {_CODES: np.array(codes), _COSTS: np.array([member.cost or 0.0 for member in members])}


def check_members(fleet: FleetBase, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raises NothingToGoOnFrom where a fleet has other members than the one that kept these arrays, or keeps none."""
    if not fleet.kind.goes_on or not arrays or fleet.all_cached:
        raise NothingToGoOnFrom("models that scans of all rows prove together are always trained from nothing")
    if not all(np.array_equal(arrays[name], value) for name, value in _plan(fleet).items()):
        raise NothingToGoOnFrom("the rows are of other classes than before")


def onward(fleet: FleetBase, before: FleetState, difference: Difference) -> FleetState:
    """The state of a fleet on a commit from which the usual rounds go on. Raises NothingToGoOnFrom."""
    room = fleet.kind.room(fleet.plan.members[0].problem, len(before.members))
    fetched = RowFetcher(fleet.source, room)
    members, parts = list[MemberState](), [DriverRows(before.shared_rows.ids, before.shared_rows.rows)]
    fold = fold_of(difference.ids, fleet.plan.folds, fleet.plan.seed) if fleet.plan.folds else None
    for member, view, own in zip(fleet.plan.members, fleet.member_views, before.members, strict=True):
        may_stop()
        held = with_rows(own, before.shared_rows, as_it_is=fleet.kind.rows_as_read)
        state = fleet.kind.gone_on(member.problem, held, _seen(difference, view, fold), fetched)
        for some in rows_of(state).values():
            new = np.flatnonzero(np.isin(some.ids, before.shared_rows.ids, invert=True))
            parts += [DriverRows(some.ids[new], take(some.rows, new))] if len(new) else []
        members.append(without_rows(state))
    shared = fleet.shared_rows(members, parts)
    if len(shared) > room:
        raise NothingToGoOnFrom(TOO_MANY)
    read = difference.nbytes + bytes_read(fleet.source, fetched.rows)
    return replace(
        before, round=0, scans=0, members=tuple(members), shared_rows=shared, evaluated=False,
        as_read=not fleet.plan.folds,
        confusion=np.zeros_like(before.confusion), sample_bytes=read,
    )  # fmt: skip


def joined(fleet: FleetBase, state: FleetState) -> FleetState:
    """With members that are done and ask again what is read for others anyway, lest each has all of it read alone."""
    running = fleet.running(state)
    if not running or len(running) == len(state.members):
        return state
    chunks, members = np.flatnonzero(~fleet.skip(state)), list(state.members)
    for number in sorted(set(range(len(members))) - set(running)):
        problem = fleet.plan.members[number].problem
        again = fleet.kind.joining(problem, members[number], chunks)
        members[number] = members[number] if again is None else again
    return replace(state, members=tuple(members))


def _seen(found: Difference, view: MemberView, fold: NDArray[np.int64] | None) -> Difference:
    """What has changed for a member, by how it sees labels; fold (m,): of the rows."""
    then, now = (view.codes(codes, fold) for codes in (found.codes_before, found.codes_after))
    other = np.flatnonzero((then != now) | ((found.weights_before != found.weights_after) & (now >= 0)))
    return replace(
        found, ids=found.ids[other], codes_before=then[other], codes_after=now[other], nbytes=0,
        weights_before=found.weights_before[other], weights_after=found.weights_after[other],
    )  # fmt: skip
