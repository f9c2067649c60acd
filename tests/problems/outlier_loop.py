"""Rows with wrong labels, and the loop of an outlier job without machinery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.engine.plan import plan_blocks
from coremargin.engine.protocols import Block
from coremargin.maths.outliers.tasks import run_serially

if TYPE_CHECKING:
    from coremargin.problems.outliers.outlier_margin import OutlierMargin
    from coremargin.problems.outliers.state import OutlierState


def noisy(n: int, d: int, k: int, seed: int, margin: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a margin, k of them with the wrong label."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    w /= np.linalg.norm(w)
    x, y = rng.normal(size=(n, d)), np.where(rng.random(n) < 0.5, 1, -1)
    x += np.outer(y * (margin + np.abs(x @ w)) - x @ w, w)
    y[rng.choice(n, k, replace=False)] *= -1
    return x.astype(np.float32), y


Run = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Sequence[Any]]


def proceed(
    problem: OutlierMargin, state: OutlierState, *, block: int | None = None, run: Run = run_serially, stop: int = 10**9
) -> tuple[OutlierState, int]:
    """The loop without machinery, up to so many states; the last one and the number of scans."""
    scans = seen = 0
    while not problem.done(state) and seen < stop:
        for step in problem.work(state, run):
            state, seen = step, seen + 1
            if seen >= stop:
                return state, scans
        if problem.done(state):
            break
        wanted = np.flatnonzero(~problem.skip(state)).tolist()
        blocks = plan_blocks(problem.source, skip=problem.skip(state)) if block is None else [
            Block(i, tuple(wanted[first : first + block])) for i, first in enumerate(range(0, len(wanted), block))
        ]  # fmt: skip
        probe = problem.probe(state)
        answer = probe.empty()
        for one in blocks:
            answer = answer.merge(probe.narrow(one)(problem.source, one))
        state, scans, seen = problem.update(state, answer), scans + 1, seen + 1
    return state, scans


def bits(state: OutlierState) -> dict[str, bytes]:
    """All that a state is."""
    return {name: np.asarray(values).tobytes() for name, values in state.to_arrays().items()}
