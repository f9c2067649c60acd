"""The hard margin of several classes on all rows but k (Har-Peled, Roth, Zimak 2006, sections 5 and 6), out of core.

    settle   k rows of the working set are removed, those with the lowest margins after concentration steps, and the
             others are solved as for the hard margin (kesler.py); scans at the solution send rows until it is proven on
             all rows but these k
    search   certificates of the working set, and branching, prove that no other k rows allow a margin above the
             target, or find them (maths/outliers/row_search.py): then these are removed instead, and the scans go on

A certificate of the working set is one of all rows; only the lower bound needs scans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import CannotWarmStart
from coremargin.maths import multiclass as mc
from coremargin.maths.margin import is_certified
from coremargin.maths.outliers.row_search import NEAR, reached_score, search_rows
from coremargin.maths.trimmed_kesler import KeslerFit
from coremargin.problems.common.driver_rows import ClassRows, isin_ids, thin_by_class
from coremargin.problems.multiclass.kesler import KeslerMargin
from coremargin.problems.outliers.removal import UNFINISHED, Removal, check_class_stays

if TYPE_CHECKING:
    from coremargin.engine.problem import Round
    from coremargin.maths.outliers.row_search import Trimmed
    from coremargin.problems.multiclass.classes_problem import ClassesResult, ClassesState
    from coremargin.problems.multiclass.probe import ClassesProbe, ClassesSummary

Array = NDArray[np.float64]

#: Shares of epsilon that the margin of the chosen rows, and the search, may leave.
SETTLED, SEARCHED = 0.25, 0.5
#: A margin on all rows that a search looked at may be missed on the others by this share.
TOLERANCE = 1e-9


def with_outliers(problem: KeslerMargin, left_out: int) -> KeslerWithOutliers:
    """The problem in which so many rows may be left out."""
    return KeslerWithOutliers(**{one.name: getattr(problem, one.name) for one in fields(problem)}, left_out=left_out)


@dataclass(frozen=True)
class KeslerWithOutliers(KeslerMargin):
    """The largest margin on all rows but ``left_out``, which is above 0."""

    left_out: int = 1

    def check(self) -> None:
        """Refuse a class that could be removed as a whole. Raises StoreError, LabelError, UsageError."""
        super().check()
        check_class_stays(self.source, self.codes, self.left_out)

    def unsolved(self) -> ClassesState:
        """The state without any rows."""
        none = ClassRows.nothing(self.source.features, sparse=self.source.sparse)
        return replace(super().unsolved(), removal=Removal.nothing(none))

    def probe(self, state: ClassesState) -> ClassesProbe:
        """The probe of all rows but those that are removed."""
        return replace(super().probe(state), removed=state.removed.ids)

    # After a scan

    def update(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """The bounds of the rows that are removed; the working set is solved until these are close."""
        state = replace(
            state, round=state.round + 1, confusion=summary.confusion, rows_below=int(summary.below[0]), new_rows=0
        )
        state = self._with_lower_bound(state, summary)
        if self._is_proven(state):
            return replace(state, status="certified")
        state = self._add_sent_rows(state, summary.near)
        if self._has_settled(state) or not state.new_rows:
            return state
        return self._solve(state, state.working_set)

    def _with_lower_bound(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """With the rows that the best hypothesis needs removed."""
        after = super()._with_lower_bound(state, summary)
        if after.lower == state.lower:
            return after
        return replace(after, removal=replace(state.removed, best=state.removed.ids))

    def _is_proven(self, state: ClassesState) -> bool:
        """Whether no choice of rows is better by more than epsilon."""
        return is_certified(state.lower, state.removed.bound, self.epsilon)

    def _has_settled(self, state: ClassesState) -> bool:
        """Whether the margin without the rows that are removed is proven on all others."""
        same = np.array_equal(state.removed.ids, state.removed.best)
        return same and is_certified(state.lower, state.upper, SETTLED * self.epsilon)

    def _solve(self, state: ClassesState, rows: ClassRows) -> ClassesState:
        """Choose the rows to remove, and solve all others."""
        return self._solve_without(state, rows, self._lowest_rows(state, rows))

    def _solve_without(self, state: ClassesState, rows: ClassRows, ids: NDArray[np.int64]) -> ClassesState:
        """The newest hypothesis, and the upper bound of this choice; zero, if nothing separates the others."""
        if not np.array_equal(ids, state.removed.ids):
            state = replace(state, removal=replace(state.removed, ids=ids), upper=np.inf)
        solved = super()._solve(state, rows.take(rows.unlike(ids)))
        if solved.status != "running":  # of this choice only
            solved = replace(solved, status="running", newest=np.zeros_like(solved.newest))
        return replace(solved, working_set=rows, rows_held=len(rows))

    def _lowest_rows(self, state: ClassesState, rows: ClassRows) -> NDArray[np.int64]:
        """Ids of the k rows with the lowest margins after concentration steps; of fewer rows, none."""
        k = self.left_out
        if len(rows) <= k + len(self.codes):
            return np.zeros(0, np.int64)
        fit = self._fit(rows.take(self._places(state, rows)))
        starts = [fit.start(k)]
        if state.newest.any():
            starts.append(fit.concentrate(k, fit.span.down(state.newest)))
        at = fit.span.up(min(starts, key=lambda one: reached_score(fit.scores(one), k)))
        margin, _ = mc.margins(mc.scores_of(rows.rows, at, self.constant), rows.classes)
        return np.sort(rows.ids[np.lexsort([rows.ids, margin])[:k]])

    def _fit(self, rows: ClassRows) -> KeslerFit:
        return KeslerFit(rows.rows, rows.classes, len(self.codes), self.constant)

    def _places(self, state: ClassesState, rows: ClassRows) -> NDArray[np.intp]:
        """Places, increasing, of the rows to search: the lowest, or before there is a hypothesis some of each class."""
        most = NEAR + self.left_out
        if len(rows) <= most:
            return np.arange(len(rows))
        if not state.newest.any():
            return thin_by_class(rows.classes, most)
        margin, _ = mc.margins(mc.scores_of(rows.rows, state.newest, self.constant), rows.classes)
        return np.sort(np.lexsort([rows.ids, margin])[:most])

    # The search

    def work(self, state: ClassesState, run: object) -> Iterator[ClassesState]:
        """Search the working set once the margin has settled, or nothing separates it: a proof, or other rows.

        Until it is done, hypothesis and working set stay the same: a resumed run searches from scratch, for the same.
        """
        rows, k = state.working_set, self.left_out
        exhausted = state.round > 0 and not state.new_rows
        if len(rows) <= k or not (self._has_settled(state) or not state.newest.any() or exhausted):
            return
        places = self._places(state, rows)
        state = replace(state, removal=replace(state.removed, trace=np.zeros((0, 3))))
        while True:
            fit = self._fit(rows.take(places))
            start = fit.span.down(state.newest) if state.newest.any() else fit.start(k)
            for found in search_rows(fit, k, SEARCHED * self.epsilon, start):
                state = self._with_search(state, found, places)
                yield state
            at = fit.span.up(found.hypothesis)
            margin, _ = mc.margins(mc.scores_of(rows.rows, at, self.constant), rows.classes)
            lowest = np.lexsort([rows.ids, margin])[: k + 1]
            below = np.setdiff1d(lowest[margin[lowest] < -found.reached * (1.0 - TOLERANCE)], places)
            if not len(below):
                break
            places = np.union1d(places, below)
        yield self._after_search(state, found, np.sort(rows.ids[lowest[:k]]))

    def _with_search(self, state: ClassesState, found: Trimmed[Array], places: NDArray[np.intp]) -> ClassesState:
        """The state with the bound that a search of the rows at ``places`` (m,) has come to."""
        removed = state.removed.with_search(found, state.working_set, places, state.lower)
        return replace(state, removal=removed)

    def _after_search(self, state: ClassesState, found: Trimmed[Array], ids: NDArray[np.int64]) -> ClassesState:
        """How the job ends or, with other rows to remove, continues."""
        if self._is_proven(state):
            return replace(state, status="certified")
        better = -found.reached > max(0.0, state.lower * (1.0 + SETTLED * self.epsilon))
        if better and not (np.array_equal(ids, state.removed.ids) and state.newest.any()):
            state = self._solve_without(replace(state, new_rows=1), state.working_set, ids)
            return state if state.newest.any() else replace(state, status="stalled")
        if not found.complete:
            return replace(state, status="unfinished")
        return replace(state, status="not_separable" if self._none_separates(state) else "stalled")

    def _none_separates(self, state: ClassesState) -> bool:
        """Whether each certificate of the proof is zero for its own rows, so that no choice leaves a margin."""
        removed = state.removed
        if state.lower > 0 or removed.proof is None:
            return False
        certificates = zip(removed.proof.rows, removed.proof.weights, strict=True)
        return all(
            mc.meets(part.rows, part.classes, weights, intercept=self.intercept)
            for part, weights in ((removed.named.take(rows), weights) for rows, weights in certificates)
        )

    # Results

    def result(self, state: ClassesState) -> ClassesResult:
        """The result of a state: the proof is about the rows that it names."""
        removed = state.removed
        found = super().result(replace(state, proof=removed.named, upper=removed.bound))
        none = np.zeros((len(removed.named), len(self.codes)))
        finite = found.upper is not None and np.isfinite(found.upper)
        return replace(
            found,
            reason=UNFINISHED if state.status == "unfinished" else found.reason,
            status="stopped" if state.status == "unfinished" else found.status,
            upper=found.upper if finite else None,
            duals=none,
            outliers=self._outlier_ids(state, -np.inf if found.lower is None else found.lower),
            proof=removed.proof,
        )

    def _outlier_ids(self, state: ClassesState, lower: float) -> NDArray[np.int64]:
        """Ids of the removed rows, increasing, without those that have the margin that all others have."""
        ids, rows = state.removed.best, state.working_set
        if state.best is None or not len(ids):
            return np.zeros(0, np.int64)
        mine = rows.take(isin_ids(rows.ids, ids))
        margin, _ = mc.margins(mc.exact_scores(mine.rows, state.best, self.constant), mine.classes)
        error = mc.score_error(
            self.source.features, float(self.source.scalars().max_norm.max()), state.best, self.constant
        )
        return np.setdiff1d(ids, mine.ids[margin - error >= lower])

    def round_of(self, state: ClassesState) -> Round:
        """The report of a round: the upper bound is that of all choices of rows."""
        removed = state.removed
        found = super().round_of(state)
        return replace(found, upper=removed.bound, coreset_rows=len(removed.named), more=removed.describe_search())

    def warm_start_state(self, state: ClassesState, allowance: object) -> Mapping[str, NDArray[Any]]:
        """Nothing: the search starts from scratch."""
        return {}

    def warm_start(self, arrays: Mapping[str, NDArray[Any]], difference: object) -> NoReturn:
        """Always refused."""
        raise CannotWarmStart("with outliers the search starts from scratch")
