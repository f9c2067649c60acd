"""What a job about several classes knows between two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.common.state_arrays import part_from_arrays, state_from_arrays, state_to_arrays
from coremargin.problems.common.zone import Zone
from coremargin.problems.multiclass.summary import ClassesSummary

Array = NDArray[np.float64]
Status = Literal["running", "certified", "not_separable", "stalled"]
STATUSES: tuple[Status, ...] = ("running", "certified", "not_separable", "stalled")


@dataclass(frozen=True)
class ClassesState:
    """Between two scans; hypotheses are (K, d + 1), duals (m, K) with nothing at a row's own class.

    newest: what the next scan is about; best: what the scans proved, None before the first. Hard margin: ||V||_F = 1,
    lower is the margin of ``best``; pool: the rows in the driver; proof, duals: rows and weights behind ``upper``.
    Soft margin: upper is the value of ``best``; pool: rows that stand for those far from a change of sides; proof,
    duals: the near rows behind ``lower``, without their features, all others being on their side at ``reference``;
    before the first scan they are where its solve may begin.
    confusion (K, K), rows_below (None: none yet) and lower_now come from the last scan. zone: of the near
    rows; with the hard margin its ``idle`` scans moved neither bound. mu: of the last solve's last proximal step.
    asked: what the rows of the chunks ``answered`` (m,) have answered to the question of the next scan: those of the
    sample before the first one, those of an earlier commit where a job goes on; of a certified state what all rows have
    answered to the last one.
    """

    round: int
    status: Status
    newest: Array
    best: Array | None
    lower: float
    upper: float
    pool: ClassRows
    proof: ClassRows
    duals: Array
    reference: Array
    confusion: NDArray[np.int64]
    rows_below: int | None
    new_rows: int
    sample_bytes: int
    lower_now: float
    upper_at_eviction: float
    pool_rows: int
    zone: Zone
    mu: float = 1.0
    asked: ClassesSummary | None = None
    answered: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        asked = {} if self.asked is None else self.asked.to_arrays()
        return state_to_arrays(replace(self, asked=None), STATUSES) | {
            _ASKED + name: value for name, value in asked.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ClassesState:
        """Inverse of ``to_arrays``."""
        makers = {
            "pool": ClassRows.from_arrays, "proof": ClassRows.from_arrays,
            "zone": part_from_arrays(Zone), "asked": _asked,
        }  # fmt: skip
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES, may_lack=("best", "rows_below")))


_ASKED = "asked_"


def _asked(_: str, arrays: Mapping[str, NDArray[Any]]) -> ClassesSummary | None:
    found = {name.removeprefix(_ASKED): value for name, value in arrays.items() if name.startswith(_ASKED)}
    return ClassesSummary.from_arrays(found) if found else None
