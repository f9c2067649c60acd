"""The longest row as a model: ``predict`` gives 1 for rows that are not longer and -1 for others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from longest_record import Longest

from coremargin.errors import UsageError
from coremargin.formats.model_arrays import ROWS
from coremargin.maths.rows import Rows, from_arrays, lengths
from coremargin.models.decision import Scorer
from coremargin.models.single import Single

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.model_files import ModelFiles
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
class LongestModel(Single):
    """The coreset is the row."""

    RECORD = Longest
    WHAT = "a row"

    record: Mapping[str, Any]
    coreset_ids: np.ndarray
    coreset_x: Rows
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None
    columns: ColumnsRecord | None = None

    def __post_init__(self) -> None:
        self._settle(dict.fromkeys(("coreset_x", "shift", "factor"), np.float64))

    @property
    def row_duals(self) -> np.ndarray:
        """A weight of 1 for the row."""
        return np.ones(len(self.coreset_ids))

    def scorer(self) -> LengthScorer:
        """Lengths against the proven one."""
        upper = self.certificate.upper
        return LengthScorer(self.row_scaling, self.features, -np.inf if upper is None else upper)

    def numbers(self) -> dict[str, np.ndarray]:
        """The arrays but for the coreset's rows."""
        names = ("coreset_ids", "shift", "factor")
        return {name: values for name in names if (values := getattr(self, name)) is not None}

    @classmethod
    def of(cls, files: ModelFiles) -> LongestModel:
        """The model in files that were read."""
        arrays = {name: values for name, values in files.arrays.items() if not name.startswith(ROWS)}
        return cls(files.content, coreset_x=from_arrays(ROWS, files.arrays), columns=files.columns, **arrays)


MODEL_CLASS = LongestModel
