"""``coremargin registry``: versions of a model, aliases, gates and the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import MODEL, PATH, STORE, json_option, storage_option
from coremargin.cli.printing import print_json, print_lines

if TYPE_CHECKING:
    from coremargin.formats.location import Location
    from coremargin.formats.versions import Line
    from coremargin.registry.registry import Registry, RegistryState

SECTION = "Registry"

_registry_argument = click.argument("path", metavar="REGISTRY", type=STORE)
_version_argument = click.argument("version", metavar="VERSION")
_alias_option = click.option("--alias", default="champion", show_default=True, help="Alias to move.")
_comment_option = click.option("--comment", default="", help="A comment for the log.")


@click.group("registry", no_args_is_help=True)
def registry() -> None:
    """Versions of a model in a folder or a bucket, with aliases, gates and a log.

    A VERSION is a number or an alias, such as champion. REGISTRY@champion or REGISTRY@17 can be given wherever a
    command expects a MODEL.

    \b
      coremargin registry add models rows.model
      coremargin registry promote models 1
      coremargin predict models@champion new.zarr labels.csv
      coremargin registry rollback models
    """


@registry.command(no_args_is_help=True)
@_registry_argument
@click.argument("model", type=MODEL)
@click.option("--store", type=STORE, help="Path or address of the store, if it has moved.")
@storage_option
@json_option
def add(path: Path | Location, model: Path | Location, *, store: Path | Location | None, as_json: bool) -> None:
    """Add MODEL to REGISTRY as its newest version; creates the registry if needed.

    The version is a copy that never changes. It gets the alias candidate. A model that is the newest version
    already is not added again.
    """
    from coremargin.registry.add_version import add as add_version
    from coremargin.registry.registry import Registry

    opened = Registry.create(path)
    number = add_version(opened, model, store)
    if as_json:
        print_json({"registry": str(opened.path), "version": number, "folder": str(opened.folder(number))})
    else:
        print_lines(f"version {number}: {opened.folder(number)}")


@registry.command("list", no_args_is_help=True)
@_registry_argument
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Most versions to list.")
@storage_option
@json_option
def list_(path: Path | Location, *, last: int | None, as_json: bool) -> None:
    """List versions, newest first: status, rows, gates, aliases."""
    from coremargin.report.text import table

    opened = _open(path)
    state = opened.state()
    numbers = state.numbers[::-1][:last]
    if as_json:
        aliases = {name: alias.version for name, alias in state.aliases.items()}
        print_json(
            {
                "registry": str(opened.path),
                "aliases": aliases,
                "versions": [_version_facts(opened, state, n) for n in numbers],
            }
        )
        return
    if not numbers:
        print_lines(f"{opened.path}: no versions yet; `coremargin registry add {opened.path} MODEL` adds one")
        return
    rows = [("version", "created", "status", "rows", "gates", "aliases")]
    for number in numbers:
        facts = _version_facts(opened, state, number)
        rows.append(
            (
                str(number),
                facts["created"][:16].replace("T", " "),
                facts["status"],
                f"{facts['rows']:,}",
                facts["gates"] or "-",
                ", ".join(facts["aliases"]),
            )
        )
    print_lines(*table(rows, indent="", left=6))


@registry.command(no_args_is_help=True)
@_registry_argument
@_version_argument
@storage_option
@json_option
def show(path: Path | Location, version: str, *, as_json: bool) -> None:
    """Show a VERSION: its certificate, provenance and gate results."""
    from coremargin.report.text import facts

    opened = _open(path)
    state = opened.state()
    number = _version_number(opened, state, version)
    found = _version_facts(opened, state, number)
    decision = state.decision(number)
    if as_json:
        print_json({**found, "decision": None if decision is None else _to_json(decision)})
        return
    classes = ", ".join(f"{label!r} {rows:,}" for label, rows in found["classes"])
    pairs = [
        ("version", f"{number} {', '.join(found['aliases'])}".strip()),
        ("folder", found["folder"]),
        ("created", f"{found['created']} by {found['by']}"),
        ("status", found["status"]),
        ("ratio", "not known" if found["ratio"] is None else f"{found['ratio']:.9f}"),
        ("parent", "none" if found["parent"] is None else str(found["parent"])),
        ("store", f"{found['store']}, commit {found['commit']}, {found['rows']:,} rows"),
        ("digest", found["store_digest"]),
        *([("classes", classes)] if classes else []),
    ]
    print_lines(*facts(pairs), *(["", *_describe_gates(decision)] if decision is not None else []))


@registry.command(no_args_is_help=True)
@_registry_argument
@click.argument("old", metavar="OLD", default="champion")
@click.argument("new", metavar="NEW", default="candidate")
@click.option("--store", type=STORE, help="Path or address of the store, if it has moved.")
@click.option("--no-read", is_flag=True, help="Use statistics only: do not read the new rows.")
@storage_option
@json_option
def diff(
    path: Path | Location, old: str, new: str, *, store: Path | Location | None, no_read: bool, as_json: bool
) -> None:
    """Compare version NEW with OLD: what they prove, and how the rows drifted.

    For the rows that were added since OLD: class shares, means and spreads of features relative to earlier rows
    (from statistics, without reading), the share of these rows within the old margin (which reads them), and the
    change of the weights.
    """
    from coremargin.registry.difference import describe_difference, difference

    opened = _open(path)
    state = opened.state()
    numbers = [_version_number(opened, state, text) for text in (old, new)]
    found = difference(opened, numbers[0], numbers[1], store=store, read=not no_read)
    if as_json:
        print_json(found.to_dict())
    else:
        print_lines(*describe_difference(found))


@registry.command(no_args_is_help=True)
@_registry_argument
@click.option("--out", type=PATH, required=True, help="File to write, such as models.html.")
@click.option("--store", type=STORE, help="Path or address of the store, if it has moved.")
@storage_option
def page(path: Path | Location, *, out: Path, store: Path | Location | None) -> None:
    """Write a page about REGISTRY: champion, versions, gates, drift, the last thirty runs, the log.

    One HTML file that loads nothing and runs no script.
    """
    from coremargin.registry.page import write_page

    write_page(_open(path), out, store=store)
    print_lines(f"{out}: {out.stat().st_size:,} bytes")


@registry.command(no_args_is_help=True)
@_registry_argument
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Most lines to show.")
@storage_option
@json_option
def log(path: Path | Location, *, last: int | None, as_json: bool) -> None:
    """Show the log, latest first."""
    lines = _open(path).state().lines[::-1][:last]
    if as_json:
        print_json({"registry": str(path), "lines": [_to_json(line) for line in lines]})
    else:
        print_lines(*(text for line in lines for text in _describe_line(line)))


@registry.command(no_args_is_help=True)
@_registry_argument
@_version_argument
@_alias_option
@click.option("--expect", metavar="VERSION", help="Only if the alias points to this version; none: if it is new.")
@click.option("--force", is_flag=True, help="Promote even if its gates refused it.")
@_comment_option
@storage_option
@json_option
def promote(path: Path | Location, version: str, *, expect: str | None, as_json: bool, **options: Any) -> None:
    """Point the alias champion, or another one, to VERSION. Readers see the old or the new version.

    \b
      coremargin registry promote models 17
      coremargin registry promote models candidate --expect 16 --comment "looks good"
    """
    from coremargin.registry.aliases import promote as promote_version

    opened = _open(path)
    state = opened.state()
    number = _version_number(opened, state, version)
    expected = -1 if expect is None else None if expect == "none" else _version_number(opened, state, expect)
    line = promote_version(opened, number, expected=expected, **options)
    if line is None and not as_json:
        print_lines(f"{opened.path}: version {number} is the {options['alias']} already")
    else:
        _print_move(opened, line, as_json=as_json)


@registry.command(no_args_is_help=True)
@_registry_argument
@_alias_option
@click.option("--to", metavar="VERSION", help="Version to go back to.  [default: the previous one]")
@_comment_option
@storage_option
@json_option
def rollback(path: Path | Location, *, to: str | None, as_json: bool, **options: Any) -> None:
    """Point the alias champion, or another one, back to its previous version."""
    from coremargin.registry.aliases import rollback as roll_back

    opened = _open(path)
    target = None if to is None else _version_number(opened, opened.state(), to)
    _print_move(opened, roll_back(opened, to=target, **options), as_json=as_json)


@registry.command(no_args_is_help=True)
@_registry_argument
@click.option("--keep", type=click.IntRange(1), default=10, show_default=True, help="Newest versions to keep.")
@click.option("--dry-run", is_flag=True, help="Show which versions would be removed.")
@storage_option
@json_option
def gc(path: Path | Location, *, keep: int, dry_run: bool, as_json: bool) -> None:
    """Remove old versions, except the newest, those with an alias, and those a rollback would need."""
    from coremargin.registry.aliases import collect
    from coremargin.report.text import count

    versions = collect(_open(path), keep=keep, dry_run=dry_run)
    if as_json:
        print_json({"removed": [] if dry_run else versions, "would_remove": versions})
    else:
        numbers = f": {', '.join(map(str, versions))}" if versions else ""
        print_lines(
            f"{path}: {count(len(versions), 'version')} {'would be removed' if dry_run else 'removed'}{numbers}"
        )


def _open(path: Path | Location) -> Registry:
    from coremargin.registry.registry import Registry

    return Registry(path)


def _version_number(opened: Registry, state: RegistryState, text: str) -> int:
    """The version that a number or an alias stands for. Raises DataError."""
    from coremargin.errors import DataError

    number = int(text) if text.isdecimal() else state.version_of(text)
    if number is None:
        known = ", ".join(state.aliases) or "none yet"
        raise DataError(f"{opened.path}: expected a version number or an alias, found {text!r}; aliases: {known}")
    return number


def _version_facts(opened: Registry, state: RegistryState, number: int) -> dict[str, Any]:
    from coremargin.formats.versions import as_values

    decision = state.decision(number)
    values = as_values(opened.record(number, state))
    known = {name: value for name, value in values.items() if name not in ("format", "version", "number", "files")}
    gates = None if decision is None else decision.action
    return {
        "version": number,
        **known,
        "folder": str(opened.folder(number)),
        "aliases": state.aliases_of(number),
        "gates": gates,
    }


def _describe_line(line: Line) -> list[str]:
    from msgspec import UNSET

    about = "" if line.version is None else f"version {line.version}"
    if line.alias is not UNSET:
        about += f" as {line.alias}, previously {'none' if line.previous is None else line.previous}"
    if line.out is not UNSET:
        about += f" to {line.out}"
    if line.run is not UNSET:
        about += f"{line.run.text}, exit code {line.run.exit_code}"
    comment = f": {line.comment}" if line.comment else ""
    return [f"{line.number:>5}  {line.when}  {line.action:<11} {about}{comment}", f"       {line.who}"]


def _describe_gates(decision: Line) -> list[str]:
    from msgspec import UNSET

    gates = [] if decision.gates is UNSET else decision.gates
    lines = [f"  {'ok    ' if gate.ok else 'FAILED'}  {gate.text}" for gate in gates]
    return [f"{decision.action} by its gates:", *lines]


def _print_move(opened: Registry, line: Line | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"registry": str(opened.path), "moved": None if line is None else _to_json(line)})
    elif line is not None:
        previous = "no version" if line.previous is None else f"version {line.previous}"
        print_lines(f"{opened.path}: {line.alias} is version {line.version} now, {previous} before")


def _to_json(line: Line) -> dict[str, Any]:
    from msgspec import to_builtins

    values: dict[str, Any] = to_builtins(line)
    return values


COMMANDS = (registry,)
