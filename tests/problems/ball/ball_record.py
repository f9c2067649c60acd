"""The record of the smallest ball around all rows."""

from __future__ import annotations

from typing import Literal

from coremargin.formats.model_arrays import Numbers, Schema
from coremargin.formats.model_record import ModelRecord, Parameters


class BallParameters(Parameters, frozen=True, kw_only=True):
    """The options of a ball."""

    one_class: Literal["ball"]


class Ball(ModelRecord, frozen=True, kw_only=True, tag_field="problem", tag="ball"):
    """``upper``: every row is within this distance of the centre; ``lower``: no smaller ball holds the coreset."""

    KINDS = ("radius",)

    parameters: BallParameters

    def schema(self, names: frozenset[str]) -> Schema:
        """Adds the centre, and the dual weights of the coreset."""
        numbers = {"centre": Numbers("f8", (self.width,)), "alpha": Numbers("f8", (self.certificate.coreset_rows,))}
        return super().schema(names) | numbers


RECORD = Ball
