"""The interface of a loss, and the objective that it is part of.

A loss is one file in this folder and a line in ``table.py``; the verifier has its own counterpart. It provides

- the loss of a row by its margin m = y (w.x + b): ``value``, its derivative ``dual``, its conjugate ``dual_total``,
  its ``curvature``, what rounding of margins can change (``value_error``), and which margins violate optimality
  (``violations``, ``slack``);
- minimisers: over rows in memory (``minimise``), over a sample (``minimise_sample``), and of the model that a scan
  gives (``next_step``), with the dual bounds that a scan proves (``next_step``, ``cached_bound``, ``proof_bound``);
- for the first read in stages, which matrices of far rows a stage sums up (``ring_count``, ``rings``) and
  ``first_read``, a ``FirstRead``: what the sums prove, and what far rows can lose by crossing the margin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import gamma
from coremargin.maths.row_model import RowModel

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss as Word
    from coremargin.problems.soft.magnitudes import Magnitudes
    from coremargin.problems.soft.rows_with_c import RowsWithC
    from coremargin.problems.soft.state import SoftState
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]


class Loss(ABC):
    """A loss, by which a row of margin m costs c loss(m), c being its C. Losses have no state."""

    word: ClassVar[Word]  #: its name in jobs and records
    formula: ClassVar[str]  #: for people, m being y (w.x + b)
    #: Scans sum up a d x d matrix of far rows, the curvature of the loss there, for steps by sums.
    curves: ClassVar[bool]
    #: Rows near the margin have dual variables of their own, which an intercept wants balanced, and all others the dual
    #: of their side. False: all duals follow from the slacks at a hypothesis.
    names_duals: ClassVar[bool]
    clipped_slope: ClassVar[float]  #: the largest slope of min(1, loss)
    solve_cost: ClassVar[float]  #: a sample is thinned to so many rows times (d + 1)^2: at most seconds of work
    most_crossed: ClassVar[float]  #: a step went too far if a larger share of the near rows crossed the margin
    first_read: ClassVar[type[Any]]  #: the subclass of ``FirstRead``

    # a row

    @abstractmethod
    def value(self, margins: Array) -> Array:
        """The losses (n,) at margins (n,)."""

    @abstractmethod
    def slack(self, value: float) -> float:
        """The slack 1 - m > 0 at which the loss has this value."""

    @abstractmethod
    def dual(self, margins: Array, row_c: Array) -> Array:
        """Minus c times the derivative (n,) at margins (n,): the duals that belong to them."""

    @abstractmethod
    def violations(self, margins: Array, duals: Array, row_c: Array) -> Array:
        """By how much a margin (n,) would have to change for the dual of its row (n,) to be optimal."""

    @abstractmethod
    def dual_total(self, duals: Array, row_c: Array) -> float:
        """The dual value of duals (n,) without -1/2 ||sum a y x||^2: the sum of minus their conjugates."""

    @abstractmethod
    def curvature(self, row_c: Array) -> tuple[Array, Array]:
        """The second derivative (n,) of each row's loss, smoothed if need be, and the upper limit (n,) of its dual."""

    @abstractmethod
    def value_error(self, margin: float, value: float, row_c: float) -> float:
        """Bound on the change of a value if every margin changes by up to ``margin``; row_c: sum of c of all rows."""

    # steps

    @abstractmethod
    def minimise(self, model: RowModel, start: Array, duals: Array | None, tolerance: float) -> tuple[Array, Array]:
        """The minimiser (d + 1,) over rows in memory and, if ``names_duals``, their duals (m,), else zeros.

        start, duals: warm start; None: nothing is known of the duals.
        """

    @abstractmethod
    def minimise_sample(self, objective: Objective, some: RowsWithC, start: Array) -> Array:
        """The minimiser (d + 1,) over a sample by means of d x d sums; start: a hypothesis to start from."""

    @abstractmethod
    def next_step(self, objective: Objective, state: SoftState, summary: NearMarginSummary) -> tuple[Array, SoftState]:
        """The minimiser (d + 1,) of the model that a scan gives, and the state with the dual bound it proves."""

    @abstractmethod
    def cached_bound(self, objective: Objective, state: SoftState, summary: NearMarginSummary) -> SoftState:
        """The state with the dual bound of a scan whose rows are all cached, with their duals."""

    @abstractmethod
    def proof_bound(
        self, objective: Objective, state: SoftState, summary: NearMarginSummary, duals: Array
    ) -> SoftState:
        """With the dual bound of a scan about duals (n,) of all rows, a_i y_i, or about the hypothesis alone."""

    # stages of the first read

    @abstractmethod
    def ring_count(self, edges: int, crossing: int) -> int:
        """How many matrices a stage sums up, given so many edges; ``crossing``: as in ``StageProbe``."""

    @abstractmethod
    def rings(
        self, edges: Array, crossing: int, away: Array, losing: NDArray[np.bool_], row_c: Array
    ) -> tuple[NDArray[np.intp], Array]:
        """The ring (n,) of each row, -1 for none, and its weight (n,) in the matrix of that ring.

        edges (k + 1,): of |margin - 1|; away (n,): |margin - 1| of far rows, inf for others; losing (n,): far rows with
        slack.
        """


@dataclass(frozen=True)
class Objective:
    """1/2 ||w||^2 + sum_i c_i loss(m_i), to a relative gap of epsilon; class_c (2,): c of a row of weight 1."""

    loss: Loss
    class_c: Array
    intercept: bool
    epsilon: float
    magnitudes: Magnitudes

    @property
    def metric(self) -> Array:
        """R (d + 1,): 1 for the weights, 0 for the intercept."""
        return np.append(np.ones(self.magnitudes.source.features), 0.0)

    def rounded_up(self, value: float, size: Array, total_c: float) -> float:
        """The value plus what float64 may have lost in each margin and in the sums.

        size (d + 1,): |(w, b)|; total_c: sum of c of all rows.
        """
        margin = gamma(len(size) + 8) * (self.magnitudes.reach(size[:-1]) + float(size[-1]) + 1.0)
        error = self.loss.value_error(margin, value, total_c)
        return value * (1.0 + 4.0 * self.magnitudes.sum_error) + 4.0 * error

    def row_model(self, some: RowsWithC, linear: Array) -> RowModel:
        """The losses of some rows, and a linear term (d + 1,) for all others."""
        curvatures, limit = self.loss.curvature(some.row_c)
        return RowModel(
            linear=linear if self.intercept else np.append(linear[:-1], 0.0),
            rows=some.rows,
            signs=some.signs,
            intercept=self.intercept,
            target=np.ones(len(some)),
            curvatures=curvatures,
            limit=limit,
        )

    def minimise(self, some: RowsWithC, start: Array, duals: Array | None, share: float) -> tuple[Array, Array]:
        """The minimiser over some rows and their duals, as ``Loss.minimise``, to a share of the requested gap."""
        model = self.row_model(some, np.zeros(len(start)))
        return self.loss.minimise(model, start, duals, share * self.epsilon)
