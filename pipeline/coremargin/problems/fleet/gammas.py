"""Fleets of several gammas from the same reads: each gamma is a map of its own, and a fleet on its mapped rows.

A chunk is read once, and mapped once for each fleet that is not done. What a fleet makes of the summaries depends on
nothing else: with the same memory and blocks it is, to the bit, the fleet of this gamma alone. Fleets in the middle of
a scan are queried alone until it is over, so that all query all rows at the same time. They share the memory equally.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import BaseProblem, Round
from coremargin.engine.protocols import Block
from coremargin.maths.margin import ratio
from coremargin.maths.named import below, under
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.sample import read_labelled_samples
from coremargin.problems.fleet.fleet import common_status

if TYPE_CHECKING:
    from coremargin.data.mapped import MappedEach
    from coremargin.data.source import Source
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.problems.fleet.fleet import Fleet, FleetState
    from coremargin.problems.fleet.probe import FleetProbe, FleetSummary


@dataclass(frozen=True)
class GammaState:
    """The state between two scans: those of the fleets; scans: finished scans of all rows."""

    round: int
    scans: int
    parts: tuple[FleetState, ...]

    @property
    def status(self) -> str:
        """The common status of all fleets."""
        return common_status([own.status for own in self.parts])

    @property
    def sample_bytes(self) -> int:
        """Of all fleets: what is read for all of them counts for the first."""
        return sum(own.sample_bytes for own in self.parts)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact; the problem's ``restore`` gives the same bits back."""
        own = {"round": np.array(self.round), "scans": np.array(self.scans)}
        return own | _number_arrays([part.to_arrays() for part in self.parts])


@dataclass(frozen=True)
class GammaSummary:
    """The summaries for some fleets, in their order."""

    parts: tuple[FleetSummary, ...]

    def merge(self, later: GammaSummary) -> GammaSummary:
        """The summaries of these blocks and later ones."""
        pairs = zip(self.parts, later.parts, strict=True)
        return GammaSummary(tuple(mine.merge(other) for mine, other in pairs))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        return _number_arrays([part.to_arrays() for part in self.parts])


@dataclass(frozen=True)
class GammaProbe:
    """The queries of some fleets, each about rows as its own map makes them.

    places: of the fleets among the maps. skipped: of the chunks that are read, those that each fleet does not need.
    """

    probes: tuple[FleetProbe, ...]
    places: tuple[int, ...]
    skipped: tuple[NDArray[np.intp], ...]

    def narrow(self, block: Block) -> GammaProbe:
        """The same queries, each with only what this block needs; unchanged if it needs none of the block."""
        pairs = zip(self.probes, (_without_chunks(block, skipped) for skipped in self.skipped), strict=True)
        return replace(
            self,
            probes=tuple(probe.narrow(part) if part.chunks else probe for probe, part in pairs),
            skipped=tuple(np.intersect1d(skipped, block.chunks) for skipped in self.skipped),
        )

    def empty(self) -> GammaSummary:
        """The summaries of no rows."""
        return GammaSummary(tuple(probe.empty() for probe in self.probes))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> GammaSummary:
        """A summary from a checkpoint."""
        parts = (probe.from_arrays(below(str(k), arrays)) for k, probe in enumerate(self.probes))
        return GammaSummary(tuple(parts))

    def __call__(self, source: Source, block: Block) -> GammaSummary:
        """The summaries of a block: in memory are one chunk as stored, and its rows as mapped for one fleet."""
        rows, scans = cast("MappedEach", source), [probe.begin_scan() for probe in self.probes]
        blocks = [_without_chunks(block, skipped) for skipped in self.skipped]
        for chunk in block.chunks:
            for scan, mine, place in zip(scans, blocks, self.places, strict=True):
                if chunk in mine.chunks:
                    scan.add_chunk(rows.each[place], chunk)
        rows.last.forget()
        return GammaSummary(tuple(scan.summary() for scan in scans))


def _without_chunks(block: Block, skipped: NDArray[np.intp]) -> Block:
    excluded = set(skipped.tolist())
    return Block(block.index, tuple(chunk for chunk in block.chunks if chunk not in excluded))


