"""Which kind a job means, and what that kind makes of it; formats/kinds.py has a line for each kind."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import inspect

from coremargin import spec as specs
from coremargin.errors import SpecError
from coremargin.formats.kinds import KINDS, module
from coremargin.formats.strict_json import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from coremargin.data.source import Source
    from coremargin.engine.problem import AnyProblem
    from coremargin.maths.mapping import FeatureMap
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import Kind

    AnyKind: TypeAlias = Kind[Any, Any, Any]


@cache
def kind_named(name: str) -> AnyKind:
    """The kind of this name."""
    kind: AnyKind = module(KINDS[name].kind).KIND
    return kind


def kinds() -> Iterator[AnyKind]:
    """All of them, in their order; one that has more lines than one counts once."""
    return iter(dict.fromkeys(map(kind_named, KINDS)))


def trained() -> Iterator[AnyKind]:
    """Those that jobs of this word are about: trained on the labels of a store, in one go."""
    from coremargin.problems.job import TrainJob

    return (kind for kind in kinds() if _tag(kind.job) == _tag(TrainJob))


def _kinds_of(word: object, where: str) -> list[AnyKind]:
    """The kinds that a job may mean that says this word. Raises SpecError for none of those that there are."""
    words = list(dict.fromkeys(_tag(kind.job) for kind in kinds()))
    if word is None:
        raise SpecError(f"{where}: required key 'job' is missing; expected {' or '.join(map(repr, words))}")
    if word not in words:
        raise specs.unknown_word(where, "job", word, words)
    return [kind for kind in kinds() if _tag(kind.job) == word]


def _tag(job: type[TrainJob]) -> str:
    return str(job.__struct_config__.tag)


def own_parameters() -> frozenset[str]:
    """Names of parameters that not all of those have."""
    from coremargin.problems.job import TrainJob

    every = set(TrainJob.__struct_fields__)
    return frozenset(name for kind in trained() for name in kind.job.__struct_fields__ if name not in every)


def kind_of(job: TrainJob) -> AnyKind:
    """The kind that a job is about."""
    return next(kind for kind in kinds() if kind.job is type(job))


def problem_of(job: TrainJob, source: Source, kept: Sequence[FeatureMap] = ()) -> AnyProblem:
    """The problem that a job describes, on rows scaled and mapped as it says; kept: the maps of the model before.

    Raises LabelError, StoreError, UsageError, BadRow (a column that cannot be scaled) before anything is read but the
    few rows that maps are fitted to.
    """
    from coremargin.data.transformed import transformed
    from coremargin.problems.common.outward import stricter
    from coremargin.problems.common.start import check_class_weights

    problem: AnyProblem = kind_of(job).problem(stricter(job), transformed(source, job, kept))
    problem.check()
    check_class_weights(source)
    return problem


def kind_of_model(model: AnyModel) -> AnyKind:
    """The kind of a model."""
    return kind_named(model.kind)


def load_job(path: Path) -> TrainJob:
    """The training job in a TOML file. Raises SpecError."""
    return job_of(specs.read_toml(path), where=str(path), base=path.parent)


def job_of(options: Mapping[str, Any], *, where: str = "spec", base: Path | None = None) -> TrainJob:
    """The training job of plain values, None being what is not said.

    ``job`` is the word that kinds are chosen by first. Parameters of other kinds are refused, whatever they are: who
    says one takes it for something that this kind has. Raises SpecError.
    """
    given = {
        key: os.fspath(value) if isinstance(value, os.PathLike) else value
        for key, value in options.items()
        if value is not None
    }
    kind = next(kind for kind in _kinds_of(given.get("job"), where) if kind.matches(given))
    for key in [key for key in given if key not in _parameters(kind)]:
        others = [other for other in kinds() if key in _parameters(other)]
        if not others:
            raise specs.unknown_key(where, key, sorted({name for other in kinds() for name in _parameters(other)}))
        raise SpecError(
            f"{where}: {key}: {kind.title} has none, found {cut(repr(given[key]))}; it belongs to {_named(others)}"
        )
    for key, value in given.items():
        _refuse_choices_of_others(kind, key, value, where)
    return specs.convert(given, kind.job, where=where, base=base)


def new_job(**options: Any) -> TrainJob:
    """The training job of keywords. Raises SpecError."""
    return job_of({"job": "train", **options}, where="job")


def _refuse_choices_of_others(kind: AnyKind, key: str, value: Any, where: str) -> None:
    """Raise SpecError for a word that is not this kind's: with the kinds that have it, or all words there are."""
    choices = {other: _choices(other, key) for other in kinds()}
    own = choices[kind]
    if not own or value in own:
        return
    others = [other for other in choices if value in choices[other]]
    if others:
        raise SpecError(
            f"{where}: {key}: {kind.title} has only {' or '.join(map(repr, own))}, found {value!r}; it belongs to "
            f"{_named(others)}"
        )
    if isinstance(value, str):
        known = dict.fromkeys(choice for some in (own, *choices.values()) for choice in some)
        number = specs.takes_number(inspect.type_info(kind.job), [key])
        raise SpecError(f"{where}: {key}: invalid enum value {value!r}; expected {specs.either(known, number=number)}")


def _named(kinds_: list[AnyKind]) -> str:
    """Kinds, from the simplest on, and how a job asks for them."""
    return "; ".join(f"{kind.title} ({kind.selected_by})" for kind in reversed(kinds_))


@cache
def _choices(kind: AnyKind, key: str) -> tuple[Any, ...]:
    """The words that its jobs may say for a parameter, none where these are no words."""
    return tuple(specs.choices_of(inspect.type_info(kind.job), [key]))


@cache
def _parameters(kind: AnyKind) -> frozenset[str]:
    """Names of all that its jobs may say."""
    info = inspect.type_info(kind.job)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - for the type checker
    return frozenset([info.tag_field or "", *(field.encode_name for field in info.fields)])
