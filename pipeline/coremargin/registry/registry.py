"""A registry of models: immutable versions, names that move between them, and a log of all that happened.

formats/versions.py says how it lies on disk. Whoever writes holds the lock for a moment, writes a line of the log, and
then does what the line says; who is killed in between leaves the rest to whoever writes next, so that every moment is
one before it or after it. Readers take no lock, and a disk that is read-only is no obstacle to them.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coremargin.data.chained_log import TELLING, ChainedLog, now
from coremargin.data.commits import whoever
from coremargin.data.files import ASIDE, output_errors, sync_folder, write_json, write_whole
from coremargin.data.locked import Locked
from coremargin.errors import DataError, UsageError
from coremargin.formats import versions
from coremargin.formats.chained import Chain, hash_of, read_chain
from coremargin.formats.local_path import local_path
from coremargin.formats.versions import Alias, Line, VersionRecord, folder_of
from coremargin.models.files import check_outside
from coremargin.registry.kind import VERSION

_WORD = 200  # characters of a name
PATIENCE_S = 30.0  #: for others who write, each for a moment
_OWN = {versions.FILE, versions.LOG, versions.ALIASES, versions.VERSIONS, versions.WORK, TELLING}


class _Log(ChainedLog[Line]):
    def _read(self, data: bytes) -> Chain[Line]:
        return read_chain(data, self._first, str(self._path), versions.line, self._chain)

    def _line_of(self, values: Mapping[str, Any]) -> Line:
        return Line(**values)


@dataclass(frozen=True)
class Standing:
    """What a registry holds: the lines of its log, the versions that are there, and who has which name."""

    lines: tuple[Line, ...]
    numbers: tuple[int, ...]  #: of versions, ascending
    aliases: dict[str, Alias]

    def of(self, version: int) -> list[Line]:
        """The lines about a version."""
        return [line for line in self.lines if line.version == version]

    def decision(self, version: int) -> Line | None:
        """What the gates have said of a version last; None: nothing yet."""
        return next((line for line in reversed(self.of(version)) if line.did in ("passed", "refused")), None)

    def names(self, version: int) -> list[str]:
        """The aliases of a version."""
        return sorted(name for name, alias in self.aliases.items() if alias.version == version)

    def before(self, alias: str) -> int | None:
        """The version that a name stood for before it was moved to the one that has it now; None: there was none."""
        now_ = self.aliases.get(alias)
        moves = [line for line in self.lines if line.did == "promoted" and line.alias == alias]
        came = next((line for line in reversed(moves) if now_ is not None and line.version == now_.version), None)
        return came.was if came is not None and isinstance(came.was, int) else None


class Registry:
    """A registry on disk; ``create`` makes one. Raises DataError where there is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(local_path(path)))
        _, data = versions.read_head(self.path)
        self._first = hash_of(data)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Registry:
        """The registry at a path, which is made where nothing is. Raises UsageError, OutputError, Busy."""
        place = Path(os.path.realpath(local_path(path)))
        if not (place / versions.FILE).exists():
            check_outside(place)
            with Locked(place / versions.LOG, "this registry", wait_s=PATIENCE_S), output_errors(place):
                _make(place)
        return cls(place)

    def __repr__(self) -> str:
        return f"Registry({str(self.path)!r})"

    def standing(self) -> Standing:
        """What it holds now. Raises DataError."""
        lines = versions.read_log(self.path, self._first).entries
        return Standing(lines, _numbers(self.path), _aliases(self.path))

    def record(self, number: int, standing: Standing | None = None) -> VersionRecord:
        """What a version is and came from; standing: what the registry holds, where that is known.

        Raises DataError: it is not there; its record is not what the log knows.
        """
        record, data = versions.read_version(self.path, number)
        lines = versions.read_log(self.path, self._first).entries if standing is None else standing.lines
        sealed = next((line.record for line in lines if line.did == "trained" and line.version == number), None)
        if record.number != number or sealed not in (None, hash_of(data)):
            raise DataError(
                f"{folder_of(self.path, number)}: expected the record that the log has seen, found another; get an "
                "unaltered copy"
            )
        return record

    def folder(self, number: int) -> Path:
        """Where a version lies."""
        return folder_of(self.path, number)

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """The right to change something, for a moment: what a killed writer left undone is done first.

        Raises Busy, OutputError, DataError.
        """
        advice = "try again in a moment"
        with Locked(self.path / versions.LOG, "this registry", advice=advice, wait_s=PATIENCE_S):
            log = _Log(self.path / versions.LOG, self._first, "the log of a registry")
            log.refresh()
            writing = Writing(self, log)
            writing.finish()
            yield writing


