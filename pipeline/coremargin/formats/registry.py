"""The problems whose models there are: a line for each."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from operator import or_
from typing import Any

from coremargin.formats.model_record import FORMAT, VERSION, ModelRecord, check_version
from coremargin.formats.strict_json import typed

#: Problem, as records name it -> module that exports ``RECORD``: its keys, and what its arrays have to be.
RECORDS = {
    "hard_margin": "coremargin.formats.hard_margin",
    "soft_margin": "coremargin.formats.soft_margin",
    "outliers": "coremargin.formats.outliers",
    "crammer_singer": "coremargin.formats.crammer_singer",
}


def typed_record(content: Any, place: str) -> ModelRecord:
    """The record of a model, every key of it checked. Raises DataError."""
    check_version(content, FORMAT, VERSION, place, "a model's folder")
    records: Any = reduce(or_, (import_module(module).RECORD for module in RECORDS.values()))
    found: ModelRecord = typed(records, content, place)
    return found
