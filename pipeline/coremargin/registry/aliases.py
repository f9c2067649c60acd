"""Names of versions move, and versions go: promotion, rollback, removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.errors import Busy, DataError, UsageError
from coremargin.formats.versions import ALIAS, CHAMPION, MOVES

if TYPE_CHECKING:
    from coremargin.formats.versions import Line
    from coremargin.registry.registry import Registry, Standing, Writing

KEEP = 10  #: versions that ``collect`` leaves where nobody says how many


def promote(
    registry: Registry,
    version: int,
    *,
    alias: str = CHAMPION,
    expected: int | None = -1,
    force: bool = False,
    why: str = "",
) -> Line | None:
    """Give a version a name; None where it has it already.

    expected: the version that the name is thought to stand for (None: no one), -1: whichever. force: although gates
    have refused it. Raises DataError (no such version), UsageError (refused by gates, no name), Busy (somebody moved
    the name meanwhile), OutputError.
    """
    _check_name(alias)
    with registry.writing() as writing:
        standing = writing.standing
        _check_there(registry, standing, version)
        was = _held_by(standing, alias)
        if expected not in (-1, was):
            last = next((line for line in reversed(standing.lines) if line.did in MOVES and line.alias == alias), None)
            told = f" ({last.who}, {last.when})" if last is not None else ""
            raise Busy(
                f"{registry.path}: expected {alias} to be {_named(expected)}, found {_named(was)}: another "
                f"process changed the registry first{told}; compare it with version {version}, and promote again"
            )
        if was == version:
            return None
        decision = standing.decision(version)
        if decision is not None and decision.did == "refused" and not force:
            raise UsageError(
                f"{registry.path}: version {version} was refused by its gates: {decision.why}; --force promotes it "
                "nevertheless"
            )
        return _moved(writing, "promoted", version, alias, was, why)


def rollback(registry: Registry, *, alias: str = CHAMPION, to: int | None = None, why: str = "") -> Line:
    """Give a name back to the version that had it before, or to another one.

    Raises DataError (that version was removed, the name is no one's), UsageError (there was none before), OutputError.
    """
    _check_name(alias)
    with registry.writing() as writing:
        standing = writing.standing
        was = _held_by(standing, alias)
        if was is None:
            raise DataError(f"{registry.path}: no version has the name {alias!r}: there is nothing to roll back")
        target = standing.before(alias) if to is None else to
        if target is None:
            raise UsageError(
                f"{registry.path}: version {was} did not take the place of another {alias}; --to NUMBER names the "
                "version that is to have it"
            )
        _check_there(registry, standing, target)
        if target == was:
            raise UsageError(f"{registry.path}: version {was} is the {alias} already; --to NUMBER names another")
        return _moved(writing, "rolled back", target, alias, was, why)


def collect(registry: Registry, *, keep: int = KEEP, dry_run: bool = False) -> list[int]:
    """Remove versions that are not among the newest ``keep``, have no name and would not be rolled back to.

    The numbers of those that went. Raises UsageError, OutputError, Busy.
    """
    if keep < 1:
        raise UsageError(f"keep: expected at least 1, got {keep}")
    with registry.writing() as writing:
        standing = writing.standing
        needed = {alias.version for alias in standing.aliases.values()}
        needed |= {before for name in standing.aliases if (before := standing.before(name)) is not None}
        gone = [number for number in standing.numbers[:-keep] if number not in needed]
        for number in [] if dry_run else gone:
            writing.tell("removed", number, f"not among the newest {keep}")
    return gone


def _moved(writing: Writing, did: str, version: int, alias: str, was: int | None, why: str) -> Line:
    return writing.tell("promoted" if did == "promoted" else "rolled back", version, why, alias=alias, was=was)


def _held_by(standing: Standing, alias: str) -> int | None:
    held = standing.aliases.get(alias)
    return None if held is None else held.version


def _check_name(alias: str) -> None:
    if not ALIAS.fullmatch(alias):
        raise UsageError(f"{alias!r}: expected a name of small letters, digits, - and _ that begins with a letter")


def _check_there(registry: Registry, standing: Standing, version: int) -> None:
    """Raises DataError for a version that is not there: it was removed, or never was."""
    if version in standing.numbers:
        registry.record(version, standing)
        return
    gone = next((line for line in standing.of(version) if line.did == "removed"), None)
    if gone is not None:
        raise DataError(
            f"{registry.path}: version {version} was removed ({gone.who}, {gone.when}): {gone.why}; choose one of "
            f"{_some(standing)}"
        )
    raise DataError(f"{registry.path}: has no version {version}; choose one of {_some(standing)}")


def _some(standing: Standing) -> str:
    return ", ".join(map(str, standing.numbers[-8:])) or "none: it has no versions yet"


def _named(version: int | None) -> str:
    return "no version" if version is None else f"version {version}"
