"""Several kernel machines, trained together, as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coremargin.problems.fleet.kind import AnyFleet
from coremargin.problems.kernel.kind import WorkingSetMessages
from coremargin.problems.kernel.spec import KernelFleetJob

if TYPE_CHECKING:
    from coremargin.models.fleet import FleetModel
    from coremargin.problems.kernel.kernel_margin import KernelMargin, KernelState
    from coremargin.problems.kind import Outcome


class KernelFleetKind(WorkingSetMessages, AnyFleet[KernelFleetJob, "KernelMargin"]):
    """A kernel machine for each C, gamma and fold."""

    name = "kernel_fleet"
    job = KernelFleetJob
    title = "a fleet of kernel machines"
    selected_by = "give kernel with folds, or several values of C or gamma"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Jobs with a kernel and folds, or several values of C or gamma."""
        several = any(isinstance(options.get(name), list | tuple) for name in ("C", "gamma"))
        return "kernel" in options and (bool({"folds", "choose"} & options.keys()) or several)

    def members(self, problem: KernelMargin) -> int:
        """One for each C, gamma and fold."""
        return len(problem.settings)

    def model(self, job: KernelFleetJob, problem: KernelMargin, state: KernelState) -> FleetModel:
        """The models of all members, and how accurate they are."""
        from coremargin.problems.kernel.outcome import fleet_model

        return fleet_model(job, problem, state)

    def facts(self, problem: KernelMargin, state: KernelState) -> dict[str, Any]:
        """Why the run ended, the working set, and how many members are proven."""
        from coremargin.problems.kernel.kernel_margin import REASONS

        done = problem.proven_members(state)
        return {
            "members": len(done),
            "members_certified": sum(done),
            "reason": REASONS.get(state.status, state.status),
            **self.describe_working_set(problem, state),
            **self._kkt_of_members(problem, state),
        }

    def _kkt_of_members(self, problem: KernelMargin, state: KernelState) -> dict[str, Any]:
        """The KKT classes of all rows for each member that is trained on them, of two classes; not with a bound."""
        if len(problem.codes) > 2:
            return {}
        whole = [number for number, one in enumerate(problem.settings) if one.fold is None]
        counted = [(problem.names[number], problem.kkt_classes(state, number)) for number in whole]
        return {"kkt": {name: own[0].tolist() for name, own in counted if own is not None}}

    def verdict(self, outcome: Outcome, job: KernelFleetJob) -> list[str]:
        """The claims, and what they assume."""
        return [*super().verdict(outcome, job), *self.describe_assumption(job)]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The kernel matrices."""
        return "working set", f"the kernel matrix of {outcome.run['working_set_rows']:,} rows, for all models"


KIND = KernelFleetKind()
