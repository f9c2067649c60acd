"""The record and the arrays of a soft ball."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from msgspec import UNSET

from coremargin.formats.ball import Ball, BallParameters
from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import Share  # noqa: TC001 - msgspec reads annotations


class SoftBallParameters(BallParameters, frozen=True, kw_only=True):
    """What was asked for; nu: the share of the rows that may lie outside."""

    nu: Share


class SoftBall(Ball, frozen=True, kw_only=True, tag_field="problem", tag="soft_ball"):
    """A ball outside of which a share nu of the rows may lie.

    The certificate is about the value r + sum C (||x - c||^2 - r)_+ of its centre c and its radius, the root of r.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("duality_gap",)

    parameters: SoftBallParameters

    def __post_init__(self) -> None:
        """Raises ValueError for outliers, which a soft ball has none of by number."""
        super().__post_init__()
        if self.parameters.outliers is not UNSET:
            raise ValueError(f"parameters of a soft ball ask for {self.parameters.outliers!r} outliers")

    @property
    def coreset_width(self) -> int:
        """The proof is about all rows of the store."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with r, and the sphere that gives all rows but the coreset their dual weights."""
        one = Numbers("f8", (1,))
        return super().schema(names) | {"square": one, "reference": Numbers("f8", (self.width,)), "threshold": one}

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """r is not below 0. Raises DataError."""
        demand(arrays["square"][0] >= 0, place, "square", "a number from 0 on")
        super().check_values(arrays, place)


RECORD = SoftBall
