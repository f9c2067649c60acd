"""The record and the arrays of a ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import Cost, ModelRecord, Parameters


class RankingParameters(Parameters, frozen=True, kw_only=True):
    """What was asked for."""

    structure: Literal["ranking"]
    loss: Literal["hinge"]
    C: Cost


class Ranking(ModelRecord, frozen=True, kw_only=True, tag_field="problem", tag="ranking"):
    """Weights of features, and the points of the cuts that bound the value of all others from below."""

    KINDS: ClassVar[tuple[str, ...]] = ("duality_gap",)

    parameters: RankingParameters

    def __post_init__(self) -> None:
        """Raises ValueError for a proof that names rows, and for mapped rows."""
        super().__post_init__()
        if self.certificate.coreset_rows:
            raise ValueError(f"expected no coreset rows of a ranking, found {self.certificate.coreset_rows}")
        if self.map:
            raise ValueError(f"expected rows that are not mapped, found map {self.map!r}")

    @property
    def coreset_width(self) -> int:
        """No row is stored."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The weights, and the cuts by their points."""
        return super().schema(names) | {
            "w": Numbers("f8", (self.width,)),
            "cuts_point": Numbers("f8", ("cuts", self.width)),
            "cuts_weight": Numbers("f8", ("cuts",)),
        }

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Weights are weights. Raises DataError."""
        demand((arrays["cuts_weight"] > 0).all(), place, "cuts_weight", "weights above 0")
        super().check_values(arrays, place)


RECORD = Ranking
