"""The record and the arrays of a soft margin."""

from __future__ import annotations

from typing import ClassVar, Literal

from coremargin.formats.choices import Loss
from coremargin.formats.model_arrays import Numbers, Schema
from coremargin.formats.model_record import WHOLE, AboveZero, Parameters, TwoClasses, View


class SoftParameters(Parameters, frozen=True, kw_only=True):
    """What was asked for; class_weight: factors of C of the negative and of the positive class."""

    loss: Loss
    C: AboveZero
    class_weight: Literal["balanced"] | tuple[AboveZero, AboveZero] | None


class SoftMargin(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="soft_margin"):
    """A soft margin; ``view`` is that of a member of a fleet."""

    KINDS: ClassVar[tuple[str, ...]] = ("duality_gap",)
    OLDER: ClassVar[tuple[str, ...]] = ("ledger_reference",)

    parameters: SoftParameters
    view: View = WHOLE

    @property
    def coreset_width(self) -> int:
        """The proof is about all rows of the store."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with the hypothesis that gives all other rows their dual weights."""
        return super().schema(names) | {"reference": Numbers("f8", (self.features + 1,))}


RECORD = SoftMargin
