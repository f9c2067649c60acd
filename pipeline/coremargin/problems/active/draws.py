"""Which rows are drawn to test a hypothesis, and what they show: how many rows of all, or of each class, can be wrong.

A stratum is all rows, or with ``by_class`` those that are given one class. The rows of it in the order drawn, from the
first one on, are a sample without replacement for a hypothesis that was there before. Without a loss one wrong draw
ends an attempt, and so many are drawn as it takes; with a loss a number that is fixed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.transformed import untransformed
from coremargin.formats.draws import drawn
from coremargin.maths.evidence import draws_needed, most_wrong, share_of
from coremargin.problems.active.hypothesis import NONE
from coremargin.problems.active.state import Draws

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.active.state import ActiveState

    Ids = NDArray[np.int64]
    Sides = NDArray[np.int32]


@dataclass(frozen=True)
class Trial:
    """error, confidence: at most such a share of a stratum is wrong, and how sure that is to be of all.

    classes: how many there are. size: draws of a stratum, with a loss; None without one.
    """

    error: float
    confidence: float
    classes: int
    by_class: bool = False
    size: int | None = None

    def strata(self, sides: NDArray[np.int32]) -> NDArray[np.intp]:
        """The stratum (n,) of rows by the class that they are given; those without one have one of their own."""
        if not self.by_class:
            return np.zeros(len(sides), np.intp)
        return np.where(sides == NONE, self.classes, sides).astype(np.intp)

    def populations(self, sides: NDArray[np.int64]) -> list[int]:
        """How many rows each stratum has, by how many there are of each class, and of none."""
        if not self.by_class:
            return [int(sides.sum())]
        return [int(rows) for rows in (sides if sides[NONE] else sides[: self.classes])]

    def needed(self, rows: int, attempt: int) -> int:
        """Draws of a stratum that has so many rows."""
        if self.size is not None:
            return min(self.size, rows)
        return draws_needed(rows, self.error, self._delta(attempt))

    def _delta(self, attempt: int) -> float:
        """What each bound of each stratum may spend."""
        spent = share_of(1.0 - self.confidence, attempt)
        spent = spent / self.classes if self.by_class else spent
        return spent if self.size is None else spent / 2

    def parts(self, sides: NDArray[np.int64], draws: Draws, attempt: int) -> list[dict[str, int]]:
        """What the draws show of each stratum, all of them being answered."""
        mine, wrong = self.strata(draws.sides), draws.sides != draws.codes
        return [
            self._shown(rows, int((mine == k).sum()), int(wrong[mine == k].sum()), attempt)
            for k, rows in enumerate(self.populations(sides))
        ]

    def _shown(self, rows: int, draws: int, wrong: int, attempt: int) -> dict[str, int]:
        delta = self._delta(attempt)
        bound = most_wrong(rows, draws, wrong, delta)
        shown = {"draws": draws, "wrong": wrong, "population": rows, "error_bound": bound}
        if self.size is not None:  # as many are right at most, as sure, as many are wrong at least
            shown["error_least"] = rows - most_wrong(rows, draws, draws - wrong, delta)
        return shown

    def certifies(self, parts: Sequence[dict[str, int]]) -> bool:
        """Whether that is what was asked for, by as many draws as were fixed before."""
        return self.complete(parts) and all(part["error_bound"] <= self.error * part["population"] for part in parts)

    def complete(self, parts: Sequence[dict[str, int]]) -> bool:
        """Whether there are as many draws of each stratum as were fixed before."""
        return self.size is None or all(part["draws"] == min(self.size, part["population"]) for part in parts)

    def evidence(self, parts: Sequence[dict[str, int]], attempt: int, labels: Sequence[Any]) -> dict[str, Any]:
        """As a record has it; labels: of the classes. There are no strata while some class is not known."""
        every = {name: sum(part[name] for part in parts) for name in parts[0]}
        found: dict[str, Any] = {"attempt": attempt, **every, "confidence": self.confidence}
        if self.by_class and len(parts) == len(labels):
            found["strata"] = [{"label": label, **part} for label, part in zip(labels, parts, strict=True)]
        return found


# The rows that an attempt draws, in their order, as far as anybody has looked.


class Order:
    """Rows of one attempt that count, in the order drawn; what was found stays, and no number is drawn twice.

    Where few rows count, most numbers are in vain: rows are looked up many at a time.
    """

    def __init__(self, counts: Callable[[Ids], NDArray[np.bool_]]) -> None:
        self._counts = counts
        self._attempt: tuple[str, int, int, int] | None = None
        self._numbers: Iterator[int] = iter(())
        self._found: Ids = np.zeros(0, np.int64)
        self._looked = 0

    def first(self, attempt: tuple[str, int, int, int], count: int, known: Ids) -> Ids:
        """The first ``count`` rows of an attempt that are not known, fewer where no more are left.

        attempt: digest, seed, number and rows, as ``drawn`` has them.
        """
        if attempt != self._attempt:
            self._numbers, self._looked, self._found = drawn(*attempt), 0, np.zeros(0, np.int64)
        self._attempt = None  # whatever is interrupted, numbers that were drawn and not kept are drawn again
        rows = self._first(count, known)
        self._attempt = attempt
        return rows

    def _first(self, count: int, known: Ids) -> Ids:
        while True:
            fresh = self._found[np.isin(self._found, known, invert=True)]
            most = max(count - len(fresh), self._looked // 8)
            if len(fresh) >= count or not len(some := np.fromiter(islice(self._numbers, most), np.int64)):
                return fresh[:count]
            self._looked += len(some)
            self._found = np.concatenate([self._found, some[self._counts(some)]])


#: Where too few rows of a stratum were drawn, so many times as many are.
REACH = 8
#: Places of the order of draws that are looked at, at most: of what is rarer less is claimed.
MOST_DRAWN = 4_000_000
#: Rows that are looked up one by one, at most, for a draw that no annotator could label; then another attempt begins.
MOST_LOOKED_UP = 2_048


@dataclass(frozen=True)
class Drawing:
    """Draws from a source by a seed, as many as a trial asks for."""

    source: Source
    seed: int
    trial: Trial

    @cached_property
    def _order(self) -> Order:
        return Order(lambda ids: has_weight(self.source, ids))

    def order(self, state: ActiveState) -> Ids:
        """Rows without an answer in the order of the next attempt, as many as can be needed."""
        needed = self.trial.needed(self.source.rows - len(state.known), state.attempt)
        return self._first(state, max(state.reach, REACH * needed if self.trial.by_class else needed))

    def _first(self, state: ActiveState, count: int) -> Ids:
        attempt = untransformed(self.source).digest, self.seed, state.attempt, self.source.rows
        return self._order.first(attempt, min(count, MOST_DRAWN), state.known)

    def _drawable(self, state: ActiveState) -> int:
        """How many rows there are to draw from."""
        return min(MOST_DRAWN, state.scanned.population)

    def drawn(self, state: ActiveState, order: Ids, sides: Sides) -> Draws | None:
        """The draws, of rows in their order and the classes that they are given; None where there are too few rows."""
        strata, populations = self.trial.strata(sides), self.trial.populations(state.scanned.sides)
        needed = [self.trial.needed(rows, state.attempt) for rows in populations]
        chosen = np.sort(np.concatenate([np.flatnonzero(strata == k)[:most] for k, most in enumerate(needed)]))
        if len(chosen) < sum(needed) and len(order) < self._drawable(state):
            return None
        return Draws.unanswered(order[chosen], sides[chosen])

    def redraw(self, state: ActiveState, sides_of: Callable[[Ids], Sides]) -> tuple[Draws, int] | None:
        """The draws after one was excluded: the next of the order in its place; and how many rows were inspected.

        sides_of: the predicted classes of rows, which are read one by one. None where that would be too many.
        """
        lacking = np.maximum(self._lacking(state), 0)
        if not lacking.any():
            return state.draws, state.reach
        order = self._first(state, max(state.reach, len(state.draws)))
        place = self._full_to(state, order, lacking)
        fresh, sides, chosen = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)
        while len(chosen) < lacking.sum() and place < self._drawable(state):
            if place >= len(order):
                order = self._first(state, place + REACH)
            more = order[place : place + REACH]
            more, place = more[np.isin(more, state.draws.ids, invert=True)], place + len(more)
            if len(fresh) + len(more) > MOST_LOOKED_UP:
                return None
            fresh, sides = np.concatenate([fresh, more]), np.concatenate([sides, sides_of(more)])
            strata = self.trial.strata(sides)
            chosen = np.sort(np.concatenate([np.flatnonzero(strata == k)[:most] for k, most in enumerate(lacking)]))
        draws = state.draws.concatenated(Draws.unanswered(fresh[chosen], sides[chosen]))
        places = np.argsort(np.argsort(order)[np.searchsorted(np.sort(order), draws.ids)])
        return draws.take(places), len(order)

    def _full_to(self, state: ActiveState, order: Ids, lacking: NDArray[np.int64]) -> int:
        """The place of the order up to which the strata that lack draws have all theirs: after the last one of each."""
        strata, ends = self.trial.strata(state.draws.sides), []
        for k in np.flatnonzero(lacking):
            drawn = np.flatnonzero(np.isin(order, state.draws.ids[strata == k]))
            ends.append(int(drawn[-1]) + 1 if len(drawn) else 0)
        return min(ends)

    def _lacking(self, state: ActiveState) -> NDArray[np.int64]:
        """How many draws more each stratum needs."""
        counts = np.bincount(self.trial.strata(state.draws.sides), minlength=self.trial.classes + 1)
        populations = self.trial.populations(state.scanned.sides)
        return np.array([self.trial.needed(rows, state.attempt) - counts[k] for k, rows in enumerate(populations)])


def has_weight(source: Source, ids: Ids) -> NDArray[np.bool_]:
    """Which rows (n,) count: those of a weight above 0."""
    found = np.ones(len(ids), bool)
    for chunk in np.unique(ids // source.chunk_rows):
        weights = source.weights(int(chunk))
        if weights is None:
            break
        mine = np.flatnonzero(ids // source.chunk_rows == chunk)
        found[mine] = weights[ids[mine] - source.span(int(chunk))[0]] > 0
    return found
