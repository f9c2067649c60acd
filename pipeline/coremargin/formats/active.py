"""The record and the arrays of a model whose labels were asked for: a margin of few rows, and what is shown of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.model_arrays import Schema, demand
from coremargin.formats.model_record import Count, TwoClasses
from coremargin.formats.queried import AskedParameters, Evidence, asked_schema, check_asked, check_counts


class Active(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="active"):
    """A margin, or with a loss a soft margin, of rows whose labels were asked for.

    answers: rows that have one, draws included; unsure: rows of which nobody could tell the label, of which nothing is
    claimed. log: hash of the last line of the campaign's log that the model is about, None for a model of no campaign.
    """

    SOFT: ClassVar[tuple[str, ...]] = ("duality_gap",)

    parameters: AskedParameters
    evidence: Evidence | None
    answers: Count
    log: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None
    unsure: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        super().__post_init__()
        check_counts(self)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about: with a loss, a value."""
        return self.SOFT if self.parameters.soft else self.KINDS

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with all rows answered, and the draws of the attempt that is evidence."""
        return super().schema(names) | asked_schema(self, "signs", "i1")

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Rows are rows of the store, none of them twice. Raises DataError."""
        super().check_values(arrays, place)
        check_asked(self, arrays, place)
        for name in ("answered_signs", "draws_signs"):
            demand(np.isin(arrays[name], (-1, 1)).all(), place, name, "signs -1 and 1")


RECORD = Active
