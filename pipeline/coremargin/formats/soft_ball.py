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
        """The same with r, and the spheres that give all rows but the coreset their dual weights, one or several.

        reference_of: which of several spheres is that of each chunk.
        """
        spheres = {"reference": Numbers("f8", ("spheres", self.width)), "threshold": Numbers("f8", ("spheres",))}
        if "reference_of" in names:
            spheres["reference_of"] = Numbers("i8", ("chunks",))
        return super().schema(names) | {"square": Numbers("f8", (1,))} | spheres

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """r is not below 0, and each chunk has one of the spheres. Raises DataError."""
        demand(arrays["square"][0] >= 0, place, "square", "a number from 0 on")
        of, count = arrays.get("reference_of"), len(arrays["threshold"])
        demand(count == 1 if of is None else count > 0, place, "threshold", "one sphere, or one for each chunk")
        if of is not None:
            inside = len(of) and ((of >= 0) & (of < count)).all()
            demand(inside, place, "reference_of", "places among the spheres")
        super().check_values(arrays, place)


RECORD = SoftBall
