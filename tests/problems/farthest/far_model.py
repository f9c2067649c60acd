"""The model of a throw-away kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from far_record import Farthest

from coremargin.errors import UsageError
from coremargin.formats.model_arrays import ROWS
from coremargin.maths.rows import Rows, from_arrays
from coremargin.models.single import Single

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles


@dataclass(frozen=True, eq=False)
class FarthestModel(Single):
    """The longest row: its id (1,), and itself (1, d)."""

    RECORD = Farthest
    WHAT = "the longest row"

    record: Mapping[str, Any]
    coreset_ids: np.ndarray
    coreset_x: Rows
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None

    def __post_init__(self) -> None:
        self._settle({"coreset_x": np.float64, "coreset_ids": np.int64})

    @property
    def row_duals(self) -> np.ndarray:
        """The row carries everything."""
        return np.ones(1)

    def scorer(self) -> NoReturn:
        """It decides nothing."""
        raise UsageError("the longest row of a store gives no row a class")

    def numbers(self) -> dict[str, np.ndarray]:
        """The id."""
        return {"coreset_ids": self.coreset_ids}

    @classmethod
    def of(cls, files: ModelFiles) -> FarthestModel:
        """The model in files that were read."""
        return cls(files.content, files.arrays["coreset_ids"], from_arrays(ROWS, files.arrays))


MODEL_CLASS = FarthestModel
