"""Jobs about several classes without machinery, and judges that write Kesler's construction out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.engine.plan import plan_blocks

if TYPE_CHECKING:
    from coremargin.problems.multiclass.classes_problem import ClassesProblem, ClassesState


def finish(problem: Any, state: ClassesState, limit: int = 60) -> list[ClassesState]:
    """All states from this one to the end, each restored from its arrays."""
    states = [state]
    while not problem.done(state):
        assert state.round < limit, f"no end after {limit} scans: {state.lower} .. {state.upper}"
        probe = problem.probe(state)
        answer = probe.empty()
        for block in plan_blocks(problem.source, skip=problem.skip(state)):
            part = probe.narrow(block)(problem.source, block)
            answer = answer.merge(probe.from_arrays(part.to_arrays()))
        state = problem.update(problem.restore(state.to_arrays()), answer)
        states.append(state)
    return states


def solve(problem: ClassesProblem) -> ClassesState:
    """The last state of a whole job."""
    return finish(problem, problem.start())[-1]  # type: ignore[attr-defined]


def table(problem: ClassesProblem) -> tuple[np.ndarray, np.ndarray]:
    """All rows with the constant (n, d + 1), dense, and their classes."""
    rows, codes = problem.source.rows_at(np.arange(problem.source.rows))
    dense = rows.toarray() if hasattr(rows, "toarray") else rows
    return np.column_stack([dense, np.full(len(dense), problem.constant)]), problem.place[codes]


def row_margins(X: np.ndarray, y: np.ndarray, V: np.ndarray) -> np.ndarray:
    """min over rivals of (v_y - v_r).x, row by row."""
    scores = X @ V.T
    return np.array([min(s[k] - s[r] for r in range(len(s)) if r != k) for s, k in zip(scores, y, strict=True)])


def kesler_vector(X: np.ndarray, y: np.ndarray, duals: np.ndarray) -> np.ndarray:
    """sum a z (K, p), by loops."""
    total = np.zeros((duals.shape[1], X.shape[1]))
    for x, k, a in zip(X, y, duals, strict=True):
        assert a[k] == 0
        assert (a >= 0).all()
        total[k] += a.sum() * x
        total -= np.outer(a, x)
    return total


def separable(seed: int, n: int, d: int, K: int, gap: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """float32 rows with the class of the largest score, without nearly undecided ones."""
    rng = np.random.default_rng(seed)
    V, X = rng.standard_normal((K, d)), rng.standard_normal((20 * n, d)).astype(np.float32)
    scores = np.sort(X @ V.T, axis=1)
    X = X[scores[:, -1] - scores[:, -2] > gap][:n]
    return X, (X @ V.T).argmax(axis=1)


def noisy(seed: int, n: int, d: int, K: int, flip: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """The same with a share of labels drawn by lot."""
    X, y = separable(seed, n, d, K)
    rng = np.random.default_rng(seed + 1)
    return X, np.where(rng.random(len(y)) < flip, rng.integers(0, K, len(y)), y)
