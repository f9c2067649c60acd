"""``coremargin registry``: versions of a model, their names, and what happened to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import MODEL, json_option
from coremargin.cli.printing import print_json, print_lines

if TYPE_CHECKING:
    from coremargin.formats.versions import Line
    from coremargin.registry.registry import Registry, Standing

SECTION = "Registry"

_registry = click.argument("place", metavar="REGISTRY", type=click.Path(path_type=Path))
_version = click.argument("version", metavar="VERSION")
_alias = click.option("--alias", default="champion", show_default=True, help="The name that moves.")
_why = click.option("--why", default="", help="A word on it, for the log.")


@click.group("registry", no_args_is_help=True)
def registry() -> None:
    """Versions of a model in a folder: names that move between them, gates, a log.

    A VERSION is a number or a name, such as champion. Wherever a command takes a MODEL, REGISTRY@champion or
    REGISTRY@17 is one.

    \b
      coremargin registry add models rows.model
      coremargin registry promote models 1
      coremargin predict models@champion new.zarr labels.csv
      coremargin registry rollback models
    """


@registry.command(no_args_is_help=True)
@_registry
@click.argument("model", type=MODEL)
@click.option("--store", type=click.Path(path_type=Path), help="Where its rows are, if not where they were.")
@json_option
def add(place: Path, model: Path, *, store: Path | None, as_json: bool) -> None:
    """Put MODEL into REGISTRY, which is made where nothing is, as its newest version.

    The version is a copy, and never changes. It gets the name candidate. The newest version is not added twice.
    """
    from coremargin.registry.adding import add as run
    from coremargin.registry.registry import Registry

    opened = Registry.create(place)
    number = run(opened, model, store)
    if as_json:
        print_json({"registry": str(opened.path), "version": number, "folder": str(opened.folder(number))})
    else:
        print_lines(f"version {number}: {opened.folder(number)}")


@registry.command("list", no_args_is_help=True)
@_registry
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Only so many versions.")
@json_option
def list_(place: Path, *, last: int | None, as_json: bool) -> None:
    """List the versions that are there, the newest first: status, rows, gates, names."""
    from coremargin.report.text import table

    opened = _opened(place)
    standing = opened.standing()
    numbers = standing.numbers[::-1][:last]
    if as_json:
        aliases = {name: alias.version for name, alias in standing.aliases.items()}
        print_json(
            {
                "registry": str(opened.path),
                "aliases": aliases,
                "versions": [_facts(opened, standing, n) for n in numbers],
            }
        )
        return
    if not numbers:
        print_lines(f"{opened.path}: no versions yet; `coremargin registry add {opened.path} MODEL` adds one")
        return
    rows = [("version", "made", "status", "rows", "gates", "names")]
    for number in numbers:
        facts = _facts(opened, standing, number)
        rows.append((
            str(number), facts["made"][:16].replace("T", " "), facts["status"], f"{facts['rows']:,}",
            facts["gates"] or "-", ", ".join(facts["names"]),
        ))  # fmt: skip
    print_lines(*table(rows, indent="", left=6))


@registry.command(no_args_is_help=True)
@_registry
@_version
@json_option
def show(place: Path, version: str, *, as_json: bool) -> None:
    """Show what a VERSION is: its certificate, what it was made of, what its gates found."""
    from coremargin.report.text import facts

    opened = _opened(place)
    standing = opened.standing()
    number = _number(opened, standing, version)
    found = _facts(opened, standing, number)
    decision = standing.decision(number)
    if as_json:
        print_json({**found, "decision": None if decision is None else _values(decision)})
        return
    classes = ", ".join(f"{label!r} {rows:,}" for label, rows in found["classes"])
    pairs = [
        ("version", f"{number} {', '.join(found['names'])}".strip()), ("folder", found["folder"]),
        ("made", f"{found['made']} by {found['by']}"), ("status", found["status"]),
        ("ratio", "not known" if found["ratio"] is None else f"{found['ratio']:.9f}"),
        ("parent", "none" if found["parent"] is None else str(found["parent"])),
        ("store", f"{found['store']}, commit {found['commit']}, {found['rows']:,} rows"), ("digest", found["digest"]),
        ("classes", classes),
    ]  # fmt: skip
    print_lines(*facts(pairs), *(["", *_gates(decision)] if decision is not None else []))


@registry.command(no_args_is_help=True)
@_registry
@_version
@_alias
@click.option("--expect", metavar="VERSION", help="Only while the name is this version's; none: while it is no one's.")
@click.option("--force", is_flag=True, help="Although its gates have refused it.")
@_why
@json_option
def promote(place: Path, version: str, *, expect: str | None, as_json: bool, **how: Any) -> None:
    """Give VERSION the name champion, or another one. Who reads meanwhile has the one or the other.

    \b
      coremargin registry promote models 17
      coremargin registry promote models candidate --expect 16 --why "looks good"
    """
    from coremargin.registry.moving import promote as run

    opened = _opened(place)
    standing = opened.standing()
    number = _number(opened, standing, version)
    expected = -1 if expect is None else None if expect == "none" else _number(opened, standing, expect)
    line = run(opened, number, expected=expected, **how)
    _moved_told(opened, line, f"version {number} is the {how['alias']} already", as_json=as_json)


@registry.command(no_args_is_help=True)
@_registry
@_alias
@click.option("--to", metavar="VERSION", help="To this one.  [default: the one that had the name before]")
@_why
@json_option
def rollback(place: Path, *, to: str | None, as_json: bool, **how: Any) -> None:
    """Give the name champion, or another one, back to the version that had it before."""
    from coremargin.registry.moving import rollback as run

    opened = _opened(place)
    target = None if to is None else _number(opened, opened.standing(), to)
    _moved_told(opened, run(opened, to=target, **how), "", as_json=as_json)


@registry.command(no_args_is_help=True)
@_registry
@click.argument("old", metavar="OLD", default="champion")
@click.argument("new", metavar="NEW", default="candidate")
@click.option("--store", type=click.Path(path_type=Path), help="Where the rows are, if not where they were.")
@click.option("--no-read", is_flag=True, help="Statistics alone: do not look at the rows that came.")
@json_option
def diff(place: Path, old: str, new: str, *, store: Path | None, no_read: bool, as_json: bool) -> None:
    """Show how version NEW differs from OLD: what it proves, and how its rows drifted.

    Of the rows that came since OLD: shares of classes, means and spreads of features in units of those before, which
    statistics know without reading; the share of these rows within the old margin, for which they are read; and what
    moved in the weights.
    """
    from coremargin.registry.difference import difference, told

    opened = _opened(place)
    standing = opened.standing()
    numbers = [_number(opened, standing, text) for text in (old, new)]
    found = difference(opened, numbers[0], numbers[1], store=store, read=not no_read)
    if as_json:
        print_json(found.to_dict())
    else:
        print_lines(*told(found))


@registry.command(no_args_is_help=True)
@_registry
@click.option("--keep", type=click.IntRange(1), default=10, show_default=True, help="Newest versions that stay.")
@click.option("--dry-run", is_flag=True, help="Say which would go.")
@json_option
def gc(place: Path, *, keep: int, dry_run: bool, as_json: bool) -> None:
    """Remove old versions: not the newest, none with a name, none that a rollback would give one."""
    from coremargin.registry.moving import collect
    from coremargin.report.text import count

    gone = collect(_opened(place), keep=keep, dry_run=dry_run)
    if as_json:
        print_json({"removed": [] if dry_run else gone, "would_remove": gone})
    else:
        numbers = f": {', '.join(map(str, gone))}" if gone else ""
        print_lines(f"{place}: {count(len(gone), 'version')} {'would go' if dry_run else 'removed'}{numbers}")


@registry.command(no_args_is_help=True)
@_registry
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Only so many lines.")
@json_option
def log(place: Path, *, last: int | None, as_json: bool) -> None:
    """Show what happened, the latest first: trained, passed, refused, promoted, rolled back, removed."""
    lines = _opened(place).standing().lines[::-1][:last]
    if as_json:
        print_json({"registry": str(place), "lines": [_values(line) for line in lines]})
    else:
        print_lines(*(text for line in lines for text in _told(line)))


def _opened(place: Path) -> Registry:
    from coremargin.registry.registry import Registry

    return Registry(place)


def _number(opened: Registry, standing: Standing, text: str) -> int:
    """The number of a version that a command line names. Raises DataError."""
    from coremargin.errors import DataError

    if text.isdecimal():
        return int(text)
    alias = standing.aliases.get(text)
    if alias is None:
        known = ", ".join(standing.aliases) or "none yet"
        raise DataError(f"{opened.path}: expected a version's number or name, found {text!r}; names: {known}")
    return alias.version


def _facts(opened: Registry, standing: Standing, number: int) -> dict[str, Any]:
    """A version, as JSON."""
    from coremargin.formats.versions import as_values

    decision = standing.decision(number)
    values = as_values(opened.record(number))
    known = {name: value for name, value in values.items() if name not in ("format", "version", "number", "files")}
    gates = None if decision is None else decision.did
    return {
        "version": number,
        **known,
        "folder": str(opened.folder(number)),
        "names": standing.names(number),
        "gates": gates,
    }


def _values(line: Line) -> dict[str, Any]:
    from msgspec import to_builtins

    found: dict[str, Any] = to_builtins(line)
    return found


def _moved_told(opened: Registry, line: Line | None, otherwise: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"registry": str(opened.path), "moved": None if line is None else _values(line)})
    elif line is None:
        print_lines(f"{opened.path}: {otherwise}")
    else:
        was = "no version" if line.was is None else f"version {line.was}"
        print_lines(f"{opened.path}: {line.alias} is version {line.version} now, {was} before")


def _told(line: Line) -> list[str]:
    """A line for people."""
    from msgspec import UNSET

    about = "" if line.version is None else f"version {line.version}"
    if line.alias is not UNSET:
        about += f" as {line.alias}, in the place of {'none' if line.was is None else line.was}"
    if line.out is not UNSET:
        about += f" to {line.out}"
    if line.night is not UNSET:
        about += f"{line.night.told}, exit code {line.night.exit_code}"
    why = f": {line.why}" if line.why else ""
    return [f"{line.number:>5}  {line.when}  {line.did:<11} {about}{why}", f"       {line.who}"]


def _gates(decision: Line) -> list[str]:
    """What the gates found."""
    from msgspec import UNSET

    gates = [] if decision.gates is UNSET else decision.gates
    return [f"{decision.did} by its gates:", *(f"  {'ok    ' if gate.ok else 'FAILED'}  {gate.told}" for gate in gates)]


COMMANDS = (registry,)
