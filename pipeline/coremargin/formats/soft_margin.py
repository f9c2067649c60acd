"""The record and the arrays of a soft margin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.choices import Loss
from coremargin.formats.fleet_record import FleetRecord, Gamma, Gammas
from coremargin.formats.limits import CURVE_FEATURES
from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import (
    WHOLE,
    AboveZero,
    Folds,
    HyperplaneParameters,
    Number,
    Rows,
    Seed,
    Strict,
    TwoClasses,
    View,
)


class SoftParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """What was asked for; class_weight: factors of C of the negative and of the positive class."""

    loss: Loss
    C: AboveZero
    class_weight: Literal["balanced"] | tuple[AboveZero, AboveZero] | None


class SoftFleetParameters(SoftParameters, frozen=True, kw_only=True):
    """What was asked for of a fleet; C: the values, from small to large; gamma: of the map of each member's rows."""

    gamma: Gamma | Gammas | UnsetType = UNSET  # type: ignore[assignment]
    C: Annotated[list[AboveZero], Meta(min_length=1)]  # type: ignore[assignment]
    classes: Literal["ovr"] | None
    folds: Folds | None
    fold_seed: Seed
    choose: Literal["risk"] | UnsetType = UNSET

    @property
    def costs(self) -> list[float | None]:
        """The values of C."""
        return list(self.C)


class SoftFleet(FleetRecord, frozen=True, kw_only=True, tag_field="problem", tag="soft_margin"):
    """Many soft margins."""

    parameters: SoftFleetParameters


class Tried(Strict, frozen=True, kw_only=True):
    """What was tried before there was a loss: a hard margin. So many rows (``tried_...``) prove that there is none.

    They are different rows with weights above 0, and at most d + 2: no more are needed where hulls meet. upper: the
    largest margin that they leave room for, which is rounding.
    """

    problem: Literal["hard_margin"]
    upper: Number
    coreset_rows: Rows


class SoftMargin(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="soft_margin"):
    """A soft margin; ``view`` is that of a member of a fleet."""

    FLEET: ClassVar[type[FleetRecord]] = SoftFleet
    KINDS: ClassVar[tuple[str, ...]] = ("duality_gap",)

    parameters: SoftParameters
    view: View = WHOLE
    tried: Tried | UnsetType = UNSET

    @property
    def coreset_width(self) -> int:
        """The proof is about all rows of the store."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with the hypothesis that gives all other rows their dual weights; or several, and each chunk's.

        ramp: the squared hinge's dual weights are those of verify/corrected_dual.py.
        """
        own = super().schema(names) | self._tried_schema()
        if "ramp" in names:
            return own | {"reference": Numbers("f8", (self.width + 1,)), "ramp": Numbers("f8", (1,))}
        if "reference_of" not in names:
            return own | {"reference": Numbers("f8", (self.width + 1,))}
        return own | {
            "reference": Numbers("f8", ("references", self.width + 1)),
            "reference_of": Numbers("i8", ("chunks",)),
        }

    def _tried_schema(self) -> Schema:
        """The proof that there is no hard margin: rows by number, their signs and weights."""
        if self.tried is UNSET:
            return {}
        m = (self.tried.coreset_rows,)
        return {"tried_ids": Numbers("i8", m), "tried_y": Numbers("i1", m), "tried_alpha": Numbers("f8", m)}

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Each chunk has one of the references; a ramp is there for what has one. Raises DataError."""
        of = arrays.get("reference_of")
        if of is not None:
            inside = len(of) and ((of >= 0) & (of < len(arrays["reference"]))).all()
            demand(inside, place, "reference_of", "places among the references")
        if self.tried is not UNSET:
            self._check_tried(arrays, place)
        if "ramp" in arrays:
            demand(arrays["ramp"][0] > 0, place, "ramp", "a number above 0")
            squared = self.parameters.loss == "squared_hinge" and self.width <= CURVE_FEATURES
            demand(squared, place, "ramp", f"the squared hinge on at most {CURVE_FEATURES} features")
        super().check_values(arrays, place)

    def _check_tried(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """The rows of the proof: ``verify`` holds all of them in memory, so their number is limited. DataError."""
        ids, most = arrays["tried_ids"], self.width + 2
        demand(len(np.unique(ids)) == len(ids) <= most, place, "tried_ids", f"different rows, at most {most:,}")
        demand(np.isin(arrays["tried_y"], (-1, 1)).all(), place, "tried_y", "signs -1 and 1")
        demand((arrays["tried_alpha"] > 0).all(), place, "tried_alpha", "weights above 0")


RECORD = SoftMargin
