"""A person who knows all labels, and the loop in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.active.learner import Learner
from coremargin.data.arrays import ArraySource
from coremargin.engine.checkpoint import NoCheckpoint
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Callbacks, Engine, rounds
from coremargin.engine.plan import plan_blocks

if TYPE_CHECKING:
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.state import ActiveState


def codes_of(labels: Any) -> np.ndarray:
    """Places of classes (n,): of signs 0 and 1, of places themselves."""
    return np.maximum(np.asarray(labels), 0)


class Person:
    """Knows the signs (n,) of all rows, or their codes; answers ``most`` questions at a time, and so many in all."""

    def __init__(self, labels: Any, most: int = 1, patience: int = 10**9) -> None:
        self.codes, self.most, self.patience = codes_of(labels), most, patience
        self.asked: list[int] = []

    def __call__(self, questions: Sequence[int]) -> dict[int, int]:
        """The first questions' answers."""
        some = list(questions)[: min(self.most, self.patience - len(self.asked))]
        self.asked += some
        return {row: int(self.codes[row]) for row in some}


def apart(rng: np.random.Generator, rows: int, features: int, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows on both sides of a plane that passes between them with this margin, and their signs."""
    w = rng.standard_normal(features)
    w /= np.linalg.norm(w)
    X = rng.standard_normal((rows, features))
    signs = np.where(X @ w >= 0, 1, -1)
    return X + margin * signs[:, None] * w, signs


def states(problem: ActiveMargin, person: Any, state: ActiveState | None = None) -> list[ActiveState]:
    """All states from the start, or from this one, to where the campaign ends or nobody answers."""
    engine = Engine(problem.source, InProcess(1), NoCheckpoint(), Callbacks(), 1, answer=person)
    first = problem.start() if state is None else state
    return [first, *(step.state for step in rounds(engine, problem, first))]


def values_of(state: ActiveState, X: np.ndarray) -> np.ndarray:
    """w.x + b (n,) of the one hyperplane between two classes."""
    return np.asarray(X @ state.hypothesis.w[0] + state.hypothesis.b[0])


def source_of(X: Any, chunk_rows: int = 50, **more: Any) -> ArraySource:
    """The rows in small chunks, without labels."""
    return ArraySource(X, chunk_rows=chunk_rows, **more)


def scan(problem: ActiveMargin, state: ActiveState, block_bytes: int = 1) -> ActiveState:
    """The state after a scan, by blocks of so many bytes, the last one first."""
    probe = problem.probe(state)
    answers = [probe.narrow(block)(problem.source, block) for block in plan_blocks(problem.source, block_bytes)]
    later = answers.pop()
    while answers:
        later = answers.pop().merge(later)
    return problem.update(state, later)


def answer(problem: ActiveMargin, state: ActiveState, row: int, codes: Mapping[int, int]) -> ActiveState:
    """The state after the label of a row; codes: of all rows with an answer, as far as they matter."""
    learner = Learner(problem, state)
    return learner.answer(row, "label", learner.draw_of(row), codes).state


def course_of(
    problem: ActiveMargin, codes: Any, state: ActiveState | None = None, unsure: Any = (), block_bytes: int = 1
) -> Iterator[ActiveState]:
    """All states of a campaign whose answers are these codes, but for rows that no annotator can label, as campaigns go
    on: after a trial that is not enough, too.
    """
    state = problem.start() if state is None else state
    yield state
    for _ in range(100_000):
        if state.status != "running":
            return
        state = problem.finish_trial(state)
        rows = problem.questions(state)
        if state.status != "running":
            pass
        elif rows and rows[0] in unsure:
            state = problem.exclude(state, rows[0])
        elif rows:
            state = answer(problem, state, rows[0], {rows[0]: int(codes[rows[0]])})
        else:
            state = scan(problem, state, block_bytes)
        yield state
    raise AssertionError("it does not end")


def blobs(rng: np.random.Generator, rows: int, classes: int, features: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Rows around the corners of a regular polygon, each of which a line cuts off from all others, and their codes."""
    codes = rng.integers(0, classes, rows)
    angles = 2 * np.pi * codes / classes + 0.3
    X = rng.uniform(-0.3, 0.3, (rows, features))
    X[:, :2] += 3.0 * np.column_stack([np.cos(angles), np.sin(angles)])
    return X, codes
