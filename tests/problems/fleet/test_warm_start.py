"""Warm starts of fleets of soft margins after a change of the store: all are proven on all rows, little is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.data.difference import Difference
from coremargin.data.folds import fold_of
from coremargin.engine.allowance import Allowance
from coremargin.engine.executors import InProcess
from coremargin.engine.plan import plan_blocks
from coremargin.engine.problem import CannotWarmStart
from coremargin.engine.scan import run_scan
from coremargin.problems.fleet.fleet import Fleet
from coremargin.problems.fleet.member_kinds import SoftMargins
from coremargin.problems.fleet.plan import fleet_plan
from coremargin.problems.soft import near_margin
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin

if TYPE_CHECKING:
    from coremargin.problems.fleet.fleet import FleetState
    from coremargin.problems.soft.state import Reading, SoftState

COSTS, NAMES = (0.1, 1.0), np.array(["x", "y", "z", None], object)

ALL = Allowance(1 << 30, requested=True)


def fleet_of(X: np.ndarray, codes: np.ndarray, loss: str, folds: int = 0) -> Fleet:
    """Each of three classes against the rest, by two values of C; codes (n,), -1 for no label."""
    source = ArraySource(X, NAMES[codes], classes=("x", "y", "z"), chunk_rows=250)

    def make(view: Any, cost: Any) -> SoftMargin:
        return SoftMargin(
            view,
            1e-2,
            LOSSES[cast("Any", loss)],
            cost,
            sample_share=0.04,
            sample_bytes=80_000,
            memory_bytes=8 << 20,
            sharing=6 * (1 + folds),
            in_stages=True,
        )

    plan = fleet_plan(source, make, against_rest=True, costs=COSTS, folds=folds, seed=0).with_same_stages()
    return Fleet(source, plan, SoftMargins(evaluated_in_stages=not folds), 8 << 20)


def run(fleet: Fleet, state: FleetState, begun: int) -> tuple[FleetState, float]:
    """The last state, and which share of the store was read; begun: chunks before."""
    read = begun + state.sample_bytes / fleet.source.nbytes * fleet.source.chunks * (not begun)
    while not fleet.done(state):
        skip = fleet.skip(state)
        read += int(np.count_nonzero(~skip))
        blocks = plan_blocks(fleet.source, 40_000, skip=skip)
        state = fleet.update(state, run_scan(InProcess(), fleet.source, fleet.probe(state), blocks))
        assert state.round < 60
    return state, read / fleet.source.chunks


@pytest.mark.slow
@pytest.mark.parametrize("folds", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_members_start_together(loss: str, folds: int, rng: np.random.Generator, monkeypatch: Any) -> None:
    """Rows come, some labels are corrected: a twentieth is read, with folds all once more for how they do together."""
    monkeypatch.setattr(near_margin, "NEAR_BYTES_LEAST", 100_000)
    codes = rng.integers(0, 3, 63_060)
    X = (rng.standard_normal((len(codes), 4)) + 1.5 * np.eye(3, 4)[codes]).astype(np.float32)
    n = 60_060  # the last chunk is not full
    then = codes[:n].copy()
    ids = np.sort(rng.choice(n, 40, replace=False))
    then[ids] = rng.choice([-1, 0, 1, 2], 40)
    ids = ids[then[ids] != codes[ids]]
    fleet = fleet_of(X[:n], then, loss, folds)
    state, _ = run(fleet, fleet.start(), len(fleet.sample_chunks))
    arrays = fleet.warm_start_state(state, ALL)
    fleet = fleet_of(X, codes, loss, folds)
    ones = np.ones(len(ids))
    state = fleet.warm_start(
        arrays, Difference(n, len(X), ids, then[ids].astype(np.int32), codes[ids].astype(np.int32), ones, ones, 0)
    )
    again = fleet.restore(state.to_arrays())
    assert all(np.array_equal(value, again.to_arrays()[name]) for name, value in state.to_arrays().items())
    state, read = run(fleet, state, 0)
    assert state.status == "certified"
    assert 0.05 <= read <= (0.1 if not folds else 1.1)
    assert state.as_read == (not folds)
    anew = run(fleet, fleet.start(), 0)[0]
    points = np.column_stack([X.astype(float), np.ones(len(X))])
    for k, (member, own) in enumerate(zip(fleet.plan.members, state.members, strict=True)):
        mine = np.ones(len(X), bool)
        if member.fold is not None:
            mine = fold_of(np.arange(len(X)), folds, 0) != member.fold
        y, at = np.where(codes == member.code, 1, -1), fleet.hypothesis(k, own)
        slack = np.maximum(0.0, 1.0 - y * (points @ at))[mine]
        losses = slack.sum() if loss == "hinge" else slack @ slack
        assert cast("float", member.cost) * losses + 0.5 * at[:-1] @ at[:-1] <= own.upper
        assert own.lower <= anew.members[k].upper
        assert own.lower >= 0.99 * own.upper
    if not folds:  # with folds all is read once more anyway, and which members join is another matter
        joins_where_others_read(fleet, state)


def joins_where_others_read(fleet: Fleet, state: FleetState) -> None:
    """One member has all chunks read again: another that has moved far asks them too, those that have not do not; all
    are proven by that one read, and the one that joined knows its far rows anew.
    """
    members = list(state.members)
    for k in (0, 1):
        own = cast("SoftState", members[k])
        assert own.reading is not None
        again = np.isin(np.arange(own.reading.count), own.reading.stage_of)
        if k == 0:
            members[k] = replace(own, status="running", reading=replace(own.reading, reread=again))
        else:
            members[k] = replace(own, newest=own.newest * 1.5)
    asked = fleet.with_joining_members(replace(state, members=tuple(members), evaluated=False))
    assert fleet.running(asked) == [0, 1]
    assert not fleet.skip(asked).any()
    assert fleet.statuses(asked) == ["certified"] * len(members)  # where time is over now, all is proven as it was
    done, read = run(fleet, asked, 1)
    assert read == pytest.approx(1.0 + 1 / fleet.source.chunks)
    assert done.status == "certified"
    known = [cast("Reading", cast("SoftState", member).reading) for member in (done.members[1], members[1])]
    assert np.abs(known[0].far.hypotheses - known[1].far.hypotheses).max() > 0.1
    assert fleet.with_joining_members(done) is done


def test_fleets_of_other_members_are_refused(rng: np.random.Generator) -> None:
    """A class that is new makes other questions of all that were asked."""
    codes = rng.integers(0, 2, 60_000)
    X = (rng.standard_normal((len(codes), 4)) + 1.5 * np.eye(3, 4)[codes]).astype(np.float32)
    two = fleet_of(X, codes, "hinge")
    arrays = two.warm_start_state(two.start(), ALL)
    codes[:100] = 2
    none = np.zeros(0, np.int64)
    night = Difference(
        len(codes), len(codes), none, none.astype(np.int32), none.astype(np.int32), np.zeros(0), np.zeros(0), 0
    )
    with pytest.raises(CannotWarmStart, match="other classes"):
        fleet_of(X, codes, "hinge").warm_start(arrays, night)
    with pytest.raises(CannotWarmStart, match="always trained from scratch"):
        two.warm_start({}, night)
