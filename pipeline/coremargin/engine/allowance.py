"""Limits of the warm-start state that training stores for a later retraining, and of the work for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: Default limit of the warm-start state, whatever the store's size.
KEPT_BYTES = 64 << 20
#: Default limit of multiply-adds for retraining alone: some 0.05 s of one core, while the smallest trainings with a
#: loss take half a second.
FREE_WORK = 2.5e8
#: Bytes of headers of an array in an npz file.
HEADERS = 400


@dataclass(frozen=True)
class Allowance:
    """bytes: the largest size of the warm-start state; requested: the user requested it, or is retraining.

    Only a requested state may cost time; else it consists of what the training has in memory, and cheap sums. Sizes
    decide, never a clock, so that the same rows give the same files.
    """

    bytes: int = KEPT_BYTES
    requested: bool = False

    def pays(self, multiply_adds: float) -> bool:
        """Whether this much work may be done for retraining alone."""
        return self.requested or multiply_adds <= FREE_WORK

    def within(self, state_of: Callable[[int], Mapping[str, Any]], most: int) -> Mapping[str, Any]:
        """``state_of(rows)``, the state with that many rows, for ``most`` rows or as many as fit."""
        before = None
        while True:
            state = state_of(most)
            size = size_of(state)
            if size <= self.bytes or most == 0 or size == before:
                return state
            before, most = size, min(most - 1, int(0.95 * most * self.bytes / size))


def size_of(arrays: Mapping[str, Any]) -> int:
    """Upper bound on the bytes of the files of arrays, loaded or not."""
    return sum(values.nbytes + HEADERS for values in arrays.values())
