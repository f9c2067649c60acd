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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coremargin.formats.crammer_singer import SeveralClasses
from coremargin.models.planes import Planes

if TYPE_CHECKING:
    import numpy as np

    from coremargin.formats.columns import ColumnsRecord
    from coremargin.maths.rows import Rows


@dataclass(frozen=True, eq=False, repr=False)
class MulticlassModel(Planes):
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
    extra : mapping of str to ndarray, optional
        Of a map, what it is made of, as "map_..."; d is then that of mapped rows, but for coreset_x.
    shift, factor : ndarray of shape (d,), optional
        Where columns are scaled, what by.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.

    Raises
    ------
    DataError
        The record does not fit the arrays.
    """

    RECORD = SeveralClasses
    WHAT = "several classes"
    NAMES = (*Planes.NAMES, "reference")

    record: Mapping[str, Any]
    hypothesis: np.ndarray
    duals: np.ndarray
    coreset_ids: np.ndarray
    coreset_x: Rows
    coreset_classes: np.ndarray
    reference: np.ndarray | None = None
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None
    columns: ColumnsRecord | None = None

    @property
    def constant(self) -> float:
        """The last entry of every row, 0 without intercepts."""
        return float(self.record["constant"])


MODEL_CLASS = MulticlassModel
