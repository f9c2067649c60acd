"""A model whose labels were asked for: a hyperplane between two classes, and what is shown of the rows without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coremargin.formats.active import Active
from coremargin.models.model import Model
from coremargin.models.single import Single

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.model_record import TwoClasses


class ModelOfAnswers(Single):
    """A model of answers; ``extra`` holds the rows that have one, and those that nobody could label."""

    extra: Mapping[str, np.ndarray]

    @property
    def evidence(self) -> dict[str, Any] | None:
        """What draws have shown, of all rows or by class (``strata``); None where no attempt was finished."""
        found = self.record["evidence"]
        return None if found is None else dict(found)

    @property
    def answers(self) -> int:
        """How many rows have answers, draws included."""
        return int(self.record["answers"])

    @property
    def unsure_ids(self) -> np.ndarray:
        """Numbers of the rows that nobody could label, of which nothing is claimed."""
        return self.extra.get("unsure_ids", np.zeros(0, np.int64))

    @property
    def log(self) -> str | None:
        """Hash of the last line of the campaign's log that it is about."""
        found = self.record["log"]
        return None if found is None else str(found)


@dataclass(frozen=True, eq=False, repr=False)
class ActiveModel(ModelOfAnswers, Model):
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
