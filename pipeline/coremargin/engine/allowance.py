"""How much a training may keep for a later retraining, and what it may spend on that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: Bytes that are kept by default, however large the store is.
KEPT_BYTES = 64 << 20
#: Multiply-adds of work that is done for retraining alone, by default: some 0.05 s of one core, where the smallest
#: trainings with a loss take half a second.
FREE_WORK = 2.5e8
#: Of an array in an npz file: its headers.
HEADERS = 400


@dataclass(frozen=True)
class Allowance:
    """At most ``bytes`` are kept; requested: somebody asked for it, or retrains already, so that it may cost time.

    By default it may not: what is kept is then what the training has at hand, and cheap sums. All of it is decided by
    sizes, never by a clock, so that the same rows give the same files.
    """

    bytes: int = KEPT_BYTES
    requested: bool = False

    def pays(self, multiply_adds: float) -> bool:
        """Whether so much work may be done for retraining alone."""
        return self.requested or multiply_adds <= FREE_WORK

    def within(self, kept: Callable[[int], Mapping[str, Any]], most: int) -> Mapping[str, Any]:
        """What is kept with so many rows or, where that is too much, with as many as fit; kept(rows): with so many."""
        before = None
        while True:
            found = kept(most)
            size = size_of(found)
            if size <= self.bytes or most == 0 or size == before:
                return found
            before, most = size, min(most - 1, int(0.95 * most * self.bytes / size))


def size_of(kept: Mapping[str, Any]) -> int:
    """Bytes of the files that arrays and filed arrays take, at most."""
    return sum(values.nbytes + HEADERS for values in kept.values())
