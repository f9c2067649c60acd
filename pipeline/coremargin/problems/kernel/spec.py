"""Training jobs with kernels: their options and the checks of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.choices import KernelStrategy, Loss
from coremargin.formats.function import CALLABLE, LEAST_ERROR, MOST_ERROR
from coremargin.formats.limits import GAMMAS, MOST_DEGREE
from coremargin.problems.fleet.risk import check_choice
from coremargin.problems.fleet.spec import Choose, Folds, FoldSeed, check_folds
from coremargin.problems.job import TrainJob, check_gammas, parse_gamma
from coremargin.problems.outliers.kind import parse_outliers
from coremargin.problems.relative_margin.spec import BoundOfDecisions, check_relative_margin
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
    from coremargin.formats.fleet_record import Setting
    from coremargin.maths.kernel.functions import KernelFunction

#: The available kernels, for messages.
KERNELS = "linear, poly, rbf, or a function as module:function"
#: What to do when the working set does not fit in memory, for messages.
HELP = "train on a part of the rows"
#: Default of ``kernel_error``, relative to sqrt(k(x, x) k(z, z)): a hundred times the rounding error of sums of a few
#: thousand products in float64.
KERNEL_ERROR = 1e-10

GAMMA = Meta(
    description="For rbf and poly; several values: a model for each.",
    extra={"metavar": "scale|NUMBER[,...]", "text": parse_gamma},
)


class KernelOptions(TrainJob, frozen=True, kw_only=True):
    """The kernel of a job.

    gamma "scale" is 1 / (d var), where var is the variance of all numbers of all rows, as in scikit-learn's SVC.
    degree, coef0: of the polynomial (gamma x.z + coef0)^degree. kernel "module:function" names a function k(X, Z) that
    returns the values (n, m) of rows (n, d) and (m, d). It must be symmetric and positive semi-definite: the proof
    holds for every such kernel whose values are within ``kernel_error`` sqrt(k(x, x) k(z, z)) of the function's.
    memory: for the kernel matrix of the working set, which grows with the square of its rows.
    """

    kernel: Annotated[
        str,
        Meta(
            description="Kernel of two rows: x.z, (gamma x.z + coef0)^degree, exp(-gamma ||x - z||^2), or your own "
            "function k(X, Z).",
            extra={"metavar": "linear|poly|rbf|MODULE:FUNCTION"},
        ),
    ]
    gamma: Any = "scale"
    degree: Annotated[int, Meta(description="For poly.")] = 3
    coef0: Annotated[float, Meta(description="For poly.")] = 0.0
    kernel_error: Annotated[
        float | None,
        Meta(
            description="Largest error of the values of your own kernel, relative to sqrt(k(x,x) k(z,z)); the proof "
            f"accounts for it.  [default: {KERNEL_ERROR}]"
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raises ValueError for options out of range, or of another kernel."""
        super().__post_init__()
        self._check_kernel()
        check_gammas(self.gammas)
        if not 1 <= self.degree <= MOST_DEGREE:
            raise ValueError(f"degree: expected a whole number from 1 to {MOST_DEGREE}; found {self.degree}")
        if not 0 <= self.coef0 <= GAMMAS[1]:
            raise ValueError(
                f"coef0: expected a number from 0 to {GAMMAS[1]:g}, found {self.coef0}: below 0 the kernel is not "
                f"positive semi-definite, and nothing can be proven"
            )
        for name in sorted(self.meaningless):
            found = getattr(self, name)
            if found != PARAMETERS[name]:
                raise ValueError(f"{name}: the kernel {self.kernel!r} has none, found {found!r}; leave it out")

    def _check_kernel(self) -> None:
        if self.kernel == "sigmoid":
            raise ValueError(
                f"kernel: 'sigmoid' is not positive semi-definite: the problem has no optimum and nothing can be "
                f"proven; expected {KERNELS}"
            )
        if self.kernel == "precomputed":
            raise ValueError(
                f"kernel: a 'precomputed' matrix of all rows does not fit in memory; values are computed as they are "
                f"needed; expected {KERNELS}, or from Python a function k(X, Z) of rows"
            )
        if self.kernel_name not in OWN or self.kernel == CALLABLE:
            raise ValueError(f"kernel: expected {KERNELS}; found {self.kernel!r}")
        if self.kernel_error is None:
            return
        if self.kernel_name != CALLABLE:
            raise ValueError(f"kernel_error: applies to a function only, not to the kernel {self.kernel!r}")
        if not LEAST_ERROR <= self.kernel_error <= MOST_ERROR:
            raise ValueError(
                f"kernel_error: expected a number from {LEAST_ERROR:g} to {MOST_ERROR:g}; found {self.kernel_error}"
            )

    def _check_map(self) -> None:
        """Raises ValueError for a map: gamma, degree and coef0 are the kernel's here."""
        for name in ("map", "components", "map_seed"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: cannot be combined with kernel; leave out kernel, or all options of the map")

    @property
    def meaningless(self) -> frozenset[str]:
        """The parameters that only other kernels have."""
        return frozenset(PARAMETERS) - set(OWN[self.kernel_name])

    @property
    def kernel_name(self) -> str:
        """The kernel's name in records, which is the same for all functions."""
        return CALLABLE if ":" in self.kernel else self.kernel

    @property
    def error(self) -> float:
        """``kernel_error`` or its default; used for functions only."""
        return KERNEL_ERROR if self.kernel_error is None else self.kernel_error

    @property
    def function(self) -> KernelFunction | None:
        """The user-defined function, imported; None for other kernels. Raises UsageError."""
        from coremargin.models.function import imported

        return imported(self.kernel, "kernel") if self.kernel_name == CALLABLE else None

    @property
    def said_again(self) -> tuple[str, ...]:
        """The option that names the function: no record's function is ever imported."""
        return ("--kernel", self.kernel) if self.kernel_name == CALLABLE else ()

    def identity(self) -> dict[str, Any]:
        """With the function and a digest of its source: a checkpoint of another function cannot be resumed."""
        from coremargin.models.function import source_digest

        function = self.function
        own = {} if function is None else {"kernel_function": self.kernel, "kernel_text": source_digest(function)}
        return super().identity() | own

    def kernel_parameters(self, gamma: str | float) -> dict[str, Any]:
        """The kernel in the record of a model with this gamma."""
        own = {name: gamma if name == "gamma" else getattr(self, name) for name in OWN[self.kernel_name]}
        if self.kernel_name == CALLABLE:
            own["kernel_error"] = self.error
        return {"kernel": self.kernel_name, **own}


class KernelSpec(KernelOptions, frozen=True, kw_only=True):
    """Options of all machines with kernels: two classes are one column, with classes "ovr" each class is one.

    Without a loss the margin is hard. The value of a loss is 1/2 ||f||^2 + C sum loss, summed over the classes.
    relative_margin: bound of the decision values of all rows in each column, with the hinge.
    """

    loss: Annotated[Loss | None, Meta(description="For noisy rows; without a loss: hard margin.")] = None
    C: Any = None
    class_weight: ClassWeights = None
    classes: Literal["ovr"] | None = None
    relative_margin: BoundOfDecisions | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for options out of range, or of another kernel."""
        super().__post_init__()
        check_costs(self.costs)
        check_class_weight(self.class_weight)
        if self.relative_margin is not None:
            check_relative_margin(self.relative_margin, self.loss)
        if self.loss is None:
            check_without_loss(self.C, self.class_weight)

    @property
    def costs(self) -> tuple[float, ...]:
        """The values of C in increasing order; meaningless without a loss."""
        return tuple(sorted(self.C)) if isinstance(self.C, tuple) else (COST if self.C is None else self.C,)

    def parameters_of(self, cost: float, gamma: str | float) -> dict[str, Any]:
        """The parameters in the record of a model with this C and gamma."""
        shared = super().parameters() | self.kernel_parameters(gamma) | {"classes": self.classes}
        if self.loss is None:
            return shared
        bound = {} if self.relative_margin is None else {"relative_margin": self.relative_margin}
        return shared | loss_parameters(self.loss, cost, self.class_weight) | bound


class KernelJob(KernelSpec, frozen=True, kw_only=True):
    """One model with a kernel.

    strategy: of a hard margin between two classes, a published algorithm by its name; all of them end with the same
    kind of certificate. outliers: of a hard margin between two classes, how many rows may be left out: a number, or a
    share of the rows with a label and a weight. A search proves that no other rows are better to leave out.
    """

    gamma: Annotated[Literal["scale"] | float, GAMMA] = "scale"
    C: Annotated[
        float | None,
        Meta(description=f"Weight of the loss, {COST} unless given.", extra={"text": numbers_of}),
    ] = None

    strategy: Annotated[
        KernelStrategy,
        Meta(
            description="Of a hard margin: a published algorithm, which ends with the same certificate; `coremargin "
            "compare --help` lists them.",
            extra={"metavar": "NAME"},
        ),
    ] = "fast"
    outliers: Annotated[
        int | str | None,
        Meta(description="Rows to exclude as outliers: 10, or 1%.", extra={"metavar": "K", "text": parse_outliers}),
    ] = None

    def __post_init__(self) -> None:
        """Raises ValueError for options out of range, and for what a strategy, or outliers, cannot do."""
        super().__post_init__()
        if self.outliers is not None:
            self._check_outliers(self.outliers)
        if self.strategy == "fast":
            return
        for name in ("loss", "classes"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"strategy: {self.strategy!r} is for hard margins between two classes, found {name} "
                    f"{getattr(self, name)!r}; leave it out, or take strategy 'fast'"
                )
        if self.kernel_name == CALLABLE:
            raise ValueError(
                f"strategy: {self.strategy!r} needs a bound on k(x, x), which a function does not state; take "
                "strategy 'fast', or one of the kernels linear, poly, rbf"
            )

    def _check_outliers(self, outliers: int | str) -> None:
        from coremargin.problems.outliers.removal import check_one_count

        check_one_count(outliers)
        for name, default in (("loss", None), ("classes", None), ("strategy", "fast")):
            if getattr(self, name) != default:
                raise ValueError(
                    f"outliers: they are for hard margins between two classes by strategy 'fast', found {name} "
                    f"{getattr(self, name)!r}; leave out one of the two"
                )
        if self.kernel_name == CALLABLE:
            raise ValueError(
                "outliers: with a kernel they need one of linear, poly, rbf, found a function; a feature map "
                "(map) takes outliers too"
            )

    def parameters(self) -> dict[str, Any]:
        """The parameters in the model's record."""
        outliers = {} if self.outliers is None else {"outliers": self.outliers}
        return self.parameters_of(self.costs[0], self.gamma) | {"strategy": self.strategy} | outliers


class KernelFleetJob(KernelSpec, frozen=True, kw_only=True):
    """Several models with kernels, trained together: one for each C, gamma and fold.

    C and gamma may be lists, of which each pair is trained. folds, fold_seed: as for ``FleetJob``; the best mean
    accuracy on held-out rows chooses C and gamma together, or with choose "risk" the least guaranteed risk.
    """

    gamma: Annotated[Literal["scale"] | float | tuple[Literal["scale"] | float, ...], GAMMA] = "scale"
    C: float | tuple[float, ...] | None = None
    folds: Folds = None
    fold_seed: FoldSeed = None
    choose: Choose = None

    def __post_init__(self) -> None:
        """Raises ValueError for options out of range."""
        super().__post_init__()
        check_folds(self.folds, self.fold_seed)
        check_choice(self, uses_gamma="gamma" in OWN[self.kernel_name])
        if self.choose == "risk" and (self.kernel_name == CALLABLE or self.classes or self.relative_margin):
            raise ValueError(
                "choose: 'risk' is for the kernels linear, poly and rbf, two classes, without relative_margin"
            )

    def setting_of(self, number: int, cost: float) -> Setting:
        """C, and the gamma with this number, as the fleet's record states them."""
        return cost if self.loss else None, self.gammas[number] if "gamma" in OWN[self.kernel_name] else None

    @property
    def seed(self) -> int:
        """``fold_seed`` or its default."""
        return self.fold_seed or 0

    def parameters(self) -> dict[str, Any]:
        """The parameters in the fleet's record."""
        found = self.parameters_of(self.costs[0], self.gammas[0])
        found |= {"gamma": list(self.gammas)} if "gamma" in OWN[self.kernel_name] else {}
        found |= {"C": list(self.costs)} if self.loss else {}
        found |= {"choose": self.choose} if self.choose == "risk" else {}
        return {**found, "folds": self.folds, "fold_seed": self.seed}


#: Parameters of kernels with their defaults, and the parameters that each kernel has.
PARAMETERS: dict[str, Any] = {"gamma": "scale", "degree": 3, "coef0": 0.0}
OWN: dict[str, tuple[str, ...]] = {"linear": (), "poly": ("gamma", "degree", "coef0"), "rbf": ("gamma",), CALLABLE: ()}
