"""Labels by a structure of the user, of the rows of a group together or of each row for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.rows import dense
from coremargin.maths.structures.user import CheckedStructure, StructureFault
from coremargin.models.decision import Scorer

if TYPE_CHECKING:
    from coremargin.maths.scaling import Scaling


@dataclass(frozen=True)
class UserScorer(Scorer):
    """Labels of examples by argmax at weights (D,).

    The decision value of a row for a label is the score of the labelling that argmax finds, with this label in the
    place of the row's.
    """

    structure: CheckedStructure
    weights: np.ndarray
    width: int
    together: bool
    scaling: Scaling | None
    columns: np.ndarray | None = None

    @property
    def grouped(self) -> bool:
        """Whether an example is a group of rows."""
        return self.together

    @property
    def features(self) -> int:
        """Of a row."""
        return self.width

    @property
    def rows(self) -> RowScorer:
        """What scales rows."""
        return RowScorer(self.width, self.scaling)

    def of_scaled(self, rows: Any) -> np.ndarray:
        """The scores (k, n) of rows for each label; of two labels the second less the first. Raises UsageError."""
        if self.together:
            raise UsageError(
                "expected rows in groups: this model labels the rows of a group together, found rows alone"
            )
        found = self.decide_scaled(rows, np.arange(rows.shape[0] + 1))[1].T
        return np.asarray(found[1:] - found[:1] if len(found) == 2 else found)

    def rearranged(self, order: np.ndarray) -> UserScorer:
        """The same for rows whose features come in another order."""
        return replace(self, columns=np.argsort(order), scaling=self._scaling_of(order))

    def planes(self) -> NoReturn:
        """Refused: there are none. Raises UsageError."""
        raise UsageError("weights of your structure are no hyperplane, which other formats need; `predict` uses them")

    def label(
        self, X: Any, offsets: np.ndarray, place: Callable[[int], str] = "X, row {}".format
    ) -> tuple[np.ndarray, np.ndarray]:
        """Places (n,) of the labels of rows X (n, d), and their decision values (n, k).

        offsets (m + 1,): rows at which groups begin, and n. Raises UsageError, BadRow.
        """
        return self.decide_scaled(self.scaled(X, place), np.asarray(offsets))

    def scaled(self, X: Any, place: Callable[[int], str] = "X, row {}".format) -> np.ndarray:
        """Rows (n, d) as the structure gets them."""
        rows = self.rows.values(X, place)
        return rows.reshape(X.shape[0], self.width)

    def decide_scaled(self, rows: Any, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As ``label``, of rows (n, d) that are scaled. Raises UsageError."""
        rows = np.asarray(dense(rows), np.float64)
        rows = rows if self.columns is None else rows[:, self.columns]
        structure, w = self.structure, self.weights
        places, values = np.zeros(len(rows), np.int64), np.zeros((len(rows), structure.classes))
        for first, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            X = rows[first:stop]
            try:
                found = structure.argmax(w, X)
                score = structure.joint(X, found).score(w)
                for row in range(len(X)):
                    for label in range(structure.classes):
                        other = found.copy()
                        other[row] = label
                        same = label == found[row]
                        values[first + row, label] = score if same else structure.joint(X, other).score(w)
            except StructureFault as fault:
                raise UsageError(f"structure {structure.name}: {fault.text}") from fault.__cause__
            places[first:stop] = found
        return places, values


@dataclass(frozen=True)
class RowScorer(Scorer):
    """Rows themselves, scaled, as decision values of each feature."""

    width: int
    scaling: Scaling | None

    @property
    def features(self) -> int:
        """Of a row."""
        return self.width

    def of_scaled(self, rows: Any) -> np.ndarray:
        """Their columns (d, n)."""
        return np.ascontiguousarray(np.asarray(dense(rows), np.float64).T)

    def rearranged(self, order: np.ndarray) -> RowScorer:
        """The same."""
        return replace(self, scaling=self._scaling_of(order))

    def planes(self) -> NoReturn:
        """Refused. Raises UsageError."""
        raise UsageError("rows are no hyperplane")
