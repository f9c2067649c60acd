"""Soft margins of a fleet that are read in stages: one read proves all members, each as it would be proven alone."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data.arrays import ArraySource
from coremargin.data.folds import fold_of
from coremargin.data.relabelled import Relabelled
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import OutOfTime
from coremargin.engine.plan import plan_blocks
from coremargin.engine.scan import run_scan
from coremargin.maths.margin import is_certified
from coremargin.maths.stopping import stoppable
from coremargin.problems.fleet import make
from coremargin.problems.fleet.fleet import Fleet, FleetState
from coremargin.problems.fleet.make import problem_of
from coremargin.problems.fleet.member_kinds import SoftMargins
from coremargin.problems.fleet.plan import fleet_plan
from coremargin.problems.registry import new_job
from coremargin.problems.soft import near_margin
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.problems.soft.probe import StageProbe

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.problems.soft.state import SoftState

COSTS, EPSILON = (0.1, 1.0), 0.1


@pytest.fixture
def little_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all rows of a small store are its sample."""
    monkeypatch.setattr(make, "SoftMargin", partial(SoftMargin, sample_bytes=200_000))


@pytest.fixture
def few_cached_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all rows of a small store are cached."""
    monkeypatch.setattr(near_margin, "NEAR_BYTES_LEAST", 40_000)


def blobs(rng: np.random.Generator, *, some: float = 0.0, weights: bool = False, sparse: bool = False) -> ArraySource:
    """12,000 rows of three classes that overlap, in 240 chunks; a share without label."""
    y = rng.integers(0, 3, 12_000)
    X = (rng.standard_normal((12_000, 4)) + 1.5 * np.eye(3, 4)[y]).astype(np.float32)
    labels = np.array(["x", "y", "z"], object)[y]
    labels[rng.random(len(y)) < some] = None
    given = rng.choice([0.0, 0.5, 1.0, 2.0], len(y)) if weights else None
    return ArraySource(csr_array(X) if sparse else X, labels, chunk_rows=50, weights=given)


def staged_fleet(
    source: Any, loss: str, *, epsilon: float = 1e-2, memory: int = 1 << 20, first: int = 10, folds: int = 0
) -> Fleet:
    """All classes, values of C and folds; first: chunks in the first stage."""

    def make(view: Any, cost: Any) -> SoftMargin:
        return SoftMargin(
            view,
            epsilon,
            LOSSES[cast("Any", loss)],
            cost,
            sample_share=first / 240,
            sample_bytes=800 * first,
            memory_bytes=memory,
            sharing=6 * (1 + folds),
            in_stages=True,
        )

    plan = fleet_plan(source, make, against_rest=True, costs=COSTS, folds=folds, seed=0).with_same_stages()
    return Fleet(source, plan, SoftMargins(evaluated_in_stages=not folds), memory)


def noisy(rng: np.random.Generator) -> ArraySource:
    """100,000 rows of two classes that overlap, in 400 chunks."""
    y = rng.integers(0, 2, 100_000)
    X = (rng.standard_normal((100_000, 4)) + np.eye(2, 4)[y]).astype(np.float32)
    return ArraySource(X, y, chunk_rows=250)


def run(fleet: Fleet, executor: Any = None, seen: list[FleetState] | None = None) -> tuple[FleetState, int]:
    """The last state, and how many chunks were read."""
    state, read = fleet.start(), len(fleet.sample_chunks)
    while not fleet.done(state):
        skip = fleet.skip(state)
        read += int(np.count_nonzero(~skip))
        blocks = plan_blocks(fleet.source, 3_000, skip=skip)
        state = fleet.update(state, run_scan(executor or InProcess(), fleet.source, fleet.probe(state), blocks))
        if seen is not None:
            seen.append(state)
        assert state.round < 60
    return state, read


def bits(state: FleetState) -> dict[str, tuple[Any, ...]]:
    """All of a state, comparable."""
    return {name: (values.shape, values.tobytes()) for name, values in state.to_arrays().items()}


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("hinge", {}),
        ("hinge", {"some": 0.1}),
        ("hinge", {"weights": True}),
        ("squared_hinge", {}),
        ("squared_hinge", {"some": 0.1, "weights": True}),
        pytest.param("squared_hinge", {"sparse": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_one_read_proves_all_members(rng: np.random.Generator, loss: str, options: dict[str, bool]) -> None:
    """Each chunk is read once, hardly any again; each member is certified, and the bounds of the same problem alone,
    which is solved more closely, agree.
    """
    source = blobs(rng, **options)
    fleet = staged_fleet(source, loss, epsilon=EPSILON)
    assert all(member.problem.fits_stages for member in fleet.plan.members)
    state, read = run(fleet)
    assert {member.status for member in state.members} == {"certified"}
    assert read <= 1.15 * source.chunks
    for member, own in zip(fleet.plan.members, state.members, strict=True):
        problem = cast("SoftMargin", member.problem)
        alone = replace(problem, source=Relabelled(source, cast("int", member.code)), sharing=1, memory_bytes=1 << 22)
        single, _ = run_alone(replace(alone, epsilon=1e-4))
        assert is_certified(own.lower, own.upper, EPSILON)
        assert own.lower <= single.upper
        assert single.lower <= own.upper


@pytest.mark.parametrize("loss", ["hinge", pytest.param("squared_hinge", marks=pytest.mark.slow)])
def test_with_folds_one_read_proves_and_one_counts(rng: np.random.Generator, loss: str) -> None:
    """Members of folds are proven by the first read, each on its own rows, and the held-out rows are counted by a scan
    with what they ended with, not with what they were on the way.
    """
    source = blobs(rng, some=0.1, weights=True)
    fleet = staged_fleet(source, loss, epsilon=EPSILON, memory=1 << 22, folds=2)
    state, read = run(fleet)
    assert {member.status for member in state.members} == {"certified"}
    assert read <= 2.4 * source.chunks  # few rows for so many members: some stages are looked at twice
    assert (state.evaluated, state.as_read) == (True, False)
    final = fleet._evaluator(state.members, final=True)
    expected = final.no_rows()
    for chunk in range(source.chunks):
        rows, codes = source.read(chunk)
        counted = np.where(cast("Any", source.weights(chunk)) > 0, codes, -1)
        values = cast("Any", rows @ final.hypotheses[:-1] + final.hypotheses[-1]).T
        expected += final.confusion(values, counted, fold_of(np.arange(*source.span(chunk)), 2, 0))
    assert np.array_equal(state.confusion, expected)
    for member, own in zip(fleet.plan.members, state.members, strict=True):
        single, _ = run_alone(replace(cast("Any", member.problem), sharing=1, epsilon=1e-4))
        assert own.lower <= single.upper
        assert single.lower <= own.upper


def run_alone(problem: SoftMargin) -> tuple[SoftState, int]:
    """The last state, and how many questions were asked."""
    state = problem.start()
    while state.status == "running":
        blocks = plan_blocks(problem.source, 3_000, skip=problem.skip(state))
        state = problem.update(state, cast("Any", run_scan)(InProcess(), problem.source, problem.probe(state), blocks))
        assert state.round < 60
    return state, state.round


def test_members_that_there_was_no_time_for_are_asked_again(rng: np.random.Generator) -> None:
    """A stage that nobody solved is read again, its rows are counted once, and the bits are those of a run in time."""
    source = blobs(rng)
    fleet = staged_fleet(source, "squared_hinge")
    alone, _ = run(fleet)
    begun = fleet.start()
    blocks = plan_blocks(source, 3_000, skip=fleet.skip(begun))
    answer = run_scan(InProcess(), source, fleet.probe(begun), blocks)

    def check() -> None:
        raise OutOfTime

    with stoppable(check):
        after = fleet.update(begun, answer)
    assert all(one is other for one, other in zip(begun.members, after.members, strict=True))
    state = after
    while not fleet.done(state):
        blocks = plan_blocks(source, 3_000, skip=fleet.skip(state))
        state = fleet.update(state, run_scan(InProcess(), source, fleet.probe(state), blocks))
    assert state.as_read
    assert np.array_equal(state.confusion, alone.confusion)
    assert [one.to_arrays()["newest"].tobytes() for one in state.members] == [
        one.to_arrays()["newest"].tobytes() for one in alone.members
    ]


@pytest.mark.parametrize(("loss", "distinct"), [("hinge", 8), ("squared_hinge", 60)])
def test_a_question_about_some_rows_counts_not_all(loss: str, distinct: int) -> None:
    """Where many rows are equal a second look at a few stages may be made with the final hypotheses."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 12_000)
    X = (rng.standard_normal((12_000, 4)) + 1.5 * np.eye(3, 4)[y]).astype(np.float32)
    few = np.repeat(np.arange(distinct), 12_000 // distinct)
    source = ArraySource(X[few], np.array(["x", "y", "z"], object)[y[few]], chunk_rows=50)
    state, read = run(staged_fleet(source, loss, epsilon=0.1))
    assert source.chunks < read < 2 * source.chunks
    assert state.evaluated
    assert state.confusion.sum(axis=(1, 2)).tolist() == [12_000, 12_000]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_rows_are_counted_when_they_are_read(rng: np.random.Generator, loss: str) -> None:
    """Who is given which class is counted once for each row that counts, near what the models decide; this is told."""
    source = blobs(rng, some=0.1, weights=True)
    fleet = staged_fleet(source, loss)
    state, _ = run(fleet)
    assert (state.evaluated, state.as_read) == (True, True)
    final = sum(
        fleet._evaluator(state.members, final=True).evaluate(rows, np.where(source.weights(c) > 0, codes, -1))  # type: ignore[operator]
        for c in range(source.chunks)
        for rows, codes in (source.read(c),)
    )
    assert state.confusion.shape == np.shape(final) == (2, 3, 3)
    assert np.array_equal(state.confusion.sum(axis=2), np.sum(cast("Any", final), axis=2))
    assert np.abs(state.confusion - final).sum() < 0.05 * 2 * state.confusion.sum()


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    ("loss", "folds"), [("hinge", 0), ("squared_hinge", 0), pytest.param("hinge", 2, marks=pytest.mark.slow)]
)
def test_the_same_bits_in_any_order_and_after_any_break(rng: np.random.Generator, loss: str, folds: int) -> None:
    """Threads and checkpoints change nothing: each state is what its arrays say."""
    source, states = blobs(rng), list[FleetState]()
    fleet = staged_fleet(source, loss, epsilon=1e-3, folds=folds)
    state, _ = run(fleet, seen=states)
    with InProcess(threads=2) as executor:
        other, _ = run(staged_fleet(source, loss, epsilon=1e-3, folds=folds), executor)
    assert bits(state) == bits(other)
    for place, before in enumerate(states[:-1]):
        again = fleet.restore(before.to_arrays())
        assert bits(again) == bits(before)
        blocks = plan_blocks(source, 3_000, skip=fleet.skip(again))
        after = fleet.update(again, run_scan(InProcess(), source, fleet.probe(again), blocks))
        assert bits(after) == bits(states[place + 1])


