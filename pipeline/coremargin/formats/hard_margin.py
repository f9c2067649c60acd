"""The record and the arrays of a hard margin."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from coremargin.formats.choices import Centre, ErrorPick
from coremargin.formats.fleet_record import FleetRecord, Gamma, Gammas
from coremargin.formats.model_arrays import Numbers, Schema
from coremargin.formats.model_record import (
    WHOLE,
    Folds,
    HyperplaneParameters,
    Ratio,
    Rows,
    Seed,
    Share,
    Strict,
    TwoClasses,
    View,
)


class HardFleetParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """What was asked for of a fleet; gamma: of the map of each member's rows, where several were asked for."""

    gamma: Gamma | Gammas | UnsetType = UNSET  # type: ignore[assignment]
    classes: Literal["ovr"] | None
    folds: Folds | None
    fold_seed: Seed

    @property
    def costs(self) -> list[float | None]:
        """There is no C."""
        return [None]


class HardFleet(FleetRecord, frozen=True, kw_only=True, tag_field="problem", tag="hard_margin"):
    """Many hard margins."""

    parameters: HardFleetParameters


class HardMarginParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """What was asked for; centre, pick: of cutting planes."""

    centre: Centre | UnsetType = UNSET
    pick: ErrorPick | UnsetType = UNSET


class Compression(Strict, frozen=True, kw_only=True):
    """The claim that the coreset rows with a weight above 0 are a compression scheme (Louche, Ralaivola 2015).

    kept: their number; the largest margin of these rows alone is that of the model. rows: those that count. error: new
    rows are misclassified with at most this probability, with this confidence, if all are drawn independently.
    """

    kept: Rows
    rows: Rows
    confidence: Share
    error: Ratio


class HardMargin(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="hard_margin"):
    """A hard margin; ``view`` is that of a member of a fleet."""

    FLEET: ClassVar[type[FleetRecord]] = HardFleet

    parameters: HardMarginParameters
    view: View = WHOLE
    compression: Compression | UnsetType = UNSET

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with block bounds, which models of batches lack."""
        block_bounds: Schema = {
            "block_bounds_lower": Numbers("f8", ("chunks", 2), finite=False),
            "block_bounds_direction_index": Numbers("i8", ("chunks",)),
            "block_bounds_directions": Numbers("f8", ("directions", self.width)),
            "block_bounds_known_ids": Numbers("i8", ("known rows",)),
        }
        return super().schema(names) | (block_bounds if names & set(block_bounds) else {})


RECORD = HardMargin
