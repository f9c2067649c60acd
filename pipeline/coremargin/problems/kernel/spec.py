"""What a job with a kernel says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.choices import Loss
from coremargin.formats.function import CALLABLE, LEAST_ERROR, MOST_ERROR
from coremargin.formats.limits import GAMMAS, MOST_DEGREE
from coremargin.problems.job import TrainJob, check_gammas, parse_gamma
from coremargin.problems.soft.spec import (
    COST,
    ClassWeights,
    check_class_weight,
    check_costs,
    check_without_loss,
    loss_parameters,
    numbers_of,
)

if TYPE_CHECKING:
    from coremargin.maths.kernel.functions import KernelFunction

#: What there is, for people.
KERNELS = "linear, poly, rbf, or a function as module:function"
#: What to do where memory does not.
HELP = "train on a part of the rows"
#: What values of a function may be off by, of sqrt(k(x, x) k(z, z)), where nothing is said: what sums of a few
#: thousand products in float64 lose, and a hundred times as much.
KERNEL_ERROR = 1e-10


GAMMA = Meta(
    description="Of rbf and poly; several: a model each.", extra={"metavar": "scale|NUMBER[,...]", "text": parse_gamma}
)


class KernelSpec(TrainJob, frozen=True, kw_only=True):
    """What jobs with kernels say: of two classes one column, with classes "ovr" each class against the rest.

    gamma "scale" is 1 / (d var), var being the variance of all numbers of all rows, as scikit-learn's SVC has it.
    degree, coef0: of the polynomial (gamma x.z + coef0)^degree. kernel "module:function" is a function k(X, Z) of rows
    (n, d) and (m, d) that gives their values (n, m), symmetric and positive semi-definite; what is proven holds for
    every such kernel from which its values are off by ``kernel_error`` sqrt(k(x, x) k(z, z)) at most. Without a loss
    the margin is a hard one. The value of a loss is 1/2 ||f||^2 + C sum loss, that of several classes the sum of these.
    memory: for the kernel values of the pool's rows with each other, which are the square of their number.
    """

    kernel: Annotated[
        str,
        Meta(
            description="Of rows: x.z, (gamma x.z + coef0)^degree, exp(-gamma ||x - z||^2), or a function of one's own "
            "k(X, Z).",
            extra={"metavar": "linear|poly|rbf|MODULE:FUNCTION"},
        ),
    ]
    gamma: Any = "scale"
    degree: Annotated[int, Meta(description="Of poly.")] = 3
    coef0: Annotated[float, Meta(description="Of poly.")] = 0.0
    kernel_error: Annotated[
        float | None,
        Meta(
            description="Of a function: what its values may be off by, as a share of sqrt(k(x,x) k(z,z)); the proof "
            f"counts it.  [default: {KERNEL_ERROR}]"
        ),
    ] = None
    loss: Annotated[Loss | None, Meta(description="For noisy rows; without it: hard margin.")] = None
    C: Any = None
    class_weight: ClassWeights = None
    classes: Literal["ovr"] | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range. Raises ValueError."""
        super().__post_init__()
        self._check_kernel()
        check_costs(self.costs)
        check_class_weight(self.class_weight)
        if self.loss is None:
            check_without_loss(self.C, self.class_weight)
        check_gammas(self.gammas)
        if not 1 <= self.degree <= MOST_DEGREE:
            raise ValueError(f"degree: expected a whole number from 1 to {MOST_DEGREE}; found {self.degree}")
        if not 0 <= self.coef0 <= GAMMAS[1]:
            raise ValueError(
                f"coef0: expected a number from 0 to {GAMMAS[1]:g}, found {self.coef0}: below 0 the kernel is not "
                f"positive semi-definite, and nothing is proven about its machine"
            )
        self._refuse_others()

    def _check_kernel(self) -> None:
        """Raises ValueError for a kernel that there is not, and a ``kernel_error`` of one that has none."""
        if self.kernel == "sigmoid":
            raise ValueError(
                f"kernel: 'sigmoid' is not positive semi-definite: its machine has no best one, nothing could be "
                f"proven; expected {KERNELS}"
            )
        if self.kernel == "precomputed":
            raise ValueError(
                f"kernel: 'precomputed' values of all rows are more than memory holds, and are computed as they are "
                f"needed; expected {KERNELS}, from Python a function k(X, Z) of rows"
            )
        if self.kernel_name not in OWN or self.kernel == CALLABLE:
            raise ValueError(f"kernel: expected {KERNELS}; found {self.kernel!r}")
        if self.kernel_error is None:
            return
        if self.kernel_name != CALLABLE:
            raise ValueError(f"kernel_error: only values of a function have one, not the kernel {self.kernel!r}")
        if not LEAST_ERROR <= self.kernel_error <= MOST_ERROR:
            raise ValueError(
                f"kernel_error: expected a number from {LEAST_ERROR:g} to {MOST_ERROR:g}; found {self.kernel_error}"
            )

    def _check_map(self) -> None:
        """Raises ValueError for a map: gamma, degree and coef0 are the kernel's here."""
        for name in ("map", "components", "map_seed"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: a machine with a kernel maps no rows; leave out kernel, or all of the map")

    def _refuse_others(self) -> None:
        """Raises ValueError for a parameter that this kernel does not have."""
        for name in sorted(self.meaningless):
            found = getattr(self, name)
            if found != PARAMETERS[name]:
                raise ValueError(f"{name}: the kernel {self.kernel!r} has none, found {found!r}; leave it out")

    @property
    def meaningless(self) -> frozenset[str]:
        """The parameters of other kernels."""
        return frozenset(PARAMETERS) - set(OWN[self.kernel_name])

    @property
    def kernel_name(self) -> str:
        """What a record calls the kernel: all functions are one."""
        return CALLABLE if ":" in self.kernel else self.kernel

    @property
    def error(self) -> float:
        """``kernel_error``, said or not; of no meaning but for a function."""
        return KERNEL_ERROR if self.kernel_error is None else self.kernel_error

    @property
    def function(self) -> KernelFunction | None:
        """The function that the job names, imported; None of another kernel. Raises UsageError."""
        from coremargin.models.function import imported

        return imported(self.kernel, "kernel") if self.kernel_name == CALLABLE else None

    @property
    def said_again(self) -> tuple[str, ...]:
        """The function."""
        return ("--kernel", self.kernel) if self.kernel_name == CALLABLE else ()

    def identity(self) -> dict[str, Any]:
        """With the function and a digest of its text: a checkpoint of another one is of no use."""
        from coremargin.models.function import source_digest

        function = self.function
        own = {} if function is None else {"kernel_function": self.kernel, "kernel_text": source_digest(function)}
        return super().identity() | own

    @property
    def costs(self) -> tuple[float, ...]:
        """The values of C, from small to large; of no meaning without a loss."""
        return tuple(sorted(self.C)) if isinstance(self.C, tuple) else (COST if self.C is None else self.C,)

    def parameters_of(self, cost: float, gamma: str | float) -> dict[str, Any]:
        """What the record of a model with these keeps."""
        own = {name: gamma if name == "gamma" else getattr(self, name) for name in OWN[self.kernel_name]}
        if self.kernel_name == CALLABLE:
            own["kernel_error"] = self.error
        shared = super().parameters() | {"kernel": self.kernel_name, **own, "classes": self.classes}
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


#: The parameters of kernels, as they are where nothing is said; and those that each kernel has.
PARAMETERS: dict[str, Any] = {"gamma": "scale", "degree": 3, "coef0": 0.0}
OWN: dict[str, tuple[str, ...]] = {"linear": (), "poly": ("gamma", "degree", "coef0"), "rbf": ("gamma",), CALLABLE: ()}
