"""Tiny problems for the loop: one whose scans are made in parts, and one that asks for labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.engine.problem import BaseProblem, Round
from scan_fakes import FakeSource, SumProbe, Sums

if TYPE_CHECKING:
    from coremargin.engine.protocols import Block


@dataclass(frozen=True)
class PassState:
    """Sums over the passes so far; ``part``: of the next one, those that are done."""

    round: int
    total: float
    passes: int
    part: int
    status: str = "running"
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"round": np.array(self.round), "total": np.array(self.total)}


@dataclass(frozen=True)
class Passes(BaseProblem[PassState, Sums]):
    """Sums of all rows, ``wanted`` times over, each pass in ``parts`` scans of some of the chunks."""

    parts: int
    wanted: int

    def start(self) -> PassState:
        return PassState(0, 0.0, 0, 0)

    def probe(self, state: PassState) -> SumProbe:
        return SumProbe()

    def skip(self, state: PassState) -> np.ndarray:
        return np.arange(self.source.chunks) % self.parts != state.part

    def update(self, state: PassState, summary: Sums) -> PassState:
        part = (state.part + 1) % self.parts
        passes = state.passes + (part == 0)
        return PassState(
            state.round + 1, state.total + float(summary.total.sum()), passes, part,
            status="running" if passes < self.wanted else "certified",
        )  # fmt: skip

    def round_of(self, state: PassState) -> Round:
        number = state.passes + (state.part > 0)
        return Round(number, state.status, state.total, state.total, np.inf, 0, 0, new_rows=1, part=state.part)


@dataclass(frozen=True)
class Between:
    """Summary: rows whose first value lies in the gap."""

    ids: np.ndarray
    values: np.ndarray

    def merge(self, later: Between) -> Between:
        return Between(np.concatenate([self.ids, later.ids]), np.concatenate([self.values, later.values]))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"ids": self.ids, "values": self.values}


@dataclass(frozen=True)
class BetweenProbe:
    """Asks each chunk for two rows whose first value lies in the gap."""

    below: float
    above: float

    def narrow(self, block: Block) -> BetweenProbe:
        return self

    def __call__(self, source: FakeSource, block: Block) -> Between:
        found = self.empty()
        for chunk in block.chunks:
            start, _ = source.span(chunk)
            values = source.read(chunk)[0][:, 0].astype(np.float64)
            mine = np.flatnonzero((values > self.below) & (values < self.above))[:2]
            found = found.merge(Between(mine + start, values[mine]))
        return found

    def empty(self) -> Between:
        return Between(np.zeros(0, np.int64), np.zeros(0))

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Between:
        return Between(arrays["ids"], arrays["values"])


@dataclass(frozen=True)
class GapState:
    """No label is known of rows between ``below``, negative, and ``above``, positive; some of them are at hand."""

    round: int
    status: str
    below: float
    above: float
    found: Between
    asked: int
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, np.ndarray]:
        numbers = np.array([self.round, self.status == "certified", self.asked])
        return {"numbers": numbers, "bounds": np.array([self.below, self.above])} | self.found.to_arrays()


@dataclass(frozen=True)
class Threshold(BaseProblem[GapState, Between]):
    """Where along the first feature the labels change: known for all rows once no row lies in the gap.

    Labels are not in the source: they are asked for, three at a time, and a scan is made when no row at hand is left.
    The hypothesis is an interval, not a vector.
    """

    def start(self) -> GapState:
        return GapState(0, "running", -np.inf, np.inf, BetweenProbe(0.0, 0.0).empty(), 0)

    def probe(self, state: GapState) -> BetweenProbe:
        return BetweenProbe(state.below, state.above)

    def update(self, state: GapState, summary: Between) -> GapState:
        status = "running" if len(summary.ids) else "certified"
        return replace(state, round=state.round + 1, found=summary, status=status)

    def questions(self, state: GapState) -> Sequence[int]:
        order = np.argsort(state.found.values, kind="stable")
        quarters = order[np.unique(np.array([1, 2, 3]) * len(order) // 4)] if len(order) else order
        return state.found.ids[quarters].tolist()

    def answered(self, state: GapState, labels: Mapping[int, Any]) -> GapState:
        below, above = state.below, state.above
        for row, positive in labels.items():
            value = float(state.found.values[state.found.ids == row][0])
            below, above = (below, min(above, value)) if positive else (max(below, value), above)
        inside = (state.found.values > below) & (state.found.values < above)
        found = Between(state.found.ids[inside], state.found.values[inside])
        return replace(state, below=below, above=above, found=found, asked=state.asked + len(labels))

    def restore(self, arrays: Mapping[str, np.ndarray]) -> GapState:
        scans, certified, asked = arrays["numbers"].tolist()
        found = BetweenProbe(0.0, 0.0).from_arrays(arrays)
        return GapState(scans, "certified" if certified else "running", *arrays["bounds"].tolist(), found, asked)

    def round_of(self, state: GapState) -> Round:
        return Round(state.round, state.status, 0.0, 0.0, state.above - state.below, len(state.found.ids), 0, 0)


@dataclass(frozen=True)
class Working(Passes):
    """Passes with some steps of work before each of them."""

    steps: int = 2

    def work(self, state: PassState, run: Any) -> Iterator[PassState]:
        for number in run(max, [(k, 0) for k in range(self.steps)]):
            state = replace(state, total=state.total + number)
            yield state
