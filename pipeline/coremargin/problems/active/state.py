"""What an active learner knows between two questions, or two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import as_float64, nothing, take
from coremargin.problems.active.hypothesis import NONE, Hypothesis
from coremargin.problems.common.driver_rows import DriverRows, WorkingSet
from coremargin.problems.common.state_arrays import part_from_arrays, state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows


@dataclass(frozen=True)
class Answered(DriverRows):
    """Rows in order of ids: rows (m, d) float64, codes (m,) int32 of their classes, weights (m, k) of the last solve.

    Of two classes one hyperplane (k = 1) has the second on its positive side; of more each has one for itself.
    """

    codes: NDArray[np.int32]
    weights: Array

    @classmethod
    def empty(cls, features: int, planes: int, *, sparse: bool = False) -> Answered:
        """No answers."""
        return cls(
            np.zeros(0, np.int64), nothing(features, sparse=sparse), np.zeros(0, np.int32), np.zeros((0, planes))
        )

    @property
    def planes(self) -> int:
        """How many hyperplanes there are."""
        return int(self.weights.shape[1])

    @property
    def seen_classes(self) -> NDArray[np.int32]:
        """The classes that have answers."""
        return np.unique(self.codes)

    @property
    def both_classes(self) -> bool:
        """Whether at least two classes have answers."""
        return len(self) > 0 and bool((self.codes != self.codes[0]).any())

    @property
    def support(self) -> NDArray[np.intp]:
        """Positions of the rows with a weight in any hyperplane."""
        return np.flatnonzero((self.weights > 0).any(axis=1))

    def add(self, ids: NDArray[np.int64], rows: Rows, codes: NDArray[np.int32]) -> Answered:
        """With more rows, of weight zero; rows that are here already are ignored."""
        fresh = np.isin(ids, self.ids, invert=True)
        weights = np.zeros((int(fresh.sum()), self.planes))
        coming = Answered(ids[fresh], as_float64(take(rows, fresh)), codes[fresh].astype(np.int32), weights)
        return Answered.concatenate([self, coming]).in_order()

    def weighted(self, weights: Array) -> Answered:
        """The same rows with other weights (m, k)."""
        return Answered(self.ids, self.rows, self.codes, weights)

    def signs(self, plane: int) -> NDArray[np.int8]:
        """The side of a hyperplane that each row belongs to, 1 or -1."""
        positive = self.codes == (1 if self.planes == 1 else plane)
        return np.where(positive, 1, -1).astype(np.int8)

    def against(self, plane: int) -> WorkingSet:
        """The working set of one hyperplane."""
        return WorkingSet(self.ids, self.rows, self.signs(plane), self.weights[:, plane])


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
    def empty(cls) -> Draws:
        """No draws."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))

    @classmethod
    def unanswered(cls, ids: NDArray[np.int64], sides: NDArray[np.int32]) -> Draws:
        """Draws without answers."""
        return cls(ids, sides, np.full(len(ids), NONE, np.int32))

    @property
    def is_answered(self) -> NDArray[np.bool_]:
        """Which draws (t,) have an answer."""
        return np.asarray(self.codes != NONE)

    @property
    def all_answered(self) -> bool:
        """Whether there are draws, and all have an answer."""
        return len(self) > 0 and bool(self.is_answered.all())

    def with_answers(self, codes: Mapping[int, int]) -> Draws:
        """With more answers by row; earlier ones stay."""
        given = np.array([codes.get(int(row), NONE) for row in self.ids], np.int32)
        return replace(self, codes=np.where(self.is_answered, self.codes, given))

    def take(self, places: NDArray[Any]) -> Draws:
        """The draws at these places."""
        return Draws(self.ids[places], self.sides[places], self.codes[places])

    def concatenated(self, more: Draws) -> Draws:
        """These draws and others."""
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
    """What the last scan has shown of the newest hypothesis, for rows without an answer: nearest (s,), sides (K + 1,).

    nearest: a lower bound on the distances of all of them, for each slab, 0 where the hypothesis has changed since;
    sides: how many are given each class, and none.
    """

    nearest: Array
    sides: NDArray[np.int64]

    @classmethod
    def empty(cls, slabs: int, classes: int) -> Scanned:
        """Not scanned yet."""
        return cls(np.zeros(slabs), np.zeros(classes + 1, np.int64))

    @property
    def was_scanned(self) -> bool:
        """Whether the newest hypothesis was scanned."""
        return bool((self.nearest > 0).any() or self.sides.any())

    @property
    def population(self) -> int:
        """How many rows have no answer."""
        return int(self.sides.sum())


@dataclass(frozen=True)
class ActiveState:
    """Between two questions, or two scans.

    answered: the rows with labels, with their dual weights; unsure (u,): ids of rows that no annotator can label;
    resident: rows without either, near the hyperplanes as far as is known. hypothesis: the newest; lower (s,), upper
    (s,): its bounds, as ``Fitted`` has them, and failed: the place of those that cannot be, -1 where all can. wanted
    (q,): rows whose labels are asked for, the most wanted first. attempt: the number of the draws that come next, or
    are on the way; reach: so many rows are drawn from at least; tried: so many answers there were after the last
    attempt.
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
        """Answered and unsure rows, by id: they are not asked about."""
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
