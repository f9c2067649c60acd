"""Fleets of several gammas: each is what it would be alone, rows are read once for all, who is done is left alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.blas import one_blas_thread
from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.problems.fleet import make
from coremargin.problems.fleet.fleet import Fleet
from coremargin.problems.fleet.gammas import GammaFleet, GammaState
from coremargin.problems.registry import new_job, problem_of
from coremargin.problems.soft import near_margin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.problems.fleet.fleet import FleetState

ROWS, CHUNK, MEMORY = 900, 30, 300_000
GAMMAS: list[float | str] = ["scale", 1.0, 3.0]
ASKED: dict[str, dict[str, Any]] = {
    "hard": {"gap": 0.3, "memory": 60_000},
    "hard with folds": {"gap": 0.3, "folds": 2},
    "hinge": {"loss": "hinge", "C": [0.1, 1.0]},
    "squared hinge": {"loss": "squared_hinge", "memory": 60_000, "map": "fourier"},
    "folds": {"loss": "squared_hinge", "C": [0.1, 10.0], "folds": 2, "memory": 200_000},
}


class Counted(ArraySource):
    """Rows that know how often chunks of them were read."""

    reads = 0

    def read(self, chunk: int) -> Any:
        """A chunk; one more was read."""
        self.reads += 1
        return super().read(chunk)


def rows(gap: float) -> Counted:
    """Rows of a disc and of a ring around it, so far apart; they overlap where that is below 0."""
    rng = np.random.default_rng(0)
    inside = np.arange(ROWS) % 2
    angle = rng.uniform(0, 2 * np.pi, ROWS)
    radius = np.where(inside, rng.uniform(0, 1, ROWS), rng.uniform(1 + gap, 2 + gap, ROWS))
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]).astype(np.float32)
    return Counted(X, inside, chunk_rows=CHUNK)


def problem(gamma: Any, *, gap: float = -0.2, memory: int = MEMORY, each: int = 1, **asked: Any) -> tuple[Any, Counted]:
    """A problem and its rows; memory: for each of so many gammas."""
    source = rows(gap)
    said = {"map": "nystroem", "components": 12, "epsilon": 1e-2} | asked
    job = new_job(store="s", out="m", gamma=gamma, memory=memory * each, **said)
    return problem_of(job, source), source


def step(asked: Any, state: Any) -> Any:
    """The state after the next scan, whose answer has been in a checkpoint."""
    probe = asked.probe(state)
    answer = probe.empty()
    for block in plan_blocks(asked.source, 3 * asked.source.nbytes // asked.source.chunks, skip=asked.skip(state)):
        answer = answer.merge(probe.from_arrays(probe.narrow(block)(asked.source, block).to_arrays()))
    return asked.update(state, answer)


@pytest.fixture(autouse=True)
def little_sample(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Else all rows of a small store are its sample and are cached; and one thread, as in a job."""
    hard = make.hard_margin
    monkeypatch.setattr(make, "SoftMargin", partial(make.SoftMargin, sample_bytes=6_000))
    monkeypatch.setattr(make, "hard_margin", lambda *a, **k: replace(hard(*a, **k), sample_bytes=6_000))
    monkeypatch.setattr(near_margin, "NEAR_BYTES_LEAST", 12_000)
    with one_blas_thread():
        yield


def bits(state: FleetState) -> dict[str, bytes]:
    """All of a state but what was read for it."""
    return {name: a.tobytes() for name, a in state.to_arrays().items() if name != "sample_bytes"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "squared hinge" else pytest.mark.slow) for name in ASKED]
)
def test_each_gamma_is_what_it_would_be_alone(name: str) -> None:
    """To the bit, at every step, whatever the others do; and a job that is killed after any scan goes on with it."""
    several, source = problem(GAMMAS, each=len(GAMMAS), **ASKED[name])
    again, _ = problem(GAMMAS, each=len(GAMMAS), **ASKED[name])
    alone = [problem([gamma], **ASKED[name])[0] for gamma in GAMMAS]
    assert isinstance(several, GammaFleet)
    source.reads = 0
    state: GammaState = several.start()
    states = [one.start() for one in alone]
    assert source.reads == len(several.sample_chunks) < source.chunks
    while not several.done(state):
        assert state.round < 60
        asked = several.queried(state)
        before, source.reads = state, 0
        expected = int(np.count_nonzero(~several.skip(state)))
        state = step(several, state)
        assert source.reads == expected  # once, for whichever of them
        other = step(again, again.restore(dict(before.to_arrays())))
        assert {n: a.tobytes() for n, a in state.to_arrays().items()} == {
            n: np.asarray(a).tobytes() for n, a in other.to_arrays().items()
        }
        for k, one in enumerate(alone):
            assert isinstance(one, Fleet)
            if k in asked:
                states[k] = step(one, states[k])
                assert bits(state.parts[k]) == bits(states[k])
            else:
                assert state.parts[k] is before.parts[k]
    assert state.status == "certified"
    assert len({own.round for own in state.parts}) > 1 or name in ("hard", "hard with folds", "hinge", "folds")


def test_a_fleet_in_the_middle_of_a_scan_is_queried_alone() -> None:
    """Until it is over: then all ask about all rows together."""
    several, source = problem(GAMMAS, each=len(GAMMAS), **ASKED["hinge"])
    state = several.start()
    late = several.parts[1].unsolved()  # as one whose read was given up: about all rows from the next scan on
    assert several.part_of(state) == 1
    assert several.queried(replace(state, parts=(state.parts[0], late, state.parts[2]))) == [0, 2]
    assert several.round_of(state).next_scan.stage == 2
    assert several.round_of(state).more["members"] == 6
    assert several.parts[0].plan.members[0].name == "C-0.1_gamma-scale"
    assert source.chunks == several.source.chunks
