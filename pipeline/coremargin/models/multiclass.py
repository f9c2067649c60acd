"""A trained model of several classes at once (Crammer, Singer; Kesler): hypothesis, certificate, what checks it again.

On disk it is a folder as ``Model`` has it, with problem "crammer_singer" in ``model.json`` and, in ``arrays.npz``,

    hypothesis          (K, d + 1) float64, V: a row a class; the last column times ``constant`` are the intercepts
    duals               (m, K) of the rows coreset_ids (m,), coreset_classes (m,): nothing at a row's own class
    coreset_x           (m, d) exact copies of the rows for a hard margin, (m, 0) for a soft one
    reference           (K, d + 1), soft margin only: the hypothesis that gives all other rows their duals
    shift, factor       (d,) where columns are scaled
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.crammer_singer import SeveralClasses
from coremargin.formats.model_arrays import ROWS
from coremargin.maths.rows import Rows, from_arrays
from coremargin.maths.scaling import folded
from coremargin.models.decision import Scorer
from coremargin.models.single import Single

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles


@dataclass(frozen=True, eq=False, repr=False)
class MulticlassModel(Single):
    """Several classes at once; arrays are read-only.

    Rows that are scaled, and rows as they are: as for ``Model``.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    hypothesis : ndarray of shape (K, d + 1)
        Float64, V: a row a class; the last column times ``constant`` are the intercepts. Hard margin: ||V||_F = 1.
    duals : ndarray of shape (m, K)
        Of the coreset's rows; nothing at a row's own class. Hard margin: they sum to 1. Soft margin: each row's sum to
        c at most.
    coreset_ids : ndarray of shape (m,)
        Int64, the rows by number.
    coreset_x : ndarray or csr_array of shape (m, d)
        Exact copies of the rows for a hard margin, (m, 0) for a soft one.
    coreset_classes : ndarray of shape (m,)
        Int32, their classes.
    reference : ndarray of shape (K, d + 1), optional
        Soft margin only: the hypothesis that gives all other rows their duals.
    shift, factor : ndarray of shape (d,), optional
        Where columns are scaled, what by.

    Raises
    ------
    DataError
        The record does not fit the arrays.
    """

    RECORD = SeveralClasses
    WHAT = "several classes"

    record: Mapping[str, Any]
    hypothesis: np.ndarray
    duals: np.ndarray
    coreset_ids: np.ndarray
    coreset_x: Rows
    coreset_classes: np.ndarray
    reference: np.ndarray | None = None
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None

    def __post_init__(self) -> None:
        kinds = dict.fromkeys(("hypothesis", "duals", "coreset_x", "reference", "shift", "factor"), np.float64)
        self._settle({**kinds, "coreset_ids": np.int64, "coreset_classes": np.int32})

    @property
    def constant(self) -> float:
        """The last entry of every row, 0 without intercepts."""
        return float(self.record["constant"])

    @property
    def row_duals(self) -> np.ndarray:
        """The dual weights of each coreset row (m,), of all rivals together."""
        return np.asarray(self.duals.sum(axis=1))

    def _planes(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (K, d) and offsets (K,) for scaled rows."""
        with np.errstate(over="ignore"):  # what is not finite is refused by who decides
            return self.hypothesis[:, :-1], self.constant * self.hypothesis[:, -1]

    @cached_property
    def _folded(self) -> tuple[np.ndarray, np.ndarray]:
        weights, offsets = self._planes()
        if self.shift is None or self.factor is None:
            return weights, offsets
        pairs = [folded(w, float(b), self.shift, self.factor) for w, b in zip(weights, offsets, strict=True)]
        return np.stack([w for w, _ in pairs]), np.array([b for _, b in pairs])

    @property
    def coef(self) -> np.ndarray:
        """Weights (K, d) for rows as they are: of "rownorm", for rows divided by their lengths."""
        return self._folded[0]

    @property
    def intercept(self) -> np.ndarray:
        """Scores (K,) of a row of zeros as it is; they go with ``coef``."""
        return self._folded[1]

    def scorer(self) -> Scorer:
        """A hyperplane a class, for scaled rows; of two classes the score of the second less that of the first.

        Returns
        -------
        Scorer
            What gives rows as they are their decision values.
        """
        weights, offsets = self._planes()
        two = len(self.classes) == 2
        return Scorer(tuple(weights), tuple(map(float, offsets)), self.row_scaling, difference=two)

    def __repr__(self) -> str:
        return (
            f"MulticlassModel({self.status}: {len(self.classes)} classes, {self.rows:,} rows x {self.features:,} "
            f"features, {self.bounds_text()}, {self.certificate.coreset_rows:,} coreset rows)"
        )

    @classmethod
    def of(cls, files: ModelFiles) -> MulticlassModel:
        """The model in files that were read.

        Parameters
        ----------
        files : ModelFiles
            Record and arrays of a model's folder, checked.

        Returns
        -------
        MulticlassModel
            The model.
        """
        arrays = {name: values for name, values in files.arrays.items() if not name.startswith(ROWS)}
        return cls(record=files.content, coreset_x=from_arrays(ROWS, files.arrays), **arrays)

    def numbers(self) -> dict[str, np.ndarray]:
        """The content of ``arrays.npz`` but for the coreset's rows.

        Returns
        -------
        dict of str to ndarray
            The arrays by name.
        """
        names = ("hypothesis", "duals", "coreset_ids", "coreset_classes", "reference", "shift", "factor")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


MODEL_CLASS = MulticlassModel
