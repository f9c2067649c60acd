"""Many machines with kernels from the same scans as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coremargin.problems.fleet.any_fleet import AnyFleet
from coremargin.problems.kernel.of_pool import OfPool
from coremargin.problems.kernel_fleet.spec import KernelFleetJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.fleet import FleetModel
    from coremargin.problems.kernel.state import KernelState
    from coremargin.problems.kernel_fleet.problem import KernelFleet
    from coremargin.problems.kind import Outcome


class KernelFleetKind(OfPool, AnyFleet[KernelFleetJob, "KernelFleet"]):
    """A machine for each C, gamma and fold."""

    name = "kernel_fleet"
    job = KernelFleetJob
    title = "a fleet of machines with kernels"
    selected_by = "give kernel with folds, or several values of C or gamma"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """A kernel with folds, or several values of C or gamma."""
        several = any(isinstance(options.get(name), list | tuple) for name in ("C", "gamma"))
        return "kernel" in options and ("folds" in options or several)

    def problem(self, job: KernelFleetJob, source: Source) -> KernelFleet:
        """On these rows."""
        from coremargin.problems.kernel_fleet.make import problem_of

        return problem_of(job, source)

    def members(self, problem: KernelFleet) -> int:
        """One for each C, gamma and fold."""
        return len(problem.settings)

    def model(self, job: KernelFleetJob, problem: KernelFleet, state: KernelState) -> FleetModel:
        """The machines of all members, and how they do."""
        from coremargin.problems.kernel_fleet.outcome import as_fleet

        return as_fleet(job, problem, state)

    def facts(self, problem: KernelFleet, state: KernelState) -> dict[str, Any]:
        """Why the run ended, what the pool was, how many members are proven."""
        from coremargin.problems.kernel.result import REASONS

        done = problem.certified(state)
        return {
            "members": len(done), "members_certified": sum(done), "reason": REASONS.get(state.status, state.status),
            **self.pool_facts(problem, state),
        }  # fmt: skip

    def verdict(self, outcome: Outcome, job: KernelFleetJob) -> list[str]:
        """With what a function adds to the claims."""
        return [*super().verdict(outcome, job), *self.terms_told(job)]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The pool's kernel values."""
        return "pool", f"the kernel values of {outcome.run['pool_rows']:,} rows with each other, for all models"


KIND = KernelFleetKind()
