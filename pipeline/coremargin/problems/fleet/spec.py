"""Jobs of models trained together: their options, the checks of these, and the names of the models."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from coremargin.formats.choices import ChooseBy, Loss
from coremargin.formats.limits import MOST_FOLDS, MOST_SEED
from coremargin.problems.fleet.risk import check_choice
from coremargin.problems.job import TrainJob, check_map_options
from coremargin.problems.soft.spec import (
    COST,
    ClassWeight,
    check_class_weight,
    check_costs,
    check_without_loss,
    loss_parameters,
)

Gamma: TypeAlias = float | str  #: as in the job, "scale" or a number
Folds = Annotated[
    Annotated[int, Meta(ge=2, le=MOST_FOLDS)] | None,
    Meta(description="Folds of cross-validation, in the same scans; chooses C, and gamma."),
]
FoldSeed = Annotated[
    Annotated[int, Meta(ge=0, le=MOST_SEED)] | None,
    Meta(description="Seed of the assignment of rows to folds.  [default: 0]"),
]
Choose = Annotated[
    ChooseBy | None,
    Meta(
        description="What chooses C and gamma: accuracy on held-out rows, or the guaranteed risk, a bound on the error "
        "on new rows.  [default: validation, with --folds]"
    ),
]


def check_folds(folds: int | None, seed: int | None) -> None:
    """Raises ValueError for a seed without folds."""
    if seed is not None and folds is None:
        raise ValueError("fold_seed: it assigns rows to folds; give folds too")


class FleetJob(TrainJob, frozen=True, kw_only=True):
    """Several models trained together, by the same scans: hard margins, or with a loss.

    classes "ovr" trains each class against the rest. C may be a list, and so may gamma, of which each value is a map of
    its own. folds is for cross-validation: a row's fold is a hash of its id and fold_seed, and the best mean accuracy
    on held-out rows chooses C and gamma together, or with choose "risk" the least guaranteed risk (risk.py), of two
    classes with a loss. class_weight: as for a soft margin. A list of one value, or one class, is a fleet of one model.
    """

    loss: Loss | None = None
    C: float | tuple[float, ...] | None = None
    class_weight: ClassWeight | None = None
    classes: Literal["ovr"] | None = None
    folds: Folds = None
    fold_seed: FoldSeed = None
    choose: Choose = None

    def __post_init__(self) -> None:
        """Raises ValueError for options out of range."""
        super().__post_init__()
        check_costs(self.costs)
        check_class_weight(self.class_weight)
        if self.loss is None:
            check_without_loss(self.C, self.class_weight)
        check_folds(self.folds, self.fold_seed)
        check_choice(self, uses_gamma=self.map is not None)
        if self.choose == "risk" and self.map == "nystroem":
            raise ValueError(
                "choose: the landmarks of map 'nystroem' are rows, so that the bound would not hold; take 'fourier' or "
                "'polynomial', or choose by folds"
            )

    def _check_map(self) -> None:
        """As for all jobs, but with several values of gamma. Raises ValueError."""
        check_map_options(self)

    @property
    def problem(self) -> str:
        """The problem of each member."""
        return "hard_margin" if self.loss is None else "soft_margin"

    def identity(self) -> dict[str, Any]:
        """With the problem of each member."""
        return super().identity() | {"problem": self.problem}

    @property
    def seed(self) -> int:
        """``fold_seed`` or its default."""
        return self.fold_seed or 0

    @property
    def costs(self) -> tuple[float, ...]:
        """The values of C in increasing order."""
        return tuple(sorted(self.C)) if isinstance(self.C, tuple) else (COST if self.C is None else self.C,)

    @property
    def asked_gammas(self) -> tuple[Gamma | None, ...]:
        """The values of a list of gammas; (None,) for a job without such a list."""
        return self.gammas if isinstance(self.gamma, tuple) else (None,)

    def parameters_of(self, cost: float, gamma: Gamma | None = None) -> dict[str, Any]:
        """The parameters in the record of a member with this C and gamma."""
        shared = super().parameters() | ({} if gamma is None else {"gamma": gamma})
        return shared if self.loss is None else shared | loss_parameters(self.loss, cost, self.class_weight)

    def parameters(self) -> dict[str, Any]:
        """The parameters in the fleet's record."""
        fleet: dict[str, Any] = {"classes": self.classes, "folds": self.folds, "fold_seed": self.seed}
        fleet |= {"choose": self.choose} if self.choose == "risk" else {}
        fleet |= {"gamma": list(self.gammas)} if isinstance(self.gamma, tuple) else {}
        return {**self.parameters_of(self.costs[0]), **({"C": list(self.costs)} if self.loss else {}), **fleet}


def member_name(slug: str | None, cost: float | None, gamma: Gamma | None, fold: int | None) -> str:
    """The name of a member: class-3_C-0.1_fold-2 or, if there are several values of gamma, C-0.1_gamma-2_fold-2."""
    parts: list[tuple[str, Any]] = [
        ("class", slug),
        ("C", _shortest(cost)),
        ("gamma", _shortest(gamma)),
        ("fold", fold),
    ]
    return "_".join(f"{key}-{value}" for key, value in parts if value is not None) or "all"


def _shortest(number: Gamma | None) -> Gamma | None:
    return f"{number:g}" if isinstance(number, float) and float(f"{number:g}") == number else number
