"""The loop on tiny problems: what counts as a scan, what comes between scans, who answers questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from coremargin.engine.checkpoint import NoCheckpoint
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Answer, Callbacks, Engine, Step, no_labels, rounds
from coremargin.engine.problem import NextScan, QueriesLabels, WorksBetweenScans
from coremargin.learn.record import RunCounters
from loop_problems import GapState, Passes, PassState, Threshold, Working
from scan_fakes import FakeHandle, FakeSource

CUT = 0.37


@pytest.fixture
def source() -> FakeSource:
    """A thousand rows in a hundred chunks."""
    return FakeHandle().open_source()


def engine_of(source: FakeSource, scans: list[tuple[int, int]] | None = None, answer: Answer = no_labels) -> Engine:
    """In this process; ``scans`` hears the number and the bytes of each scan."""

    def heard(which: NextScan, nbytes: int) -> None:
        if scans is not None:
            scans.append((which.number, nbytes))

    return Engine(source, InProcess(1), NoCheckpoint(), Callbacks(on_scan=heard), 1, answer=answer)


def test_the_parts_of_a_scan_are_one_scan(source: FakeSource) -> None:
    """A scan in three parts has one number, counts once, and is finished with its last part."""
    heard: list[tuple[int, int]] = []
    problem = Passes(source, parts=3, wanted=2)
    steps = list(rounds(engine_of(source, heard), problem, problem.start()))
    assert [number for number, _ in heard] == [1, 1, 1, 2, 2, 2]
    assert [step.round.number for step in steps] == [1, 1, 1, 2, 2, 2]
    assert [step.round.finished for step in steps] == [False, False, True] * 2
    assert sum(nbytes for _, nbytes in heard[:3]) == source.nbytes
    assert steps[-1].state.total == pytest.approx(2.0 * source.X.astype(np.float64).sum())
    counters = RunCounters()
    counters.sampled(problem.round_of(problem.start()), cost_of(steps[0], chunks_read=0, bytes_read=0))
    for step in steps:
        assert step.cost is not None
        counters.scanned(step.round, step.cost)
    assert counters.scans == 2
    assert counters.bytes_read == 2 * source.nbytes
    assert [(line["round"], line["kind"], line["part"]) for line in counters.rounds] == [
        (0, "sample", 0), (1, "scan", 0), (2, "scan", 0),
    ]  # fmt: skip
    for line in counters.rounds[1:]:
        assert (line["chunks_read"], line["chunks_skipped"], line["new_rows"]) == (source.chunks, 0, 3)


def cost_of(step: Step[Any], **changes: int) -> Any:
    """The cost of a step, changed."""
    return type(step.cost)(**{**vars(step.cost), **changes})


@pytest.mark.parametrize("most", [0, 1, 2])
def test_a_limit_is_about_whole_scans(source: FakeSource, most: int) -> None:
    """So many scans are finished, with all of their parts; none is begun beyond."""
    problem = Passes(source, parts=3, wanted=5)
    steps = list(rounds(engine_of(source), problem, problem.start(), most))
    assert len(steps) == 3 * most
    assert all(step.round.finished for step in steps[-1:])


def test_work_is_done_before_every_scan_and_counts_as_none(source: FakeSource) -> None:
    """States on the way have no cost, the limit is about scans; what is described is the state that is handed over."""
    problem = Working(source, parts=1, wanted=2)
    assert isinstance(problem, WorksBetweenScans)
    assert not isinstance(problem, QueriesLabels)
    steps = list(rounds(engine_of(source), problem, problem.start(), 1))
    assert [step.cost is None for step in steps] == [True, True, False, True, True]
    assert all(step.round == problem.round_of(step.state) for step in steps)


class Person:
    """Knows the labels, and answers ``most`` questions at a time, the last asked first; ``patience``: in all."""

    def __init__(self, source: FakeSource, most: int, patience: int = 10**6) -> None:
        self.source, self.most, self.patience = source, most, patience
        self.asked: list[int] = []

    def __call__(self, questions: Sequence[int]) -> Mapping[int, Any]:
        answered = list(reversed(questions))[: min(self.most, self.patience - len(self.asked))]
        self.asked += answered
        return {row: bool(self.source.X[row, 0] >= CUT) for row in answered}


def last(steps: list[Step[GapState]]) -> GapState:
    """The state that the loop ended with."""
    return steps[-1].state


def assert_all_labels_are_known(source: FakeSource, state: GapState) -> None:
    """By all rows: none lies in the gap, and each side has one label."""
    values, positive = source.X[:, 0].astype(np.float64), source.X[:, 0] >= CUT
    assert not ((values > state.below) & (values < state.above)).any()
    assert positive[values >= state.above].all()
    assert not positive[values <= state.below].any()


@pytest.mark.parametrize("most", [1, 2, 3])
def test_labels_that_are_asked_for_prove_all_others(source: FakeSource, most: int) -> None:
    """Few questions and a few scans tell the label of every row, however many of them are answered at a time."""
    problem, person, scans = Threshold(source), Person(source, most), list[tuple[int, int]]()
    assert isinstance(problem, QueriesLabels)
    steps = list(rounds(engine_of(source, scans, person), problem, problem.start()))
    assert last(steps).status == "certified"
    assert_all_labels_are_known(source, last(steps))
    assert len(person.asked) == len(set(person.asked)) == last(steps).asked < 60
    assert [number for number, _ in scans] == [step.state.round for step in steps if step.cost is not None]
    assert 2 <= len(scans) < 8


@pytest.mark.parametrize("patience", [0, 1, 5])
def test_where_nobody_answers_the_job_ends_and_goes_on_later(source: FakeSource, patience: int) -> None:
    """It ends at a question, not at a scan; gone on with, it ends where it would have ended."""
    problem = Threshold(source)
    whole = last(list(rounds(engine_of(source, answer=Person(source, 1)), problem, problem.start())))
    before = last(list(rounds(engine_of(source, answer=Person(source, 1, patience)), problem, problem.start())))
    assert (before.status, before.asked) == ("running", patience)
    assert len(problem.questions(before))
    assert list(rounds(engine_of(source), problem, before)) == []
    after = last(list(rounds(engine_of(source, answer=Person(source, 1)), problem, before)))
    assert (after.below, after.above, after.asked, after.round) == (whole.below, whole.above, whole.asked, whole.round)
    assert_all_labels_are_known(source, after)


def test_a_state_before_any_scan_says_nothing_of_one(source: FakeSource) -> None:
    """The next scan is the first; after a finished one it is one more, within one in parts the same."""
    problem = Passes(source, parts=2, wanted=9)
    found = [problem.round_of(PassState(0, 0.0, passes, part)) for passes, part in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert [(each.number, each.next_scan.number) for each in found] == [(0, 1), (1, 1), (1, 2), (2, 2)]
