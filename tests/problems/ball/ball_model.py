"""The smallest ball around all rows as a model: ``predict`` gives 1 for rows inside and -1 for rows outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from ball_record import Ball

from coremargin.errors import UsageError
from coremargin.formats.model_arrays import ROWS
from coremargin.maths.rows import Rows, dense, from_arrays
from coremargin.models.decision import Scorer
from coremargin.models.single import Single

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.model_files import ModelFiles
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
    """centre (d,); alpha (m,): dual weights of the coreset, which sum to 1."""

    RECORD = Ball
    WHAT = "a ball"

    record: Mapping[str, Any]
    centre: np.ndarray
    alpha: np.ndarray
    coreset_ids: np.ndarray
    coreset_x: Rows
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None
    columns: ColumnsRecord | None = None

    def __post_init__(self) -> None:
        self._settle(dict.fromkeys(("centre", "alpha", "coreset_x", "shift", "factor"), np.float64))

    @property
    def row_duals(self) -> np.ndarray:
        """The dual weight of each coreset row (m,)."""
        return self.alpha

    def scorer(self) -> BallScorer:
        """Distances from the centre against the proven radius; nothing is inside of a ball that no scan has proven."""
        upper = self.certificate.upper
        return BallScorer(self.row_scaling, self.centre, -np.inf if upper is None else upper)

    def numbers(self) -> dict[str, np.ndarray]:
        """The arrays but for the coreset's rows."""
        names = ("centre", "alpha", "coreset_ids", "shift", "factor")
        return {name: values for name in names if (values := getattr(self, name)) is not None}

    @classmethod
    def of(cls, files: ModelFiles) -> BallModel:
        """The model in files that were read."""
        arrays = {name: values for name, values in files.arrays.items() if not name.startswith(ROWS)}
        return cls(files.content, coreset_x=from_arrays(ROWS, files.arrays), columns=files.columns, **arrays)


MODEL_CLASS = BallModel
