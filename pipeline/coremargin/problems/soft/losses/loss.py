"""What tells one loss from another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss as Word
    from coremargin.maths.row_model import RowModel

Array = NDArray[np.float64]


class Loss(ABC):
    """The loss of a row by its slack xi = max(0, 1 - y (w.x + b)), c times; what it asks of scans and of steps.

    Losses have no state; ``table.py`` knows them by the words of records.
    """

    word: ClassVar[Word]
    formula: ClassVar[str]  #: for people, m being y (w.x + b)
    curves: ClassVar[bool]  #: what bends it is summed up in scans, as a d x d matrix, for steps that are made by sums
    #: Rows near the margin have duals of their own, which an intercept wants in balance, and others that of their side;
    #: False: all duals follow from the slacks of a hypothesis.
    names_duals: ClassVar[bool]
    solve_cost: ClassVar[float]  #: a sample is thinned out to so many rows times (d + 1)^2: seconds at most
    crossed: ClassVar[float]  #: a step went too far if more than this share of the rows near the margin changed sides

    @abstractmethod
    def value(self, slack: Array) -> Array:
        """The losses (n,) of slacks (n,) that are 0 or more."""

    @abstractmethod
    def slack(self, value: float) -> float:
        """The slack that has this loss."""

    @abstractmethod
    def slopes(self, slack: Array, row_c: Array) -> Array:
        """The duals (n,) that slacks (n,) above 0 suggest."""

    @abstractmethod
    def contradictions(self, margins: Array, duals: Array, row_c: Array) -> Array:
        """By how much a row's margin (n,) would have to change for its dual (n,), from 0 to its c, to be best."""

    @abstractmethod
    def dual_total(self, duals: Array, row_c: Array) -> float:
        """What duals (n,) add to the dual, but for the length of their sum."""

    @abstractmethod
    def bends(self, row_c: Array) -> tuple[Array, Array]:
        """Curvature (n,) of each row's loss, as steps over rows take it, and the limit (n,) of its dual."""

    @abstractmethod
    def lost(self, margin: float, value: float, row_c: float) -> float:
        """What a value loses by an error of each margin; row_c: sum of c of all rows."""

    @abstractmethod
    def minimum(self, model: RowModel, near: Array, duals: Array | None, tolerance: float) -> tuple[Array, Array]:
        """The minimiser (d + 1,) over rows and, where they are named, their duals (m,), else zeros.

        near, duals: to start from, None: nothing is known of the duals.
        """
