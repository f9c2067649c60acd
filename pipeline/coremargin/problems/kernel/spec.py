"""What a job with a kernel says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.choices import Loss
from coremargin.problems.job import TrainJob
from coremargin.problems.maps import gamma_of
from coremargin.problems.soft.spec import (
    COST,
    ClassWeights,
    check_class_weight,
    check_costs,
    check_without_loss,
    loss_parameters,
    numbers_of,
)

#: What to do where memory does not.
HELP = "train on a part of the rows"
#: gamma between which products with squares of rows neither over- nor underflow.
GAMMAS = (1e-100, 1e100)
#: Degrees of a polynomial; what it is beyond overflows for rows of length 2.
MOST_DEGREE = 100


GAMMA = Meta(
    description="Of rbf and poly; several: a model each.", extra={"metavar": "scale|NUMBER[,...]", "text": gamma_of}
)


class KernelSpec(TrainJob, frozen=True, kw_only=True):
    """What jobs with kernels say: of two classes one column, with classes "ovr" each class against the rest.

    gamma "scale" is 1 / (d var), var being the variance of all numbers of all rows, as scikit-learn's SVC has it.
    degree, coef0: of the polynomial (gamma x.z + coef0)^degree. Without a loss the margin is a hard one. The value of a
    loss is 1/2 ||f||^2 + C sum loss, that of several classes the sum of these. memory: for the kernel values of the
    pool's rows with each other, which are the square of their number.
    """

    kernel: Annotated[
        Literal["linear", "poly", "rbf", "sigmoid"],
        Meta(
            description="Of rows: x.z, (gamma x.z + coef0)^degree, exp(-gamma ||x - z||^2).",
            extra={"metavar": "linear|poly|rbf"},
        ),
    ]
    gamma: Any = "scale"
    degree: Annotated[int, Meta(description="Of poly.")] = 3
    coef0: Annotated[float, Meta(description="Of poly.")] = 0.0
    loss: Annotated[Loss | None, Meta(description="For noisy rows; without it: hard margin.")] = None
    C: Any = None
    class_weight: ClassWeights = None
    classes: Literal["ovr"] | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range. Raises ValueError."""
        super().__post_init__()
        if self.kernel == "sigmoid":
            raise ValueError(
                "kernel: 'sigmoid' is not positive semi-definite: its machine has no best one, nothing could be "
                "proven; expected linear, poly or rbf"
            )
        check_costs(self.costs)
        check_class_weight(self.class_weight)
        if self.loss is None:
            check_without_loss(self.C, self.class_weight)
        check_gammas(self.gammas)
        if not 1 <= self.degree <= MOST_DEGREE:
            raise ValueError(f"degree: expected a whole number from 1 to {MOST_DEGREE}; found {self.degree}")
        if not 0 <= self.coef0 <= GAMMAS[1]:
            raise ValueError(
                f"coef0: expected a number from 0 on, found {self.coef0}: below 0 the kernel is not positive "
                f"semi-definite, and nothing is proven about its machine"
            )
        self._refuse_others()

    def _check_map(self) -> None:
        """Raises ValueError for a map: gamma, degree and coef0 are the kernel's here."""
        for name in ("map", "components", "map_seed"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: a machine with a kernel maps no rows; leave out kernel, or all of the map")

    def _refuse_others(self) -> None:
        """Raises ValueError for a parameter that this kernel does not have."""
        fields: dict[str, Any] = {"gamma": "scale", "degree": 3, "coef0": 0.0}
        for name, default in fields.items():
            found = getattr(self, name)
            if found != default and name not in OWN[self.kernel]:
                raise ValueError(f"{name}: the kernel {self.kernel!r} has none, found {found!r}; leave it out")

    @property
    def costs(self) -> tuple[float, ...]:
        """The values of C, from small to large; of no meaning without a loss."""
        return tuple(sorted(self.C)) if isinstance(self.C, tuple) else (COST if self.C is None else self.C,)

    def parameters_of(self, cost: float, gamma: str | float) -> dict[str, Any]:
        """What the record of a model with these keeps."""
        own = {name: gamma if name == "gamma" else getattr(self, name) for name in OWN[self.kernel]}
        shared = super().parameters() | {"kernel": self.kernel, **own, "classes": self.classes}
        return shared if self.loss is None else shared | loss_parameters(self.loss, cost, self.class_weight)


class KernelJob(KernelSpec, frozen=True, kw_only=True):
    """One machine with a kernel."""

    gamma: Annotated[Literal["scale"] | float, GAMMA] = "scale"
    C: Annotated[
        float | None,
        Meta(description=f"Weight of a row's loss, {COST} where --loss stands alone.", extra={"text": numbers_of}),
    ] = None

    @property
    def cost(self) -> float:
        """C, said or not; of no meaning without a loss."""
        return self.costs[0]

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps."""
        return self.parameters_of(self.cost, self.gamma)


def check_gammas(gammas: Sequence[str | float]) -> None:
    """Refuse values of gamma that are out of range, or said twice. Raises ValueError."""
    for gamma in gammas:
        if gamma != "scale" and not GAMMAS[0] <= float(gamma) <= GAMMAS[1]:
            raise ValueError(f"gamma: expected scale, or a number above 0; found {gamma}")
    if not gammas or len(set(gammas)) < len(gammas):
        raise ValueError(f"gamma: expected different numbers; found {list(gammas)}")


#: The parameters of each kernel.
OWN: dict[str, tuple[str, ...]] = {"linear": (), "poly": ("gamma", "degree", "coef0"), "rbf": ("gamma",)}
