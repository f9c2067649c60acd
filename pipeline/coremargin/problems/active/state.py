"""What a campaign knows between two questions, or two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.pool import Pool
from coremargin.problems.common.stored import arrays_of, fields_of, part_of

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Status = Literal["running", "certified", "contradiction", "stalled"]
STATUSES: tuple[Status, ...] = ("running", "certified", "contradiction", "stalled")


@dataclass(frozen=True)
class Draws:
    """Rows that are drawn to try the newest hypothesis, in the order drawn: ids (t,), sides (t,) int8, signs (t,) int8.

    sides: where the hypothesis has them, 1 or -1; signs: as answered, 0 where no answer has come yet. The rows
    themselves are not needed for that; some of them are among those in memory.
    """

    ids: NDArray[np.int64]
    sides: NDArray[np.int8]
    signs: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def none(cls) -> Draws:
        """No attempt is on the way."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int8), np.zeros(0, np.int8))

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which (t,) are answered."""
        return np.asarray(self.signs != 0)

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays ``NAME_ids`` and so on; exact."""
        return {f"{name}_{field.name}": getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Draws:
        """Inverse of ``to_arrays``."""
        return cls(**{field.name: arrays[f"{name}_{field.name}"] for field in fields(cls)})


@dataclass(frozen=True)
class Scanned:
    """What the last scan has shown of the newest hypothesis, for rows without an answer: nearest, and sides (2,).

    nearest: a lower bound on the distance of all of them, 0 where the hypothesis has changed since.
    """

    nearest: float
    sides: NDArray[np.int64]

    @classmethod
    def nothing(cls) -> Scanned:
        """Not scanned yet."""
        return cls(0.0, np.zeros(2, np.int64))


@dataclass(frozen=True)
class ActiveState:
    """Between two questions, or two scans.

    answered: the rows with labels, with their dual weights; resident: rows without, near the hyperplane as far as is
    known. w (d,), b: the newest hypothesis; lower, upper: the margin that it has on the rows answered, and the largest
    that any has. wanted (q,): rows whose labels are asked for, the most wanted first. attempt: the number of the
    draws that come next, or are on the way; reach: so many rows are drawn from at least.
    """

    round: int
    status: Status
    answered: Pool
    resident: DriverRows
    w: Array
    b: float
    lower: float
    upper: float
    scanned: Scanned
    attempt: int
    draws: Draws
    reach: int
    wanted: NDArray[np.int64]
    new_rows: int
    sample_bytes: int

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return arrays_of(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ActiveState:
        """Inverse of ``to_arrays``."""
        makers = {
            "answered": Pool.from_arrays, "resident": DriverRows.from_arrays, "draws": Draws.from_arrays,
            "scanned": part_of(Scanned),
        }  # fmt: skip
        return cls(**fields_of(cls, arrays, makers, STATUSES))
