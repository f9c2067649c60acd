"""The soft margin of several classes (Crammer, Singer 2001) by the near-margin method, certified by the duality gap.

A scan at a hypothesis tells for each row which class is the worst for it, its own one included, and how clearly. Rows
that are clear about it are summed up, a sum of c and a vector of K x (d + 1); the others are sent. The sum of both is
below the objective everywhere and equal to it where no row changes sides: its minimum is the dual bound and the next
hypothesis.

The first scan is the read of the store, in two stages: the sample's rows are solved, and asked in memory at what they
say; the rest is asked the same. The more rows a sample has, the less its minimiser loses on all of them: with enough
for epsilon the one read proves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import NothingToGoOnFrom
from coremargin.engine.want import Want
from coremargin.maths import multiclass as mc
from coremargin.maths import soft_margin as soft
from coremargin.maths.margin import gamma, is_certified
from coremargin.problems.common.classes import balanced_c, check_scale, class_weights
from coremargin.problems.common.driver_rows import thin_by_class
from coremargin.problems.common.map_rounding import widen_value_bounds
from coremargin.problems.common.sample import sample_chunks
from coremargin.problems.common.sizes import row_bytes
from coremargin.problems.common.stages import scan_position
from coremargin.problems.common.warm_start import most_cached_rows
from coremargin.problems.common.zone import NearRows, Progress, Zone, has_moved, smallest_positions
from coremargin.problems.multiclass.onward import Onward
from coremargin.problems.multiclass.probe import ClassesProbe, doubt
from coremargin.problems.multiclass.steps import Objective, dual_step, minimise_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.engine.allowance import Allowance
    from coremargin.engine.problem import Round
    from coremargin.problems.common.driver_rows import ClassRows
    from coremargin.problems.multiclass.result import ClassesResult
    from coremargin.problems.multiclass.state import ClassesState
    from coremargin.problems.multiclass.summary import ClassesSummary

Array = NDArray[np.float64]

#: Share of the rows that are sent from one scan, and its least size in bytes, as they are stored. Measured on usps,
#: 7,291 rows for 2,570 numbers of a hypothesis: with 5 % the model's bound is 4 % low, with all rows it is exact.
NEAR_SHARE, NEAR_BYTES_LEAST = 0.1, 16 << 20
#: Of the memory, near rows take this part; where the sample stays, a smaller one.
NEAR_PART = {False: 3 / 8, True: 1 / 4}
#: With fewer rows for each number of a hypothesis, as many are sent as the memory takes.
FEW = 50
#: Rows of the sample for each number of a hypothesis, times epsilon: with as many, its minimiser loses some tenths of
#: epsilon on all rows. Measured on 4e6 x 100 of three classes, 5 % of the labels turned: a sample of 30,000 rows loses
#: 8e-3, of 130,000 1.5e-3, of 400,000 3e-4, in 1, 3 and 8 s, where a scan's model takes 10 to 25 s.
ENOUGH = 1.5
#: But no more than so many rows times K (d + 1), which take ten to twenty seconds, nor than fit into the memory.
SOLVE_COST = 2e8
#: A sample is thinned out where it has more than so many times the rows to be solved.
THIN = 1.3
#: Rows of the sample that stand for the far ones in a step.
SURROGATES = 5_000
#: Bytes for each row and class that a solve takes beside the rows: 123 to 133 were measured with 3, 10 and 26 classes.
PER_ROW = 130
#: The rows of the sample are solved to this share of epsilon: where they are all rows, and where others are left out.
ALL_SHARE, SOME_SHARE = 0.3, 1.0


@dataclass(frozen=True)
class CrammerSinger(Onward):
    """Minimise 1/2 ||V||^2 + sum c_i max_r t_ir until the duality gap is at most epsilon of the value.

    cost: C; class_weight "balanced": times n / (K n_class).
    """

    cost: float = 1.0
    class_weight: Literal["balanced"] | None = None
    sample_bytes: int = 1 << 30  #: at most; the memory has a say, too

    soft = True

    @cached_property
    def totals(self) -> Array:
        """Sums of the sample weights (K,) of the classes: with no weights, their rows."""
        return class_weights(self.source, self.codes)

    @property
    def class_c(self) -> Array:
        """c (K,) of a row of weight 1 of each class."""
        if self.class_weight is None:
            return np.full(len(self.totals), self.cost)
        return balanced_c(self.cost, self.totals)

    @property
    def few(self) -> bool:
        """With few rows for each number of a hypothesis a part of them says little about the others."""
        return self.source.rows <= FEW * self.shape[0] * self.shape[1]

    @property
    def sample_chunks(self) -> list[int]:
        """As many as will be solved; where rows are few as many as the memory takes: all, or some beside near ones."""
        if self.all_cached:
            return list(range(self.source.chunks))
        share = self._most_solved / self.source.rows
        limit = int(share * self.source.nbytes)
        return sample_chunks(self.source, self.codes, share, limit if self.few else min(limit, self.sample_bytes))

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """The sample, and the rest, if there is one."""
        first = len(self.sample_chunks)
        return tuple(size for size in (first, self.source.chunks - first) if size)

    @property
    def reads_again(self) -> bool:
        """Where the sample is not all rows."""
        return not self.all_cached

    @property
    def all_cached(self) -> bool:
        """True where rows are few and the memory holds all of them, with what a solve needs beside."""
        return self.few and self._row_bytes * self.source.rows <= self.memory_bytes

    @property
    def _row_bytes(self) -> float:
        return self.source.nbytes / self.source.rows + PER_ROW * self.shape[0]

    @property
    def want(self) -> Want:
        """All rows where they are few, else the sample, as large as epsilon asks for and solves allow."""
        rows = self.source.rows if self.few else self._solved_with(1 << 60)
        what = "rows" if self.few else "rows of the sample that is solved"
        size = int(rows * self._row_bytes) + 1
        return Want(self.memory_bytes, size, rows, what, "with less, there are more scans")

    @property
    def _most_solved(self) -> int:
        """Rows of the sample that are solved where they are not all rows."""
        return self._solved_with(self.memory_bytes)

    def _solved_with(self, memory_bytes: int) -> int:
        classes, p = self.shape
        if self.few:
            return max(1000, int(memory_bytes / 2 / self._row_bytes))
        wanted = max(ENOUGH * classes * p / self.epsilon, self.sample_share * self.source.rows)
        room = min(SOLVE_COST / (classes * p), memory_bytes / self._row_bytes)
        return int(min(self.source.rows, max(1000, 5 * p, min(wanted, room))))

    def start(self) -> ClassesState:
        """Read the sample, solve it, its C scaled up to all rows, and ask it in memory what the rest will be asked."""
        check_scale(self.source, self.class_c, self.totals)
        every, read = self.sampled()
        state = replace(self._solved(every), sample_bytes=read)
        asked = self.probe(state).in_memory(self.source, self.sample_chunks, every)
        if len(self.stage_chunks) == 1:
            return self.update(state, asked)
        return replace(state, asked=asked, answered=np.array(self.sample_chunks))

    def _solved(self, every: ClassRows) -> ClassesState:
        """The state before any scan, from the rows of a sample."""
        sample, classes = every, self.shape[0]
        if len(sample) > THIN * self._most_solved and not self.all_cached:
            sample = sample.take(thin_by_class(sample.classes, self._most_solved))
        sample = sample.ready()
        sampled = np.bincount(sample.classes, weights=sample.shares, minlength=classes)
        row_c = (self.class_c * self.totals / np.where(sampled > 0, sampled, 1.0))[sample.classes] * sample.shares
        share = ALL_SHARE if self.all_cached else SOME_SHARE
        found = minimise_rows(self._objective(), sample, row_c, tolerance=max(share * self.epsilon, 1e-9))
        duals = found.duals
        own = duals > 0.0
        mixed = np.flatnonzero(own.any(axis=1) & (own.sum(axis=1) + (duals.sum(axis=1) < row_c) > 1))
        if not self.all_cached:  # these duals are of another C
            mixed = mixed[:0]
        return replace(
            self.unsolved(), newest=found.at, pool=sample.take(thin_by_class(sample.classes, SURROGATES)),
            proof=sample.take(mixed).bare(), duals=duals[mixed], pool_rows=len(sample), mu=found.mu,
        )  # fmt: skip

    def probe(self, state: ClassesState) -> ClassesProbe:
        """The question of the next scan."""
        points = self.points(state)
        return ClassesProbe(
            newest=state.newest, best=state.best if len(points) > 1 else None, points=points, place=self.place,
            constant=self.constant, class_c=self.class_c, keep=self._near_rows.of_chunk(state.zone.widen),
            known=np.zeros(0, np.int64), level=0.0, dtype=self.source.dtype.name, sparse=self.source.sparse,
            chunk_rows=self.source.chunk_rows,
        )  # fmt: skip

    @property
    def _near_rows(self) -> NearRows:
        """Rows that are sent: a share of them, where they are few all that memory allows."""
        return NearRows(
            self.source, row_bytes(self.source) + 16 * self.shape[0], share=1.0 if self.few else NEAR_SHARE,
            least=NEAR_BYTES_LEAST, most=self.memory_bytes * NEAR_PART[self.few], grows=not self.few,
        )  # fmt: skip

    def update(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """Bounds and the next hypothesis after a scan."""
        state, summary = self._of_all(state, summary)
        before, value = soft.relative_gap(state.upper, state.lower), state.upper
        state = replace(
            state, round=state.round + 1, confusion=summary.confusion, rows_below=int(summary.below[0]),
            pool_rows=len(summary.near), new_rows=len(summary.near),
        )  # fmt: skip
        rose = float(summary.losses[0]) + _penalty(state.newest) > state.upper
        state = self._best_point(state, summary)
        step, state = dual_step(self._objective(), state, summary)
        gap = soft.relative_gap(state.upper, state.lower)
        state = replace(state, lower_now=state.lower)
        if is_certified(state.lower, state.upper, self.epsilon):
            return replace(state, status="certified", asked=summary)
        same = np.array_equal(step, state.newest)
        found = Progress((before, gap), (value, state.upper), rose=rose, same=same)
        if state.zone.stuck(found, self.epsilon, self._near_rows):
            return replace(state, status="stalled")
        if self._overshot(state) and state.best is not None:
            step = state.best
        return replace(state, newest=step, zone=state.zone.after(found, self.epsilon))

    def before(self, old: ClassesState, hurt: NDArray[np.int64]) -> ClassesState:
        """At the hypothesis of the last scan, with its answer."""
        if old.asked is None:
            raise NothingToGoOnFrom("the model had not come to a proof")
        one = replace(old.asked, losses=old.asked.losses[:1], smallest=old.asked.smallest[:1])
        stay, carry = old.pool.unlike(hurt), old.proof.unlike(hurt)
        return replace(
            old, status="running", best=None, lower=0.0, lower_now=-np.inf, upper=np.inf, zone=Zone(widen=1, idle=0),
            pool=old.pool.take(stay), proof=old.proof.take(carry), duals=old.duals[carry], asked=one,
        )  # fmt: skip

    def kept(self, state: ClassesState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """What ``onward`` takes; nothing where rows are few: each night moves the hypothesis far then."""
        asked = state.asked
        if asked is None or self.few:
            return {}
        return allowance.within(
            lambda rows: self.in_terms(replace(state, asked=self._with_fewer_near(state, asked, rows))),
            most_cached_rows(self.source, allowance),
        )

    def _with_fewer_near(self, state: ClassesState, answer: ClassesSummary, most: int) -> ClassesSummary:
        """What all rows have answered, with so many near rows at most: the clearest of them are summed up."""
        near, probe = answer.near, replace(self.probe(replace(state, best=None)), keep=0)
        if len(near) <= most:
            return answer
        t = mc.violations(mc.scores_of(near.rows, state.newest, self.constant), near.classes)
        stay = np.zeros(len(near), bool)
        stay[smallest_positions(doubt(t), most)] = True
        clear = near.take(np.flatnonzero(~stay))
        more = probe.in_memory(self.source, np.unique(clear.ids // self.source.chunk_rows).tolist(), clear)
        return replace(
            answer, near=near.take(np.flatnonzero(stay)), far_c=answer.far_c + more.far_c,
            far_linear=answer.far_linear + more.far_linear,
        )  # fmt: skip

    def round_of(self, state: ClassesState) -> Round:
        """What is told of a state: the sample and the scan of the rest are stages of one read."""
        stages = len(self.stage_chunks)
        number = state.round + stages - 1
        return replace(super().round_of(state), **scan_position(number, number, stages, going_on=number < stages))

    def _overshot(self, state: ClassesState) -> bool:
        """A zone that memory keeps small led too far: the next one is about the best point of the way there."""
        near, widen = self._near_rows, state.zone.widen
        capped = near.capped(widen) and near.of_chunk(widen) < self.source.chunk_rows
        return capped and has_moved(state.newest, state.best)

    def _best_point(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """The primal bound from the best of the points that the scan summed up, rounded up."""
        best, least = state.best, state.upper
        for k, t in enumerate(self.points(state)):
            at = self.at(state, float(t))
            ends = [state.newest] if t == 1 or state.best is None else [state.newest, state.best]
            value = self._rounded_up(_penalty(at) + float(summary.losses[k]), ends, summary)
            if value < least:
                best, least = at, value
        return replace(state, best=best, upper=least)

    def _rounded_up(self, value: float, ends: list[Array], summary: ClassesSummary) -> float:
        """The value and what float64 may have lost, twice over: in each margin, and in the sums."""
        longest, d = float(self.source.scalars().max_norm.max()), self.source.features
        lost = float(summary.total_c[0]) * sum(mc.score_error(d, longest, end, self.constant) for end in ends)
        return value * (1.0 + 4.0 * self.sum_error) + 4.0 * lost

    def claimed(self, found: ClassesResult) -> ClassesResult:
        """The same of a value."""
        total = float(self.class_c @ self.totals)
        return widen_value_bounds(found, self.source, self.epsilon, lambda margin, _: margin * total)

    def _objective(self) -> Objective:
        longest = float(self.source.scalars().max_norm.max()) + self.constant
        return Objective(self.shape, self.class_c, self.constant, longest, self.sum_error, self.epsilon)

    @property
    def sum_error(self) -> float:
        """Relative error of a sum of non-negative terms over all rows or entries: within chunks, then over chunks."""
        return gamma(self.source.chunk_rows + self.source.chunks + self.shape[0] * self.shape[1] + 64)


def _penalty(at: Array) -> float:
    """1/2 ||V||^2."""
    return 0.5 * float((at * at).sum())
