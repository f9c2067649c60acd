"""The smallest ball around all rows as a model: ``predict`` gives 1 for rows inside and -1 for rows outside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.rows import dense
from coremargin.models.decision import Scorer
from coremargin.models.single import Single

if TYPE_CHECKING:
    from coremargin.maths.scaling import Scaling


@dataclass(frozen=True)
class BallScorer(Scorer):
    """radius - ||x - centre|| of scaled rows."""

    scaling: Scaling | None
    centre: np.ndarray
    radius: float

    @property
    def features(self) -> int:
        """Of a row."""
        return len(self.centre)

    def of_scaled(self, rows: Any) -> np.ndarray:
        """Decision values (1, n)."""
        return self.radius - np.linalg.norm(dense(rows) - self.centre, axis=1)[None]

    def rearranged(self, order: np.ndarray) -> BallScorer:
        """The same for rows with their features in another order."""
        return replace(self, centre=self.centre[order], scaling=self._scaling_of(order))

    def planes(self) -> NoReturn:
        """A ball has none. Raises UsageError."""
        raise UsageError("a ball is no hyperplane: features have no weights, and no other format has such models")


@dataclass(frozen=True, eq=False)
class BallModel(Single):
    """Its numbers: centre (d,); alpha (m,), dual weights of the coreset, which sum to 1."""

    WHAT = "a ball"

    @property
    def centre(self) -> np.ndarray:
        """Of the ball (d,)."""
        return self.array("centre")

    @property
    def row_duals(self) -> np.ndarray:
        """The dual weight of each coreset row (m,)."""
        return self.array("alpha")

    def scorer(self) -> BallScorer:
        """Distances from the centre against the proven radius; nothing is inside of a ball that no scan has proven."""
        upper = self.certificate.upper
        return BallScorer(self.row_scaling, self.centre, -np.inf if upper is None else upper)


MODEL_CLASS = BallModel
