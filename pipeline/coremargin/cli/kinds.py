"""Commands that kinds of problems add, as named in formats/kinds.py."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coremargin.cli.common import MODEL, json_option, storage_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.formats import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from coremargin.formats.location import Location
    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import AnyCommand

SECTION = "Models"


def modules() -> Iterator[ModuleType]:
    """Command modules of kinds."""
    return (kinds.module(parts.cli) for parts in kinds.KINDS.values() if parts.cli is not None)


def own_run(job: TrainJob) -> Callable[[TrainJob, str | None, dict[str, bool]], int] | None:
    """The ``run_job`` of a kind, if it does not use the common loop: job, cluster and flags to an exit code."""
    from coremargin.problems.registry import kind_of

    own = kinds.KINDS[kind_of(job).name].cli
    return None if own is None else getattr(kinds.module(own), "run_job", None)


def commands() -> tuple[click.Command, ...]:
    """Commands that show something about a model, of all kinds."""
    modules_ = [kinds.module(parts.commands) for parts in kinds.KINDS.values() if parts.commands is not None]
    return tuple(_command(one) for module in modules_ for one in module.COMMANDS)


def _command(spec: AnyCommand) -> click.Command:
    @click.command(spec.name, help=spec.help, no_args_is_help=True)
    @click.argument("model", type=MODEL)
    @storage_option
    @json_option
    def show(model: Path | Location, as_json: bool) -> None:
        from coremargin.models.registry import load

        answer = spec.answer(load(model))
        if as_json:
            print_json(asdict(answer))
        else:
            print_lines(*spec.describe(answer))

    return show


COMMANDS = commands()
