"""Fleets whose rows fit in no form: members go over row partitions, one at a time, in step."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.svm import SVC, LinearSVC
from wide_kit import texts

from coremargin.data.arrays import ArraySource
from coremargin.data.folds import fold_of
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import OutOfTime
from coremargin.engine.plan import plan_blocks
from coremargin.engine.scan import run_scan
from coremargin.errors import UsageError
from coremargin.maths.margin import is_certified
from coremargin.maths.stopping import stoppable
from coremargin.problems.fleet import fleet as fleet_module
from coremargin.problems.fleet.make import problem_of
from coremargin.problems.fleet.member_kinds import DUAL_BYTES, PartitionedMargins, SoftMargins
from coremargin.problems.fleet.spec import FleetJob
from coremargin.problems.soft import problem as soft_problem
from coremargin.problems.soft.block_minimisation import BlockMinimisation, BlockProbe
from coremargin.spec import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coremargin.problems.fleet.fleet import Fleet, FleetState

ROWS = 600


@pytest.fixture(autouse=True)
def _no_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sums of 121 x 121 numbers be too many."""
    monkeypatch.setattr(soft_problem, "CURVES", 10_000)


def three(seed: int, weights: np.ndarray | None = None, filled: int = 20) -> tuple[Any, np.ndarray, ArraySource]:
    """Texts of three classes, their codes, and a source in twelve chunks."""
    X, _ = texts(seed, ROWS, filled=filled)
    rng = np.random.default_rng(seed)
    codes = (X @ rng.standard_normal((120, 3))).argmax(axis=1)
    codes[:3] = 0, 1, 2
    turned = rng.random(ROWS) < 0.05
    codes[turned] = rng.integers(0, 3, int(turned.sum()))
    source = ArraySource(X, np.array(["a", "b", "c"])[codes], weights=weights, chunk_rows=50)
    return X.astype(np.float64), codes, source


def fleet_on(source: ArraySource, memory: int = 120_000, **options: Any) -> Fleet:
    """All classes and two values of C, unless options say otherwise."""
    given = {"classes": "ovr", "loss": "hinge", "C": (0.1, 0.3), "epsilon": 1e-2, "memory": memory, "sample": 0.1}
    fleet = problem_of(FleetJob(**{"store": "s", "out": "m"} | given | options), source)
    assert isinstance(fleet.kind, PartitionedMargins)
    fleet.check()
    return fleet


def chunks_of(fleet: Fleet, state: FleetState) -> int:
    """How many chunks the next scan reads."""
    return int(np.count_nonzero(~fleet.skip(state)))


def step(fleet: Fleet, state: FleetState) -> FleetState:
    """A scan, and what follows."""
    blocks = plan_blocks(fleet.source, 2_000, skip=fleet.skip(state))
    return fleet.update(state, run_scan(InProcess(), fleet.source, fleet.probe(state), blocks))


def run(fleet: Fleet, look: Callable[[FleetState, FleetState], None] = lambda *_: None) -> FleetState:
    """The last state; look: at each state and the next."""
    state = fleet.start()
    while not fleet.done(state):
        assert state.round < 500
        after = step(fleet, state)
        look(state, after)
        state = after
    return state


