"""The heuristic's climb from many starts: tasks, their order, and what they gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.maths.outliers.heuristic import GRID, OVER
from coremargin.maths.outliers.tasks import run_serially
from coremargin.problems.outliers import outlier_margin
from coremargin.problems.outliers.outlier_margin import OutlierMargin


def overlapping(seed: int, n: int = 160, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Two clouds that touch, some labels wrong."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], n)
    X = rng.standard_normal((n, d)) + 2.2 * y[:, None] * np.eye(d)[0]
    y[rng.choice(n, 4, replace=False)] *= -1
    return X, y


class Runs:
    """Runs tasks here, last one first, and remembers how many there were."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def __call__(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        self.counts.append(len(tasks))
        return [function(*task) for task in reversed(tasks)][::-1]


def settled(X: np.ndarray, y: np.ndarray, k: int) -> tuple[OutlierMargin, Any]:
    """A problem and its state before the climb."""
    problem = OutlierMargin(ArraySource(X, y, chunk_rows=50), (k,), 1e-3, exact=False)
    state = problem.start()
    while state.phase == "settle":
        if not len(state.next_directions):
            state = next(problem.work(state, run_serially))
            continue
        probe = problem.probe(state)
        summary = probe.empty()
        for block in plan_blocks(problem.source, skip=problem.skip(state)):
            summary = summary.merge(probe.narrow(block)(problem.source, block))
        state = problem.update(state, summary)
    return problem, state


def test_the_climb_has_a_task_for_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soft directions and perturbed incumbents, once, then tries from the best; then the bound is looked for."""
    monkeypatch.setattr(outlier_margin, "WORTH_SENDING", 0)
    problem, state = settled(*overlapping(0), 8)
    assert state.phase == "climb"
    runs = Runs()
    first = next(iter(problem.work(state, runs)))
    assert runs.counts[0] == len(GRID) + outlier_margin.PERTURBED
    assert len(runs.counts) > 1
    assert max(runs.counts[1:]) <= OVER
    assert first.phase == "search"
    assert len(first.next_directions) <= 1


def test_the_lowest_rows_of_each_class_stay() -> None:
    """The requested number of rows of each class, the lowest."""
    state = settled(*overlapping(1), 8)[1]
    lowest = outlier_margin.lowest_under_incumbents(state.working_set, state.searches, 12)
    best = state.searches[0].best
    for sign in (1, -1):
        inside = lowest.x[lowest.signs == sign]
        assert len(inside) == 12
        every = np.sort(sign * (state.working_set.x[state.working_set.signs == sign] @ best.w + best.b))
        assert np.array_equal(np.sort(sign * (inside @ best.w + best.b)), every[:12])


@pytest.mark.specimens(1)
@pytest.mark.parametrize("seed", range(4))
def test_the_climb_never_loses(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the climb the margin is at least that without, and never above what the exact search proves possible."""
    X, y = overlapping(seed)
    with_climb = coremargin.train(X, y, outliers=8, outlier_search="heuristic").certificate
    exact = coremargin.train(X, y, outliers=8, epsilon=0.2, time_limit=20).certificate
    monkeypatch.setattr(
        "coremargin.problems.outliers.outlier_margin.climb_directions",
        lambda state, *_: np.zeros((0, len(state.centre))),
    )
    without = coremargin.train(X, y, outliers=8, outlier_search="heuristic").certificate
    assert with_climb.lower >= without.lower
    assert with_climb.lower <= exact.upper
