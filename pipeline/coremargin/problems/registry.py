"""From a job, a model or a folder to its kind; formats/kinds.py has an entry for each kind."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import inspect

from coremargin import spec as specs
from coremargin.errors import DataError, SpecError
from coremargin.formats.kinds import KINDS, module
from coremargin.formats.strict_json import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from numpy.typing import NDArray

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
    """All kinds in their order, each once even if it has several entries."""
    return iter(dict.fromkeys(map(kind_named, KINDS)))


def trained() -> Iterator[AnyKind]:
    """The kinds of training jobs: those that train on a store, with the labels that it has."""
    from coremargin.problems.job import TrainJob

    return (kind for kind in kinds() if _tag(kind.job) == _tag(TrainJob))


def _kinds_of(word: object, where: str) -> list[AnyKind]:
    """The kinds of jobs with this value of ``job``. Raises SpecError for an unknown one."""
    words = list(dict.fromkeys(_tag(kind.job) for kind in kinds()))
    if word is None:
        raise SpecError(f"{where}: required key 'job' is missing; expected {' or '.join(map(repr, words))}")
    if word not in words:
        raise specs.unknown_word(where, "job", word, words)
    return [kind for kind in kinds() if _tag(kind.job) == word]


def _tag(job: type[TrainJob]) -> str:
    return str(job.__struct_config__.tag)


def own_parameters() -> frozenset[str]:
    """Names of options that not all kinds of training jobs have."""
    from coremargin.problems.job import TrainJob

    every = set(TrainJob.__struct_fields__)
    return frozenset(name for kind in trained() for name in kind.job.__struct_fields__ if name not in every)


def kind_of(job: TrainJob) -> AnyKind:
    """The kind of a job."""
    return next(kind for kind in kinds() if kind.job is type(job))


def problem_of(
    job: TrainJob,
    source: Source,
    kept: Sequence[FeatureMap] = (),
    ellipsoid: Mapping[str, NDArray[Any]] | None = None,
) -> AnyProblem:
    """The problem of a job, on rows scaled and mapped as it requests; kept: the maps of an earlier model.

    ellipsoid: the arrays of scaling by an ellipsoid (learn/ellipsoid_scaling.py), if the job requests it.
    Raises LabelError, StoreError, UsageError, BadRow (a column that cannot be scaled) before anything is read except
    the few rows that maps are fitted to.
    """
    from coremargin.data.transformed import transformed
    from coremargin.problems.common.classes import check_class_weights
    from coremargin.problems.common.map_rounding import reserve_for_rounding

    kind = kind_of(job)
    problem: AnyProblem = kind.problem(reserve_for_rounding(job), transformed(source, job, kept, ellipsoid))
    problem.check()
    if kind.labelled:
        check_class_weights(source)
    return problem


def kind_of_model(model: AnyModel) -> AnyKind:
    """The kind of a model."""
    return kind_named(model.kind)


def load_job(path: Path) -> TrainJob:
    """The training job in a TOML file. Raises SpecError."""
    return job_of(specs.read_toml(path), where=str(path), base=path.parent)


def job_of(options: Mapping[str, Any], *, where: str = "spec", base: Path | None = None) -> TrainJob:
    """The training job with these options; None stands for an option that is not given.

    Options that only other kinds have are refused, whatever their values. Raises SpecError.
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
    """The training job with these options. Raises SpecError."""
    return job_of({"job": "train", **options}, where="job")


def _refuse_choices_of_others(kind: AnyKind, key: str, value: Any, where: str) -> None:
    """Raise SpecError for a choice that this kind does not have: names the kinds that do, or all choices."""
    own = _choices(kind, key)
    if not own or value in own:
        return
    choices = {other: _choices(other, key) for other in kinds()}
    others = [other for other in choices if value in choices[other]]
    if others:
        raise SpecError(
            f"{where}: {key}: {kind.title} has only {' or '.join(map(repr, own))}, found {value!r}; it belongs to "
            f"{_named(others)}"
        )
    if isinstance(value, str):
        known = dict.fromkeys(choice for some in (own, *choices.values()) for choice in some)
        number = specs.takes_number(inspect.type_info(kind.job), [key])
        expected = f"expected {specs.either(known, number=number)}"
        raise SpecError(f"{where}: {key}: invalid enum value {value!r}{specs.nearest(value, known)}{expected}")


def _named(kinds_: list[AnyKind]) -> str:
    """The titles of kinds, from the simplest on, and how to select them."""
    return "; ".join(f"{kind.title} ({kind.selected_by})" for kind in reversed(kinds_))


@cache
def _choices(kind: AnyKind, key: str) -> tuple[Any, ...]:
    """The choices of an option of a kind; none if its values are not a fixed set."""
    return tuple(specs.choices_of(_job_info(kind), [key]))


@cache
def _job_info(kind: AnyKind) -> Any:
    return inspect.type_info(kind.job)


@cache
def _parameters(kind: AnyKind) -> frozenset[str]:
    """Names of the options of a kind."""
    info = _job_info(kind)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - for the type checker
    return frozenset([info.tag_field or "", *(field.encode_name for field in info.fields)])


def write_report(folder: Path, *, name: str | None = None) -> Path:
    """Write ``report.html`` into the folder of a model of any kind, atomically; returns its path.

    name: what the page calls the folder, by default its own name. Raises DataError if the folder does not hold a
    readable model, OutputError if it cannot be written to.
    """
    from pathlib import Path

    from coremargin.formats.model_record import FILE
    from coremargin.models.registry import known_by_file
    from coremargin.report import page

    folder = Path(folder)
    kind = known_by_file(lambda file: (folder / file).exists()) or page.read_json(folder / FILE).get("problem")
    if kind not in KINDS:
        raise DataError(f"{folder / FILE}: expected a problem of {', '.join(KINDS)}, found {kind!r}")
    return page.write_report_page(folder, kind_named(kind).report(folder, name or folder.name))