class Writing:
    """A registry while its lock is held; see ``Registry.writing``."""

    def __init__(self, registry: Registry, log: _Log) -> None:
        self.registry, self._log = registry, log

    @property
    def standing(self) -> Standing:
        """What it holds now."""
        return Standing(self._log.entries, _numbers(self.registry.path), _aliases(self.registry.path))

    @property
    def next_number(self) -> int:
        """Of a version that comes now: no number is given twice."""
        logged = (line.version for line in self._log.entries if line.version is not None)
        return max((0, *logged, *_numbers(self.registry.path))) + 1

    def tell(self, did: versions.Did, version: int | None, why: str = "", **more: Any) -> Line:
        """Write a line of the log, and do what it says. Raises OutputError."""
        entry = {"did": did, "version": version, "who": whoever()[:_WORD], "when": now(), "why": why, **more}
        self._log.append([entry])
        self.finish()
        return self._log.entries[-1]

    def finish(self) -> None:
        """Bring folders and aliases up to the log, and the log up to folders that are there."""
        root = self.registry.path
        known = {line.version for line in self._log.entries if line.did == "trained"}
        gone = {line.version for line in self._log.entries if line.did == "removed"}
        for number in _numbers(self.registry.path):
            if number in gone:
                self._remove(number)
            elif number not in known:
                record, data = versions.read_version(root, number)
                entry = {"version": number, "who": record.by, "when": record.made, "why": ""}
                candidate = versions.read_alias(root, versions.CANDIDATE)
                move = {"alias": versions.CANDIDATE, "was": candidate.version if candidate else None}
                trained = {"did": "trained", "record": hash_of(data)}
                self._log.append([{**entry, **trained}, {**entry, "did": "promoted", **move}])
        for name, line in {line.alias: line for line in self._log.entries if line.did in versions.MOVES}.items():
            self._point(str(name), line)
        for left in (root / versions.VERSIONS).glob(f".*{ASIDE}"):
            with output_errors(left):
                VERSION.make_way(left)

    def _point(self, name: str, line: Line) -> None:
        """An alias as its last line has it."""
        there = versions.read_alias(self.registry.path, name)
        if there is not None and there.fence > line.number:
            raise DataError(
                f"{self.registry.path / versions.ALIASES / name}: was moved by line {there.fence} of the log, which "
                f"has {len(self._log.entries)} lines: lines are gone; get a whole copy of the log"
            )
        if there is None or there.fence < line.number:
            write_json(self.registry.path / versions.ALIASES / name, {"version": line.version, "fence": line.number})
            sync_folder(self.registry.path / versions.ALIASES)

    def _remove(self, number: int) -> None:
        folder = self.registry.folder(number)
        aside = folder.with_name(f".{folder.name}{ASIDE}")
        with output_errors(folder):
            VERSION.make_way(aside)
            os.rename(folder, aside)
            sync_folder(folder.parent)
            VERSION.make_way(aside)

    def put(self, made: Path, number: int) -> None:
        """Give a whole, synced folder beside the versions its place, and write it down."""
        place = self.registry.folder(number)
        with output_errors(place):
            os.rename(made, place)
            sync_folder(place.parent)
        self.finish()


def _numbers(path: Path) -> tuple[int, ...]:
    """Versions that are there."""
    with suppress(FileNotFoundError):
        names = [entry.name for entry in os.scandir(path / versions.VERSIONS) if entry.is_dir()]
        return tuple(sorted(int(name) for name in names if re.fullmatch(r"[0-9]{6,9}", name)))
    return ()


def _aliases(path: Path) -> dict[str, Alias]:
    """Who has which name. Raises DataError."""
    found = dict[str, Alias]()
    with suppress(FileNotFoundError):
        for entry in os.scandir(path / versions.ALIASES):
            alias = versions.read_alias(path, entry.name) if versions.ALIAS.fullmatch(entry.name) else None
            if alias is not None:
                found[entry.name] = alias
    return dict(sorted(found.items()))


def _make(place: Path) -> None:
    """Make a registry where none is; a killed attempt is gone on with. Raises UsageError: something else is there."""
    if (place / versions.FILE).exists():
        return
    foreign = sorted(one.name for one in place.iterdir() if one.name not in _OWN and not one.name.startswith("."))
    if foreign:
        raise UsageError(f"{place}: expected a registry or nothing, found {foreign[0]!r}; choose another place")
    for name in (versions.ALIASES, versions.VERSIONS):
        (place / name).mkdir(exist_ok=True)
    write_whole(place / versions.LOG, [b""])
    write_json(
        place / versions.FILE,
        {"format": versions.FORMAT, "version": versions.VERSION, "id": secrets.token_hex(32), "made": now()},
    )
    sync_folder(place)
