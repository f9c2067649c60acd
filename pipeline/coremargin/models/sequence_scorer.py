"""Labels of sequences: the rows of a group are labelled together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.structures.decoding import decode_sequences
from coremargin.models.decision import PlaneScorer, Scorer

if TYPE_CHECKING:
    from coremargin.maths.scaling import Scaling


@dataclass(frozen=True)
class SequenceScorer(Scorer):
    """Scores of the labels of each row, and of labels that follow one another.

    rows: gives a row its scores (k,). transitions (k, k): the score of the label of a column after that of a row.
    """

    rows: PlaneScorer
    transitions: np.ndarray

    @property
    def scaling(self) -> Scaling | None:  # type: ignore[override]
        """What scales rows."""
        return self.rows.scaling

    @property
    def grouped(self) -> bool:
        """Always."""
        return True

    @property
    def features(self) -> int:
        """Of a row."""
        return self.rows.features

    def of_scaled(self, rows: Any) -> NoReturn:
        """Refused: rows have no decision values of their own. Raises UsageError."""
        raise UsageError("expected rows in groups: this model labels the rows of a sequence together, found rows alone")

    def rearranged(self, order: np.ndarray) -> SequenceScorer:
        """The same for rows whose features come in another order."""
        return replace(self, rows=self.rows.rearranged(order))

    def planes(self) -> NoReturn:
        """Refused: no hyperplanes decide about rows alone. Raises UsageError."""
        raise UsageError(
            "a model of sequences labels the rows of a group together, which other formats cannot; `predict` and "
            "`evaluate` use it as it is"
        )

    def label(
        self, X: Any, offsets: np.ndarray, place: Callable[[int], str] = "X, row {}".format
    ) -> tuple[np.ndarray, np.ndarray]:
        """Places (n,) of the labels of rows X (n, d), and their decision values (n, k).

        The value of a row for a label is the highest score of all labellings of its sequence in which the row has this
        label. offsets (m + 1,): rows at which sequences begin, and n. place, errors: as of ``values``.
        """
        return self.decode(self.rows.values(X, place), offsets)

    def decode(self, scores: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same from the scores (n, k) of rows."""
        return decode_sequences(scores, self.transitions, np.asarray(offsets, np.int64))
