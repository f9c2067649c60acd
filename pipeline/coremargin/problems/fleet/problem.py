"""The fleet: many problems, one scan. A class against the rest, a value of C, a fold of cross-validation each.

Members are ordinary problems on views of the store. A scan reads each chunk once and asks all of them; a member that is
done drops out. Rows that several members want travel once and are held once (state.py); while a member is
solved, and only then, it has a copy of its own. Memory is shared: half of it is for the rows that one scan sends,
a quarter bounds what one member takes of these; pools of hard margins get equal parts, and so do rows that soft margins
hold, for all values of C together, as these want mostly the same; matrices of squared hinges that do not all fit are
done without (problems/soft/wide_steps.py). Members are solved side by side, each on one thread, and taken in their
order, so that the bits do not depend on how many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of
from coremargin.engine.problem import BaseProblem, Round
from coremargin.maths.compact import compact, light
from coremargin.maths.rows import concatenate, from_arrays, take
from coremargin.problems.common.start import Sample, left_out, row_bytes
from coremargin.problems.fleet.evaluator import Ensemble, Evaluator
from coremargin.problems.fleet.probe import FleetProbe, MemberView
from coremargin.problems.fleet.state import FleetState, MemberState, SharedRows, pools, with_rows, without_rows
from coremargin.problems.fleet.summary import FleetSummary, unpacked
from coremargin.problems.hard.problem import HardMargin
from coremargin.problems.soft.problem import SoftMargin

if TYPE_CHECKING:
    from coremargin.engine.result import Result
    from coremargin.maths.rows import Rows
    from coremargin.problems.fleet.members import FleetPlan

    #: Rows of a member that no scan sent: (ids, rows) each.
    _Fresh: TypeAlias = tuple[tuple[NDArray[np.int64], Rows], ...]

A = TypeVar("A")
B = TypeVar("B")
Array = NDArray[np.float64]

#: More members than this are not solved at a time: each has a copy of its rows.
MOST_THREADS = 8


@dataclass(frozen=True)
class Fleet(BaseProblem[FleetState, FleetSummary]):
    """Many problems on one source; memory_bytes: for the rows that their scans send.

    late: True when time is over; members that are not solved by then stay as they are, and can be gone on with.
    """

    plan: FleetPlan
    memory_bytes: int
    late: Callable[[], bool] = bool

    def check(self) -> None:
        """Refuse what any member would refuse."""
        for member in self.plan.members:
            member.problem.check()

    @property
    def least_block_bytes(self) -> int:
        """As much as any member needs."""
        return max(member.problem.least_block_bytes for member in self.plan.members)

    @property
    def sample_chunks(self) -> list[int]:
        """What any member would read."""
        return sorted(set().union(*(member.problem.sample_chunks for member in self.plan.members)))

    @property
    def member_views(self) -> list[MemberView]:
        """How the members see the labels."""
        return [MemberView(member.code, member.fold) for member in self.plan.members]

    # start

    def start(self) -> FleetState:
        """Solve all members on one sample, along C each from the solution before."""
        chunks = self.sample_chunks
        ids, rows, codes, weights = self._read(chunks)
        fold = fold_of(ids, self.plan.folds, self.plan.seed) if self.plan.folds else None

        def solve(chain: list[int]) -> list[tuple[int, MemberState]]:
            member_view, (positive, negative) = self.member_views[chain[0]], self._problem(chain[0]).codes
            shown = member_view.codes(codes, fold)
            mine = np.flatnonzero((shown == positive) | (shown == negative))
            signs = np.where(shown[mine] == positive, 1, -1).astype(np.int8)
            if len(mine) == len(ids):  # the very same rows for all members
                return self._begin(chain, Sample(chunks, ids, rows, signs, weights))
            weigh = None if weights is None else weights[mine]
            return self._begin(chain, Sample(chunks, ids[mine], take(rows, mine), signs, weigh))

        found = dict(entry for chain in side_by_side(solve, self.plan.regularisation_paths) for entry in chain)
        states = [found[number] for number in range(len(found))]
        counted = 4 * self.source.rows if self.plan.folds else 0  # the labels were read once for the counts
        return FleetState(
            round=0, members=tuple(states), shared_rows=self._shared_rows(states, [(ids, rows)]), evaluated=False,
            confusion=self._evaluator(states, final=True).nothing(),
            sample_bytes=Sample(chunks, ids, rows, np.zeros(0, np.int8)).nbytes(self.source) + counted,
        )  # fmt: skip

    def _begin(self, chain: list[int], sample: Sample) -> list[tuple[int, MemberState]]:
        """The states of members that differ in C only, from their rows of the sample."""
        solved: list[tuple[int, MemberState]] = []
        near, shares = None, None
        for number in chain:
            problem = self.plan.members[number].problem
            if isinstance(problem, SoftMargin):
                soft = problem.begin(sample, near, shares, solve=not self.late())
                near, shares = soft.newest, soft.rows.cached_duals / problem.cost if self._all_cached else None
                solved.append((number, without_rows(soft)))
            else:
                solved.append((number, without_rows(problem.begin(sample))))
        return solved

    def _read(self, chunks: list[int]) -> tuple[NDArray[np.int64], Rows, NDArray[np.int32], Array | None]:
        """Ids (m,), rows (m, d), codes (m,) and weights (m,), None: all 1, of rows of some chunks that count."""
        ids, rows, codes, weights = [], [], [], []
        for chunk in chunks:
            x, code = self.source.read(chunk)
            weight = self.source.weights(chunk)
            code = left_out(code, weight)
            mine = np.flatnonzero(code >= 0)
            ids.append(mine + self.source.span(chunk)[0])
            rows.append(light(take(x, mine)) if self._all_cached else take(x, mine))
            codes.append(code[mine])
            if weight is not None:
                weights.append(weight[mine])
        every = np.concatenate(weights) if weights else None
        joined = compact(rows) if self._all_cached else concatenate(rows)
        return np.concatenate(ids), joined, np.concatenate(codes), every

    @property
    def _all_cached(self) -> bool:
        """True where all rows that count are held from the start, in whatever form takes the least memory."""
        return all(isinstance(member.problem, SoftMargin) and member.problem.all_cached for member in self.plan.members)

    def _shared_rows(self, states: Iterable[MemberState], parts: list[tuple[NDArray[np.int64], Rows]]) -> SharedRows:
        if self._all_cached:
            return SharedRows(*parts[0])
        wanted = [pool.ids for state in states for pool in pools(state).values()]
        return SharedRows.bound(np.unique(np.concatenate(wanted)), parts, self.source.dtype)

    # scan

    def running(self, state: FleetState) -> list[int]:
        """Numbers of the members that are not done."""
        every = zip(self.plan.members, state.members, strict=True)
        return [k for k, (member, own) in enumerate(every) if not member.problem.done(own)]  # type: ignore[arg-type]

    def probe(self, state: FleetState) -> FleetProbe:
        """The questions of the members that are not done; with all done, only how they do together."""
        running, members = self.running(state), self.plan.members
        probes = [self._problem(k).probe(self._own(state, k)) for k in running]
        return FleetProbe(
            probes=tuple(probes), member_views=tuple(self.member_views[k] for k in running), folds=self.plan.folds,
            seed=self.plan.seed, most=max(1, self.memory_bytes // 2 // row_bytes(self.source) // self.source.chunks),
            evaluator=self._evaluator(state.members, final=not running or isinstance(members[0].problem, SoftMargin)),
            dtype=self.source.dtype.name, sparse=self.source.sparse,
        )  # fmt: skip

    def _problem(self, number: int) -> Any:
        """Any: its state is of its own kind, and the two go together by their place."""
        return self.plan.members[number].problem

    def _own(self, state: FleetState, number: int) -> MemberState:
        """A member's state, with rows where its question depends on them."""
        own = state.members[number]
        return with_rows(own, state.shared_rows) if isinstance(self._problem(number), HardMargin) else own

    def _evaluator(self, states: Iterable[MemberState], *, final: bool) -> Evaluator:
        """About the final hypotheses of members that are done, and the newest of others; not ``final``: about none.

        A hard margin's offset is chosen after the scan: what a scan of its newest hypothesis says is never final.
        """
        plan = self.plan
        if not final:
            return Evaluator.absent(self.source.features, plan.codes)
        columns = [self.hypothesis(k, state) for k, state in enumerate(states)]
        ensembles = tuple(Ensemble(tuple(numbers), fold) for (fold, _), numbers in plan.ensembles.items())
        return Evaluator(np.column_stack(columns), plan.codes, ensembles)

    def hypothesis(self, number: int, state: MemberState) -> Array:
        """(w, b) (d + 1,): final when the member is done, the newest before."""
        problem = self._problem(number)
        if isinstance(state.newest, np.ndarray) and not problem.done(state):
            return state.newest
        found = problem.result(state)
        return np.append(found.w, found.b)

    def skip(self, state: FleetState) -> NDArray[np.bool_]:
        """Chunks (c,) that no member needs; none when it is only about how they do together."""
        running = self.running(state)
        every = [self._problem(k).skip(state.members[k]) for k in running]
        return np.asarray(np.logical_and.reduce(every)) if every else np.zeros(self.source.chunks, bool)

    def done(self, state: FleetState) -> bool:
        """True when all members are, and it is known how they do together."""
        return state.evaluated

    # update

    def update(self, state: FleetState, summary: FleetSummary) -> FleetState:
        """The members' updates, side by side."""
        running, probe = self.running(state), self.probe(state)
        known = np.union1d(state.shared_rows.ids, summary.row_id)

        def advance(entry: tuple[int, int]) -> tuple[MemberState, _Fresh]:
            place, number = entry
            if self.late():
                return state.members[number], ()
            before = with_rows(state.members[number], state.shared_rows, as_it_is=self._all_cached)
            after = self._problem(number).update(before, summary.part(place))
            fresh = [(pool.ids, np.isin(pool.ids, known, invert=True), pool.rows) for pool in pools(after).values()]
            return without_rows(after), tuple((ids[new], take(rows, new)) for ids, new, rows in fresh if new.any())

        members, parts = (
            list(state.members),
            [(state.shared_rows.ids, state.shared_rows.rows), (summary.row_id, summary.row_x)],
        )
        for number, (after, fresh) in zip(running, side_by_side(advance, enumerate(running)), strict=True):
            members[number] = after
            parts += [(ids, cast("Rows", rows.astype(self.source.dtype))) for ids, rows in fresh]
        state = replace(
            state, round=state.round + 1, members=tuple(members), shared_rows=self._shared_rows(members, parts)
        )
        if self.running(state):
            return state
        final = self._evaluator(members, final=True).hypotheses
        if np.array_equal(final, probe.evaluator.hypotheses):
            return replace(state, evaluated=True, confusion=summary.confusion)
        return state

    def round_of(self, state: FleetState) -> Round:
        """What is told of a state: the bounds are those of the member with the lowest ratio."""
        statuses = [member.status for member in state.members]
        rounds: list[Round] = [self._problem(k).round_of(member) for k, member in enumerate(state.members)]
        worst = next(k for k, member in enumerate(state.members) if member is state.worst)
        more = {
            "members": len(statuses), "members_certified": statuses.count("certified"),
            "members_done": len(statuses) - statuses.count("running"), "worst": self.plan.members[worst].name,
        }  # fmt: skip
        return Round(
            number=state.round, status=state.status, lower=rounds[worst].lower, lower_now=rounds[worst].lower_now,
            upper=rounds[worst].upper, pool_rows=len(state.shared_rows.ids), more=more,
            coreset_rows=sum(each.coreset_rows for each in rounds), new_rows=sum(each.new_rows for each in rounds),
        )  # fmt: skip

    def results(self, state: FleetState) -> list[Result]:
        """What each member's state stands for."""
        return [
            cast("Result", self._problem(k).result(with_rows(member, state.shared_rows, as_it_is=self._all_cached)))
            for k, member in enumerate(state.members)
        ]

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> FleetState:
        """A state from a checkpoint."""
        members = [self._problem(k).restore(own) for k, own in enumerate(unpacked(arrays))]
        return FleetState(
            round=int(arrays["round"]), members=tuple(members),
            shared_rows=SharedRows(arrays["shared_ids"], from_arrays("shared_rows", arrays)),
            evaluated=bool(arrays["evaluated"]),
            confusion=arrays["confusion"], sample_bytes=int(arrays["sample_bytes"]),
        )  # fmt: skip


def side_by_side(work: Callable[[A], B], entries: Iterable[A]) -> list[B]:
    """``work`` of each entry, in order, on a few threads; after an exception nothing new is begun."""
    threads = max(1, min(os.cpu_count() or 1, MOST_THREADS))
    pool = ThreadPoolExecutor(threads, thread_name_prefix="coremargin-solve")
    try:
        return list(pool.map(work, entries))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