@pytest.mark.specimens(1)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_all_members_are_proven_and_agree_with_scikit_learn(loss: str, intercept: bool) -> None:
    """Each member is certified, its value is that of its hypothesis, and another solver's lies within its gap."""
    X, codes, source = three(0)
    fleet = fleet_on(source, loss=loss, intercept=intercept)
    state = run(fleet)
    assert state.status == "certified"
    assert state.evaluated
    for member, found in zip(fleet.plan.members, fleet.results(state), strict=True):
        sign, cost = np.where(codes == member.code, 1, -1), float(member.cost or 0)

        def value(w: np.ndarray, b: float, sign: Any = sign, cost: float = cost) -> float:
            xi = np.maximum(0, 1 - sign * (X @ w + b))
            return float(0.5 * w @ w + cost * (xi if loss == "hinge" else xi**2).sum())

        assert found.lower is not None
        assert is_certified(found.lower, found.upper, 1e-2)
        assert found.upper == pytest.approx(value(found.w, found.b), rel=1e-9)
        if loss == "hinge" and intercept:
            peer: Any = SVC(kernel="linear", C=cost, tol=1e-7).fit(X.toarray(), sign)
        elif not intercept:
            peer = LinearSVC(loss=loss, C=cost, fit_intercept=False, tol=1e-8, max_iter=100_000).fit(X.toarray(), sign)
        else:
            continue  # LIBLINEAR's intercept has a price
        theirs = value(np.ravel(peer.coef_), float(np.ravel(peer.intercept_)[0]))
        assert found.lower <= theirs * (1 + 1e-9)
        assert found.upper <= theirs * 1.0102


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_members_go_in_step_and_a_pass_is_one_scan(loss: str) -> None:
    """No round reads more than one segment or, for a proof, all rows; told is a scan for each time all were read."""
    _, _, source = three(1)
    fleet = fleet_on(source, loss=loss)
    segments = [len(chunks) for chunks in fleet.plan.members[0].problem.segments]  # type: ignore[union-attr]
    assert len(segments) > 2
    read = [0]

    def look(before: FleetState, after: FleetState) -> None:
        read[0] += chunks_of(fleet, before)
        assert chunks_of(fleet, before) in (*segments, source.chunks)
        told = fleet.round_of(after)
        assert told.finished == (read[0] % source.chunks == 0)
        assert told.number == -(-read[0] // source.chunks)
        assert (told.part == 0) == told.finished
        assert "part" not in told.more

    state = run(fleet, look)
    assert state.status == "certified"
    assert read[0] == source.chunks * state.scans


def test_the_next_part_does_not_depend_on_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates of a fleet and of its members ask nobody what people are told, whose words may change."""
    _, _, source = three(1)
    fleet = fleet_on(source)
    untold = replace(fleet)

    def tell(*_: Any) -> Any:
        raise AssertionError("what people are told decides")

    state, other, parts = fleet.start(), fleet.start(), []
    for _ in range(4):
        after = step(fleet, state)
        parts.append(fleet.round_of(after).part)
        with monkeypatch.context() as patch:
            patch.setattr(BlockMinimisation, "round_of", tell)
            other = step(untold, other)
        assert other.scans == after.scans
        state = after
    assert parts[:2] == [1, 2]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_rows_are_sent_once_and_memory_bounds_them_and_those_held(loss: str) -> None:
    """What is sent, and what is held, is at most as many rows for all members as one alone may have of each."""
    _, _, source = three(2)
    fleet = fleet_on(source, loss=loss)
    job = fleet.plan.members[0].problem
    room = job.memory_bytes // 3 // (job.row_bytes - 8)
    state, shared = fleet.start(), 0
    while not fleet.done(state):
        blocks = plan_blocks(source, 2_000, skip=fleet.skip(state))
        summary = run_scan(InProcess(), source, fleet.probe(state), blocks)
        assert len(np.unique(summary.row_id)) == len(summary.row_id) <= room
        if any(type(probe) is BlockProbe for probe in fleet.probe(state).probes):
            shared += sum(len(part.row_id) for part in summary.parts) - len(summary.row_id)
        assert len(state.shared_rows) <= room
        cached = [member.rows.cached.ids for member in state.members]  # type: ignore[union-attr]
        assert np.array_equal(np.unique(np.concatenate(cached)), state.shared_rows.ids)
        state = fleet.update(state, summary)
    assert shared > 0


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_killed_at_every_step_it_goes_on_with_the_same_bits(loss: str) -> None:
    """State and summary written to arrays and read back after each scan, on another number of threads."""
    _, _, source = three(3)
    fleet = fleet_on(source, loss=loss)
    state = fleet.start()
    while not fleet.done(state):
        other = fleet.restore(state.to_arrays())
        blocks = plan_blocks(source, 2_000, skip=fleet.skip(other))
        probe = fleet.probe(other)
        answer = probe.from_arrays(run_scan(InProcess(3), source, probe, blocks).to_arrays())
        state, again = step(fleet, state), fleet.update(other, answer)
        one, two = state.to_arrays(), again.to_arrays()
        assert one.keys() == two.keys()
        assert all(one[name].tobytes() == two[name].tobytes() for name in one)
    assert state.status == "certified"


def test_folds_and_weights() -> None:
    """Rows of a fold, and those of weight 0, have no dual; values are those of the rows that count; all are judged."""
    weights = np.random.default_rng(4).choice([0.0, 0.5, 2.0], ROWS)
    X, codes, source = three(4, weights)
    fleet = fleet_on(source, 200_000, C=0.1, folds=2)
    state = run(fleet)
    assert state.status == "certified"
    fold = fold_of(np.arange(ROWS), 2, 0)
    for member, own, found in zip(fleet.plan.members, state.members, fleet.results(state), strict=True):
        row_c = 0.1 * np.where(fold == member.fold, 0.0, weights)
        assert (own.block_pass.duals[row_c == 0] == 0).all()  # type: ignore[union-attr]
        sign = np.where(codes == member.code, 1, -1)
        xi = np.maximum(0, 1 - sign * (X @ found.w + found.b))
        assert found.upper == pytest.approx(0.5 * found.w @ found.w + row_c @ xi, rel=1e-9)
    counted = [np.count_nonzero(weights), *(np.count_nonzero(weights[fold == k]) for k in (0, 1))]
    assert [int(table.sum()) for table in state.confusion] == counted


def test_more_duals_than_memory_are_refused() -> None:
    """Before anything is read, with how much would do; with that much the fleet is taken."""
    _, _, source = three(5)
    needed = DUAL_BYTES * ROWS * 6 * 4 // 3
    with pytest.raises(UsageError, match=r"memory: expected at least .*600 rows for each of 6 models.*fewer classes"):
        fleet_on(source, needed - 100, loss="squared_hinge")
    fleet_on(source, needed + 100, loss="squared_hinge")


@pytest.mark.parametrize("least", ["all rows", "sums"])
def test_what_is_asked_for_is_the_least_that_would_do(least: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all rows, or d x d sums, take less than dual weights do, that much is asked for, and is enough."""
    monkeypatch.setattr(soft_problem, "LEAST_FOR_SUMS", 0)
    X, y = texts(5, ROWS, filled=3 if least == "all rows" else 40)
    source = ArraySource(X, y, chunk_rows=50)
    costs = tuple(0.1 * k for k in range(1, 7 if least == "all rows" else 37))

    def fleet(memory: int) -> Fleet:
        return problem_of(FleetJob(store=Path("s"), out=Path("m"), loss="hinge", C=costs, memory=memory), source)

    job = fleet(10_000).plan.members[0].problem
    enough = job.all_bytes if least == "all rows" else job.sums_bytes
    with pytest.raises(UsageError, match=f"expected at least {format_size(enough)}, found"):
        fleet(enough - 1).check()
    fleet(enough).check()
    assert enough < DUAL_BYTES * ROWS * len(costs) * 4 // 3


def test_sparse_hinges_whose_duals_do_not_fit_are_solved_by_sums() -> None:
    """With room for a part of the rows and no duals all models are certified, and never has one more rows than room."""
    rng = np.random.default_rng(7)
    rows, costs = 3000, (0.03, 0.1, 0.3)
    X = (rng.random((rows, 30)) < 0.2).astype(np.float32) * rng.choice([0.5, 1.0], (rows, 30)).astype("f4")
    codes = (X @ rng.standard_normal((30, 3)) + 0.3 * rng.standard_normal((rows, 3))).argmax(axis=1)
    codes[:3] = 0, 1, 2
    source = ArraySource(csr_array(X), np.array(["a", "b", "c"])[codes], chunk_rows=150)
    job = FleetJob(store=Path("s"), out=Path("m"), classes="ovr", loss="hinge", C=costs, epsilon=1e-2, memory=400_000)
    fleet = problem_of(job, source)
    fleet.check()
    assert isinstance(fleet.kind, SoftMargins)
    state = fleet.start()
    while not fleet.done(state):
        assert state.round < 40
        assert all(probe.keep * source.chunks * 31 * 8 <= job.memory / 4 for probe in fleet.probe(state).probes)
        state = step(fleet, state)
    assert state.status == "certified"
    for member, found in zip(fleet.plan.members, fleet.results(state), strict=True):
        sign = np.where(codes == member.code, 1, -1)
        xi = np.maximum(0, 1 - sign * (X.astype(np.float64) @ found.w + found.b))
        assert found.upper == pytest.approx(0.5 * found.w @ found.w + float(member.cost or 0) * xi.sum(), rel=1e-9)
        peer = SVC(kernel="linear", C=float(member.cost or 0), tol=1e-6).fit(X, sign)
        theirs = np.maximum(0, 1 - sign * (X @ peer.coef_[0] + peer.intercept_[0])).sum() * float(member.cost or 0)
        assert found.lower is not None
        assert found.lower <= theirs + 0.5 * float(peer.coef_[0] @ peer.coef_[0])
        assert is_certified(found.lower, found.upper, 1e-2)


def test_at_the_time_limit_a_partition_counts_as_not_read() -> None:
    """Time that ends between a read and its solves leaves no member behind; with time all members take the segment."""
    _, _, source = three(6)
    fleet = fleet_on(source)
    state, left = fleet.start(), itertools.count(3, -1)
    answer = run_scan(InProcess(), source, fleet.probe(state), plan_blocks(source, 2_000, skip=fleet.skip(state)))

    def check() -> None:
        if next(left) <= 0:
            raise OutOfTime

    with stoppable(check), pytest.raises(OutOfTime):
        fleet.update(state, answer)
    assert {member.round for member in fleet.update(state, answer).members} == {1}


def test_no_more_members_are_solved_at_a_time_than_memory_has_copies_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start and later: three copies of the rows of each have room beside all duals, or one is solved alone."""
    _, _, source = three(8)
    asked: list[int] = []

    def one_by_one(work: Callable[[Any], Any], entries: Iterable[Any], most: int) -> list[Any]:
        asked.append(most)
        return [work(entry) for entry in entries]

    monkeypatch.setattr(fleet_module, "map_in_threads", one_by_one)
    for memory in (120_000, 150_000, 190_000):
        fleet = fleet_on(source, memory, sample=0.05)
        assert isinstance(fleet.kind, PartitionedMargins)
        state = fleet.start()
        step(fleet, state)
        room, each = memory - DUAL_BYTES * ROWS * 6, 3 * 20 * 12
        held = source.chunk_rows * len(fleet.sample_chunks)
        assert asked[-2] == max(1, min(8, room // (each * held)))
        assert 1 <= asked[-1] <= max(1, room // (each * len(state.shared_rows)))
    assert max(asked) > 1


def test_a_proof_follows_a_pass_when_half_of_the_members_at_work_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve members that are all at work or, later, of fewer: with one less than half there is another pass."""
    _, _, source = three(9, filled=40)
    fleet = fleet_on(source, 240_000, C=(0.03, 0.1, 0.3, 1.0))
    assert len(fleet.plan.members) == 12
    due, passes = BlockMinimisation.due, 0

    def look(before: FleetState, after: FleetState) -> None:
        nonlocal passes
        running = fleet.running(before)
        own = [fleet.plan.members[k].problem for k in running]
        if passes > 3 or own[0].proving(before.members[running[0]]):  # type: ignore[arg-type, union-attr]
            return
        proving = [problem.proving(after.members[k]) for problem, k in zip(own, running, strict=True)]  # type: ignore[arg-type, union-attr]
        if fleet.round_of(after).finished:
            least = -(-len(running) // 2)
            for wanted in (0, least - 1, least, len(running)):
                chosen = {id(problem) for problem in own[:wanted]}
                monkeypatch.setattr(BlockMinimisation, "due", lambda self, _, chosen=chosen: id(self) in chosen)
                again = step(fleet, before)
                found = [problem.proving(again.members[k]) for problem, k in zip(own, running, strict=True)]  # type: ignore[arg-type, union-attr]
                assert found == [wanted >= least] * len(running)
            monkeypatch.setattr(BlockMinimisation, "due", due)
            passes += 1
        assert len(set(proving)) == 1

    assert run(fleet, look).status == "certified"
    assert passes > 1


def test_a_fleet_of_one_is_certified() -> None:
    """Two classes, one value of C, more sparse rows than memory holds."""
    X, y = texts(0)
    fleet = fleet_on(ArraySource(X, y, chunk_rows=50), 60_000, C=0.1)
    assert len(fleet.plan.members) == 1
    assert type(fleet.plan.members[0].problem) is BlockMinimisation
    state = run(fleet)
    assert state.status == "certified"
    assert is_certified(state.lower, state.upper, 1e-2)
