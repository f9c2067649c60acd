"""The record and the arrays of a model of several classes whose labels were asked for.

Each class is against the rest, or with ``multi_class`` all have one margin at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.active import ActiveParameters, Evidence, answers_schema, check_answer_rows, check_counts
from coremargin.formats.limits import MOST_CLASSES
from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import ClassifierRecord, Count, Label, Number, Strict


class ClassBounds(Strict, frozen=True, kw_only=True):
    """The bounds of one class (``label``) against the rest, as a certificate has them."""

    label: Label
    lower: Number | None
    upper: Number | None


class ActiveClasses(ClassifierRecord, frozen=True, kw_only=True, tag_field="problem", tag="active_classes"):
    """A hyperplane for each of three classes or more, of rows whose labels were asked for.

    members: the bounds of each, in the order of the classes; the certificate has those of the first whose ratio of
    lower to upper is the worst. Classes at once have no members: the certificate is about their one margin, and a dual
    weight about a pair of a row and a rival, none at the row's own class. Other fields: active.py.
    """

    classes: Annotated[list[Label], Meta(min_length=3, max_length=MOST_CLASSES)]
    parameters: ActiveParameters
    members: list[ClassBounds] | UnsetType = UNSET
    evidence: Evidence | None
    answers: Count
    log: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None
    unsure: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        super().__post_init__()
        check_counts(self)
        if (self.members is UNSET) != (self.parameters.multi_class is not UNSET):
            raise ValueError("expected the bounds of each class against the rest, and none of classes at once")
        if self.members is not UNSET and [member.label for member in self.members] != list(self.classes):
            raise ValueError("expected the bounds of each class, in their order, found others")

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about: with a loss, a value."""
        return ("duality_gap",) if self.parameters.soft else self.KINDS

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with a hyperplane, and dual weights, for each class."""
        d, m, k = self.width, self.certificate.coreset_rows, len(self.classes)
        schema: Schema = {
            "hypothesis": Numbers("f8", (k, d + 1)),
            "duals": Numbers("f8", (m, k)),
            "coreset_classes": Numbers("i4", (m,)),
        }
        return super().schema(names) | schema | answers_schema(self, "classes", "i4")

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Rows are rows of the store, none of them twice, of classes that there are. Raises DataError."""
        super().check_values(arrays, place)
        check_answer_rows(self, arrays, place)
        for name in ("coreset_classes", "answered_classes", "draws_classes"):
            values = arrays[name]
            demand(((values >= 0) & (values < len(self.classes))).all(), place, name, "places of classes")


RECORD = ActiveClasses
