"""A trained model of structured output: scores of labels and, in a chain, of labels that follow one another.

Its folder is as in ``model.py``, with in ``arrays.npz``

    hypothesis (k, d + 1)   weights of each class; the last column times ``constant`` are the intercepts
    transitions (k, k)      of a chain: the score of class j after class i at [i, j]
    costs (k, k)            the loss of class j in the place of class i at [i, j]
    duals_row (m,)          labellings with dual weights: the first row of the example of each, increasing,
    duals_weight (m,)       its weight,
    duals_ends (m,)         and where its labels end in
    duals_labels (n,)       classes of the rows of all labellings, one labelling after the other
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.groups import array_groups
from coremargin.errors import UsageError
from coremargin.models.coefficients import hyperplanes
from coremargin.models.decision import PlaneScorer, decided, label_array
from coremargin.models.model import Model
from coremargin.models.raw_rows import decision_values
from coremargin.models.sequence_scorer import SequenceScorer
from coremargin.models.sklearn_objects import Linear

if TYPE_CHECKING:
    from coremargin.models.coefficients import Hyperplane


@dataclass(frozen=True, eq=False, repr=False)
class StructuredModel(Model):
    """Structured output with its certificate; arrays are read-only.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    numbers : mapping of str to ndarray
        The arrays above.
    coreset_x : ndarray of shape (0, 0)
        No rows: the proof names labellings.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.

    Raises
    ------
    DataError
        The record is incomplete or does not fit the arrays.
    """

    WHAT = "structured output"

    @property
    def structure(self) -> str:
        """Either "chain" or "outputs"."""
        return str(self.record["parameters"]["structure"])

    @property
    def transitions(self) -> np.ndarray | None:
        """Scores (k, k) of the class of a column after that of a row; None unless the structure is a chain."""
        return self.numbers.get("transitions")

    @property
    def grouped(self) -> bool:
        """Whether the rows of a group are labelled together."""
        return self.transitions is not None

    @property
    def costs(self) -> np.ndarray:
        """Losses (k, k) of the class of a column in the place of that of a row."""
        return self.array("costs")

    def scorer(self) -> Any:
        """What gives rows their labels; of a chain, the rows of a sequence together.

        Returns
        -------
        SequenceScorer or PlaneScorer
            All that a worker needs.
        """
        transitions = self.transitions
        if transitions is None:
            return super().scorer()
        weights, offsets = self.planes
        rows = PlaneScorer(tuple(weights), tuple(map(float, offsets)), self.row_scaling, self.row_map)
        return SequenceScorer(rows, transitions)

    def decision_function(self, X: Any, groups: Any = None) -> np.ndarray:
        """Decision values of rows for each label.

        Of a chain the value of a row for a label is the highest score of all labellings of its sequence in which the
        row has this label.

        Parameters
        ----------
        X : array_like, sparse matrix or table of n rows
            As of other models.
        groups : array_like of shape (n,), optional
            Of a chain: the id of each row's sequence; rows of a sequence come one after the other.

        Returns
        -------
        ndarray of shape (n, k)
            Of "outputs" with two classes (n,): positive towards the second.

        Raises
        ------
        UsageError
            X has another shape or kind; a chain without groups, or outputs with groups.
        DataError
            A table has other columns than the model.
        BadRow
            A row is not finite, a value of a table does not fit its column, or a group comes again.
        """
        return self._label(X, groups)[1]

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """The label of each row.

        Parameters
        ----------
        X : array_like, sparse matrix or table of n rows
            As for ``decision_function``.
        groups : array_like of shape (n,), optional
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n,)
            Labels as they were given.
        """
        return np.asarray(label_array(self.labels)[self._label(X, groups)[0]])

    def _label(self, X: Any, groups: Any) -> tuple[np.ndarray, np.ndarray]:
        """Places (n,) of the labels, and decision values."""
        scorer = self.scorer()
        if not isinstance(scorer, SequenceScorer):
            if groups is not None:
                raise UsageError("groups: this model labels each row for itself; leave groups out")
            values = decision_values(scorer, X, self.columns)
            return decided(values), values
        if groups is None:
            raise UsageError(
                "groups: expected the id of each row's sequence, found none: this model labels the rows of a sequence "
                "together"
            )
        scores = decision_values(scorer.rows, X, self.columns)
        offsets = np.zeros(1, np.int64)
        if len(scores):
            offsets = array_groups(groups, None, len(scores), len(scores)).offsets(0)
        return scorer.decode(scores, offsets)

    def coefficients(self, top: int | None = None) -> list[Hyperplane]:
        """The weights of each label by the names of the features, the most influential first; see ``Model``.

        Parameters
        ----------
        top : int, optional
            So many of each label; all of them by default.

        Returns
        -------
        list of Hyperplane
            One for each label, in order.
        """
        scorer = self.scorer()
        if not isinstance(scorer, SequenceScorer):
            return super().coefficients(top)
        linear = Linear(*scorer.rows.planes(), label_array(self.labels), {}, scorer.scaling, self.feature_names)
        return hyperplanes(linear, self.columns, top)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: {self.structure}, {len(self.classes)} classes, {self.rows:,} rows x "
            f"{self.features:,} features, {self.bounds_text()})"
        )

    @property
    def row_duals(self) -> np.ndarray:
        """None: dual weights belong to labellings."""
        return np.zeros(0)


MODEL_CLASS = StructuredModel
