"""Many machines with kernels as a problem: those of each C, gamma and fold, on one pool, by the same scans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.problems.kernel.problem import KernelMargin, bounds_of

if TYPE_CHECKING:
    from coremargin.engine.problem import Round
    from coremargin.problems.kernel.state import KernelState


@dataclass(frozen=True)
class KernelFleet(KernelMargin):
    """What ``KernelMargin`` is of one setting, of many; names: of the members, a setting each."""

    names: tuple[str, ...] = ()

    def certified(self, state: KernelState) -> list[bool]:
        """Which members are."""
        proven = self.proven(state.best)
        return [bool(proven[self.columns.of(k)].all()) for k in range(len(self.settings))]

    def round_of(self, state: KernelState) -> Round:
        """What is told of a state: the bounds are those of the member with the lowest ratio."""
        every = [bounds_of(state.best.only(self.columns.of(k)), hard=self.hard) for k in range(len(self.settings))]
        worst = int(np.argmin([low / high if low > 0 and np.isfinite(high) else 0.0 for low, high in every]))
        newest = state.newest.only(self.columns.of(worst))
        done, ended = self.certified(state), state.status != "running"
        told = super().round_of(state)
        more = {
            **told.more, "members": len(done), "members_certified": sum(done),
            "members_done": len(done) if ended else sum(done), "worst": self.names[worst],
        }  # fmt: skip
        lower, upper = every[worst]
        return replace(told, lower=lower, upper=upper, lower_now=bounds_of(newest, hard=self.hard)[0], more=more)
