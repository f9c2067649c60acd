"""The longest row as a model: ``predict`` gives 1 for rows that are not longer and -1 for others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.rows import lengths
from coremargin.models.decision import Scorer
from coremargin.models.single import SingleModel

if TYPE_CHECKING:
    from coremargin.maths.scaling import Scaling


@dataclass(frozen=True)
class LengthScorer(Scorer):
    """longest - ||x|| of scaled rows."""

    scaling: Scaling | None
    width: int
    longest: float

    @property
    def features(self) -> int:
        """Of a row."""
        return self.width

    def of_scaled(self, rows: Any) -> np.ndarray:
        """Decision values (1, n)."""
        return np.asarray(self.longest - lengths(rows)[None])

    def rearranged(self, order: np.ndarray) -> LengthScorer:
        """The same for rows with their features in another order."""
        return replace(self, scaling=self._scaling_of(order))

    def planes(self) -> NoReturn:
        """There are none. Raises UsageError."""
        raise UsageError("a length is no hyperplane: features have no weights, and no other format has such models")


@dataclass(frozen=True, eq=False)
class LongestModel(SingleModel):
    """The coreset is the row."""

    WHAT = "a row"

    @property
    def row_duals(self) -> np.ndarray:
        """A weight of 1 for the row."""
        return np.ones(len(self.coreset_ids))

    def scorer(self) -> LengthScorer:
        """Lengths against the proven one."""
        upper = self.certificate.upper
        return LengthScorer(self.row_scaling, self.features, -np.inf if upper is None else upper)


MODEL_CLASS = LongestModel
