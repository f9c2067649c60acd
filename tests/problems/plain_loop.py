"""The loop of a whole job without machinery, and judges of what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.engine.protocols import Block
from coremargin.problems.hard.hard_margin import HardMargin

if TYPE_CHECKING:
    from coremargin.problems.hard.probe import MarginSummary
    from coremargin.problems.hard.state import HardMarginState


@dataclass
class Run:
    """A finished job: its problem, all states from the start on, what each scan answered and which chunks it read."""

    problem: HardMargin
    states: list[HardMarginState]
    summaries: list[MarginSummary] = field(default_factory=list)
    chunks: list[list[int]] = field(default_factory=list)

    @property
    def last(self) -> HardMarginState:
        """The final state."""
        return self.states[-1]


def scan(problem: HardMargin, state: HardMarginState, blocks: tuple[Block, ...]) -> tuple[MarginSummary, list[int]]:
    """One scan in block order, ended early where the problem allows it; the chunks that were read."""
    probe, read = problem.probe(state), list[int]()
    answer = probe.empty()
    for block in blocks:
        answer = answer.merge(probe.narrow(block)(problem.source, block))
        read += block.chunks
        if problem.enough(answer):
            break
    return answer, read


def plan(problem: HardMargin, block_chunks: int, skip: np.ndarray) -> tuple[Block, ...]:
    """Blocks of ``block_chunks`` chunks without those to skip; as the engine plans them for 0."""
    if block_chunks == 0:
        return plan_blocks(problem.source, skip=skip)
    groups = [
        range(c, min(c + block_chunks, problem.source.chunks)) for c in range(0, problem.source.chunks, block_chunks)
    ]
    wanted = [tuple(c for c in group if not skip[c]) for group in groups]
    return tuple(Block(k, chunks) for k, chunks in enumerate(wanted) if chunks)


def proceed(run: Run, *, block_chunks: int = 0, limit: int = 2000) -> Run:
    """From the last state on, to the end."""
    problem = run.problem
    while not problem.done(run.last):
        assert run.last.round < limit, f"no end after {limit} scans: {run.last.lower} .. {run.last.upper}"
        summary, read = scan(problem, run.last, plan(problem, block_chunks, problem.skip(run.last)))
        run.states.append(problem.update(run.last, summary))
        run.summaries.append(summary)
        run.chunks.append(read)
    return run


def solve(X: Any, y: Any, epsilon: float = 1e-3, *, chunk_rows: int = 50, block_chunks: int = 0, **options: Any) -> Run:
    """A whole job on arrays."""
    source = ArraySource(X, y, chunk_rows=chunk_rows)
    problem = HardMargin(source, epsilon, **options)
    return proceed(Run(problem, [problem.start()]), block_chunks=block_chunks)


def dense(rows: Any) -> np.ndarray:
    """Rows of either kind as an array."""
    return rows.toarray() if issparse(rows) else rows


def sides(source: ArraySource, codes: tuple[int, int]) -> tuple[np.ndarray, Any, np.ndarray]:
    """Ids, rows (float64) and signs of all rows of the two classes."""
    rows, found = source.rows_at(np.arange(source.rows))
    mine = np.flatnonzero(np.isin(found, codes))
    return mine, rows[mine], np.where(found[mine] == codes[0], 1, -1)


def assert_certificate(run: Run) -> None:
    """The claims hold by plain float64: every row has the margin, the coreset proves the bound and is the data's."""
    state, problem = run.last, run.problem
    assert state.status == "certified"
    assert state.best is not None
    _, rows, signs = sides(problem.source, problem.codes)
    w, b = state.best.w, state.best.b
    assert abs(np.linalg.norm(w) - 1) < 1e-14
    assert problem.intercept or b == 0
    assert (signs * (rows @ w + b)).min() >= state.lower
    assert state.lower >= (1 - problem.epsilon) * state.upper
    assert_upper(run)


def assert_upper(run: Run) -> None:
    """The coreset's weights prove the upper bound, and its rows are rows of the data."""
    core, problem = run.last.coreset, run.problem
    stored, codes = problem.source.rows_at(core.ids)
    assert issparse(core.rows) == issparse(stored) == problem.source.sparse
    assert abs(stored - core.rows).max() == 0
    assert (np.where(codes == problem.codes[0], 1, -1) == core.signs).all()
    a = core.weights
    assert a.min() > 0
    for group in (core.signs > 0, core.signs < 0) if problem.intercept else (np.ones(len(a), bool),):
        assert abs(a[group].sum() - 1) < 1e-12
    length = np.linalg.norm((a * core.signs) @ core.rows) / (2 if problem.intercept else 1)
    assert length <= run.last.upper * (1 + 1e-12)
    assert len(core) <= problem.source.features + 1 + problem.intercept


def assert_bounds_hold(run: Run, rng: np.random.Generator) -> None:
    """After every scan, block bounds hold for every row outside the working set, at its direction and at others."""
    source, problem = run.problem.source, run.problem
    ids, rows, signs = sides(source, problem.codes)
    chunk = ids // source.chunk_rows
    for state in run.states:
        w = state.newest.w if state.newest.w.any() else np.eye(source.features)[0]
        random = rng.standard_normal((source.features, 3))
        near = w[:, None] + 0.01 * random / np.linalg.norm(random, axis=0)
        directions = np.column_stack([w, near, random])
        bound = state.block_bounds.screen(source, directions, np.arange(source.chunks))
        free = np.isin(ids, state.working_set.ids, invert=True)
        values = signs[:, None] * (rows @ directions)
        for k, sign in enumerate((1, -1)):
            mine = free & (signs == sign)
            assert (values[mine] >= bound[:, k, :].T[chunk[mine]]).all()
