"""A model whose labels were asked for: a hyperplane between two classes, and what is shown of the rows without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from coremargin.formats.active import Active
from coremargin.models.model import Model
from coremargin.models.queried import AskedModel

if TYPE_CHECKING:
    from coremargin.formats.model_record import TwoClasses


@dataclass(frozen=True, eq=False, repr=False)
class ActiveModel(AskedModel, Model):
    """A hypothesis of few answers, with its certificate.

    The margin is that of the rows answered, and of all others if their labels are as it says; with a loss bounds are
    about its value over the rows answered. ``evidence`` bounds how many rows are labelled wrongly. A campaign makes it,
    ``Model.load`` reads it.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    w : ndarray of shape (d,)
        Float64, of length 1 unless there is a loss.
    b : float
        The offset.
    alpha : ndarray of shape (m,)
        Float64, dual weights of the coreset.
    coreset_ids : ndarray of shape (m,)
        Int64, the rows by number.
    coreset_x : ndarray or csr_array of shape (m, d)
        Exact copies of the store's rows.
    coreset_y : ndarray of shape (m,)
        Int8, the signs in {-1, +1} that were answered.
    extra : mapping of str to ndarray, optional
        What only models of one problem have, by name.
    shift, factor : ndarray of shape (d,), optional
        Where rows are scaled, what by.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.

    Raises
    ------
    DataError
        The parts do not fit together.
    """

    RECORD: ClassVar[type[TwoClasses]] = Active
    WHAT = "two classes, whose labels were asked for"


MODEL_CLASS = ActiveModel
