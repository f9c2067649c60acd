"""The record and the arrays of a soft ellipsoid."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coremargin.formats.ellipsoid import Ellipsoid, EllipsoidParameters
from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import Share  # noqa: TC001 - msgspec reads annotations


class SoftEllipsoidParameters(EllipsoidParameters, frozen=True, kw_only=True):
    """What was asked for; nu: the share of the rows that may lie outside."""

    nu: Share


class SoftEllipsoid(Ellipsoid, frozen=True, kw_only=True, tag_field="problem", tag="soft_ellipsoid"):
    """An ellipsoid outside of which a share nu of the rows may lie.

    The certificate is about the volume radius of the level whose square is r + sum C (q - r)_+, q being the squared
    levels of rows and r the ``square`` beyond which rows lie outside: the mean square of the farthest share nu.
    """

    parameters: SoftEllipsoidParameters

    @property
    def coreset_width(self) -> int:
        """The proof is about all rows of the store."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with r, and the surface that gives all rows but the coreset their dual weights."""
        return super().schema(names) | {
            "square": Numbers("f8", (1,)),
            "reference_centre": Numbers("f8", (self.rank,)),
            "reference_axes": Numbers("f8", (self.rank, self.rank)),
            "threshold": Numbers("f8", (1,)),
        }

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """r is not below 0. Raises DataError."""
        demand(arrays["square"][0] >= 0, place, "square", "a number from 0 on")
        super().check_values(arrays, place)


RECORD = SoftEllipsoid
