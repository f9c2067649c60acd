"""Command-line options generated from the parameters of jobs: names, choices, defaults and help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import click
from msgspec import NODEFAULT, Meta
from msgspec.structs import fields

from coremargin.cli.common import PATH, STORE, GroupedCommand
from coremargin.formats.location import Location
from coremargin.problems.registry import trained
from coremargin.problems.resuming import option_name
from coremargin.spec import Size, Spec
from coremargin.units import exact_size

if TYPE_CHECKING:
    from coremargin.problems.job import TrainJob

#: Parameters that are arguments of the command, or have an option of their own.
_NOT_GENERATED = {"store", "cluster"}


class Parameter(NamedTuple):
    """A parameter of one or more kinds of jobs: type, default and help.

    other_defaults: defaults of kinds that differ, by title.
    """

    name: str
    kind: Any
    default: Any
    meta: Meta
    other_defaults: tuple[tuple[str, Any], ...] = ()


def parameters() -> tuple[Parameter, ...]:
    """All parameters of all kinds of training jobs, shared ones first and last, those of single kinds in between.

    A parameter of several kinds has the choices of all of them, and the help of the first that has one.
    """
    return _unite_parameters(tuple((kind.title, kind.job) for kind in reversed(list(trained()))))


@cache
def _unite_parameters(jobs: tuple[tuple[str, type[TrainJob]], ...]) -> tuple[Parameter, ...]:
    """jobs: titles and types, the simplest first."""
    from coremargin.problems.job import TrainJob

    shared = {found.name: found for found in _parameters(TrainJob)}
    own: dict[str, Parameter] = {}
    for title, job in jobs:
        for found in _parameters(job):
            if found.name in shared:
                every = shared[found.name]
                if found.default != every.default:
                    others = (*every.other_defaults, (title, found.default))
                    shared[found.name] = every._replace(other_defaults=others)
                continue
            before = own.get(found.name, found)
            own[found.name] = before._replace(
                kind=_unite(before.kind, found.kind),
                default=before.default if before.default is not NODEFAULT else found.default,
                meta=before.meta if before.meta.description else found.meta,
            )
    cut = list(shared).index("scaling")
    every_job = list(shared.values())
    return (*every_job[:cut], *own.values(), *every_job[cut:])


class TrainCommand(GroupedCommand):
    """A command with options for the parameters of all kinds, which plug-ins may extend."""

    def generated_options(self) -> list[click.Option]:
        """The generated options."""
        return [_option(found) for found in parameters() if found.name not in _NOT_GENERATED]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Arguments and options; the same objects within one call."""
        found: list[click.Parameter] | None = ctx.meta.get(__name__)
        if found is None:
            every = super().get_params(ctx)
            arguments = [one for one in every if isinstance(one, click.Argument)]
            found = ctx.meta[__name__] = [
                *arguments,
                *self.generated_options(),
                *(one for one in every if one not in arguments),
            ]
        return found


def options_of(job: type[Spec], names: Sequence[str]) -> list[click.Option]:
    """Options for the named parameters of a kind of job, in this order."""
    known = {found.name: found for found in _parameters(job)}
    return [_option(known[name]) for name in names]


def job_parameters(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a command line as in a job file; None: not given."""
    options = dict(options)
    for found in parameters():
        name, text = found.name, (found.meta.extra or {}).get("text")
        if _is_flag(found):
            options[name] = found.default is not True if options[name] else None
        elif text is not None and options.get(name) is not None:
            try:
                options[name] = text(options[name])
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint=option_name(name)) from None
    return {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}


def _option(parameter: Parameter) -> click.Option:
    help_ = parameter.meta.description
    if _is_flag(parameter):  # it negates the default
        name = option_name(parameter.name, turned=parameter.default is True)
        return click.Option([name, parameter.name], is_flag=True, help=help_)
    more = dict(parameter.meta.extra or {})
    parsed = more.pop("text", None) is not None
    choices, plain = _values(parameter.kind)
    kind: Any = None
    if choices and not plain:
        kind = click.Choice(choices)
    elif not parsed:
        kind = {int: int, float: float, Path: PATH, Location: STORE}.get(plain[0])
    if parameter.name == "out":
        more["required"] = True
    elif parameter.default not in (None, NODEFAULT):
        help_ = f"{help_}  [default: {_defaults(parameter, exact=Size in plain)}]"
    return click.Option([option_name(parameter.name), parameter.name], type=kind, help=help_, **more)


def _defaults(parameter: Parameter, *, exact: bool) -> str:
    """The default, and those of kinds that differ."""
    shown: Callable[[Any], object] = exact_size if exact else str
    others = [f"; {title}: {shown(default)}" for title, default in parameter.other_defaults]
    return f"{shown(parameter.default)}{''.join(others)}"


def _is_flag(parameter: Parameter) -> bool:
    return _values(parameter.kind) == ([], [bool])


def _parameters(job: type[Spec]) -> Iterator[Parameter]:
    hints = get_type_hints(job, include_extras=True)
    for field in fields(job):
        hint, meta = hints[field.name], Meta()
        if get_origin(hint) is Annotated:
            hint, *metas = get_args(hint)
            meta = next((found for found in metas if found.description), meta)
        yield Parameter(field.name, hint, field.default, meta)


def _unite(first: Any, second: Any) -> Any:
    return first if first == second else Union[first, second]  # noqa: UP007 - of kinds that are known at run time only


def _values(kind: Any) -> tuple[list[str], list[Any]]:
    """Choices and plain types of a value."""
    if get_origin(kind) is Annotated:
        return _values(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return list(get_args(kind)), []
    if get_origin(kind) in (Union, UnionType):
        parts = [_values(part) for part in get_args(kind) if part is not NoneType]
        return list(dict.fromkeys(word for words, _ in parts for word in words)), [
            one for _, ones in parts for one in ones
        ]
    return [], [kind]
