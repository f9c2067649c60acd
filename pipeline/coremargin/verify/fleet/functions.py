"""Decision values of all members of a fleet, and what they may be off by: here, and where they were counted first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from coremargin.verify.kernel.brought import NoKernel, expansion
from coremargin.verify.kernel.claim import KernelClaim
from coremargin.verify.sums import UNIT, gamma, length, row_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.verify.claim import AnyClaim, Claim


class Functions(Protocol):
    """k functions of rows."""

    count: int  #: k

    def of(self, members: Sequence[int]) -> list[int]:
        """The columns of members, by their places in the fleet."""

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """What they are (n, k) at rows x (n, d), and what that may be off by (n, k)."""


class Planes:
    """Members with a hyperplane each."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._w = np.stack([claim.w for claim in claims], axis=1)
        self._b = np.array([claim.b for claim in claims])
        self._sizes = np.array([length(claim.w) for claim in claims])
        # Mapped rows are off here and where they were counted first, and both give away some more.
        self._moved = 8 * max(claim.moved for claim in claims)
        self.count = len(claims)

    def of(self, members: Sequence[int]) -> list[int]:
        """One each."""
        return list(members)

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """w.x + b.

        An offset that is larger than any value that rows so long can have counts no more than such a value: a forged
        one would leave every row undecided.
        """
        lengths = row_lengths(x)
        with np.errstate(over="ignore", invalid="ignore"):
            values = x @ self._w + self._b
        reach = lengths[:, None] * self._sizes + np.minimum(np.abs(self._b), lengths.max(initial=0.0) * self._sizes)
        return values, np.asarray(2 * gamma(len(self._w) + 4) * reach + self._moved * self._sizes)


class Machines:
    """Members with functions of a kernel, one a class."""

    def __init__(self, claims: Sequence[KernelClaim]) -> None:
        self._each = len(claims[0].offsets)
        self.count = self._each * len(claims)
        self._machines = [(expansion(c.function, c.x, c.deciding), c.offsets) for c in claims]

    def of(self, members: Sequence[int]) -> list[int]:
        """Those of the one member that decides."""
        (member,) = members
        return list(range(member * self._each, (member + 1) * self._each))

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Sums of kernel values; an offset counts no more than the largest of them, as above."""
        found, errors = [], []
        for machine, offsets in self._machines:
            try:
                values, error = machine.values(x)
            except NoKernel:  # a member's own check says so, and nothing is certain
                values, error = np.zeros((x.shape[0], len(offsets))), np.full((x.shape[0], len(offsets)), np.inf)
            largest = np.minimum(np.abs(offsets), np.abs(values).max(axis=0, initial=0.0))
            found.append(values + offsets)
            errors.append(2 * error + 4 * UNIT * (np.abs(values) + largest))
        return np.concatenate(found, axis=1), np.concatenate(errors, axis=1)


def functions_of(claims: Sequence[AnyClaim]) -> Functions:
    """Those of the members of a fleet, which are all of one kind."""
    if isinstance(claims[0], KernelClaim):
        return Machines(cast("Sequence[KernelClaim]", claims))
    return Planes(cast("Sequence[Claim]", claims))
