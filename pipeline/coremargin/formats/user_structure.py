"""The record and the arrays of a structure of the user: it is named, and no part of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta

from coremargin.formats.function import MOST_NAME
from coremargin.formats.model_arrays import Numbers, Schema
from coremargin.formats.model_record import AboveZero, ClassifierRecord, HyperplaneParameters
from coremargin.formats.structured import check_labellings


class UserStructureParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """What was asked for."""

    structure: Literal["callable"]
    loss: Literal["hinge"]
    C: AboveZero


class UserStructure(ClassifierRecord, frozen=True, kw_only=True, tag_field="problem", tag="user_structure"):
    """Weights of a user's structure; its proof is about all rows of the store.

    function: what the structure was called; grouped: an example is a group of rows, not a row.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("duality_gap",)

    parameters: UserStructureParameters
    function: Annotated[str, Meta(min_length=1, max_length=MOST_NAME)]
    grouped: bool

    def __post_init__(self) -> None:
        """Raises ValueError for a proof that names rows, and for mapped rows."""
        super().__post_init__()
        if self.certificate.coreset_rows:
            raise ValueError(f"expected no coreset rows of a structure, found {self.certificate.coreset_rows}")
        if self.map:
            raise ValueError(f"expected rows that are not mapped, found map {self.map!r}")

    @property
    def coreset_width(self) -> int:
        """No row is stored."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The weights, and labellings with their dual weights."""
        schema: Schema = {
            "weights": Numbers("f8", ("weights",)),
            "duals_row": Numbers("i8", ("labellings",)),
            "duals_weight": Numbers("f8", ("labellings",)),
            "duals_ends": Numbers("i8", ("labellings",)),
            "duals_labels": Numbers("u1 u2 u4", ("labels",)),
        }
        return super().schema(names) | schema

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Labellings are labellings. Raises DataError."""
        check_labellings(arrays, self.rows, len(self.classes), place)
        super().check_values(arrays, place)


RECORD = UserStructure
