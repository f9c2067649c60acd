"""What kinds of problems bring to the command line: each line in formats/kinds.py may name modules that have some."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coremargin.cli.common import MODEL, json_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.formats import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import AnyCommand

SECTION = "Models"


def modules() -> Iterator[ModuleType]:
    """Modules of whole commands of some kinds, as those of this package are."""
    return (kinds.module(parts.cli) for parts in kinds.KINDS.values() if parts.cli is not None)


def own_run(job: TrainJob) -> Callable[[TrainJob, str | None, dict[str, bool]], int] | None:
    """How jobs of its kind are run, where that is not by the loop alone: job, cluster and flags to an exit code."""
    from coremargin.problems.registry import kind_of

    own = kinds.KINDS[kind_of(job).name].cli
    return None if own is None else getattr(kinds.module(own), "run_job", None)


def commands() -> tuple[click.Command, ...]:
    """Questions about models of all kinds."""
    asked = [kinds.module(parts.commands) for parts in kinds.KINDS.values() if parts.commands is not None]
    return tuple(_command(one) for module in asked for one in module.COMMANDS)


def _command(brought: AnyCommand) -> click.Command:
    @click.command(brought.name, help=brought.help, no_args_is_help=True)
    @click.argument("model", type=MODEL)
    @json_option
    def ask(model: Path, as_json: bool) -> None:
        from coremargin.models.registry import load

        answer = brought.answer(load(model))
        if as_json:
            print_json(asdict(answer))
        else:
            print_lines(*brought.describe(answer))

    return ask


COMMANDS = commands()
