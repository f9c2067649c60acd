"""What a job about many models says: one for each class, value of C, gamma and fold, all from the same scans."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from coremargin.formats.choices import Loss
from coremargin.formats.limits import MOST_FOLDS, MOST_SEED
from coremargin.problems.job import TrainJob, check_map_options
from coremargin.problems.soft.spec import (
    COST,
    ClassWeight,
    check_class_weight,
    check_costs,
    check_without_loss,
    loss_parameters,
)

Gamma: TypeAlias = float | str  #: as it is asked for, "scale" or a number
#: What jobs say of cross-validation.
Folds = Annotated[
    Annotated[int, Meta(ge=2, le=MOST_FOLDS)] | None,
    Meta(description="Cross-validation by so many folds, in the same scans; chooses C, and gamma."),
]
FoldSeed = Annotated[
    Annotated[int, Meta(ge=0, le=MOST_SEED)] | None, Meta(description="Which rows the folds have; 0 unless given.")
]


def check_folds(folds: int | None, seed: int | None) -> None:
    """Refuse a seed of no folds. Raises ValueError."""
    if seed is not None and folds is None:
        raise ValueError("fold_seed: it says which rows each fold has; give folds too")


class FleetJob(TrainJob, frozen=True, kw_only=True):
    """Many models from the same scans, hard margins or with a loss, be it only one class or one C that is left.

    classes "ovr" trains each class against the rest; C may be a list, and gamma, of which each is a map of its own;
    folds is for cross-validation, the fold of a row being a hash of its id and fold_seed, 0 where None is said; the
    best mean accuracy on held-out rows chooses C and gamma together. class_weight: as for a soft margin.
    """

    loss: Loss | None = None
    C: float | tuple[float, ...] | None = None
    class_weight: ClassWeight | None = None
    classes: Literal["ovr"] | None = None
    folds: Folds = None
    fold_seed: FoldSeed = None

    def __post_init__(self) -> None:
        """Refuse what is out of range. Raises ValueError."""
        super().__post_init__()
        check_costs(self.costs)
        check_class_weight(self.class_weight)
        if self.loss is None:
            check_without_loss(self.C, self.class_weight)
        check_folds(self.folds, self.fold_seed)

    def _check_map(self) -> None:
        """There may be several values of gamma. Raises ValueError."""
        check_map_options(self)

    @property
    def problem(self) -> str:
        """That of each member."""
        return "hard_margin" if self.loss is None else "soft_margin"

    def identity(self) -> dict[str, Any]:
        """And what each member is."""
        return super().identity() | {"problem": self.problem}

    @property
    def seed(self) -> int:
        """``fold_seed``, said or not."""
        return self.fold_seed or 0

    @property
    def costs(self) -> tuple[float, ...]:
        """The values of C, from small to large."""
        return tuple(sorted(self.C)) if isinstance(self.C, tuple) else (COST if self.C is None else self.C,)

    @property
    def asked_gammas(self) -> tuple[Gamma | None, ...]:
        """The values of gamma where several were asked for, be it only one that is left; (None,) where not."""
        return self.gammas if isinstance(self.gamma, tuple) else (None,)

    def parameters_of(self, cost: float, gamma: Gamma | None = None) -> dict[str, Any]:
        """The parameters of one member, with this C and gamma."""
        shared = super().parameters() | ({} if gamma is None else {"gamma": gamma})
        return shared if self.loss is None else shared | loss_parameters(self.loss, cost, self.class_weight)

    def parameters(self) -> dict[str, Any]:
        """What the fleet's record keeps."""
        fleet: dict[str, Any] = {"classes": self.classes, "folds": self.folds, "fold_seed": self.seed}
        fleet |= {"gamma": list(self.gammas)} if isinstance(self.gamma, tuple) else {}
        return {**self.parameters_of(self.costs[0]), **({"C": list(self.costs)} if self.loss else {}), **fleet}
