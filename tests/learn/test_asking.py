"""Jobs of problems that ask for labels: who answers is asked, who looks on is told, what was answered is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coremargin.cli.progress_line import Meter
from coremargin.engine.checkpoint import Checkpoint
from coremargin.engine.executors import InProcess
from coremargin.formats.kinds import Parts
from coremargin.learn.train import Progress, run_problem
from coremargin.problems.registry import kind_named, new_job
from kinds_kit import with_a_line
from loop_problems import GapState, Threshold
from scan_fakes import FakeHandle, FakeSource

if TYPE_CHECKING:
    from coremargin.problems.kind import Outcome

CUT = 0.37


@pytest.fixture(autouse=True)
def _threshold() -> Iterator[None]:
    """The kind of such jobs."""
    with with_a_line("threshold", Parts("asking_kind", "nobody", "nobody")):
        yield


@dataclass
class Person:
    """Knows the labels, answers one question at a time, and goes after ``patience`` of them."""

    source: FakeSource
    patience: int = 1000
    asked: list[int] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)  #: figures between scans

    def __call__(self, questions: Sequence[int]) -> Mapping[int, Any]:
        answered = list(questions)[: min(1, self.patience - len(self.asked))]
        self.asked += answered
        return {row: bool(self.source.X[row, 0] >= CUT) for row in answered}


def run(out: Path, person: Person) -> Outcome:
    """A job with a checkpoint at ``out``, or what is left of it."""
    job = new_job(store="rows.zarr", out=out, threshold=True)
    with Checkpoint(out, job.identity()) as checkpoint:
        progress = Progress(on_work=person.told.append, answer=person)
        done = run_problem(job, Threshold(person.source), InProcess(1), checkpoint, progress)
        checkpoint.save()
        return done


def known(outcome: Outcome) -> tuple[Any, ...]:
    """What has come out: the gap, how many labels and scans it took."""
    state: Any = outcome.model
    assert isinstance(state, GapState)
    return state.status, state.below, state.above, state.asked, state.round, outcome.run["scans"]


def test_a_job_asks_until_everything_is_known(tmp_path: Path) -> None:
    """It ends with a gap that no row lies in, found by a few labels; each answer was told once."""
    source = FakeHandle().open_source()
    person = Person(source)
    done = run(tmp_path / "m", person)
    status, below, above, asked, _, scans = known(done)
    values = source.X[:, 0].astype(float)
    assert (status, done.resumable) == ("certified", False)
    assert (values[values < CUT].max(), values[values >= CUT].min()) == (below, above)
    assert len(person.asked) == len(set(person.asked)) == asked == len(person.told) < 60
    assert scans == len(done.rounds) < 8


@pytest.mark.parametrize("patience", [0, 1, 7])
def test_where_nobody_answers_a_job_waits(tmp_path: Path, patience: int) -> None:
    """It ends, to be gone on with; then no label is asked for twice, and all is as without a break."""
    source = FakeHandle().open_source()
    whole = run(tmp_path / "whole", Person(source))
    first, second = Person(source, patience), Person(source)
    waiting = run(tmp_path / "m", first)
    assert (waiting.resumable, len(first.asked)) == (True, patience)
    done = run(tmp_path / "m", second)
    assert known(done) == known(whole)
    assert not set(first.asked) & set(second.asked)


def test_the_live_line_shows_what_is_known_between_scans() -> None:
    """Bounds of whatever problem are shown; words about a search only where there is one."""
    shown: list[str] = []
    search = Meter(shown.append, 0.0, kind_named("outliers")).progress().on_work
    work = Meter(shown.append, 0.0, kind_named("hard_margin")).progress().on_work
    search({"lower": 1.0, "upper": 2.0, "nodes": 3})
    work({"lower": 1.0, "upper": 2.0, "slowest": "a word"})
    work({"lower": -math.inf, "upper": math.inf})
    assert shown[0].startswith("search: bounds 1.0000 to 2.0000 (ratio 0.500000); 3 nodes; Ctrl-C")
    assert shown[1:] == [
        "between scans: bounds 1.0000 to 2.0000 (ratio 0.500000)",
        "between scans: nothing is proven yet",
    ]
