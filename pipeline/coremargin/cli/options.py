"""Options of commands from the parameters that jobs have: names, choices, defaults and help said once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import click
from msgspec import NODEFAULT, Meta
from msgspec.structs import fields

from coremargin.cli.common import PATH, GroupedCommand
from coremargin.problems.registry import trained
from coremargin.problems.resuming import option_name
from coremargin.spec import Size
from coremargin.units import exact_size

if TYPE_CHECKING:
    from coremargin.problems.job import TrainJob

#: Those that the command takes in another form, or not at all.
_ELSEWHERE = {"store", "cluster"}


class Parameter(NamedTuple):
    """A parameter of some kinds of jobs: kind of its values, what it is when nothing is said, help.

    elsewhere: what it is then with kinds for which every job's own default is another.
    """

    name: str
    kind: Any
    default: Any
    meta: Meta
    elsewhere: tuple[tuple[str, Any], ...] = ()


def parameters() -> list[Parameter]:
    """All parameters of all kinds of training jobs: what every job has, with those of single kinds in between.

    What several kinds have is one parameter with the choices of all; its help is that of the first kind that has one.
    """
    from coremargin.problems.job import TrainJob

    shared = {found.name: found for found in _parameters(TrainJob)}
    own: dict[str, Parameter] = {}
    for kind in reversed(list(trained())):  # from the simplest on
        for found in _parameters(kind.job):
            if found.name in shared:
                every = shared[found.name]
                if found.default != every.default:
                    shared[found.name] = every._replace(elsewhere=(*every.elsewhere, (kind.title, found.default)))
                continue
            before = own.get(found.name, found)
            own[found.name] = before._replace(
                kind=_together(before.kind, found.kind),
                default=before.default if before.default is not NODEFAULT else found.default,
                meta=before.meta if before.meta.description else found.meta,
            )
    cut = list(shared).index("scaling")
    every_job = list(shared.values())
    return [*every_job[:cut], *own.values(), *every_job[cut:]]


class TrainCommand(GroupedCommand):
    """A command with an option for each parameter of the kinds that there are when it is called."""

    def made(self) -> list[click.Option]:
        """The options."""
        return [_option(found) for found in parameters() if found.name not in _ELSEWHERE]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters; the same objects for all of one call."""
        found: list[click.Parameter] | None = ctx.meta.get(__name__)
        if found is None:
            every = super().get_params(ctx)
            arguments = [one for one in every if isinstance(one, click.Argument)]
            found = ctx.meta[__name__] = [*arguments, *self.made(), *(one for one in every if one not in arguments)]
        return found


def options_of(job: type[TrainJob], names: Sequence[str]) -> list[click.Option]:
    """Options for some parameters of one kind of jobs, in this order."""
    known = {found.name: found for found in _parameters(job)}
    return [_option(known[name]) for name in names]


def job_parameters(options: dict[str, Any]) -> dict[str, Any]:
    """What the options of a command line say, as a job file would; None is not said."""
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
    if _is_flag(parameter):  # it turns round what holds when nothing is said
        name = option_name(parameter.name, turned=parameter.default is True)
        return click.Option([name, parameter.name], is_flag=True, help=help_)
    more = dict(parameter.meta.extra or {})
    more.pop("text", None)
    choices, plain = _values(parameter.kind)
    kind: Any = None
    if choices and not plain:
        kind = click.Choice(choices)
    elif "metavar" not in more:
        kind = {int: int, float: float, Path: PATH}.get(plain[0])
    if parameter.name == "out":
        more["required"] = True
    elif parameter.default not in (None, NODEFAULT):
        help_ = f"{help_}  [default: {_defaults(parameter, exact=Size in plain)}]"
    return click.Option([option_name(parameter.name), parameter.name], type=kind, help=help_, **more)


def _defaults(parameter: Parameter, *, exact: bool) -> str:
    """What holds when nothing is said, and for whom something else does."""
    shown: Callable[[Any], object] = exact_size if exact else str
    others = [f"; of {title} {shown(default)}" for title, default in parameter.elsewhere]
    return f"{shown(parameter.default)}{''.join(others)}"


def _is_flag(parameter: Parameter) -> bool:
    return _values(parameter.kind) == ([], [bool])


def _parameters(job: type[TrainJob]) -> Iterator[Parameter]:
    hints = get_type_hints(job, include_extras=True)
    for field in fields(job):
        hint, meta = hints[field.name], Meta()
        if get_origin(hint) is Annotated:
            hint, *metas = get_args(hint)
            meta = next((found for found in metas if found.description), meta)
        yield Parameter(field.name, hint, field.default, meta)


def _together(first: Any, second: Any) -> Any:
    return first if first == second else Union[first, second]  # noqa: UP007 - of kinds that are known at run time only


def _values(kind: Any) -> tuple[list[str], list[Any]]:
    """The words that a value may be, and the plain types."""
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
