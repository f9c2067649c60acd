"""The loop of a soft margin without machinery, which all its tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.engine.plan import plan_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.engine.protocols import Block
    from coremargin.problems.soft.block_minimisation import BlockMinimisation
    from coremargin.problems.soft.near_margin import SoftMargin
    from coremargin.problems.soft.state import SoftState
    from coremargin.problems.soft.summary import NearMarginSummary


#: Of the arrays of every state, whatever parts a state is made of.
NAMES = {
    "round", "status", "newest", "best", "primal", "dual", "reference", "near_ids", "near_signs", "near_duals",
    "sample_ids", "sample_signs", "sample_row_c", "cached_ids", "cached_signs", "cached_row_c", "cached_duals",
    "total_rows", "widen", "idle", "near_rows", "histogram", "low", "high", "rows_below", "sample_bytes", "ramp",
}  # fmt: skip


def scan(
    problem: SoftMargin | BlockMinimisation, state: SoftState, blocks: Sequence[Block] | None = None
) -> NearMarginSummary:
    """The merged answer of some blocks, in order; None: of those that the engine plans."""
    probe = problem.probe(state)
    answer = probe.empty()
    for block in plan_blocks(problem.source, skip=problem.skip(state)) if blocks is None else blocks:
        answer = answer.merge(probe.narrow(block)(problem.source, block))
    return answer


def step(problem: SoftMargin | BlockMinimisation, state: SoftState) -> SoftState:
    """One scan and what follows from it."""
    return problem.update(state, scan(problem, state))


def to_the_end(problem: SoftMargin | BlockMinimisation, state: SoftState, limit: int = 40) -> SoftState:
    """A whole job, from a state on; fails when it does not end."""
    while not problem.done(state):
        assert state.round < limit, f"no end after {limit} scans: {state.lower} .. {state.upper}"
        state = step(problem, state)
    return state


def assert_same_bits(state: SoftState, other: SoftState) -> None:
    """Two states have the same arrays, to the bit."""
    first, second = state.to_arrays(), other.to_arrays()
    assert first.keys() == second.keys()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)
