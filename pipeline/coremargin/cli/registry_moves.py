"""``coremargin registry promote``, ``rollback`` and ``gc``: names that move, and versions that go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import json_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.cli.registry_named import line_values, number_of, opened_registry, registry_argument, version_argument

if TYPE_CHECKING:
    from coremargin.formats.versions import Line
    from coremargin.registry.registry import Registry

_alias = click.option("--alias", default="champion", show_default=True, help="Alias to move.")
_why = click.option("--why", default="", help="A comment for the log.")


@click.command(no_args_is_help=True)
@registry_argument
@version_argument
@_alias
@click.option("--expect", metavar="VERSION", help="Only if the alias points to this version; none: if it is new.")
@click.option("--force", is_flag=True, help="Promote even if its gates refused it.")
@_why
@json_option
def promote(place: Path, version: str, *, expect: str | None, as_json: bool, **how: Any) -> None:
    """Point the alias champion, or another one, to VERSION. Readers see the old or the new version.

    \b
      coremargin registry promote models 17
      coremargin registry promote models candidate --expect 16 --why "looks good"
    """
    from coremargin.registry.aliases import promote as run

    opened = opened_registry(place)
    standing = opened.standing()
    number = number_of(opened, standing, version)
    expected = -1 if expect is None else None if expect == "none" else number_of(opened, standing, expect)
    line = run(opened, number, expected=expected, **how)
    _moved_told(opened, line, f"version {number} is the {how['alias']} already", as_json=as_json)


@click.command(no_args_is_help=True)
@registry_argument
@_alias
@click.option("--to", metavar="VERSION", help="Version to go back to.  [default: the previous one]")
@_why
@json_option
def rollback(place: Path, *, to: str | None, as_json: bool, **how: Any) -> None:
    """Point the alias champion, or another one, back to its previous version."""
    from coremargin.registry.aliases import rollback as run

    opened = opened_registry(place)
    target = None if to is None else number_of(opened, opened.standing(), to)
    _moved_told(opened, run(opened, to=target, **how), "", as_json=as_json)


@click.command(no_args_is_help=True)
@registry_argument
@click.option("--keep", type=click.IntRange(1), default=10, show_default=True, help="Newest versions to keep.")
@click.option("--dry-run", is_flag=True, help="Show which versions would be removed.")
@json_option
def gc(place: Path, *, keep: int, dry_run: bool, as_json: bool) -> None:
    """Remove old versions, except the newest, those with an alias, and those a rollback would need."""
    from coremargin.registry.aliases import collect
    from coremargin.report.text import count

    gone = collect(opened_registry(place), keep=keep, dry_run=dry_run)
    if as_json:
        print_json({"removed": [] if dry_run else gone, "would_remove": gone})
    else:
        numbers = f": {', '.join(map(str, gone))}" if gone else ""
        print_lines(f"{place}: {count(len(gone), 'version')} {'would go' if dry_run else 'removed'}{numbers}")


def _moved_told(opened: Registry, line: Line | None, otherwise: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"registry": str(opened.path), "moved": None if line is None else line_values(line)})
    elif line is None:
        print_lines(f"{opened.path}: {otherwise}")
    else:
        was = "no version" if line.was is None else f"version {line.was}"
        print_lines(f"{opened.path}: {line.alias} is version {line.version} now, {was} before")


COMMANDS = (promote, rollback, gc)
