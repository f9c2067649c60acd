"""The record and the arrays of a model whose labels were asked for: a margin of few rows, and what is shown of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.choices import Method, ScalingKind
from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import Count, Epsilon, Seed, Share, Strict, TwoClasses


class ActiveParameters(Strict, frozen=True, kw_only=True):
    """What was asked for."""

    epsilon: Epsilon
    intercept: bool
    method: Method
    error: Share
    confidence: Share
    seed: Seed
    scaling: ScalingKind | UnsetType = UNSET


class Evidence(Strict, frozen=True, kw_only=True):
    """What draws show: at most error_bound rows of the population are labelled wrongly, with this confidence.

    population: the rows with a weight above 0 and no answer when they were drawn. attempt: attempt j spends (1 -
    confidence) / (j (j + 1)). draws: rows drawn, all answered; wrong: those that the hypothesis labels otherwise, none:
    one wrong draw ends an attempt, so that their number cannot follow from the answers.
    """

    attempt: Annotated[int, Meta(ge=1)]
    draws: Count
    wrong: Literal[0]
    population: Count
    error_bound: Count
    confidence: Share

    def __post_init__(self) -> None:
        """Raises ValueError for more rows than there are."""
        if not self.draws <= self.population or self.error_bound > self.population:
            raise ValueError(f"more rows than there are: {self.draws} draws of {self.population}")


class Active(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="active"):
    """A margin of rows whose labels were asked for.

    answers: rows that have one, draws included; log: hash of the last line of the campaign's log that the model is
    about, None for a model of no campaign.
    """

    parameters: ActiveParameters
    evidence: Evidence | None
    answers: Count
    log: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None

    def __post_init__(self) -> None:
        """Raises ValueError for more draws than answers."""
        super().__post_init__()
        if self.evidence is not None and self.evidence.draws > self.answers:
            raise ValueError(f"expected at least {self.evidence.draws} answers, one a draw, found {self.answers}")

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with all rows answered, and the draws of the attempt that is evidence."""
        draws = 0 if self.evidence is None else self.evidence.draws
        answered = self.answers - draws
        return super().schema(names) | {
            "answered_ids": Numbers("i8", (answered,)), "answered_signs": Numbers("i1", (answered,)),
            "draws_ids": Numbers("i8", (draws,)), "draws_signs": Numbers("i1", (draws,)),
        }  # fmt: skip

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Rows are rows of the store, none of them twice. Raises DataError."""
        super().check_values(arrays, place)
        answered, draws = arrays["answered_ids"], arrays["draws_ids"]
        both = np.concatenate([answered, draws])
        inside = ((both >= 0) & (both < self.rows)).all() and len(np.unique(both)) == len(both)
        demand(inside, place, "answered_ids, draws_ids", f"different rows below {self.rows}")
        demand((answered[1:] > answered[:-1]).all(), place, "answered_ids", "rows in order")
        for name in ("answered_signs", "draws_signs"):
            demand(np.isin(arrays[name], (-1, 1)).all(), place, name, "signs -1 and 1")


RECORD = Active
