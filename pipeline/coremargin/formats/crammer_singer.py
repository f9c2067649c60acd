"""The record and the arrays of a margin of several classes at once, hard or soft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import AboveZero, ClassifierRecord, Count, HyperplaneParameters, Word
from coremargin.formats.outliers import check_proof, removal_schema


class ClassesParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """What was asked for; loss, C and class_weight are all there or none is."""

    classes: Literal["crammer-singer"]
    loss: Literal["hinge"] | UnsetType = UNSET
    C: AboveZero | UnsetType = UNSET
    class_weight: Literal["balanced"] | UnsetType | None = UNSET
    outliers: Count | Word | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for half a soft margin, and for outliers of one."""
        given = [value is not UNSET for value in (self.loss, self.C, self.class_weight)]
        if any(given) and not all(given):
            raise ValueError("expected loss, C and class_weight together, or none of them")
        if any(given) and self.outliers is not UNSET:
            raise ValueError("expected outliers or a loss, found both")


class SeveralClasses(ClassifierRecord, frozen=True, kw_only=True, tag_field="problem", tag="crammer_singer"):
    """Several classes at once; constant: the last entry of every row, 0 without intercepts.

    With outliers the margin is that of all rows but those at ``outliers_ids``, and the arrays ``proof_...`` prove the
    upper bound: certificates, by places in the coreset, and the leaves of a search. All ``duals`` are zero then.
    """

    parameters: ClassesParameters
    constant: Annotated[float, Meta(ge=0, le=1.7976931348623157e308)]

    @property
    def soft(self) -> bool:
        """With a loss: the bounds are about a value, not a margin."""
        return self.parameters.loss is not UNSET

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about: with a loss, a value."""
        return ("duality_gap",) if self.soft else self.KINDS

    @property
    def coreset_width(self) -> int:
        """With a loss the proof is about all rows of the store."""
        return 0 if self.soft else self.features

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with a hyperplane and dual weights for each class; with a loss, also what gives others theirs."""
        d, m, classes = self.width, self.certificate.coreset_rows, len(self.classes)
        schema: Schema = {
            "hypothesis": Numbers("f8", (classes, d + 1)),
            "duals": Numbers("f8", (m, classes)),
            "coreset_classes": Numbers("i4", (m,)),
        }
        reference: Schema = {"reference": Numbers("f8", (classes, d + 1))}
        removal = {} if self.parameters.outliers is UNSET else removal_schema(names, classes)
        return super().schema(names) | schema | removal | (reference if self.soft else {})

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Rows are of classes that there are. Raises DataError."""
        classes = arrays["coreset_classes"]
        demand(((classes >= 0) & (classes < len(self.classes))).all(), place, "coreset_classes", "places of classes")
        check_proof(arrays, place)
        super().check_values(arrays, place)


RECORD = SeveralClasses
