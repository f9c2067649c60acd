"""Records of models and of fleets, of whatever problem: kinds.py has a line for each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from coremargin.formats import fleet_record, kinds, model_record
from coremargin.formats.model_record import ModelRecord, check_version
from coremargin.formats.strict_json import typed

if TYPE_CHECKING:
    from coremargin.formats.fleet_record import FleetRecord


def records() -> Iterator[tuple[str, type[ModelRecord]]]:
    """Problem, as records name it, and the record of its models."""
    for problem, parts in kinds.KINDS.items():
        if parts.record is not None:
            yield problem, kinds.module(parts.record).RECORD


def typed_record(content: Any, place: str) -> ModelRecord:
    """The record of a model, every key of it checked. Raises DataError."""
    check_version(content, model_record.FORMAT, model_record.VERSION, place, "a model's folder")
    union: Any = reduce(or_, (record for _, record in records()))
    found: ModelRecord = typed(union, content, place)
    return found


def typed_fleet(content: Any, place: str) -> FleetRecord:
    """The record of a fleet, every key of it checked. Raises DataError."""
    check_version(content, fleet_record.FORMAT, fleet_record.VERSION, place, "a fleet's folder")
    union: Any = reduce(or_, (record.FLEET for _, record in records() if record.FLEET is not None))
    found: FleetRecord = typed(union, content, place)
    return found
