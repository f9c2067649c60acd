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

import numpy as np

from coremargin.models.model import Model


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
    def costs(self) -> np.ndarray:
        """Losses (k, k) of the class of a column in the place of that of a row."""
        return self.array("costs")

    @property
    def row_duals(self) -> np.ndarray:
        """None: dual weights belong to labellings."""
        return np.zeros(0)


MODEL_CLASS = StructuredModel
