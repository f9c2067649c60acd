"""The record and the arrays of an ellipsoid of least volume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from msgspec import UNSET, UnsetType

from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import Features, Label, ModelRecord, Parameters
from coremargin.formats.one_class import check_only


class EllipsoidParameters(Parameters, frozen=True, kw_only=True):
    """What was asked for; only: the class of the rows that count, perhaps as text, as a command line gives it."""

    one_class: Literal["ellipsoid"]
    only: Label | UnsetType = UNSET


class Ellipsoid(ModelRecord, frozen=True, kw_only=True, tag_field="problem", tag="ellipsoid"):
    """An ellipsoid around all rows, or around those with the label ``only``.

    The certificate is about the volume radius, the radius of the ball of the same volume: that of the ellipsoid, which
    contains every row, is ``upper``, and no ellipsoid around the coreset has less than ``lower``. Its ratio and epsilon
    are about the volume: ratio = (lower / upper) ^ rank.
    rank: the dimension of the rows' span. If it is less than the number of features, the ellipsoid is about so many
    columns, of which the others are linear functions.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("volume_radius",)

    parameters: EllipsoidParameters
    rank: Features
    only: Label | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for another class than the one that was asked for, a map, an ellipsoid as the scaling, or
        too large a rank.
        """
        super().__post_init__()
        check_only(self.parameters.only, self.only)
        if self.map:
            raise ValueError(f"expected rows that are not mapped, found map {self.map!r}")
        if self.scaling == "ellipsoid":
            raise ValueError("expected rows that are not scaled by an ellipsoid, found scaling 'ellipsoid'")
        if self.rank > self.features:
            raise ValueError(f"expected a rank of at most {self.features}, found {self.rank}")

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with centre and axes, the weights of the coreset and, of rows in a flat, the flat."""
        r, others = self.rank, self.features - self.rank
        own: Schema = {
            "centre": Numbers("f8", (r,)),
            "axes": Numbers("f8", (r, r)),
            "alpha": Numbers("f8", (self.certificate.coreset_rows,)),
        }
        if others:
            own |= {
                "span_columns": Numbers("i8", (r,)),
                "span_slopes": Numbers("f8", (others, r)),
                "span_offsets": Numbers("f8", (others,)),
                "span_residuals": Numbers("f8", (others,)),
            }
        return super().schema(names) | own

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Weights are none below 0, the axes a triangle with a volume, columns ascend. Raises DataError."""
        demand((arrays["alpha"] >= 0).all(), place, "alpha", "weights from 0 on")
        axes = arrays["axes"]
        triangle = not np.triu(axes, 1).any() and (np.diag(axes) > 0).all()
        demand(triangle, place, "axes", "a lower triangle with numbers above 0 on its diagonal")
        if "span_columns" in arrays:
            columns = arrays["span_columns"]
            ascending = (columns >= 0).all() and (columns < self.features).all() and (np.diff(columns) > 0).all()
            demand(ascending, place, "span_columns", f"columns below {self.features} that ascend")
            demand((arrays["span_residuals"] >= 0).all(), place, "span_residuals", "numbers from 0 on")
        super().check_values(arrays, place)


RECORD = Ellipsoid