@pytest.mark.usefixtures("few_cached_rows")
def test_what_is_read_again_is_asked_for_those_who_need_it(rng: np.random.Generator) -> None:
    """Members that are proven are asked nothing more, and each of the others about chunks of its own."""
    source, states = blobs(rng), list[FleetState]()
    fleet = staged_fleet(source, "hinge", epsilon=0.02)
    state, read = run(fleet, seen=states)
    assert {member.status for member in state.members} == {"certified"}
    assert source.chunks < read
    seen = 0
    for before, after in itertools.pairwise(states):
        running = fleet.running(before)
        probes = fleet.probe(before).probes
        assert len(probes) == len(running)
        for number in set(range(len(state.members))) - set(running):
            assert after.members[number] is before.members[number]
        asked = [set(probe.chunks.tolist()) for probe in probes if isinstance(probe, StageProbe)]
        if before.round + 1 >= before.members[0].stages and len(asked) == len(probes):
            assert set().union(*asked) == set(np.flatnonzero(~fleet.skip(before)).tolist())
            seen += len({frozenset(chunks) for chunks in asked}) > 1
    assert seen


def test_members_in_scans_and_in_stages_query_together(rng: np.random.Generator) -> None:
    """A scan of all rows and a second look at a stage are one question; each member gets the answer to its own."""
    source = blobs(rng)
    fleet = staged_fleet(source, "squared_hinge", epsilon=1e-3)
    problem = cast("SoftMargin", fleet.plan.members[0].problem)
    before = fleet.start()
    again = before.members[1]  # still in its stages, while the first one asks about all rows
    mixed = replace(before, members=(replace(before.members[0], reading=None, status="running"), again))
    few = replace(fleet, plan=replace(fleet.plan, members=fleet.plan.members[:2]))
    probe = few.probe(mixed)
    found = run_scan(InProcess(), source, probe, plan_blocks(source, 3_000, skip=few.skip(mixed)))
    view = Relabelled(source, cast("int", fleet.plan.members[0].code))
    own = run_scan(InProcess(), view, problem.probe(mixed.members[0]), plan_blocks(source, 3_000))
    told = cast("Any", found.part(0))
    assert np.allclose(told.losses, own.losses, rtol=1e-12)
    assert told.total_c.tolist() == own.total_c.tolist()
    stage = cast("SoftMargin", fleet.plan.members[1].problem)
    skip = stage.skip(again)
    alone = cast("Any", run_scan(InProcess(), view, stage.probe(again), plan_blocks(source, 3_000, skip=skip)))  # type: ignore[arg-type]
    part = cast("Any", found.part(1))
    for name in ("value", "duals", "total_c", "ring_weight", "below", "row_id"):
        assert np.allclose(getattr(part, name), getattr(alone, name), rtol=1e-9), name


