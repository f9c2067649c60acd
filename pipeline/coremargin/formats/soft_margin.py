"""The record and the arrays of a soft margin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from coremargin.formats.choices import Loss
from coremargin.formats.fleet_record import FleetRecord
from coremargin.formats.limits import CURVE_FEATURES
from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import WHOLE, AboveZero, Folds, Parameters, Seed, TwoClasses, View

if TYPE_CHECKING:
    import numpy as np


class SoftParameters(Parameters, frozen=True, kw_only=True):
    """What was asked for; class_weight: factors of C of the negative and of the positive class."""

    loss: Loss
    C: AboveZero
    class_weight: Literal["balanced"] | tuple[AboveZero, AboveZero] | None


class SoftFleetParameters(SoftParameters, frozen=True, kw_only=True):
    """What was asked for of a fleet; C: the values, from small to large."""

    C: Annotated[list[AboveZero], Meta(min_length=1)]  # type: ignore[assignment]
    classes: Literal["ovr"] | None
    folds: Folds | None
    fold_seed: Seed

    @property
    def costs(self) -> list[float | None]:
        """The values of C."""
        return list(self.C)


class SoftFleet(FleetRecord, frozen=True, kw_only=True, tag_field="problem", tag="soft_margin"):
    """Many soft margins."""

    parameters: SoftFleetParameters


class SoftMargin(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="soft_margin"):
    """A soft margin; ``view`` is that of a member of a fleet."""

    FLEET: ClassVar[type[FleetRecord]] = SoftFleet
    KINDS: ClassVar[tuple[str, ...]] = ("duality_gap",)
    OLDER: ClassVar[tuple[str, ...]] = ("ledger_reference",)

    parameters: SoftParameters
    view: View = WHOLE

    @property
    def coreset_width(self) -> int:
        """The proof is about all rows of the store."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with the hypothesis that gives all other rows their dual weights; or several, and each chunk's.

        ramp: the squared hinge's dual weights are those of verify/soft/correction.py.
        """
        if "ramp" in names:
            one = {"reference": Numbers("f8", (self.features + 1,)), "ramp": Numbers("f8", (1,))}
            return super().schema(names) | one
        if "reference_of" not in names:
            return super().schema(names) | {"reference": Numbers("f8", (self.features + 1,))}
        several: Schema = {
            "reference": Numbers("f8", ("references", self.features + 1)), "reference_of": Numbers("i8", ("chunks",)),
        }  # fmt: skip
        return super().schema(names) | several

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Each chunk has one of the references; a ramp is there for what has one. Raises DataError."""
        of = arrays.get("reference_of")
        if of is not None:
            inside = len(of) and ((of >= 0) & (of < len(arrays["reference"]))).all()
            demand(inside, place, "reference_of", "places among the references")
        if "ramp" in arrays:
            demand(arrays["ramp"][0] > 0, place, "ramp", "a number above 0")
            squared = self.parameters.loss == "squared_hinge" and self.features <= CURVE_FEATURES
            demand(squared, place, "ramp", f"the squared hinge on at most {CURVE_FEATURES} features")
        super().check_values(arrays, place)


RECORD = SoftMargin
