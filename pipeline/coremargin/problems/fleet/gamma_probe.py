"""What a worker does with a chunk for fleets of several gammas: it is read once, and mapped once for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.protocols import Block

if TYPE_CHECKING:
    from coremargin.data.mapped_each import MappedEach
    from coremargin.data.source import Source
    from coremargin.problems.fleet.probe import FleetProbe
    from coremargin.problems.fleet.summary import FleetSummary


@dataclass(frozen=True)
class GammaSummary:
    """The answers to some fleets, in their order."""

    parts: tuple[FleetSummary, ...]

    def merge(self, later: GammaSummary) -> GammaSummary:
        """These answers and those of later blocks."""
        pairs = zip(self.parts, later.parts, strict=True)
        return GammaSummary(tuple(mine.merge(other) for mine, other in pairs))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return numbered([part.to_arrays() for part in self.parts])


@dataclass(frozen=True)
class GammaProbe:
    """The questions of some fleets, each about rows as its own map makes them.

    places: of the fleets among the maps of the rows. skipped: the chunks, of those that are read, that each fleet does
    not need.
    """

    probes: tuple[FleetProbe, ...]
    places: tuple[int, ...]
    skipped: tuple[NDArray[np.intp], ...]

    def narrow(self, block: Block) -> GammaProbe:
        """The same questions, each with what this block needs; one that needs nothing of it as it is."""
        pairs = zip(self.probes, (_without(block, skipped) for skipped in self.skipped), strict=True)
        return replace(
            self, probes=tuple(probe.narrow(part) if part.chunks else probe for probe, part in pairs),
            skipped=tuple(np.intersect1d(skipped, block.chunks) for skipped in self.skipped),
        )  # fmt: skip

    def empty(self) -> GammaSummary:
        """The answers for no rows."""
        return GammaSummary(tuple(probe.empty() for probe in self.probes))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> GammaSummary:
        """A summary from a checkpoint."""
        pairs = zip(self.probes, apart(arrays, len(self.probes)), strict=True)
        return GammaSummary(tuple(probe.from_arrays(own) for probe, own in pairs))

    def __call__(self, source: Source, block: Block) -> GammaSummary:
        """Answer for one block, chunk by chunk: one of them as it is stored is in memory, and mapped for one fleet."""
        rows, answers = cast("MappedEach", source), [probe.begun() for probe in self.probes]
        blocks = [_without(block, skipped) for skipped in self.skipped]
        for chunk in block.chunks:
            for answer, mine, place in zip(answers, blocks, self.places, strict=True):
                if chunk in mine.chunks:
                    answer.ask(rows.each[place], chunk)
        rows.last.forget()
        return GammaSummary(tuple(answer.finished() for answer in answers))


def _without(block: Block, skipped: NDArray[np.intp]) -> Block:
    left_out = set(skipped.tolist())
    return Block(block.index, tuple(chunk for chunk in block.chunks if chunk not in left_out))


def numbered(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays of several fleets, each behind the number of its fleet."""
    return {f"{number}.{name}": values for number, own in enumerate(parts) for name, values in own.items()}


def apart(arrays: Mapping[str, NDArray[Any]], count: int) -> list[dict[str, NDArray[Any]]]:
    """Inverse of ``numbered``; other arrays are passed over."""
    heads = [f"{number}." for number in range(count)]
    return [
        {name.removeprefix(head): values for name, values in arrays.items() if name.startswith(head)} for head in heads
    ]
