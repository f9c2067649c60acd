"""The record and the arrays of a relative margin."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from coremargin.formats.limits import LARGEST_RELATIVE_MARGIN
from coremargin.formats.model_arrays import Numbers, Schema
from coremargin.formats.model_record import AboveZero, HyperplaneParameters, TwoClasses


class RelativeMarginParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """What was asked for; class_weight: factors of C of the negative and of the positive class.

    relative_margin: B, which no decision value exceeds.
    """

    loss: Literal["hinge"]
    C: AboveZero
    class_weight: Literal["balanced"] | tuple[AboveZero, AboveZero] | None
    relative_margin: Annotated[float, Meta(gt=1, le=LARGEST_RELATIVE_MARGIN)]


class RelativeMargin(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="relative_margin"):
    """A hyperplane that minimises the hinge loss while the decision values of all rows are from -B to B.

    The coreset's rows have dual weights of their own, of either sign; all others have that of their side of the
    reference.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("duality_gap",)

    parameters: RelativeMarginParameters

    @property
    def coreset_width(self) -> int:
        """The proof is about all rows of the store."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with the hypothesis that gives all other rows their dual weights."""
        return super().schema(names) | {"reference": Numbers("f8", (self.width + 1,))}


RECORD = RelativeMargin
