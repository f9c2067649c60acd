"""What a job about many machines with kernels says: one for each C, gamma and fold, all from the same scans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from coremargin.problems.fleet.spec import Folds, FoldSeed, check_folds
from coremargin.problems.kernel.spec import GAMMA, OWN, KernelSpec

if TYPE_CHECKING:
    from coremargin.formats.fleet_record import Setting


class KernelFleetJob(KernelSpec, frozen=True, kw_only=True):
    """Many machines with kernels, be it only one C or one gamma that is left.

    C and gamma may be lists: every C with every gamma. folds, fold_seed: as of fleets of hyperplanes; the best mean
    accuracy on held-out rows chooses C and gamma together.
    """

    gamma: Annotated[Literal["scale"] | float | tuple[Literal["scale"] | float, ...], GAMMA] = "scale"
    C: float | tuple[float, ...] | None = None
    folds: Folds = None
    fold_seed: FoldSeed = None

    def __post_init__(self) -> None:
        """Refuse what is out of range. Raises ValueError."""
        super().__post_init__()
        check_folds(self.folds, self.fold_seed)

    def setting_of(self, number: int, cost: float) -> Setting:
        """C and gamma as the fleet's record has them, of the kernel with this number."""
        return cost if self.loss else None, self.gammas[number] if "gamma" in OWN[self.kernel_name] else None

    @property
    def seed(self) -> int:
        """``fold_seed``, said or not."""
        return self.fold_seed or 0

    def parameters(self) -> dict[str, Any]:
        """What the fleet's record keeps."""
        found = self.parameters_of(self.costs[0], self.gammas[0])
        found |= {"gamma": list(self.gammas)} if "gamma" in OWN[self.kernel_name] else {}
        found |= {"C": list(self.costs)} if self.loss else {}
        return {**found, "folds": self.folds, "fold_seed": self.seed}
