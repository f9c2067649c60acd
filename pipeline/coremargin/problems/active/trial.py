"""What is asked of draws, and what they show: how many rows of all, or of each class that is predicted, can be wrong.

A stratum is all rows, or with ``by_class`` those that are given one class. The rows of it in the order drawn, from the
first one on, are a sample without replacement for a hypothesis that was there before. Without a loss one wrong draw
ends an attempt, and so many are drawn as it takes; with a loss a number that is fixed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.evidence import draws_needed, most_wrong, share_of
from coremargin.problems.active.hypothesis import NONE

if TYPE_CHECKING:
    from coremargin.problems.active.state import Draws


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
