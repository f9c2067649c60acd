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
    """Versions of a model in a folder, with aliases, gates and a log.

    A VERSION is a number or an alias, such as champion. REGISTRY@champion or REGISTRY@17 can be given wherever a
    command expects a MODEL.

    \b
      coremargin registry add models rows.model
      coremargin registry promote models 1
      coremargin predict models@champion new.zarr labels.csv
      coremargin registry rollback models
    """


@registry.command(no_args_is_help=True)
@registry_argument
@click.argument("model", type=MODEL)
@click.option("--store", type=PATH, help="Path of the store, if it has moved.")
@json_option
def add(place: Path, model: Path, *, store: Path | None, as_json: bool) -> None:
    """Add MODEL to REGISTRY as its newest version; creates the registry if needed.

    The version is a copy that never changes. It gets the alias candidate. A model that is the newest version
    already is not added again.
    """
    from coremargin.registry.add_version import add as run
    from coremargin.registry.registry import Registry

    opened = Registry.create(place)
    number = run(opened, model, store)
    if as_json:
        print_json({"registry": str(opened.path), "version": number, "folder": str(opened.folder(number))})
    else:
        print_lines(f"version {number}: {opened.folder(number)}")


@registry.command("list", no_args_is_help=True)
@registry_argument
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Most versions to list.")
@json_option
def list_(place: Path, *, last: int | None, as_json: bool) -> None:
    """List versions, newest first: status, rows, gates, aliases."""
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
        rows.append(
            (
                str(number),
                facts["made"][:16].replace("T", " "),
                facts["status"],
                f"{facts['rows']:,}",
                facts["gates"] or "-",
                ", ".join(facts["names"]),
            )
        )
    print_lines(*table(rows, indent="", left=6))


@registry.command(no_args_is_help=True)
@registry_argument
@version_argument
@json_option
def show(place: Path, version: str, *, as_json: bool) -> None:
    """Show a VERSION: its certificate, provenance and gate results."""
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
        ("version", f"{number} {', '.join(found['names'])}".strip()),
        ("folder", found["folder"]),
        ("made", f"{found['made']} by {found['by']}"),
        ("status", found["status"]),
        ("ratio", "not known" if found["ratio"] is None else f"{found['ratio']:.9f}"),
        ("parent", "none" if found["parent"] is None else str(found["parent"])),
        ("store", f"{found['store']}, commit {found['commit']}, {found['rows']:,} rows"),
        ("digest", found["digest"]),
        *([("classes", classes)] if classes else []),
    ]
    print_lines(*facts(pairs), *(["", *_gates(decision)] if decision is not None else []))


@registry.command(no_args_is_help=True)
@registry_argument
@click.argument("old", metavar="OLD", default="champion")
@click.argument("new", metavar="NEW", default="candidate")
@click.option("--store", type=PATH, help="Path of the store, if it has moved.")
@click.option("--no-read", is_flag=True, help="Use statistics only: do not read the new rows.")
@json_option
def diff(place: Path, old: str, new: str, *, store: Path | None, no_read: bool, as_json: bool) -> None:
    """Compare version NEW with OLD: what they prove, and how the rows drifted.

    For the rows that were added since OLD: class shares, means and spreads of features relative to earlier rows
    (from statistics, without reading), the share of these rows within the old margin (which reads them), and the
    change of the weights.
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
@click.option("--out", type=PATH, required=True, help="File to write, such as models.html.")
@click.option("--store", type=PATH, help="Path of the store, if it has moved.")
def page(place: Path, *, out: Path, store: Path | None) -> None:
    """Write a page about REGISTRY: champion, versions, gates, drift, the last thirty runs, the log.

    One HTML file that loads nothing and runs no script.
    """
    from coremargin.registry.page import write_page

    write_page(opened_registry(place), out, store=store)
    print_lines(f"{out}: {out.stat().st_size:,} bytes")


@registry.command(no_args_is_help=True)
@registry_argument
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Most lines to show.")
@json_option
def log(place: Path, *, last: int | None, as_json: bool) -> None:
    """Show the log, latest first: trained, passed, refused, promoted, rolled back, removed."""
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
