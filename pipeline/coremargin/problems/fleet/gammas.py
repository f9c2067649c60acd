"""Fleets of several gammas from the same reads: each gamma is a map of its own, and a fleet on the rows of that map.

A chunk is read once, and mapped once for each fleet that is not done. What a fleet makes of the answers depends on
nothing but its own: with the same memory and blocks it is, to the bit, the fleet of this gamma alone. Fleets that are
in the middle of a scan are asked by themselves until it is over, so that all ask about all rows at the same time. The
memory is shared in equal parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import BaseProblem, Round
from coremargin.maths.margin import ratio
from coremargin.maths.stopping import may_stop
from coremargin.problems.fleet.gamma_probe import GammaProbe, GammaSummary, apart, numbered
from coremargin.problems.fleet.sample import read_rows
from coremargin.problems.fleet.state import together

if TYPE_CHECKING:
    from coremargin.engine.want import Want
    from coremargin.problems.fleet.problem import Fleet
    from coremargin.problems.fleet.state import FleetState


@dataclass(frozen=True)
class GammaState:
    """Between two scans: the states of the fleets; scans: those over all rows that are done."""

    round: int
    scans: int
    parts: tuple[FleetState, ...]

    @property
    def status(self) -> str:
        """The word of all fleets."""
        return together([own.status for own in self.parts])

    @property
    def sample_bytes(self) -> int:
        """Of all fleets: what is read for all of them counts for the first."""
        return sum(own.sample_bytes for own in self.parts)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact; the problem's ``restore`` gives the same bits back."""
        own = {"round": np.array(self.round), "scans": np.array(self.scans)}
        return own | numbered([part.to_arrays() for part in self.parts])


@dataclass(frozen=True)
class GammaFleet(BaseProblem[GammaState, GammaSummary]):
    """Fleets on the views of one source that has the rows of all maps; parts: in the order of these."""

    parts: tuple[Fleet, ...]

    def states(self, state: GammaState) -> tuple[FleetState, ...]:
        """Those of the parts."""
        return state.parts

    def check(self) -> None:
        """Refuse what any fleet would refuse."""
        for fleet in self.parts:
            fleet.check()

    @property
    def least_block_bytes(self) -> int:
        """As much as any fleet needs."""
        return max(fleet.least_block_bytes for fleet in self.parts)

    @property
    def sample_chunks(self) -> list[int]:
        """Those of any fleet: which they are depends on sizes and labels only, and all maps have as many components."""
        return self.parts[0].sample_chunks

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """Those of any fleet."""
        return self.parts[0].stage_chunks

    @property
    def reads_again(self) -> bool:
        """Where fleets do."""
        return any(fleet.reads_again for fleet in self.parts)

    @property
    def holds_all_rows(self) -> bool:
        """Where fleets do."""
        return any(fleet.holds_all_rows for fleet in self.parts)

    @property
    def want(self) -> Want | None:
        """What one would like, for each: they have equal parts of the memory, and rows of the same size."""
        one, count = self.parts[0].want, len(self.parts)
        room = None if one.room is None else one.room * count
        return replace(one, given=one.given * count, size=one.size * count, rows=one.rows * count, room=room)

    # start

    def start(self) -> GammaState:
        """Solve all fleets on one sample."""
        views = [fleet.source for fleet in self.parts]
        found = read_rows(views, self.sample_chunks, stay=self.parts[0].all_cached)
        states = list[Any]()
        for fleet in self.parts:
            may_stop()
            states.append(fleet.begun(found.pop(0)))
        begun = GammaState(round=0, scans=0, parts=tuple(states))
        return begun if self.part_of(begun) else replace(begun, scans=max(own.scans for own in states))

    def unsolved(self) -> GammaState:
        """Nothing is known of any member."""
        return GammaState(round=0, scans=0, parts=tuple(fleet.unsolved() for fleet in self.parts))

    # scan

    def asked(self, state: GammaState) -> list[int]:
        """The places of the fleets that the next scan is for: those that are not done, or in the middle of one."""
        running = [k for k, fleet in enumerate(self.parts) if not fleet.done(state.parts[k])]
        return [k for k in running if self.parts[k].part_of(state.parts[k])] or running

    def probe(self, state: GammaState) -> GammaProbe:
        """Their questions."""
        asked, skipped = self.asked(state), ~self.skip(state)
        return GammaProbe(
            tuple(self.parts[k].probe(state.parts[k]) for k in asked), tuple(asked),
            tuple(np.flatnonzero(skipped & self.parts[k].skip(state.parts[k])) for k in asked),
        )  # fmt: skip

    def skip(self, state: GammaState) -> NDArray[np.bool_]:
        """Chunks (c,) that none of them needs."""
        return np.asarray(np.logical_and.reduce([self.parts[k].skip(state.parts[k]) for k in self.asked(state)]))

    def ahead(self, state: GammaState) -> NDArray[np.intp]:
        """What all of them know to come."""
        return reduce(np.intersect1d, [self.parts[k].ahead(state.parts[k]) for k in self.asked(state)])

    def done(self, state: GammaState) -> bool:
        """True when all fleets are."""
        return all(fleet.done(own) for fleet, own in zip(self.parts, state.parts, strict=True))

    # update

    def update(self, state: GammaState, summary: GammaSummary) -> GammaState:
        """Each fleet that was asked, by its own answer."""
        parts = list(state.parts)
        for k, answer in zip(self.asked(state), summary.parts, strict=True):
            parts[k] = self.parts[k].update(parts[k], answer)
        after = replace(state, round=state.round + 1, parts=tuple(parts))
        return replace(after, scans=state.scans + (self.part_of(after) == 0))

    def broken(self, state: GammaState) -> GammaState:
        """With the members that are at work stalled."""
        parts = [fleet.broken(own) for fleet, own in zip(self.parts, state.parts, strict=True)]
        return replace(state, parts=tuple(parts))

    def part_of(self, state: GammaState) -> int:
        """Parts of the scan that are done, 0 when it is over for all fleets."""
        return max(fleet.part_of(own) for fleet, own in zip(self.parts, state.parts, strict=True))

    def round_of(self, state: GammaState) -> Round:
        """What is told of a state: the bounds are those of the member with the lowest ratio."""
        rounds = [fleet.round_of(own) for fleet, own in zip(self.parts, state.parts, strict=True)]
        worst = min(range(len(rounds)), key=lambda k: ratio(rounds[k].lower, rounds[k].upper))
        lead = max(rounds, key=lambda one: (one.part or 0, one.stage or 0))  # who is in the middle of a scan
        counts = ("members", "members_certified", "members_done")
        more = {name: sum(one.more[name] for one in rounds) for name in counts}
        return Round(
            number=state.scans + (self.part_of(state) > 0), part=lead.part, stage=lead.stage, stages=lead.stages,
            status=state.status, lower=rounds[worst].lower, lower_now=rounds[worst].lower_now,
            upper=rounds[worst].upper, pool_rows=sum(one.pool_rows for one in rounds),
            coreset_rows=sum(one.coreset_rows for one in rounds), new_rows=sum(one.new_rows for one in rounds),
            more={**more, "worst": rounds[worst].more["worst"]},
        )  # fmt: skip

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> GammaState:
        """A state from a checkpoint."""
        pairs = zip(self.parts, apart(arrays, len(self.parts)), strict=True)
        states = tuple(fleet.restore(own) for fleet, own in pairs)
        return GammaState(int(arrays["round"]), int(arrays["scans"]), states)
