"""A model of several classes whose labels were asked for: a hyperplane for each class against the rest.

On disk it is a folder as ``Model`` has it, with problem "active_classes" in ``model.json`` and, in ``arrays.npz``,

    hypothesis          (K, d + 1) float64: a row a class; the last column are the offsets
    duals               (m, K) of the rows coreset_ids (m,), coreset_classes (m,): a column for each hyperplane
    coreset_x           (m, d) exact copies of the rows
    answered_..., draws_..., unsure_ids     the rows with answers and their classes, and those that nobody could label
    shift, factor       (d,) where columns are scaled
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coremargin.formats.active_classes import ActiveClasses
from coremargin.models.active import ModelOfAnswers
from coremargin.models.planes import Planes

if TYPE_CHECKING:
    import numpy as np

    from coremargin.formats.columns import ColumnsRecord
    from coremargin.maths.rows import Rows


@dataclass(frozen=True, eq=False, repr=False)
class ActiveClassesModel(ModelOfAnswers, Planes):
    """A hypothesis of few answers for each class, with its certificate; arrays are read-only.

    Each margin is that of one class against the rest on the rows answered, and on all others if their labels are as it
    says; with a loss bounds are about values over the rows answered. ``evidence`` bounds how many rows are labelled
    wrongly. A campaign makes it, ``ActiveClassesModel.load`` reads it.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    hypothesis : ndarray of shape (K, d + 1)
        Float64: weights and offset of each class; weights are of length 1 unless there is a loss.
    duals : ndarray of shape (m, K)
        Float64, dual weights of the coreset: a column for each hyperplane.
    coreset_ids : ndarray of shape (m,)
        Int64, the rows by number.
    coreset_x : ndarray or csr_array of shape (m, d)
        Exact copies of the store's rows.
    coreset_classes : ndarray of shape (m,)
        Int32, the classes that were answered, by their places.
    extra : mapping of str to ndarray, optional
        All rows with answers, the draws among them, rows that nobody could label: by name.
    shift, factor : ndarray of shape (d,), optional
        Where rows are scaled, what by.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.

    Raises
    ------
    DataError
        The parts do not fit together.
    """

    RECORD = ActiveClasses
    WHAT = "several classes, whose labels were asked for"

    record: Mapping[str, Any]
    hypothesis: np.ndarray
    duals: np.ndarray
    coreset_ids: np.ndarray
    coreset_x: Rows
    coreset_classes: np.ndarray
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None
    columns: ColumnsRecord | None = None

    @property
    def constant(self) -> float:
        """The last entry of every row: offsets are in the last column as they are."""
        return 1.0

    @property
    def members(self) -> list[dict[str, Any]]:
        """The bounds of each class against the rest, in their order: label, lower, upper."""
        return [dict(one) for one in self.record["members"]]


MODEL_CLASS = ActiveClassesModel
