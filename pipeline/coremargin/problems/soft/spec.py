"""Options of jobs with a loss: rows may lie inside the margin or on the wrong side, at a cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.choices import Loss
from coremargin.problems.job import TrainJob

#: Range of C in which products with squares of margins do not over- or underflow.
COSTS = (1e-100, 1e100)
COST = 1.0  #: default of C

ClassWeight = Literal["balanced"] | tuple[float, float]


def numbers_of(text: str) -> float | list[float]:
    """One number, or several separated by commas. Raises ValueError."""
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"expected a number, or several as in 0.1,1,10; found {text!r}") from None
    return numbers if len(numbers) > 1 else numbers[0]


def class_weight_of(text: str) -> str | list[float]:
    """The word balanced, or two numbers as in 1,5. Raises ValueError."""
    if text == "balanced":
        return text
    try:
        negative, positive = (float(word) for word in text.split(","))
    except ValueError:
        raise ValueError(f"expected balanced, or two numbers as in 1,5; found {text!r}") from None
    return [negative, positive]


ClassWeights = Annotated[
    ClassWeight | None,
    Meta(
        description="Factors of C: smaller label, larger label.",
        extra={"metavar": "balanced|NEG,POS", "text": class_weight_of},
    ),
]


def check_costs(costs: Iterable[float]) -> None:
    """Raises ValueError for values of C that are out of range or given twice."""
    costs = list(costs)
    for cost in costs:
        if not COSTS[0] <= cost <= COSTS[1]:
            raise ValueError(f"C: expected a number above 0, from {COSTS[0]:g} to {COSTS[1]:g}; found {cost}")
    if not costs or len(set(costs)) < len(costs):
        raise ValueError(f"C: expected different numbers; found {costs}")


def check_class_weight(weight: ClassWeight | None) -> None:
    """Raises ValueError for factors that are not above 0."""
    if isinstance(weight, tuple) and not all(0 < factor < float("inf") for factor in weight):
        raise ValueError(f"class_weight: expected two numbers above 0; found {list(weight)}")


def check_without_loss(cost: float | tuple[float, ...] | None, weight: ClassWeight | None) -> None:
    """Raises ValueError for options that need a loss."""
    for name, found in (("C", cost), ("class_weight", weight)):
        if found is not None:
            shown = list(found) if isinstance(found, tuple) else found
            raise ValueError(f"{name}: a hard margin has none, found {shown!r}; give loss too")


def loss_parameters(loss: str, cost: float, weight: ClassWeight | None) -> dict[str, Any]:
    """The parameters of a loss, for records."""
    return {"loss": loss, "C": cost, "class_weight": list(weight) if isinstance(weight, tuple) else weight}


def describe_loss(loss: str, cost: float) -> str:
    """A loss and its C, for messages."""
    return f"{loss.replace('_', ' ')}, C {cost:g}"


class LossJob(TrainJob, frozen=True, kw_only=True):
    """Options of jobs that may have a loss between two classes.

    C: the weight of a row's loss; None means 1.0, so that a C without a loss is noticed. class_weight: factors of C for
    the negative and the positive class, or "balanced": n / (2 n_class). The sample weights of a store are factors of C
    too, and n are then their sums; a row of weight 0 is excluded.
    """

    loss: Any
    C: Annotated[
        float | None,
        Meta(
            description=f"Weight of a row's loss, {COST} where --loss stands alone; several: a model each.",
            extra={"metavar": "NUMBER[,...]", "text": numbers_of},
        ),
    ] = None
    class_weight: ClassWeights = None

    def __post_init__(self) -> None:
        """Raises ValueError for values out of range."""
        super().__post_init__()
        check_costs([self.cost])
        check_class_weight(self.class_weight)

    @property
    def cost(self) -> float:
        """C, or its default."""
        return COST if self.C is None else self.C

    def parameters(self) -> dict[str, Any]:
        """See ``TrainJob``."""
        return super().parameters() | loss_parameters(self.loss, self.cost, self.class_weight)


class SoftMarginJob(LossJob, frozen=True, kw_only=True):
    """A soft margin between two classes; loss: of rows inside the margin or on the wrong side."""

    loss: Annotated[
        Loss, Meta(description="For noisy rows; auto: if there is no hard margin; without it: hard margin.")
    ]