def test_the_cached_rows_of_all_members_fit(rng: np.random.Generator) -> None:
    """With little memory members send no more rows together than there is room for."""
    source = blobs(rng)
    fleet = staged_fleet(source, "hinge", memory=200_000)
    state, near = fleet.start(), list[Any]()
    while state.round + 1 < state.members[0].stages:
        near = [cast("Any", own.reading).near.ids for own in state.members]
        blocks = plan_blocks(source, 3_000, skip=fleet.skip(state))
        state = fleet.update(state, run_scan(InProcess(), source, fleet.probe(state), blocks))
    room = cast("SoftMargin", fleet.plan.members[0].problem)._first_read.room
    assert 0.1 * room < len(np.unique(np.concatenate(near))) <= 1.1 * room


@pytest.mark.usefixtures("few_cached_rows")
def test_stages_pay_where_solving_costs_less_than_reading(rng: np.random.Generator) -> None:
    """The more problems share a read, the more rows there must be for the rows that each of them has at home; hinges
    that differ in C and folds only have nearly the same.
    """
    source = blobs(rng)
    for loss, most in (("hinge", 8), ("squared_hinge", 1)):
        problem = cast("SoftMargin", staged_fleet(source, loss).plan.members[0].problem)
        at_home = problem._first_read.near_rows * 4 / 12_000
        some, many = (replace(problem, sharing=int(factor * near_margin.PAYS / at_home)) for factor in (0.9, 1.2))
        assert (some.pays_together(alike=False), many.pays_together(alike=False)) == (True, False)
        assert many.pays_together(alike=True) == (most > 1)
        assert not replace(many, sharing=most * many.sharing).pays_together(alike=True)


