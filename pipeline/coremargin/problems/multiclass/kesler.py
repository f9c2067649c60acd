"""The hard margin of several classes (Kesler's construction; Har-Peled, Roth, Zimak 2006, section 6), out of core.

As for two classes: a pool of rows is solved exactly, its weights are the upper bound; a scan of all rows is the lower
bound and sends the rows of the lowest margins. A row stands in the pool for its K - 1 vectors, of which the solver
makes what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import NothingToGoOnFrom
from coremargin.engine.want import Want
from coremargin.maths import multiclass as mc
from coremargin.maths.kesler import KeslerSolution, solve_kesler
from coremargin.maths.kesler_apart import solve_apart, upper_apart
from coremargin.maths.margin import gamma, is_certified, unit_scales
from coremargin.maths.rows import dense, lengths, take
from coremargin.maths.span import span_of
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.common.sizes import pool_wanted, rows_sent
from coremargin.problems.common.warm_start import most_cached_rows
from coremargin.problems.common.zone import Zone
from coremargin.problems.multiclass.onward import Onward
from coremargin.problems.multiclass.probe import ClassesProbe
from coremargin.problems.multiclass.summary import ClassesSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.allowance import Allowance
    from coremargin.problems.multiclass.state import ClassesState

Array = NDArray[np.float64]

#: From a constant so many times as long as the rows that carry the bound on, it is measured apart from them.
LONG = 1024.0
#: Entries of sparse rows that are filled in for that.
FILLED = 20_000_000
#: So many scans in a row that move neither bound are the last ones.
IDLE_SCANS = 3


@dataclass(frozen=True)
class KeslerMargin(Onward):
    """Maximum-margin separation of several classes, to a share 1 - epsilon of the best possible margin.

    blocks: tasks a scan has (rows are kept per task).
    """

    blocks: int = 1

    class_c = None  # of the class: no row has a loss

    @property
    def pool_rows(self) -> int:
        """How many rows the pool may hold."""
        classes, p = self.shape
        return max(min(4 * classes * p, 1000), self.memory_bytes // (8 * (p + classes)))

    @property
    def want(self) -> Want:
        """Room in the pool for what scans may send."""
        classes, p = self.shape
        rows = pool_wanted(self.source)
        size = rows * 8 * (p + classes)
        return Want(self.memory_bytes, size, rows, "candidates", "with less, there are more scans")

    def start(self) -> ClassesState:
        """Solve on a sample of chunks."""
        check_scale(self.source)
        sample, read = self.sampled()
        state = replace(self.unsolved(), new_rows=len(sample), sample_bytes=read)
        state = self._solve(state, sample.exact())
        kept = self._lowest(state, min(self.pool_rows // 2, 2 * rows_sent(self.source, self.pool_rows)))
        return replace(state, pool=state.pool.take(kept), pool_rows=len(kept))

    def probe(self, state: ClassesState) -> ClassesProbe:
        """The question of the next scan."""
        points, most_sent = self.points(state), rows_sent(self.source, self.pool_rows)
        return ClassesProbe(
            newest=state.newest, best=state.best if len(points) > 1 else None, points=points, place=self.place,
            constant=self.constant, class_c=None, keep=max(1, most_sent // self.blocks), known=state.pool.ids,
            level=min(state.upper, 1e300), dtype=self.source.dtype.name, sparse=self.source.sparse,
            chunk_rows=self.source.chunk_rows,
        )  # fmt: skip

    def update(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """Bounds, pool and hypothesis after a scan."""
        state, summary = self._of_all(state, summary)
        before = state.lower, state.upper
        state = replace(
            state, round=state.round + 1, confusion=summary.confusion, rows_below=int(summary.below[0]), new_rows=0
        )
        state = self._prove(state, summary)
        if is_certified(state.lower, state.upper, self.epsilon):
            return replace(state, status="certified")
        state = self._grow(state, summary)
        if state.new_rows == 0 or state.zone.idle >= IDLE_SCANS:
            return replace(state, status="stalled")
        state = self._solve(state, state.pool)
        moved = state.lower > before[0] or state.upper < before[1] * (1.0 - 1e-12)
        return replace(state, zone=replace(state.zone, idle=0 if moved else state.zone.idle + 1))

    def kept(self, state: ClassesState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """What ``onward`` takes: of the pool no more than may be kept, rows as the store has them."""
        dtype = self.source.dtype
        proof = replace(state.proof, rows=state.proof.rows.astype(dtype))

        def with_rows(most: int) -> Mapping[str, NDArray[Any]]:
            pool = state.pool.take(self._lowest(state, max(len(proof), most)))
            return self.in_terms(replace(state, pool=replace(pool, rows=pool.rows.astype(dtype)), proof=proof))

        return allowance.within(with_rows, most_cached_rows(self.source, allowance))

    def before(self, old: ClassesState, hurt: NDArray[np.int64]) -> ClassesState:
        """At the best hypothesis, whose margin stands; at another one where rows behind the bound are gone."""
        carried = len(old.proof.unlike(hurt)) == len(old.proof)
        if old.status == "not_separable" and carried:
            return replace(old, proof=old.proof.exact())
        if old.best is None or old.status != "certified":
            raise NothingToGoOnFrom("the model had not come to a proof, or its proof is not one any more")
        pool = old.pool.take(old.pool.unlike(hurt)).exact()
        state = replace(
            old, status="running", newest=old.best, best=None, lower=-np.inf, lower_now=-np.inf, pool=pool,
            proof=old.proof.exact(), zone=Zone(widen=1, idle=0), upper_at_eviction=np.inf,
        )  # fmt: skip
        if carried:
            return replace(state, asked=self._stands(old))
        if len(np.unique(pool.classes)) < self.shape[0]:
            raise NothingToGoOnFrom("no row near a change of sides is left of one of the classes")
        none = np.arange(0)
        return self._solve(replace(state, upper=np.inf, proof=pool.take(none), duals=old.duals[none]), pool)

    def _stands(self, old: ClassesState) -> ClassesSummary:
        """What all rows have answered about the best hypothesis."""
        near = ClassRows.nothing(self.source.features, self.source.dtype, sparse=self.source.sparse)
        answer = ClassesSummary.nothing(1, self.shape[0], near, (0, 0))
        below = np.array([old.rows_below or 0])
        return replace(answer, smallest=np.array([old.lower]), confusion=old.confusion, below=below)

    def _prove(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """The lower bound of every hypothesis of the scan; the best one is kept."""
        ends, longest = state, float(self.source.scalars().max_norm.max())
        for k, t in enumerate(self.points(ends)):
            at, smallest = self.at(ends, float(t)), float(summary.smallest[k])
            length = float(np.linalg.norm(at))
            unit = abs(length - 1.0) <= gamma(at.size + 8)
            if not unit:  # bringing it to length 1 rounds its entries, which moves the margins of long rows
                smallest -= mc.score_error(self.source.features, longest, at, self.constant)
            lower = mc.lower_bound(smallest, at)
            if lower > state.lower:
                state = replace(state, best=at if unit else at / length, lower=lower)
            if k == 0:
                state = replace(state, lower_now=lower)
        return state

    def _grow(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """The pool with what the scan sent; room is made first where the budget is reached."""
        pool, coming = state.pool, summary.near
        if len(pool) + len(coming) > self.pool_rows and state.upper < state.upper_at_eviction:
            pool = pool.take(self._lowest(state, max(0, self.pool_rows - len(coming))))
            state = replace(state, upper_at_eviction=state.upper)
        fresh = np.flatnonzero(np.isin(coming.ids, pool.ids, invert=True))
        grown = ClassRows.concatenate([pool, coming.take(fresh).exact()]).in_order()
        return replace(state, pool=grown, new_rows=len(fresh), pool_rows=len(grown))

    def _lowest(self, state: ClassesState, limit: int) -> NDArray[np.intp]:
        """Positions (increasing) of at most ``limit`` rows of the pool: those behind the bound, then the lowest."""
        pool = state.pool
        if len(pool) <= limit:
            return np.arange(len(pool))
        margin, _ = mc.margins(mc.scores_of(pool.rows, state.newest, self.constant), pool.classes)
        in_proof = np.isin(pool.ids, state.proof.ids)
        order = np.lexsort([pool.ids, np.where(in_proof, -np.inf, margin)])
        return np.sort(order[: max(limit, int(in_proof.sum()))])

    def _solve(self, state: ClassesState, pool: ClassRows) -> ClassesState:
        """Newest hypothesis and upper bound from the pool."""
        found, meet = self._solved(pool)
        used = np.flatnonzero(found.weights.any(axis=1))
        state = replace(state, pool=pool, pool_rows=len(pool))
        if meet or found.upper < state.upper:
            state = replace(state, upper=found.upper, proof=pool.take(used), duals=found.weights[used])
        if not found.at.any():  # what a scan has proven to be separable stays so: float64 has come to its end
            return replace(state, status="not_separable" if meet and state.lower <= 0 else "stalled")
        return replace(state, newest=found.at / float(np.linalg.norm(found.at)))

    def _solved(self, pool: ClassRows) -> tuple[KeslerSolution, bool]:
        """The hypothesis (K, d + 1) and the bound of the pool's rows, and whether they prove that nothing separates.

        Where the constant is all that float64 sees of the rows, once more with rows and constant apart.
        """
        span, tolerance = span_of(pool.rows, self.constant), min(1e-6, 1e-3 * self.epsilon)
        found = solve_kesler(span.flat, pool.classes, self.shape[0], tolerance=tolerance)
        used = np.flatnonzero(found.weights.any(axis=1))
        proof, duals = pool.take(used), found.weights[used]
        found = replace(
            found, at=span.up(found.at), upper=mc.upper_bound(proof.rows, proof.classes, duals, self.constant)
        )
        meet = found.status == "zero" and self._meets(proof, duals)
        if meet or not self._blurred(found, proof, duals) or pool.rows.shape[0] * pool.rows.shape[1] > FILLED:
            return found, meet
        rows = dense(pool.rows)
        apart = solve_apart(rows, pool.classes, self.shape[0], self.constant, tolerance=tolerance)
        if apart.status == "zero":
            return apart, True
        # Either may be the better one, and the bound of one may stand beside the hypothesis of the other.
        tried = [apart, found]
        if self._reached(pool, apart.at) <= 0 and self._reached(pool, found.at) <= 0:
            other = self._in_other_units(pool, rows, tolerance)
            if other.status == "zero" and mc.meets(rows, pool.classes, other.weights, intercept=self.intercept):
                return other, True
            tried.append(other)
        best = max(tried, key=lambda one: self._reached(pool, one.at))
        bound = min(tried, key=lambda one: one.upper)
        return replace(best, weights=bound.weights, upper=bound.upper), False

    def _in_other_units(self, pool: ClassRows, rows: Array, tolerance: float) -> KeslerSolution:
        """The solution for features of one size, as it is for the rows as they are.

        Whether something separates rows does not depend on the units of their features, nor on the constant.
        """
        scales = unit_scales(rows - rows[0] if self.intercept else rows)
        scaled = rows * scales
        last = mc.constant(float(lengths(scaled).max()), intercept=self.intercept)
        found = solve_apart(scaled, pool.classes, self.shape[0], last, tolerance=tolerance)
        at = found.at * np.append(scales, last / self.constant if self.intercept else 1.0)
        at = at / (float(np.abs(at).max()) or 1.0)
        if not np.isfinite(at).all():
            at = np.zeros_like(at)
        upper = upper_apart(rows, pool.classes, found.weights, self.constant) if found.weights.any() else np.inf
        return replace(found, at=at / (float(np.linalg.norm(at)) or 1.0), upper=upper)

    def _reached(self, pool: ClassRows, at: Array) -> float:
        """The margin of the pool's rows at a hypothesis (K, d + 1), as a scan would prove it; -inf for none."""
        if not at.any():
            return -np.inf
        at = at / float(np.linalg.norm(at))
        fast = mc.margins(mc.scores_of(pool.rows, at, self.constant), pool.classes)[0]
        error = mc.score_errors(self.source.features, lengths(pool.rows), at, self.constant)
        close = np.flatnonzero(~(fast - error > float((fast + error).min())))
        exact = mc.exact_scores(take(pool.rows, close), at, self.constant)
        return float(mc.margins(exact, pool.classes[close])[0].min())

    def _meets(self, proof: ClassRows, duals: Array) -> bool:
        return mc.meets(proof.rows, proof.classes, duals, intercept=self.intercept)

    def _blurred(self, found: KeslerSolution, proof: ClassRows, duals: Array) -> bool:
        """Whether rounding of long rows or of the constant may be what a solution or its bound ends with."""
        if found.status == "zero":
            return True
        shares = duals.sum(axis=1)
        size = float(shares @ lengths(proof.rows))
        if self.constant <= LONG * size:
            return False
        lost = 4.0 * gamma(duals.size + 8) * (size + self.constant)
        return found.status == "stalled" or lost > 0.1 * self.epsilon * found.upper
