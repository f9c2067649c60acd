"""What the commands about a registry share: how one, and its versions, are named on a command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import PATH

if TYPE_CHECKING:
    from coremargin.formats.versions import Line
    from coremargin.registry.registry import Registry, Standing

registry_argument = click.argument("place", metavar="REGISTRY", type=PATH)
version_argument = click.argument("version", metavar="VERSION")


def opened_registry(place: Path) -> Registry:
    """The registry at a path. Raises DataError."""
    from coremargin.registry.registry import Registry

    return Registry(place)


def number_of(opened: Registry, standing: Standing, text: str) -> int:
    """The number of a version that a command line names. Raises DataError."""
    from coremargin.errors import DataError

    if text.isdecimal():
        return int(text)
    alias = standing.aliases.get(text)
    if alias is None:
        known = ", ".join(standing.aliases) or "none yet"
        raise DataError(f"{opened.path}: expected a version's number or name, found {text!r}; names: {known}")
    return alias.version


def line_values(line: Line) -> dict[str, Any]:
    """A line of the log, as JSON."""
    from msgspec import to_builtins

    found: dict[str, Any] = to_builtins(line)
    return found
