"""How a job begins: from scratch, or from what a model has kept (retrain.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coremargin.engine.problem import AnyProblem
    from coremargin.maths.mapping import FeatureMap


@dataclass(frozen=True)
class Beginning:
    """From nothing but the rows.

    identity: what must be equal for a checkpoint to be of use, beside what the job says.
    """

    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def retrains(self) -> bool:
        """Whether it is a retraining, be it from scratch."""
        return False

    @property
    def kept_maps(self) -> Sequence[FeatureMap]:
        """The maps that rows are mapped by, of each gamma one; none: they are fitted, where the job asks for them."""
        return ()

    def start(self, problem: AnyProblem) -> tuple[Any, dict[str, Any]]:
        """The first state, and what ``run.json`` says of it."""
        return problem.start(), {}
