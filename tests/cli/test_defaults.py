"""Help names the default of an option once."""

from __future__ import annotations

from collections.abc import Iterator

import click

from coremargin.cli import main


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _commands(found, (*path, name))


def test_no_option_names_its_default_twice() -> None:
    """In the text of its help."""
    for name, command in _commands(main, ("coremargin",)):
        for option in command.params:
            record = option.get_help_record(click.Context(command))
            if record is not None:
                assert record[1].count("[default:") <= 1, (name, option.name, record[1])
