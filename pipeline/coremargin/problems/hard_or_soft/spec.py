"""What a job says that tries a hard margin first, and takes a loss where none is possible."""

from __future__ import annotations

from typing import Any, Literal

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.problems.fleet.spec import FleetJob
from coremargin.problems.hard.spec import HardMarginJob
from coremargin.problems.job import TrainJob
from coremargin.problems.soft.spec import LossJob, SoftMarginJob


class HardOrSoftJob(LossJob, frozen=True, kw_only=True):
    """A hard margin between two classes or, once it is proven that there is none, a soft one.

    Of more than two classes each is trained against the rest, with the loss: of a class with a hard margin and one
    without the decision values would have different units. C, class_weight: of the loss, which is the squared hinge.
    """

    loss: Literal["auto"]
    classes: Literal["ovr"] | None = None

    def parameters(self) -> dict[str, Any]:
        """What decides about the result."""
        return super().parameters() | {"classes": self.classes}

    def hard(self) -> HardMarginJob:
        """The job that is tried first."""
        return HardMarginJob(**self._shared())

    def soft(self) -> SoftMarginJob:
        """The job that it goes on with."""
        return SoftMarginJob(**self._shared(), loss=LOSS_TAKEN, C=self.cost, class_weight=self.class_weight)

    def against_the_rest(self) -> FleetJob:
        """The job of more than two classes."""
        return FleetJob(**self._shared(), classes="ovr", loss=LOSS_TAKEN, C=self.cost, class_weight=self.class_weight)

    def _shared(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in TrainJob.__struct_fields__}
