"""A person who knows all labels, and the loop in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.arrays import ArraySource
from coremargin.engine.checkpoint import NoCheckpoint
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Callbacks, Engine, rounds

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
