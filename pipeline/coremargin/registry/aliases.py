"""Move aliases (promotion, rollback) and remove old versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.errors import Busy, DataError, UsageError
from coremargin.formats.versions import ALIAS, CHAMPION, MOVES
from coremargin.registry.registry import retried

if TYPE_CHECKING:
    from coremargin.formats.versions import Line
    from coremargin.registry.registry import Registry, RegistryState

KEEP = 10  #: versions that ``collect`` keeps by default


@retried
def promote(
    registry: Registry,
    version: int,
    *,
    alias: str = CHAMPION,
    expected: int | None = -1,
    force: bool = False,
    comment: str = "",
) -> Line | None:
    """Point an alias to a version, and return the line of the log; None if it points there already.

    expected: move the alias only from this version (None: only if it is new; -1: from any). force: also if gates have
    refused the version. Raises DataError (no such version), UsageError (refused by gates, invalid alias), Busy (another
    process has moved the alias), OutputError.
    """
    _check_alias(alias)
    with registry.writing() as writer:
        state = writer.state
        _check_version(registry, state, version)
        current = state.version_of(alias)
        if expected not in (-1, current):
            last = next((line for line in reversed(state.lines) if line.action in MOVES and line.alias == alias), None)
            mover = f" ({last.who}, {last.when})" if last is not None else ""
            raise Busy(
                f"{registry.path}: expected {alias} to be {_describe(expected)}, found {_describe(current)}: another "
                f"process changed the registry first{mover}; compare it with version {version}, and promote again"
            )
        if current == version:
            return None
        decision = state.decision(version)
        if decision is not None and decision.action == "refused" and not force:
            raise UsageError(
                f"{registry.path}: version {version} was refused by its gates: {decision.comment}; use "
                "--force to promote it nevertheless"
            )
        return writer.append("promoted", version, comment, alias=alias, previous=current)


@retried
def rollback(registry: Registry, *, alias: str = CHAMPION, to: int | None = None, comment: str = "") -> Line:
    """Point an alias back to its previous version, or to version ``to``.

    Raises DataError (no such alias or version), UsageError (no previous version, invalid alias), Busy, OutputError.
    """
    _check_alias(alias)
    with registry.writing() as writer:
        state = writer.state
        current = state.version_of(alias)
        if current is None:
            raise DataError(f"{registry.path}: has no alias {alias!r}, so there is nothing to roll back")
        target = state.previous_version(alias) if to is None else to
        if target is None:
            raise UsageError(
                f"{registry.path}: no version was {alias} before version {current}; choose one with --to NUMBER"
            )
        _check_version(registry, state, target)
        if target == current:
            raise UsageError(
                f"{registry.path}: version {current} is the {alias} already; name another with --to NUMBER"
            )
        return writer.append("rolled back", target, comment, alias=alias, previous=current)


@retried
def collect(registry: Registry, *, keep: int = KEEP, dry_run: bool = False) -> list[int]:
    """Remove versions, and return their numbers.

    Keeps the newest ``keep`` versions, those with an alias and those that a rollback restores.
    Raises UsageError, OutputError, Busy.
    """
    if keep < 1:
        raise UsageError(f"keep: expected at least 1, got {keep}")
    with registry.writing() as writer:
        state = writer.state
        needed = {alias.version for alias in state.aliases.values()}
        needed |= {version for name in state.aliases if (version := state.previous_version(name)) is not None}
        removable = [number for number in state.numbers[:-keep] if number not in needed]
        if not dry_run:
            writer.remove(removable, f"not among the newest {keep}")
    return removable


def _check_alias(alias: str) -> None:
    if not ALIAS.fullmatch(alias):
        raise UsageError(f"{alias!r}: expected an alias of lowercase letters, digits, - and _, starting with a letter")


def _check_version(registry: Registry, state: RegistryState, version: int) -> None:
    """Raises DataError if a version was removed or never existed."""
    if version in state.numbers:
        registry.record(version, state)
        return
    versions = ", ".join(map(str, state.numbers[-8:])) or "none: it has no versions yet"
    removal = next((line for line in state.lines_about(version) if line.action == "removed"), None)
    if removal is not None:
        raise DataError(
            f"{registry.path}: version {version} was removed ({removal.who}, {removal.when}): {removal.comment}; "
            f"choose one of {versions}"
        )
    raise DataError(f"{registry.path}: has no version {version}; choose one of {versions}")


def _describe(version: int | None) -> str:
    return "no version" if version is None else f"version {version}"
