"""What a campaign knows between two questions, or two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.active.answered import Answered
from coremargin.problems.active.hypothesis import NONE, Hypothesis
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.state_arrays import part_from_arrays, state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Status = Literal["running", "certified", "contradiction", "stalled"]
STATUSES: tuple[Status, ...] = ("running", "certified", "contradiction", "stalled")


@dataclass(frozen=True)
class Draws:
    """Rows that are drawn to try the newest hypothesis, in the order drawn: ids (t,), sides (t,), codes (t,) int32.

    sides: the class that the hypothesis gives them; codes: that of the answer, NONE where no answer has come yet. The
    rows themselves are not needed for that; some of them are among those in memory.
    """

    ids: NDArray[np.int64]
    sides: NDArray[np.int32]
    codes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def none(cls) -> Draws:
        """No attempt is on the way."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))

    @classmethod
    def fresh(cls, ids: NDArray[np.int64], sides: NDArray[np.int32]) -> Draws:
        """None of them is answered."""
        return cls(ids, sides, np.full(len(ids), NONE, np.int32))

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which (t,) are answered."""
        return np.asarray(self.codes != NONE)

    @property
    def finished(self) -> bool:
        """All of them are answered, and there are some."""
        return len(self) > 0 and bool(self.seen.all())

    def told(self, codes: Mapping[int, int]) -> Draws:
        """With the answers by row; those that are there already stay."""
        given = np.array([codes.get(int(row), NONE) for row in self.ids], np.int32)
        return replace(self, codes=np.where(self.seen, self.codes, given))

    def take(self, places: NDArray[Any]) -> Draws:
        """Those at these places."""
        return Draws(self.ids[places], self.sides[places], self.codes[places])

    def joined(self, more: Draws) -> Draws:
        """These, and more behind them."""
        pairs = ((getattr(self, f.name), getattr(more, f.name)) for f in fields(self))
        return Draws(*(np.concatenate(pair) for pair in pairs))

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays ``NAME_ids`` and so on; exact."""
        return {f"{name}_{field.name}": getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Draws:
        """Inverse of ``to_arrays``."""
        return cls(**{field.name: arrays[f"{name}_{field.name}"] for field in fields(cls)})


@dataclass(frozen=True)
class Scanned:
    """What the last scan has shown of the newest hypothesis, for rows without an answer: nearest (k,), sides (K + 1,).

    nearest: a lower bound on |w.x + b| of all of them, for each hyperplane, 0 where the hypothesis has changed since;
    sides: how many are given each class, and none.
    """

    nearest: Array
    sides: NDArray[np.int64]

    @classmethod
    def nothing(cls, planes: int) -> Scanned:
        """Not scanned yet."""
        return cls(np.zeros(planes), np.zeros(max(2, planes) + 1, np.int64))

    @property
    def looked(self) -> bool:
        """Whether there was a scan."""
        return bool((self.nearest > 0).any() or self.sides.any())

    @property
    def population(self) -> int:
        """Rows without an answer."""
        return int(self.sides.sum())


@dataclass(frozen=True)
class ActiveState:
    """Between two questions, or two scans.

    answered: the rows with labels, with their dual weights; unsure (u,): rows that nobody can label, by their ids;
    resident: rows without either, near the hyperplanes as far as is known. hypothesis: the newest; lower (k,), upper
    (k,): its bounds, as ``Fitted`` has them, and failed: the hyperplane that cannot be, -1 where all can. wanted (q,):
    rows whose labels are asked for, the most wanted first. attempt: the number of the draws that come next, or are on
    the way; reach: so many rows are drawn from at least; tried: so many answers there were after the last attempt.
    """

    round: int
    status: Status
    answered: Answered
    unsure: NDArray[np.int64]
    resident: DriverRows
    hypothesis: Hypothesis
    lower: Array
    upper: Array
    failed: int
    scanned: Scanned
    attempt: int
    draws: Draws
    reach: int
    tried: int
    wanted: NDArray[np.int64]
    new_rows: int
    sample_bytes: int

    @property
    def known(self) -> NDArray[np.int64]:
        """Rows of which nothing is asked, nor claimed as of those without an answer; by their ids."""
        return np.union1d(self.answered.ids, self.unsure)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return state_to_arrays(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ActiveState:
        """Inverse of ``to_arrays``."""
        makers = {
            "answered": Answered.from_arrays,
            "resident": DriverRows.from_arrays,
            "draws": Draws.from_arrays,
            "scanned": part_from_arrays(Scanned),
            "hypothesis": part_from_arrays(Hypothesis),
        }
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES))
