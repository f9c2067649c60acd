"""A model of a structure of the user, which is no part of it: the record only names it.

Its folder is as in ``model.py``, with in ``arrays.npz`` the ``weights`` (D,), and labellings with dual weights as in
``structured.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import numpy as np

from coremargin.data.groups import array_groups
from coremargin.errors import UsageError
from coremargin.formats.function import function_name
from coremargin.maths.structures.user import CheckedStructure, StructureFault
from coremargin.models.decision import decided, label_array
from coremargin.models.raw_rows import decision_values
from coremargin.models.single import SingleModel
from coremargin.models.user_scorer import UserScorer


@dataclass(frozen=True, eq=False, repr=False)
class UserStructureModel(SingleModel):
    """Weights of a user's structure with their certificate; arrays are read-only.

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
    checked : CheckedStructure, optional
        The structure; ``with_structure`` sets it.

    Raises
    ------
    DataError
        The record is incomplete or does not fit the arrays.
    """

    WHAT = "a structure of the user"

    checked: CheckedStructure | None = None

    @property
    def weights(self) -> np.ndarray:
        """Weights (D,) of the features of an example and its labels."""
        return self.array("weights")

    @property
    def grouped(self) -> bool:
        """Whether the rows of a group are labelled together."""
        return bool(self.record["grouped"])

    @property
    def row_duals(self) -> np.ndarray:
        """None: dual weights belong to labellings."""
        return np.zeros(0)

    def with_structure(self, structure: Any) -> Self:
        """The same with the structure that it was trained with.

        Parameters
        ----------
        structure : object
            It has size, joint, argmax and loss.

        Returns
        -------
        UserStructureModel
            One that decides.

        Raises
        ------
        UsageError
            Its size is another one.
        """
        from coremargin.models.function import structure_object

        found = structure_object(structure)
        checked = CheckedStructure(found, function_name(found), len(self.classes))
        try:
            checked = checked.sized(self.features)
        except StructureFault as fault:
            raise UsageError(f"structure {checked.name}: {fault.text}") from fault.__cause__
        if checked.size != len(self.weights):
            raise UsageError(
                f"structure {checked.name}: it has {checked.size:,} weights, the model {len(self.weights):,}: it "
                "was trained with another structure; give that one"
            )
        return replace(self, checked=checked)

    def scorer(self) -> UserScorer:
        """What gives rows their labels.

        Returns
        -------
        UserScorer
            All that a worker needs.

        Raises
        ------
        UsageError
            The structure was not given.
        """
        if self.checked is None:
            raise UsageError(
                f"the structure of this model is {self.record['function']!r} where it was trained, and no part of the "
                "model: if you trust yours, say --structure MODULE:NAME; from Python coremargin.load(path, "
                "structure=Name)"
            )
        return UserScorer(self.checked, self.weights, self.features, self.grouped, self.row_scaling)

    def decision_function(self, X: Any, groups: Any = None) -> np.ndarray:
        """Decision values of rows for each label: the score of the labelling found, with this label in the row's place.

        Parameters
        ----------
        X : array_like, sparse matrix or table of n rows
            As of other models.
        groups : array_like of shape (n,), optional
            The id of each row's group, where the model was trained on groups.

        Returns
        -------
        ndarray of shape (n, k)
            Of single rows and two labels (n,): positive towards the second.

        Raises
        ------
        UsageError
            X has another shape or kind; groups are missing, or there are none; the structure was not given.
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
        scorer = self.scorer()
        if self.grouped != (groups is not None):
            raise UsageError(
                "groups: expected the id of each row's group, found none: this model labels their rows together"
                if self.grouped
                else "groups: this model labels each row for itself; leave groups out"
            )
        if groups is None:
            values = decision_values(scorer, X, self.columns)
            return decided(values), values
        rows = decision_values(scorer.rows, X, self.columns)
        rows, offsets = rows.reshape(len(rows), self.features), np.zeros(1, np.int64)
        if len(rows):
            offsets = array_groups(groups, None, len(rows), len(rows)).offsets(0)
        return scorer.decide_scaled(rows, offsets)

    def coefficients(self, top: int | None = None) -> NoReturn:
        """Refused: only the structure knows what its weights are of.

        Parameters
        ----------
        top : int, optional
            Any.

        Returns
        -------
        list of Hyperplane
            Never.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError("weights of your structure have no names of features; `weights` has them")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: {self.record['function']}, {len(self.classes)} classes, "
            f"{self.rows:,} rows x {self.features:,} features, {self.bounds_text()})"
        )


MODEL_CLASS = UserStructureModel
