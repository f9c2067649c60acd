"""What a job with a loss says: rows may lie inside of the margin or on the wrong side, at a cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.choices import Loss
from coremargin.problems.job import TrainJob

#: Values of C whose products with squares of margins neither over- nor underflow.
COSTS = (1e-100, 1e100)
COST = 1.0  #: C of a loss when nothing is said

ClassWeight = Literal["balanced"] | tuple[float, float]


def numbers_of(text: str) -> float | list[float]:
    """A number, or several with commas. Raises ValueError."""
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


#: What jobs say of it.
ClassWeights = Annotated[
    ClassWeight | None,
    Meta(
        description="Factors of C: smaller label, larger label.",
        extra={"metavar": "balanced|NEG,POS", "text": class_weight_of},
    ),
]


def check_costs(costs: Iterable[float]) -> None:
    """Refuse values of C that are out of range, or said twice. Raises ValueError."""
    costs = list(costs)
    for cost in costs:
        if not COSTS[0] <= cost <= COSTS[1]:
            raise ValueError(f"C: expected a number above 0, from {COSTS[0]:g} to {COSTS[1]:g}; found {cost}")
    if not costs or len(set(costs)) < len(costs):
        raise ValueError(f"C: expected different numbers; found {costs}")


def check_class_weight(weight: ClassWeight | None) -> None:
    """Refuse factors that are not above 0. Raises ValueError."""
    if isinstance(weight, tuple) and not all(0 < factor < float("inf") for factor in weight):
        raise ValueError(f"class_weight: expected two numbers above 0; found {list(weight)}")


def check_without_loss(cost: float | tuple[float, ...] | None, weight: ClassWeight | None) -> None:
    """Refuse what only a loss has. Raises ValueError."""
    for name, found in (("C", cost), ("class_weight", weight)):
        if found is not None:
            shown = list(found) if isinstance(found, tuple) else found
            raise ValueError(f"{name}: a hard margin has none, found {shown!r}; give loss too")


def loss_parameters(loss: str, cost: float, weight: ClassWeight | None) -> dict[str, Any]:
    """What a record keeps of a loss."""
    return {"loss": loss, "C": cost, "class_weight": list(weight) if isinstance(weight, tuple) else weight}


def loss_told(loss: str, cost: float) -> str:
    """A loss and what it costs, for people."""
    return f"{loss.replace('_', ' ')}, C {cost:g}"


class LossJob(TrainJob, frozen=True, kw_only=True):
    """What jobs say that may come to a loss between two classes.

    C: the weight of a row's loss, 1.0 where None is said, no number, so that any C without a loss is noticed.
    class_weight: factors of C for the negative and the positive class, or "balanced": n / (2 n_class). Weights that the
    store has of its rows are factors of C too, and n are their sums; a row of weight 0 is left out.
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
        """Refuse what is out of range. Raises ValueError."""
        super().__post_init__()
        check_costs([self.cost])
        check_class_weight(self.class_weight)

    @property
    def cost(self) -> float:
        """C, said or not."""
        return COST if self.C is None else self.C

    def parameters(self) -> dict[str, Any]:
        """What decides about the result."""
        return super().parameters() | loss_parameters(self.loss, self.cost, self.class_weight)


class SoftMarginJob(LossJob, frozen=True, kw_only=True):
    """A soft margin between two classes; loss: of rows inside of the margin or on the wrong side."""

    loss: Annotated[
        Loss, Meta(description="For noisy rows; auto: if there is no hard margin; without it: hard margin.")
    ]
