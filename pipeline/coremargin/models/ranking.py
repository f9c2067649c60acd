"""A trained ranking: weights of features, by which rows of a group are put in order.

Its folder is as in ``model.py``, with in ``arrays.npz``

    w (d,)                weights, for scaled rows
    cuts_point (k, d)     where the cuts of the proof were made
    cuts_weight (k,)      their dual weights
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np

from coremargin.errors import UsageError
from coremargin.models.decision import PlaneScorer
from coremargin.models.single import SingleModel

_NO_CLASSES = "a ranking has scores and no classes: other formats have no such model; use decision_function"


@dataclass(frozen=True, eq=False, repr=False)
class RankingModel(SingleModel):
    """A ranking with its certificate; arrays are read-only.

    ``predict`` and ``decision_function`` give scores: of two rows of a group the one with the higher score is ahead.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    numbers : mapping of str to ndarray
        The arrays above.
    coreset_x : ndarray of shape (0, 0)
        No rows: the proof names points.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.

    Raises
    ------
    DataError
        The record is incomplete or does not fit the arrays.
    """

    WHAT = "a ranking"

    @property
    def ranks(self) -> bool:
        """Rows are given scores."""
        return True

    @property
    def labels(self) -> tuple[Any, ...]:
        """One word for all rows: scores have no labels."""
        return ("score",)

    @property
    def row_duals(self) -> np.ndarray:
        """None: dual weights belong to cuts."""
        return np.zeros(0)

    def scorer(self) -> PlaneScorer:
        """What gives rows their scores.

        Returns
        -------
        PlaneScorer
            All that a worker needs.
        """
        return PlaneScorer((self.array("w"),), (0.0,), self.row_scaling)

    def predict(self, X: Any) -> np.ndarray:
        """The score of each row: the same as ``decision_function``.

        Parameters
        ----------
        X : array_like, sparse matrix or table of n rows
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n,)
            Float64; the higher, the further ahead.
        """
        return self.decision_function(X)

    def to_sklearn(self) -> NoReturn:
        """Refused: scikit-learn has no such model.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(_NO_CLASSES)

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> NoReturn:
        """Refused: graphs give labels.

        Parameters
        ----------
        precision : {"float64", "float32"}, default "float64"
            Not used.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(_NO_CLASSES)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: {self.rows:,} rows x {self.features:,} features, "
            f"{self.bounds_text()}, {len(self.array('cuts_weight')):,} cuts)"
        )


MODEL_CLASS = RankingModel
