"""The record and the arrays of a model whose labels were asked for: a margin of few rows, and what is shown of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.choices import Loss, Method
from coremargin.formats.limits import MOST_CLASSES, MOST_ROWS
from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import Cost, Count, Epsilon, Label, Seed, Share, Strict, Transformed, TwoClasses


class ActiveParameters(Transformed, frozen=True, kw_only=True):
    """What was asked for.

    by_class: the share of wrong rows is that of each class that is predicted, not that of all rows. hypothesis: the
    model has the centre of the method, as far as epsilon allows, and not the largest margin. multi_class: three classes
    or more have one margin at once, by one of few methods. loss and C: answers
    may contradict each other; trial: so many rows are drawn then for an attempt, of each stratum, or all that there
    are: a number that is fixed before, as draws that end when they look good show nothing. All three are there or none.
    """

    epsilon: Epsilon
    intercept: bool
    method: Method
    error: Share
    confidence: Share
    seed: Seed
    by_class: Literal[True] | UnsetType = UNSET
    hypothesis: Literal["centre"] | UnsetType = UNSET
    multi_class: Literal["crammer-singer"] | UnsetType = UNSET
    loss: Loss | UnsetType = UNSET
    C: Cost | UnsetType = UNSET
    trial: Annotated[int, Meta(ge=1, le=MOST_ROWS)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for half a soft margin, and for what no margin of classes at once has."""
        if len({value is UNSET for value in (self.loss, self.C, self.trial)}) > 1:
            raise ValueError("expected loss, C and trial together, or none of them")
        if self.multi_class is not UNSET and not (
            self.loss is UNSET and self.map is UNSET and self.hypothesis is UNSET
        ):
            raise ValueError("expected multi_class without a loss, a map or a centre")

    @property
    def soft(self) -> bool:
        """With a loss: bounds are about a value, and draws may be wrong."""
        return self.loss is not UNSET


class Stratum(Strict, frozen=True, kw_only=True):
    """What draws show of the rows that are given one class (``label``): at most error_bound of them are others'.

    error_least: at least so many are, with a loss; 0 without.
    """

    label: Label
    population: Count
    draws: Count
    wrong: Count
    error_bound: Count
    error_least: Count = 0

    def __post_init__(self) -> None:
        """Raises ValueError for more rows than there are."""
        check_bounds(self)


