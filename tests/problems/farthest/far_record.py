"""The record of a throw-away kind: the longest row of a store."""

from __future__ import annotations

from coremargin.formats.model_record import ModelRecord, Parameters


class Farthest(ModelRecord, frozen=True, kw_only=True, tag_field="problem", tag="farthest"):
    """The longest row, which stands in the coreset; both bounds are its length."""

    KINDS = ("length",)

    parameters: Parameters


RECORD = Farthest
