"""The record and the arrays of a smallest enclosing ball."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from msgspec import UNSET, UnsetType

from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import Count, Label, ModelRecord, Parameters, Word
from coremargin.formats.one_class import check_only
from coremargin.formats.outliers import check_proof, removal_schema


class OneClassParameters(Parameters, frozen=True, kw_only=True):
    """What was asked for; only: the class of the rows that count, perhaps as text, as a command line gives it."""

    one_class: Literal["ball"]
    only: Label | UnsetType = UNSET


class BallParameters(OneClassParameters, frozen=True, kw_only=True):
    """The same, and how many rows may lie outside."""

    outliers: Count | Word | UnsetType = UNSET


class OneClass(ModelRecord, frozen=True, kw_only=True, tag_field="problem"):
    """The record of a ball around all rows, or around those with the label ``only``."""

    parameters: OneClassParameters
    only: Label | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for another class than the one that was asked for."""
        super().__post_init__()
        check_only(self.parameters.only, self.only)

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with the dual weights of the coreset."""
        return super().schema(names) | {"alpha": Numbers("f8", (self.certificate.coreset_rows,))}

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Weights are none below 0. Raises DataError."""
        demand((arrays["alpha"] >= 0).all(), place, "alpha", "weights from 0 on")
        super().check_values(arrays, place)


class Ball(OneClass, frozen=True, kw_only=True, tag_field="problem", tag="ball"):
    """The smallest ball.

    The certificate is about the radius: every row is within ``upper`` of the centre, and no ball around the coreset has
    a radius below ``lower``. With outliers the rows at ``outliers_ids`` may lie outside, and the arrays ``proof_...``
    prove the lower bound: certificates, by places in the coreset, and the leaves of a search.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("radius",)

    parameters: BallParameters

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with the centre."""
        numbers: Schema = {"centre": Numbers("f8", (self.width,))}
        if self.parameters.outliers is not UNSET:
            numbers |= removal_schema(names)
        return super().schema(names) | numbers

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """A proof's parts end where they may. Raises DataError."""
        check_proof(arrays, place)
        super().check_values(arrays, place)


RECORD = Ball