class Evidence(Strict, frozen=True, kw_only=True):
    """What draws show: at most error_bound rows of the population are labelled wrongly, with this confidence.

    population: the rows with a weight above 0 and no answer when they were drawn, but for those that no annotator could
    label. attempt: attempt j spends (1 - confidence) / (j (j + 1)); with a loss half of that on each bound; with
    strata, one for each class in their order, an equal share of that on each of them, and the numbers here are sums.
    draws: rows drawn, all answered; wrong: those that the hypothesis labels otherwise, none without a loss: there one
    wrong draw ends an attempt.
    """

    attempt: Annotated[int, Meta(ge=1)]
    draws: Count
    wrong: Count
    population: Count
    error_bound: Count
    error_least: Count = 0
    confidence: Share
    strata: Annotated[list[Stratum], Meta(min_length=2, max_length=MOST_CLASSES)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for more rows than there are, or strata that do not add up."""
        check_bounds(self)
        if self.strata is not UNSET:
            for name in ("draws", "wrong", "population", "error_bound", "error_least"):
                if sum(getattr(part, name) for part in self.strata) != getattr(self, name):
                    raise ValueError(f"expected strata whose {name} add up to {getattr(self, name)}, found others")


class _Bounds(Protocol):
    @property
    def draws(self) -> int: ...
    @property
    def wrong(self) -> int: ...
    @property
    def population(self) -> int: ...
    @property
    def error_bound(self) -> int: ...
    @property
    def error_least(self) -> int: ...


def check_bounds(found: _Bounds) -> None:
    """Raises ValueError for more rows than there are."""
    if not found.wrong <= found.draws <= found.population:
        raise ValueError(f"more rows than there are: {found.wrong} of {found.draws} draws of {found.population}")
    if not found.error_least <= found.error_bound <= found.population:
        raise ValueError(
            f"expected bounds in order, of {found.population} rows; found {found.error_least} and {found.error_bound}"
        )


class RecordOfAnswers(Protocol):
    """A record of a model whose labels were asked for."""

    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def classes(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def parameters(self) -> ActiveParameters: ...  # noqa: D102
    @property
    def evidence(self) -> Evidence | None: ...  # noqa: D102
    @property
    def answers(self) -> int: ...  # noqa: D102
    @property
    def unsure(self) -> int | UnsetType: ...  # noqa: D102


def check_counts(record: RecordOfAnswers) -> None:
    """Raises ValueError for numbers and classes of a record that do not go together."""
    evidence, asked = record.evidence, record.parameters
    if evidence is None:
        return
    if evidence.draws > record.answers:
        raise ValueError(f"expected at least {evidence.draws} answers, one a draw, found {record.answers}")
    if not asked.soft and (evidence.wrong or evidence.error_least):
        raise ValueError("expected no wrong draw without a loss: it ends an attempt")
    if (evidence.strata is UNSET) != (asked.by_class is UNSET):
        raise ValueError("expected strata with by_class, and none without")
    if evidence.strata is not UNSET and [part.label for part in evidence.strata] != list(record.classes):
        raise ValueError("expected a stratum for each class, in their order")


def answers_schema(record: RecordOfAnswers, names: str, kind: str) -> Schema:
    """The arrays of answered rows, of the draws of the attempt that is evidence, and of rows that have no label.

    names: what their labels are called, ``answered_NAMES``; kind: of these numbers.
    """
    draws = 0 if record.evidence is None else record.evidence.draws
    answered = record.answers - draws
    schema: Schema = {
        "answered_ids": Numbers("i8", (answered,)),
        f"answered_{names}": Numbers(kind, (answered,)),
        "draws_ids": Numbers("i8", (draws,)),
        f"draws_{names}": Numbers(kind, (draws,)),
    }
    return schema if record.unsure is UNSET else schema | {"unsure_ids": Numbers("i8", (int(record.unsure),))}


def check_answer_rows(record: RecordOfAnswers, arrays: Mapping[str, np.ndarray], place: str) -> None:
    """Rows are rows of the store, none of them twice. Raises DataError."""
    answered, draws = arrays["answered_ids"], arrays["draws_ids"]
    unsure = arrays.get("unsure_ids", np.zeros(0, np.int64))
    every = np.concatenate([answered, draws, unsure])
    inside = ((every >= 0) & (every < record.rows)).all() and len(np.unique(every)) == len(every)
    demand(inside, place, "answered_ids, draws_ids, unsure_ids", f"different rows below {record.rows}")
    for name, ids in (("answered_ids", answered), ("unsure_ids", unsure)):
        demand((ids[1:] > ids[:-1]).all(), place, name, "rows in order")


class Active(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="active"):
    """A margin, or with a loss a soft margin, of rows whose labels were asked for.

    answers: rows that have one, draws included; unsure: rows that no annotator could label, of which nothing is
    claimed. log: hash of the last line of the campaign's log that the model is about, None for a model of no campaign.
    """

    SOFT: ClassVar[tuple[str, ...]] = ("duality_gap",)

    parameters: ActiveParameters
    evidence: Evidence | None
    answers: Count
    log: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None
    unsure: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        super().__post_init__()
        check_counts(self)
        if self.parameters.multi_class is not UNSET:
            raise ValueError("expected multi_class with three classes or more")

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about: with a loss, a value."""
        return self.SOFT if self.parameters.soft else self.KINDS

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with all rows answered, and the draws of the attempt that is evidence."""
        return super().schema(names) | answers_schema(self, "signs", "i1")

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Rows are rows of the store, none of them twice. Raises DataError."""
        super().check_values(arrays, place)
        check_answer_rows(self, arrays, place)
        for name in ("answered_signs", "draws_signs"):
            demand(np.isin(arrays[name], (-1, 1)).all(), place, name, "signs -1 and 1")


RECORD = Active
