"""The record and the arrays of a smallest enclosing ball."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from msgspec import UNSET, UnsetType

from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import Label, ModelRecord, Parameters


class BallParameters(Parameters, frozen=True, kw_only=True):
    """What was asked for; only: the class of the rows that count, perhaps as text, as a command line gives it."""

    one_class: Literal["ball"]
    only: Label | UnsetType = UNSET


class Ball(ModelRecord, frozen=True, kw_only=True, tag_field="problem", tag="ball"):
    """A ball around all rows, or around those with the label ``only``.

    The certificate is about the radius: every row is within ``upper`` of the centre, and no ball around the coreset has
    a radius below ``lower``.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("radius",)

    parameters: BallParameters
    only: Label | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for another class than the one that was asked for."""
        super().__post_init__()
        asked = self.parameters.only
        if (asked is UNSET) != (self.only is UNSET) or str(asked) != str(self.only):
            raise ValueError(f"parameters ask for the class {asked!r}, the record has {self.only!r}")

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with the centre, and the dual weights of the coreset."""
        numbers = {"centre": Numbers("f8", (self.width,)), "alpha": Numbers("f8", (self.certificate.coreset_rows,))}
        return super().schema(names) | numbers

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Weights are none below 0. Raises DataError."""
        demand((arrays["alpha"] >= 0).all(), place, "alpha", "weights from 0 on")
        super().check_values(arrays, place)


RECORD = Ball
