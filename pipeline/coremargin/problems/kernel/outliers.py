"""The hard margin of a kernel on all rows but k (Har-Peled, Roth, Zimak 2006, section 5, with products of rows alone).

    settle   k rows of the working set are removed, those with the lowest margins after concentration steps, and the
             others are solved as without outliers (kernel_margin.py); stages and scans send rows until the margin of
             the solution is proven on all rows but these k
    search   certificates of the working set, and branching, prove that no other k rows allow a margin above the
             target, or find them (maths/outliers/row_search.py): then these are removed instead, and the scans go on

The search needs coordinates of the working set only, the eigenvectors of its kernel matrix. The bound that the weights
of a certificate prove is computed from kernel values, and rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import UsageError
from coremargin.maths.kernel.functions import Lengths
from coremargin.maths.margin import is_certified
from coremargin.maths.outliers.row_search import NEAR, search_rows
from coremargin.maths.trimmed_hulls import HullFit, coordinates
from coremargin.problems.common.driver_rows import ClassRows, thin_by_class
from coremargin.problems.kernel.bounds import EPS, WIDENED, squared_norm
from coremargin.problems.kernel.kernel_margin import KernelMargin, Machine, largest_norms
from coremargin.problems.outliers.removal import UNFINISHED, Removal, check_class_stays

if TYPE_CHECKING:
    from coremargin.engine.problem import Round
    from coremargin.maths.outliers.heuristic import Hyperplane
    from coremargin.maths.outliers.row_search import Places, Trimmed
    from coremargin.problems.kernel.kernel_margin import KernelResult, KernelState
    from coremargin.problems.kernel.probe import KernelProbe, KernelSummary

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

#: Shares of epsilon that the margin of the chosen rows, and the search, may leave.
SETTLED, SEARCHED = 0.25, 0.5
#: Why a job ended without a proof, where other kernel machines end for another reason.
_REASONS = {
    "unfinished": UNFINISHED,
    "inseparable": "no rows were found without which the others are separable; leave out more rows, or give a loss",
}
#: Rows that the k with the lowest margins are chosen of while stages bring rows: choosing takes their cube.
CHOSEN_OF = 500


@dataclass(frozen=True)
class KernelWithOutliers(KernelMargin):
    """The largest margin between two classes on all rows but ``left_out``, which is above 0.

    ``removed`` are those of the state at hand: methods that need them go on with ``_at`` a state.
    """

    left_out: int = 1

    def check(self) -> None:
        """Refuse what has no such margin, and a class that could be removed. Raises as ``KernelMargin``, UsageError."""
        super().check()
        check_class_stays(self.source, self.codes, self.left_out)
        least = 2 * (self.left_out + 1)
        if self.capacity.rows < least:
            raise UsageError(f"{self.source.name}: {self.capacity.describe()}, expected {least:,}; give more memory")

    def unsolved(self) -> KernelState:
        """The state without any rows."""
        none = ClassRows.nothing(self.source.features, sparse=self.source.sparse)
        return replace(super().unsolved(), removal=Removal.nothing(none))

    def _at(self, ids: Ids) -> KernelWithOutliers:
        """The problem without the rows with these ids."""
        if np.array_equal(ids, self.removed):
            return self
        found = replace(self, removed=ids)
        found.__dict__["_matrix_cache"] = self._matrix_cache
        return found

    # After a stage or a scan

    def proven(self, machine: Machine) -> NDArray[np.bool_]:
        """Which columns (1,) are proven of all rows but those that are removed, so that a search is due."""
        return machine.certified(SETTLED * self.epsilon, margins=True)

    def probe(self, state: KernelState) -> KernelProbe:
        """The query of all rows but those that are removed."""
        return super(KernelWithOutliers, self._at(state.removed.ids)).probe(state)

    def update(self, state: KernelState, summary: KernelSummary) -> KernelState:
        """The bounds of the rows that are removed; the working set is solved until these are close."""
        after = super(KernelWithOutliers, self._at(state.removed.ids)).update(state, summary)
        if after.status == "inseparable":  # without these rows; the search looks for others
            zero = Machine.zero(len(after.working_set), 1)
            return replace(after, status="running", newest=zero, best=zero)
        if after.status == "certified":
            return replace(after, status="certified" if self._is_proven(after) else "running")
        return after

    def _is_proven(self, state: KernelState) -> bool:
        """Whether no choice of rows is better by more than epsilon."""
        return is_certified(self._margin(state), state.removed.bound, self.epsilon)

    def _margin(self, state: KernelState) -> float:
        """The margin that is proven on all rows but those that are removed."""
        lower = float(super().round_of(state).lower)
        return lower if np.isfinite(lower) else 0.0

    def _solve(self, state: KernelState, tolerances: Array) -> KernelState:
        """Choose the rows to remove, and solve all others."""
        return self._solve_without(state, self._lowest_rows(state), tolerances)

    def _solve_without(self, state: KernelState, ids: Ids, tolerances: Array) -> KernelState:
        if not np.array_equal(ids, state.removed.ids):
            zero = Machine.zero(len(state.working_set), 1)
            state = replace(state, newest=zero, best=zero, removal=replace(state.removed, ids=ids))
        return super(KernelWithOutliers, self._at(ids))._solve(state, tolerances)

    def _refuse_equal_rows(self, rows: ClassRows) -> None:
        """Rows that are equal and of different classes may be among those that are left out."""

    def _lowest_rows(self, state: KernelState) -> Ids:
        """Ids of the k rows with the lowest margins after concentration steps; of too few rows, none."""
        rows, k = state.working_set, self.left_out
        places = thin_by_class(rows.classes, CHOSEN_OF + k)
        if not self._has_enough(rows.take(places)):
            return np.zeros(0, np.int64)
        fit = self._fit(rows, places)
        return self._removed_by(rows, places, fit, fit.start(k))

    def _removed_by(self, rows: ClassRows, places: Places, fit: HullFit, plane: Hyperplane) -> Ids:
        ids = rows.ids[places]
        return np.sort(ids[np.lexsort([ids, -fit.scores(plane)])[: self.left_out]])

    def _has_enough(self, rows: ClassRows) -> bool:
        """Whether a row of each class stays, whatever is removed."""
        return int(np.bincount(rows.classes, minlength=2).min()) > self.left_out

    def _fit(self, rows: ClassRows, places: Places) -> HullFit:
        """The rows at some places in coordinates, and what their weights prove by kernel values."""
        kernel, some = self.kernels[0], rows.take(places)
        points = kernel.points(rows.rows)
        matrix = self._kernel_matrix(rows).values[0][np.ix_(places, places)].astype(np.float64)
        signs = np.where(some.classes == 1, 1, -1).astype(np.int8)
        longest = float(self.source.scalars().max_norm.max())
        reach = float(largest_norms(self.kernels, longest)[0])

        def norm_of(used: Places, weights: Array) -> tuple[float, float]:
            own, sides = points.take(places[used]), signs[used]
            groups = ((sides < 0) & self.intercept).astype(np.intp)
            signed = sides * weights / np.bincount(groups, weights)[groups]
            return squared_norm(kernel, own, signed, Lengths.from_points(own, signed[:, None]))

        def proven(used: Places, weights: Array) -> float:
            norm = norm_of(used, weights)
            length = math.sqrt(max(0.0, norm[0]) + norm[1]) * (1 + WIDENED) + 32 * EPS * reach
            return length / (2.0 if self.intercept else 1.0)

        error = norm_of(np.arange(len(places)), np.ones(len(places)))[1]
        return HullFit(coordinates(matrix), signs, self.intercept, proven, 4.0 * math.sqrt(error))

    # The search

    def work(self, state: KernelState, run: object) -> Iterator[KernelState]:
        """Search the working set once the margin has settled, or nothing separates it: a proof, or other rows.

        Until it is done, machine and working set stay the same: a resumed run searches from scratch, for the same.
        """
        rows, settled = state.working_set, bool(self.proven(state.best).all())
        if state.round < self.stages.count or not (settled or not state.newest.duals.any()):
            return
        if not self._has_enough(rows):
            yield replace(state, status="stalled")
            return
        places = self._places(state)
        fit = self._fit(rows, places)
        state = replace(state, removal=replace(state.removed, trace=np.zeros((0, 3))))
        for found in search_rows(fit, self.left_out, SEARCHED * self.epsilon, fit.start(self.left_out)):
            removed = state.removed.with_search(found, rows, places, self._margin(state))
            state = replace(state, removal=removed)
            yield state
        yield self._after_search(state, found, self._removed_by(rows, places, fit, found.hypothesis))

    def _places(self, state: KernelState) -> Places:
        """Places, increasing, of the rows to search: those with the lowest margins, and all that carry the machine."""
        rows, most = state.working_set, NEAR // 2 + self.left_out
        if len(rows) <= most:
            return np.arange(len(rows))
        if not state.newest.duals.any():
            return thin_by_class(rows.classes, most)
        values = self._expansions(state, state.newest).values(self.kernels[0].points(rows.rows))[:, 0]
        margins = np.where(rows.classes == 1, values, -values)
        lowest = np.lexsort([rows.ids, margins])[:most]
        each = thin_by_class(rows.classes, 4 * (self.left_out + 1))
        return np.unique(np.concatenate([lowest, each, state.newest.carriers()]))

    def _after_search(self, state: KernelState, found: Trimmed[Hyperplane], ids: Ids) -> KernelState:
        """How the job ends or, with other rows to remove, continues."""
        if self._is_proven(state):
            return replace(state, status="certified")
        better = -found.reached > max(0.0, self._margin(state) * (1.0 + SETTLED * self.epsilon))
        if better and not np.array_equal(ids, state.removed.ids):
            return self._solve_without(state, ids, self._tolerances(state, rough=False))
        if not -found.reached > 0:
            return replace(state, status="inseparable")
        return replace(state, status="stalled" if found.complete else "unfinished")

    # Results

    def _result(self, state: KernelState, number: int) -> KernelResult:
        """The coreset: the rows that carry the function, and those that the proof names."""
        removed = state.removed
        found = super(KernelWithOutliers, self._at(removed.ids))._result(state, number)
        missing = removed.named.take(removed.named.unlike(found.rows.ids))
        rows = ClassRows.concatenate([found.rows, missing])
        place = {int(row): k for k, row in enumerate(rows.ids.tolist())}
        proof = removed.proof
        if proof is not None:
            proof = proof.renumbered(np.array([place[int(row)] for row in removed.named.ids], np.int64))
        known = np.isfinite(found.lowers).all()
        return replace(
            found,
            status="certified" if state.status == "certified" else "stopped",
            reason=_REASONS.get(state.status, found.reason),
            rows=rows,
            duals=np.concatenate([found.duals, np.zeros((len(missing), 1))]),
            uppers=np.array([removed.bound if known and np.isfinite(removed.bound) else np.nan]),
            outliers=removed.ids,
            proof=proof if known else None,
        )

    def round_of(self, state: KernelState) -> Round:
        """The report of a round: the upper bound is that of all choices of rows."""
        removed, found = state.removed, super().round_of(state)
        more: dict[str, Any] = {**found.more, **removed.describe_search()}
        return replace(found, upper=removed.bound, coreset_rows=len(removed.named), more=more)


def with_outliers(problem: KernelMargin, left_out: int) -> KernelWithOutliers:
    """The problem in which so many rows may be left out."""
    return KernelWithOutliers(**{one.name: getattr(problem, one.name) for one in fields(problem)}, left_out=left_out)
