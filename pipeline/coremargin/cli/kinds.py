"""Commands that kinds of problems bring: each line in formats/kinds.py may name a module that has some."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coremargin.cli.common import json_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.formats import kinds

if TYPE_CHECKING:
    from coremargin.problems.command import AnyCommand

SECTION = "Models"


def commands() -> tuple[click.Command, ...]:
    """Those of all kinds."""
    modules = [kinds.module(parts.commands) for parts in kinds.KINDS.values() if parts.commands is not None]
    return tuple(_command(one) for module in modules for one in module.COMMANDS)


def _command(brought: AnyCommand) -> click.Command:
    @click.command(brought.name, help=brought.help, no_args_is_help=True)
    @click.argument("model", type=click.Path(path_type=Path))
    @json_option
    def ask(model: Path, as_json: bool) -> None:
        from coremargin.models.registry import read_model

        answer = brought.answer(read_model(model))
        if as_json:
            print_json(asdict(answer))
        else:
            print_lines(*brought.told(answer))

    return ask


COMMANDS = commands()
