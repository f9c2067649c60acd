"""What a job with a kernel knows between two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

Array = NDArray[np.float64]
Status = Literal["running", "certified", "stalled", "full", "inseparable"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled", "full", "inseparable")


@dataclass(frozen=True)
class Machine:
    """k columns on the pool's rows: duals (p, k), offsets (k,).

    lower, upper (k,): the bounds on the value of each column that its duals and a scan at it prove, both rounded;
    upper is infinite where no scan was made. Without a loss the value is 1/2 ||f||^2 with all margins 1.
    """

    duals: Array
    offsets: Array
    lower: Array
    upper: Array

    @classmethod
    def nothing(cls, rows: int, columns: int) -> Machine:
        """f = 0."""
        return cls(np.zeros((rows, columns)), np.zeros(columns), np.zeros(columns), np.full(columns, np.inf))

    def grown(self, rows: int) -> Machine:
        """With so many rows more, which carry nothing."""
        more = np.zeros((rows, self.duals.shape[1]))
        return replace(self, duals=np.concatenate([self.duals, more]))

    def take(self, positions: NDArray[np.intp]) -> Machine:
        """With the rows at these positions; others carry nothing."""
        return replace(self, duals=self.duals[positions])

    def only(self, columns: slice) -> Machine:
        """Only these columns."""
        return Machine(*(getattr(self, name)[..., columns] for name in _FIELDS))

    def where(self, columns: NDArray[np.bool_], other: Machine) -> Machine:
        """Its own in these columns, and those of another on the same rows in all else."""
        return Machine(
            *(np.where(columns, getattr(self, name), getattr(other, name)) for name in _FIELDS),
        )

    def certified(self, epsilon: float, *, margins: bool) -> NDArray[np.bool_]:
        """Which columns are proven; margins: 1 - epsilon is about these, not about values, which are their squares."""
        share = (1 - epsilon) ** 2 if margins else 1 - epsilon
        return np.asarray((self.lower > 0) & (self.lower >= share * self.upper))

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{field}": getattr(self, field) for field in _FIELDS}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Machine:
        """Inverse of ``to_arrays``."""
        return cls(**{field: arrays[f"{name}_{field}"] for field in _FIELDS})


_FIELDS = ("duals", "offsets", "lower", "upper")


@dataclass(frozen=True)
class KernelState:
    """Between two scans.

    pool: rows in the driver; newest: solved on them, what the next scan is about; best: of each column what has the
    smallest gap so far. round: how many questions were answered; rows_below: with margins below 1 in the last scan,
    None before one of all rows; looked: rows of the first read so far of which all that break the machine are in the
    pool, about. dropped: rows that had to leave the pool. confusion (s, K, K), undecided
    (s,): of each setting, by the last scan. told (s, s): of a kernel that is a function its values of some rows of the
    pool, by which it is known again; None of others.
    """

    round: int
    status: Status
    pool: ClassRows
    newest: Machine
    best: Machine
    rows_below: int | None
    new_rows: int
    sample_bytes: int
    looked: int
    dropped: int
    confusion: NDArray[np.int64]
    undecided: NDArray[np.int64]
    told: Array | None = None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return state_to_arrays(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> KernelState:
        """Inverse of ``to_arrays``."""
        makers = {"pool": ClassRows.from_arrays, "newest": Machine.from_arrays, "best": Machine.from_arrays}
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES, may_lack=("rows_below", "told")))
