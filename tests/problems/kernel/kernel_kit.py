"""Running jobs with kernels step by step, in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.engine.plan import plan_blocks

if TYPE_CHECKING:
    from coremargin.problems.kernel.kernel_margin import KernelMargin, KernelState


def step(problem: KernelMargin, state: KernelState) -> KernelState:
    """The state after the next query."""
    probe = problem.probe(state)
    answer = probe.empty()
    for block in plan_blocks(problem.source, 5000, skip=problem.skip(state)):
        answer = answer.merge(probe.narrow(block)(problem.source, block))
    return problem.update(state, answer)


def run_interrupted(problems: list[Any], sample_bytes: int) -> KernelState:
    """The last state of a job that is interrupted after each query; a resumed one must have the same bits.

    problems: two equal ones; the second resumes from arrays each time, with an empty cache.
    """
    for one in problems:
        one.__dict__["sample_bytes"] = sample_bytes  # more stages than one
    state: KernelState = problems[0].start()
    assert len(problems[0].stage_chunks) > 1
    while not problems[0].done(state):
        again = problems[1].restore(dict(state.to_arrays()))
        state, other = step(problems[0], state), step(problems[1], again)
        problems[1].__dict__.pop("_matrix_cache", None)
        assert {name: a.tobytes() for name, a in state.to_arrays().items()} == {
            name: np.asarray(a).tobytes() for name, a in other.to_arrays().items()
        }
    return state
