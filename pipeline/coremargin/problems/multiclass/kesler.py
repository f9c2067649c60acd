"""The hard margin of several classes (Kesler's construction; Har-Peled, Roth, Zimak 2006, section 6), out of core.

As for two classes: a working set is solved exactly and its weights give the upper bound; a scan of all rows gives the
lower bound and sends the rows with the lowest margins. A row of the working set stands for its K - 1 vectors, of which
the solver makes what it needs.

Strategy "paper" is Figure 1 of the same paper on these vectors: the first row to begin with, then the row with the
least margin of each scan; "any-violator" is its Corollary 3.2: any row below (1 - epsilon) of the upper bound will do,
so that a scan may end at the first. A row brings all of its vectors, so that Lemma 3.1's number of vectors bounds that
of rows: the margin of the working set falls at least as far as with the one vector that the paper adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.memory_need import MemoryNeed
from coremargin.engine.problem import CannotWarmStart
from coremargin.maths import multiclass as mc
from coremargin.maths.kesler import KeslerSolution, solve_kesler
from coremargin.maths.kesler_apart import solve_apart, upper_apart
from coremargin.maths.margin import gamma, is_certified, unit_scales
from coremargin.maths.rows import dense, lengths, take
from coremargin.maths.span import span_of
from coremargin.problems.common.classes import check_scale, zero_weight_error
from coremargin.problems.common.driver_rows import ClassRows, read_labelled_rows
from coremargin.problems.common.sizes import rows_sent, wanted_working_set_rows
from coremargin.problems.common.warm_start import most_cached_rows
from coremargin.problems.common.zone import Zone
from coremargin.problems.multiclass.classes_problem import ClassesProblem
from coremargin.problems.multiclass.probe import ClassesProbe, ClassesSummary

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.formats.choices import ClassesStrategy
    from coremargin.problems.multiclass.classes_problem import ClassesState

Array = NDArray[np.float64]

#: A constant this many times longer than the rows that carry the bound is treated separately from them.
LONG = 1024.0
#: Entries of sparse rows that may be filled in for that.
FILLED = 20_000_000
#: The job stops after this many scans in a row that move neither bound.
IDLE_SCANS = 3


@dataclass(frozen=True)
class KeslerMargin(ClassesProblem):
    """Maximum-margin separation of several classes, to a share 1 - epsilon of the best possible margin.

    blocks: tasks of a scan (each sends its own share of rows). strategy: "fast", or an algorithm of the paper.
    """

    blocks: int = 1
    strategy: ClassesStrategy = "fast"

    class_c = None  # of the class: rows have no loss

    @property
    def working_set_rows(self) -> int:
        """How many rows the working set may hold."""
        classes, p = self.shape
        return max(min(4 * classes * p, 1000), self.memory_bytes // (8 * (p + classes)))

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that ``start`` reads: the first one that has labels for an algorithm of the paper."""
        if self.strategy == "fast":
            return super().sample_chunks
        labelled = self.source.scalars().counts[:, list(self.codes)].any(axis=1)
        return [int(chunk) for chunk in np.flatnonzero(labelled)[:1]]

    @property
    def eager(self) -> bool:
        """Any violator: a scan ends with the block that has one."""
        return self.strategy == "any-violator"

    @property
    def memory_need(self) -> MemoryNeed:
        """Memory for the rows that scans may send."""
        classes, p = self.shape
        rows = wanted_working_set_rows(self.source)
        size = rows * 8 * (p + classes)
        return MemoryNeed(self.memory_bytes, size, rows, "candidates", "with less, there are more scans")

    # The algorithm.

    def start(self) -> ClassesState:
        """Solve on a sample of chunks, or on the first row."""
        check_scale(self.source)
        sample, read = self.read_sample() if self.strategy == "fast" else self._first_row()
        state = replace(self.unsolved(), new_rows=len(sample), sample_bytes=read)
        state = self._solve(state, sample.exact())
        limit = min(self.working_set_rows // 2, 2 * rows_sent(self.source, self.working_set_rows))
        lowest = self._lowest(state, limit)
        return replace(state, working_set=state.working_set.take(lowest), rows_held=len(lowest))

    def _first_row(self) -> tuple[ClassRows, int]:
        """The first row with a label and a weight, and the bytes read."""
        read = 0
        for chunk in range(self.sample_chunks[0], self.source.chunks):
            first, stop = self.source.span(chunk)
            found, read = read_labelled_rows(self.source, chunk, self.place), read + stop - first
            if len(found):
                return found.take(np.arange(1)), bytes_read(self.source, read)
        raise zero_weight_error(self.source, self.codes[0])

    def points(self, state: ClassesState) -> Array:
        """The newest hypothesis alone for an algorithm of the paper."""
        return super().points(state) if self.strategy == "fast" else np.ones(1)

    def probe(self, state: ClassesState) -> ClassesProbe:
        """The probe of the next scan."""
        points, most_sent = self.points(state), rows_sent(self.source, self.working_set_rows)
        level = min(state.upper, 1e300)
        if self.eager:  # of rows that rounding leaves undecided, too, one joins
            longest = float(self.source.scalars().max_norm.max())
            error = mc.score_error(self.source.features, longest, state.newest, self.constant)
            level = (1.0 - self.epsilon) * level + 4.0 * error
        return ClassesProbe(
            newest=state.newest,
            best=state.best if len(points) > 1 else None,
            points=points,
            place=self.place,
            constant=self.constant,
            class_c=None,
            keep=max(1, most_sent // self.blocks) if self.strategy == "fast" else 1,
            known=state.working_set.ids,
            level=level,
            dtype=self.source.dtype.name,
            sparse=self.source.sparse,
            chunk_rows=self.source.chunk_rows,
            first_only=self.eager,
        )

    def enough(self, summary: ClassesSummary) -> bool:
        """Whether a violator was found."""
        return self.eager and len(summary.near) > 0

    def update(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """Bounds, working set and hypothesis after a scan."""
        state, summary = self.add_partial(state, summary)
        before = state.lower, state.upper
        state = replace(state, round=state.round + 1, rows_below=int(summary.below[0]), new_rows=0)
        if not self.enough(summary):  # a scan that ended early has not seen all rows: it proves no bound
            state = self._with_lower_bound(replace(state, confusion=summary.confusion), summary)
        if is_certified(state.lower, state.upper, self.epsilon):
            return replace(state, status="certified")
        state = self._add_sent_rows(state, self._joining(state, summary))
        if state.new_rows == 0 or (self.strategy == "fast" and state.zone.idle >= IDLE_SCANS):
            return replace(state, status="stalled")
        state = self._solve(state, state.working_set)
        moved = state.lower > before[0] or state.upper < before[1] * (1.0 - 1e-12)
        return replace(state, zone=replace(state.zone, idle=0 if moved else state.zone.idle + 1))

    def _with_lower_bound(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """The lower bounds of all hypotheses of the scan; the best hypothesis is kept."""
        ends, longest = state, float(self.source.scalars().max_norm.max())
        for k, t in enumerate(self.points(ends)):
            at, smallest = self.at(ends, float(t)), float(summary.smallest[k])
            length = float(np.linalg.norm(at))
            unit = abs(length - 1.0) <= gamma(at.size + 8)
            if not unit:  # scaling to length 1 rounds the entries, which moves the margins of long rows
                smallest -= mc.score_error(self.source.features, longest, at, self.constant)
            lower = mc.lower_bound(smallest, at)
            if lower > state.lower:
                state = replace(state, best=at if unit else at / length, lower=lower)
            if k == 0:
                state = replace(state, lower_now=lower)
        return state

    def _joining(self, state: ClassesState, summary: ClassesSummary) -> ClassRows:
        """Those of the sent rows that join the working set: all, the one with the least margin, or the first."""
        sent = summary.near
        if self.strategy == "fast":
            return sent
        margin, _ = mc.margins(mc.scores_of(sent.rows, state.newest, self.constant), sent.classes)
        return sent.take(np.lexsort([sent.ids] if self.eager else [sent.ids, margin])[:1])

    def _add_sent_rows(self, state: ClassesState, sent: ClassRows) -> ClassesState:
        """Add the rows that the scan sent to the working set; make room first when it is full."""
        working_set = state.working_set
        if len(working_set) + len(sent) > self.working_set_rows and state.upper < state.upper_at_eviction:
            working_set = working_set.take(self._lowest(state, max(0, self.working_set_rows - len(sent))))
            state = replace(state, upper_at_eviction=state.upper)
        new = np.flatnonzero(np.isin(sent.ids, working_set.ids, invert=True))
        grown = ClassRows.concatenate([working_set, sent.take(new).exact()]).in_order()
        return replace(state, working_set=grown, new_rows=len(new), rows_held=len(grown))

    def _lowest(self, state: ClassesState, limit: int) -> NDArray[np.intp]:
        """Positions (increasing) of at most ``limit`` rows of the working set: those of the proof, then the lowest."""
        working_set = state.working_set
        if len(working_set) <= limit:
            return np.arange(len(working_set))
        margin, _ = mc.margins(mc.scores_of(working_set.rows, state.newest, self.constant), working_set.classes)
        in_proof = np.isin(working_set.ids, state.proof.ids)
        order = np.lexsort([working_set.ids, np.where(in_proof, -np.inf, margin)])
        return np.sort(order[: max(limit, int(in_proof.sum()))])

    # Solving the working set.

    def _solve(self, state: ClassesState, rows: ClassRows) -> ClassesState:
        """The newest hypothesis and the upper bound from the working set ``rows``."""
        found, inseparable = self._solve_rows(rows)
        used = np.flatnonzero(found.weights.any(axis=1))
        state = replace(state, working_set=rows, rows_held=len(rows))
        if inseparable or found.upper < state.upper:
            state = replace(state, upper=found.upper, proof=rows.take(used), duals=found.weights[used])
        if not found.at.any():  # rows that a scan has proven to be separable stay so: float64 is exhausted
            return replace(state, status="not_separable" if inseparable and state.lower <= 0 else "stalled")
        return replace(state, newest=found.at / float(np.linalg.norm(found.at)))

    def _solve_rows(self, working_set: ClassRows) -> tuple[KeslerSolution, bool]:
        """The hypothesis (K, d + 1) and the bound of some rows, and whether they are proven to be inseparable.

        When the constant is all that float64 sees of the rows, solve again with rows and constant apart.
        """
        span, tolerance = span_of(working_set.rows, self.constant), min(1e-6, 1e-3 * self.epsilon)
        found = solve_kesler(span.flat, working_set.classes, self.shape[0], tolerance=tolerance)
        used = np.flatnonzero(found.weights.any(axis=1))
        proof, duals = working_set.take(used), found.weights[used]
        found = replace(
            found, at=span.up(found.at), upper=mc.upper_bound(proof.rows, proof.classes, duals, self.constant)
        )
        inseparable = found.status == "zero" and mc.meets(proof.rows, proof.classes, duals, intercept=self.intercept)
        if (
            inseparable
            or not self._is_imprecise(found, proof, duals)
            or working_set.rows.shape[0] * working_set.rows.shape[1] > FILLED
        ):
            return found, inseparable
        rows = dense(working_set.rows)
        apart = solve_apart(rows, working_set.classes, self.shape[0], self.constant, tolerance=tolerance)
        if apart.status == "zero":
            return apart, True
        # Either may be better, and the bound of one may be combined with the hypothesis of the other.
        tried = [apart, found]
        if self._margin_on(working_set, apart.at) <= 0 and self._margin_on(working_set, found.at) <= 0:
            other = self._solve_in_other_units(working_set, rows, tolerance)
            if other.status == "zero" and mc.meets(rows, working_set.classes, other.weights, intercept=self.intercept):
                return other, True
            tried.append(other)
        best = max(tried, key=lambda one: self._margin_on(working_set, one.at))
        bound = min(tried, key=lambda one: one.upper)
        return replace(best, weights=bound.weights, upper=bound.upper), False

    def _solve_in_other_units(self, working_set: ClassRows, rows: Array, tolerance: float) -> KeslerSolution:
        """The solution for features scaled to one size, converted back.

        Whether rows are separable depends neither on the units of their features nor on the constant.
        """
        scales = unit_scales(rows - rows[0] if self.intercept else rows)
        scaled = rows * scales
        last = mc.constant(float(lengths(scaled).max()), intercept=self.intercept)
        found = solve_apart(scaled, working_set.classes, self.shape[0], last, tolerance=tolerance)
        at = found.at * np.append(scales, last / self.constant if self.intercept else 1.0)
        at = at / (float(np.abs(at).max()) or 1.0)
        if not np.isfinite(at).all():
            at = np.zeros_like(at)
        upper = upper_apart(rows, working_set.classes, found.weights, self.constant) if found.weights.any() else np.inf
        return replace(found, at=at / (float(np.linalg.norm(at)) or 1.0), upper=upper)

    def _margin_on(self, working_set: ClassRows, at: Array) -> float:
        """The margin of some rows at a hypothesis (K, d + 1), as a scan would prove it; -inf for a zero hypothesis."""
        if not at.any():
            return -np.inf
        at = at / float(np.linalg.norm(at))
        fast = mc.margins(mc.scores_of(working_set.rows, at, self.constant), working_set.classes)[0]
        error = mc.score_errors(self.source.features, lengths(working_set.rows), at, self.constant)
        close = np.flatnonzero(~(fast - error > float((fast + error).min())))
        exact = mc.exact_scores(take(working_set.rows, close), at, self.constant)
        return float(mc.margins(exact, working_set.classes[close])[0].min())

    def _is_imprecise(self, found: KeslerSolution, proof: ClassRows, duals: Array) -> bool:
        """Whether the solution or its bound may be dominated by rounding of long rows or of the constant."""
        if found.status == "zero":
            return True
        shares = duals.sum(axis=1)
        size = float(shares @ lengths(proof.rows))
        if self.constant <= LONG * size:
            return False
        lost = 4.0 * gamma(duals.size + 8) * (size + self.constant)
        return found.status == "stalled" or lost > 0.1 * self.epsilon * found.upper

    # Warm start.

    def warm_start(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> ClassesState:
        """See ``ClassesProblem``; refused for an algorithm of the paper."""
        if self.strategy != "fast":
            raise CannotWarmStart(f"strategy {self.strategy!r} reads all rows again and again")
        return super().warm_start(arrays, difference)

    def warm_start_state(self, state: ClassesState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """The warm-start state: as much of the working set as may be kept, with rows as stored."""
        dtype = self.source.dtype
        proof = replace(state.proof, rows=state.proof.rows.astype(dtype))

        def with_rows(most: int) -> Mapping[str, NDArray[Any]]:
            rows = state.working_set.take(self._lowest(state, max(len(proof), most)))
            rows = replace(rows, rows=rows.rows.astype(dtype))
            return self.warm_start_arrays(replace(state, working_set=rows, proof=proof))

        return allowance.within(with_rows, most_cached_rows(self.source, allowance))

    def before_changes(self, old: ClassesState, changed: NDArray[np.int64]) -> ClassesState:
        """The state at the best hypothesis with its margin; at another one when rows behind the bound have changed."""
        carried = len(old.proof.unlike(changed)) == len(old.proof)
        if old.status == "not_separable" and carried:
            return replace(old, proof=old.proof.exact())
        if old.best is None or old.status != "certified":
            raise CannotWarmStart("the model was not certified, or rows of its proof have changed")
        working_set = old.working_set.take(old.working_set.unlike(changed)).exact()
        state = replace(
            old,
            status="running",
            newest=old.best,
            best=None,
            lower=-np.inf,
            lower_now=-np.inf,
            working_set=working_set,
            proof=old.proof.exact(),
            zone=Zone(widen=1, idle=0),
            upper_at_eviction=np.inf,
        )
        if carried:
            near = ClassRows.nothing(self.source.features, self.source.dtype, sparse=self.source.sparse)
            summary = replace(
                ClassesSummary.empty(1, self.shape[0], near, (0, 0)),
                smallest=np.array([old.lower]),
                confusion=old.confusion,
                below=np.array([old.rows_below or 0]),
            )
            return replace(state, partial=summary)
        if len(np.unique(working_set.classes)) < self.shape[0]:
            raise CannotWarmStart("one of the classes has no cached row left")
        none = np.arange(0)
        return self._solve(
            replace(state, upper=np.inf, proof=working_set.take(none), duals=old.duals[none]), working_set
        )
