"""What kinds whose functions are carried by a pool of rows share: what they say about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coremargin.problems.kernel.spec import HELP

if TYPE_CHECKING:
    from coremargin.engine.want import Want
    from coremargin.problems.kernel.problem import KernelMargin
    from coremargin.problems.kernel.state import KernelState


class OfPool:
    """To be mixed into a kind of problem."""

    scan_told = "two and more of all rows, each with a product with all rows that carry the function"
    again_told = "most data need two or three scans after the read"

    def scans_after(self, job: Any) -> int:
        """One that finds what is missing, one that proves."""
        return 2

    def memory_told(self, problem: KernelMargin) -> str:
        """Kernel values of the pool."""
        gammas = len(problem.kernels)
        each = "" if gammas == 1 else f", for each of {gammas} values of gamma"
        return f"for the kernel values of up to {problem.room.capacity:,} rows with each other{each}"

    def wanted(self, problem: KernelMargin, state: KernelState) -> Want | None:
        """Where the pool was full, or will be."""
        return problem.wanted(state)

    def news(self, record: Mapping[str, Any]) -> str:
        """That the pool will be full, as soon as that can be seen."""
        expected, room = record.get("pool_expected", 0), record.get("pool_room", 0)
        if expected <= room:
            return ""
        return (
            f"the pool will need about {expected:,} rows, and memory holds the kernel values of {room:,}: what is "
            f"beyond is not proven away; more memory, or {HELP}"
        )
