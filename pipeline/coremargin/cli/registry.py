"""``coremargin registry``: versions of a model, their names, and what happened to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import MODEL, PATH, json_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.cli.registry_moves import COMMANDS as MOVES
from coremargin.cli.registry_named import line_values, number_of, opened_registry, registry_argument, version_argument

if TYPE_CHECKING:
    from coremargin.formats.versions import Line
    from coremargin.registry.registry import Registry, Standing

SECTION = "Registry"


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
@registry_argument
@click.argument("model", type=MODEL)
@click.option("--store", type=PATH, help="Where its rows are, if not where they were.")
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
@registry_argument
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Only so many versions.")
@json_option
def list_(place: Path, *, last: int | None, as_json: bool) -> None:
    """List the versions that are there, the newest first: status, rows, gates, names."""
    from coremargin.report.text import table

    opened = opened_registry(place)
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
@registry_argument
@version_argument
@json_option
def show(place: Path, version: str, *, as_json: bool) -> None:
    """Show what a VERSION is: its certificate, what it was made of, what its gates found."""
    from coremargin.report.text import facts

    opened = opened_registry(place)
    standing = opened.standing()
    number = number_of(opened, standing, version)
    found = _facts(opened, standing, number)
    decision = standing.decision(number)
    if as_json:
        print_json({**found, "decision": None if decision is None else line_values(decision)})
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
@registry_argument
@click.argument("old", metavar="OLD", default="champion")
@click.argument("new", metavar="NEW", default="candidate")
@click.option("--store", type=PATH, help="Where the rows are, if not where they were.")
@click.option("--no-read", is_flag=True, help="Statistics alone: do not look at the rows that came.")
@json_option
def diff(place: Path, old: str, new: str, *, store: Path | None, no_read: bool, as_json: bool) -> None:
    """Show how version NEW differs from OLD: what it proves, and how its rows drifted.

    Of the rows that came since OLD: shares of classes, means and spreads of features in units of those before, which
    statistics know without reading; the share of these rows within the old margin, for which they are read; and what
    moved in the weights.
    """
    from coremargin.registry.difference import difference, told

    opened = opened_registry(place)
    standing = opened.standing()
    numbers = [number_of(opened, standing, text) for text in (old, new)]
    found = difference(opened, numbers[0], numbers[1], store=store, read=not no_read)
    if as_json:
        print_json(found.to_dict())
    else:
        print_lines(*told(found))


@registry.command(no_args_is_help=True)
@registry_argument
@click.option("--out", type=PATH, required=True, help="The file, such as models.html.")
@click.option("--store", type=PATH, help="Where the rows are, if not where they were.")
def page(place: Path, *, out: Path, store: Path | None) -> None:
    """Write a page about REGISTRY: the champion, versions, gates, drift, the last thirty nights, the log.

    One HTML file that loads nothing and runs no script.
    """
    from coremargin.registry.page import write_page

    write_page(opened_registry(place), out, store=store)
    print_lines(f"{out}: {out.stat().st_size:,} bytes")


@registry.command(no_args_is_help=True)
@registry_argument
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Only so many lines.")
@json_option
def log(place: Path, *, last: int | None, as_json: bool) -> None:
    """Show what happened, the latest first: trained, passed, refused, promoted, rolled back, removed."""
    lines = opened_registry(place).standing().lines[::-1][:last]
    if as_json:
        print_json({"registry": str(place), "lines": [line_values(line) for line in lines]})
    else:
        print_lines(*(text for line in lines for text in _told(line)))


def _facts(opened: Registry, standing: Standing, number: int) -> dict[str, Any]:
    """A version, as JSON."""
    from coremargin.formats.versions import as_values

    decision = standing.decision(number)
    values = as_values(opened.record(number, standing))
    known = {name: value for name, value in values.items() if name not in ("format", "version", "number", "files")}
    gates = None if decision is None else decision.did
    return {
        "version": number,
        **known,
        "folder": str(opened.folder(number)),
        "names": standing.names(number),
        "gates": gates,
    }


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


for _command in MOVES:
    registry.add_command(_command)

COMMANDS = (registry,)