def _number_arrays(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays of several fleets, with the number of the fleet before each name."""
    return {name: values for number, own in enumerate(parts) for name, values in under(str(number), own).items()}


@dataclass(frozen=True)
class GammaFleet(BaseProblem[GammaState, GammaSummary]):
    """Fleets on the views of one source that has the rows of all maps; parts: in the order of these."""

    parts: tuple[Fleet, ...]

    def states(self, state: GammaState) -> tuple[FleetState, ...]:
        """The states of the parts."""
        return state.parts

    def check(self) -> None:
        """Raises what any fleet raises for what cannot be trained."""
        for fleet in self.parts:
            fleet.check()

    @property
    def least_block_bytes(self) -> int:
        """The most that any fleet needs."""
        return max(fleet.least_block_bytes for fleet in self.parts)

    @property
    def sample_chunks(self) -> list[int]:
        """The same for all fleets: they depend on sizes and labels, and all maps have equally many components."""
        return self.parts[0].sample_chunks

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """The same for all fleets."""
        return self.parts[0].stage_chunks

    @property
    def reads_again(self) -> bool:
        """If any fleet does."""
        return any(fleet.reads_again for fleet in self.parts)

    @property
    def holds_all_rows(self) -> bool:
        """If any fleet does."""
        return any(fleet.holds_all_rows for fleet in self.parts)

    @property
    def memory_need(self) -> MemoryNeed | None:
        """The want of one fleet, for each: they have equal parts of the memory, and rows of equal size."""
        one, count = self.parts[0].memory_need, len(self.parts)
        room = None if one.room is None else one.room * count
        return replace(one, given=one.given * count, size=one.size * count, rows=one.rows * count, room=room)

    def start(self) -> GammaState:
        """Solve all fleets on one sample."""
        views = [fleet.source for fleet in self.parts]
        samples = read_labelled_samples(views, self.sample_chunks, stay=self.parts[0].holds_all_rows)
        states = list[Any]()
        for fleet in self.parts:
            may_stop()
            states.append(fleet.solve_sample(samples.pop(0)))
        begun = GammaState(round=0, scans=0, parts=tuple(states))
        return begun if self.part_of(begun) else replace(begun, scans=max(own.scans for own in states))

    def unsolved(self) -> GammaState:
        """The state before anything was solved."""
        return GammaState(round=0, scans=0, parts=tuple(fleet.unsolved() for fleet in self.parts))

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> GammaState:
        """A state from a checkpoint."""
        states = tuple(fleet.restore(below(str(k), arrays)) for k, fleet in enumerate(self.parts))
        return GammaState(int(arrays["round"]), int(arrays["scans"]), states)

    def queried(self, state: GammaState) -> list[int]:
        """Places of the fleets that the next scan queries: those in the middle of a scan, else all running ones."""
        running = [k for k, fleet in enumerate(self.parts) if not fleet.done(state.parts[k])]
        return [k for k in running if self.parts[k].part_of(state.parts[k])] or running

    def probe(self, state: GammaState) -> GammaProbe:
        """The queries of these fleets."""
        queried, read = self.queried(state), ~self.skip(state)
        return GammaProbe(
            tuple(self.parts[k].probe(state.parts[k]) for k in queried),
            tuple(queried),
            tuple(np.flatnonzero(read & self.parts[k].skip(state.parts[k])) for k in queried),
        )

    def skip(self, state: GammaState) -> NDArray[np.bool_]:
        """Chunks (c,) that none of them needs."""
        return np.asarray(np.logical_and.reduce([self.parts[k].skip(state.parts[k]) for k in self.queried(state)]))

    def ahead(self, state: GammaState) -> NDArray[np.intp]:
        """Chunks that all of them will need after the next scan."""
        return reduce(np.intersect1d, [self.parts[k].ahead(state.parts[k]) for k in self.queried(state)])

    def update(self, state: GammaState, summary: GammaSummary) -> GammaState:
        """Update each queried fleet with its own summary."""
        parts = list(state.parts)
        for k, own in zip(self.queried(state), summary.parts, strict=True):
            parts[k] = self.parts[k].update(parts[k], own)
        after = replace(state, round=state.round + 1, parts=tuple(parts))
        return replace(after, scans=state.scans + (self.part_of(after) == 0))

    def done(self, state: GammaState) -> bool:
        """Whether all fleets are done."""
        return all(fleet.done(own) for fleet, own in zip(self.parts, state.parts, strict=True))

    def broken(self, state: GammaState) -> GammaState:
        """With the running members stalled."""
        parts = [fleet.broken(own) for fleet, own in zip(self.parts, state.parts, strict=True)]
        return replace(state, parts=tuple(parts))

    def part_of(self, state: GammaState) -> int:
        """Finished parts of the present scan, 0 when it is over for all fleets."""
        return max(fleet.part_of(own) for fleet, own in zip(self.parts, state.parts, strict=True))

    def round_of(self, state: GammaState) -> Round:
        """Progress of a state; the bounds are those of the member with the lowest ratio."""
        rounds = [fleet.round_of(own) for fleet, own in zip(self.parts, state.parts, strict=True)]
        worst = min(range(len(rounds)), key=lambda k: ratio(rounds[k].lower, rounds[k].upper))
        lead = max(rounds, key=lambda one: (one.part or 0, one.stage or 0))  # the one in the middle of a scan
        counts = ("members", "members_certified", "members_done")
        more = {name: sum(one.more[name] for one in rounds) for name in counts}
        return Round(
            number=state.scans + (self.part_of(state) > 0),
            part=lead.part,
            stage=lead.stage,
            stages=lead.stages,
            status=state.status,
            lower=rounds[worst].lower,
            lower_now=rounds[worst].lower_now,
            upper=rounds[worst].upper,
            working_set_rows=sum(one.working_set_rows for one in rounds),
            coreset_rows=sum(one.coreset_rows for one in rounds),
            new_rows=sum(one.new_rows for one in rounds),
            more={**more, "worst": rounds[worst].more["worst"]},
        )
