"""The record and the arrays of structured output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.model_arrays import Numbers, Schema, demand, rising
from coremargin.formats.model_record import AboveZero, ClassifierRecord, HyperplaneParameters

#: Costs beyond this leave no digits for scores.
LARGEST_COST = 1e100


class StructuredParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """What was asked for; costs: where those of a label in the place of another come from, unset: all are 1."""

    structure: Literal["chain", "outputs"]
    loss: Literal["hinge"] | UnsetType = UNSET
    C: AboveZero | UnsetType = UNSET
    costs: Literal["table", "taxonomy", "ordinal"] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for half a loss, and for costs without one."""
        if (self.loss is UNSET) != (self.C is UNSET):
            raise ValueError("expected loss and C together, or none of them")
        if self.loss is UNSET and self.costs is not UNSET:
            raise ValueError("expected costs with a loss only")


class Structured(ClassifierRecord, frozen=True, kw_only=True, tag_field="problem", tag="structured"):
    """Weights of labels and of labels that follow one another; its proof is about all rows of the store.

    constant: the last entry of every row.
    """

    parameters: StructuredParameters
    constant: Annotated[float, Meta(ge=0, le=1.7976931348623157e308)]

    def __post_init__(self) -> None:
        """Raises ValueError for a proof that names rows, and for mapped rows."""
        super().__post_init__()
        if self.certificate.coreset_rows:
            raise ValueError(f"expected no coreset rows of structured output, found {self.certificate.coreset_rows}")
        if self.map:
            raise ValueError(f"expected rows that are not mapped, found map {self.map!r}")

    @property
    def soft(self) -> bool:
        """With a loss: the bounds are about a value, not a margin."""
        return self.parameters.loss is not UNSET

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about."""
        return ("duality_gap",) if self.soft else ("margin",)

    @property
    def chained(self) -> bool:
        """Whether labels that follow one another have scores."""
        return self.parameters.structure == "chain"

    @property
    def coreset_width(self) -> int:
        """No row is stored."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The weights, the costs, and labellings with their dual weights."""
        classes = len(self.classes)
        schema: Schema = {
            "hypothesis": Numbers("f8", (classes, self.width + 1)),
            "costs": Numbers("f8", (classes, classes)),
            "duals_row": Numbers("i8", ("labellings",)),
            "duals_weight": Numbers("f8", ("labellings",)),
            "duals_ends": Numbers("i8", ("labellings",)),
            "duals_labels": Numbers("u1 u2 u4", ("labels",)),
        }
        chained: Schema = {"transitions": Numbers("f8", (classes, classes))}
        return super().schema(names) | schema | (chained if self.chained else {})

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Costs are costs, labellings are labellings. Raises DataError."""
        costs = arrays["costs"]
        allowed = (costs >= 0).all() and (costs <= LARGEST_COST).all() and not costs.diagonal().any()
        demand(allowed, place, "costs", "numbers from 0 on, with 0 for the true label")
        check_labellings(arrays, self.rows, len(self.classes), place)
        super().check_values(arrays, place)


def check_labellings(arrays: Mapping[str, np.ndarray], rows: int, classes: int, place: str) -> None:
    """Labellings with dual weights are of so many classes, and begin at rows. Raises DataError."""
    ends, labels, first = arrays["duals_ends"], arrays["duals_labels"], arrays["duals_row"]
    demand((arrays["duals_weight"] > 0).all(), place, "duals_weight", "weights above 0")
    demand(rising(first, rows - 1), place, "duals_row", f"rows below {rows} in order")
    last = int(ends[-1]) if len(ends) else 0
    fits = rising(ends, len(labels)) and (np.diff(ends, prepend=0) > 0).all() and last == len(labels)
    demand(fits, place, "duals_ends", "ends of labellings that cover all labels")
    demand(not len(labels) or int(labels.max()) < classes, place, "duals_labels", "places of classes")


RECORD = Structured
