"""What a job about several classes at once says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from coremargin.problems.job import TrainJob
from coremargin.problems.soft.spec import COST, check_costs, check_without_loss, loss_parameters


class CrammerSingerJob(TrainJob, frozen=True, kw_only=True):
    """One model of all classes at once (Crammer, Singer), hard or with the hinge.

    Intercepts are penalised as those of a constant feature as long as the longest row. class_weight "balanced" is
    n / (classes n_class). Of the hinge with fewer than 50 rows for each number of the hypothesis as much is read first
    as memory takes.
    """

    classes: Annotated[
        Literal["crammer-singer"],
        Meta(description="More than two classes: each against the rest, or all at once."),
    ]
    loss: Literal["hinge"] | None = None
    C: float | None = None
    class_weight: Literal["balanced"] | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range. Raises ValueError."""
        super().__post_init__()
        check_costs([self.cost])
        if self.loss is None:
            check_without_loss(self.C, self.class_weight)

    @property
    def cost(self) -> float:
        """C, said or not; of no meaning without a loss."""
        return COST if self.C is None else self.C

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps."""
        shared = super().parameters() | {"classes": self.classes}
        return shared if self.loss is None else shared | loss_parameters(self.loss, self.cost, self.class_weight)