def in_stages(source: Any, **options: Any) -> bool:
    """How the members of a job are read first."""
    fleet = problem_of(cast("Any", new_job(store="rows", out="m", memory=1 << 20, **options)), source)
    assert isinstance(fleet.kind, SoftMargins)
    return bool(fleet.stage_chunks)


@pytest.mark.usefixtures("little_sample")
def test_folds_are_read_in_stages_unless_one_scan_proves_and_counts(rng: np.random.Generator) -> None:
    """With a sample that is large enough for epsilon one scan of hinges does both; else stages prove, and it counts."""
    source = noisy(rng)
    options = {"loss": "hinge", "C": 0.1, "folds": 2, "sample": 0.1}
    assert in_stages(source, **options, epsilon=1e-3)
    assert not in_stages(source, **options, epsilon=5e-2)
    assert in_stages(source, **{**options, "loss": "squared_hinge"}, epsilon=5e-2)
    assert in_stages(source, loss="hinge", C=[0.1, 1.0], sample=0.1, epsilon=5e-2)  # nothing to count


@pytest.mark.usefixtures("little_sample")
def test_one_scan_proves_and_counts(rng: np.random.Generator, tmp_path: Path) -> None:
    """As was expected of a large sample."""
    job = new_job(
        store="rows", out=tmp_path / "m", loss="hinge", C=0.1, folds=2, sample=0.1, epsilon=5e-2, memory=1 << 20
    )
    fleet = problem_of(cast("Any", job), noisy(rng))
    state, read = run(fleet)
    assert {member.status for member in state.members} == {"certified"}
    assert read == len(fleet.sample_chunks) + fleet.source.chunks
