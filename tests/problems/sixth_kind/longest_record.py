"""The record of the longest row."""

from __future__ import annotations

from typing import Literal

from coremargin.formats.model_record import ModelRecord, Parameters


class LongestParameters(Parameters, frozen=True, kw_only=True):
    """The options of the longest row."""

    extreme: Literal["longest"]


class Longest(ModelRecord, frozen=True, kw_only=True, tag_field="problem", tag="longest"):
    """``upper``: no row is longer; ``lower``: the coreset's row is as long."""

    KINDS = ("length",)

    parameters: LongestParameters


RECORD = Longest
