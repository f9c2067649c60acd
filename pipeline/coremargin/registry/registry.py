"""A registry of models: immutable versions, aliases that point to them, and a log of all events.

formats/versions.py describes the files. A writer takes the lock, appends a line to the log and applies it; if it is
killed in between, the next writer applies the line. Readers take no lock and work on a read-only disk.
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
from coremargin.data.commits import current_user
from coremargin.data.files import ASIDE, output_errors, sync_folder, write_json, write_whole
from coremargin.data.locked import Locked
from coremargin.data.owned import Kind
from coremargin.errors import DataError, UsageError
from coremargin.formats import versions
from coremargin.formats.chained import Chain, hash_of, read_chain
from coremargin.formats.local_path import local_path
from coremargin.formats.versions import Alias, Line, VersionRecord, folder_of
from coremargin.models.files import MODEL, check_outside

_LONGEST_USER = 200  # characters
LOCK_TIMEOUT_S = 30.0  #: other writers hold the lock for a moment only
_OWN_FILES = {versions.FILE, versions.LOG, versions.ALIASES, versions.VERSIONS, versions.WORK, TELLING}
_RECORD = versions.RECORD.replace(".", "[.]")

#: The folder of a version: a model, its record, and the files with which MLflow loads it (pyfunc.py).
VERSION = Kind(
    what="a version",
    records={**MODEL.records, versions.RECORD: versions.VERSION_FORMAT},
    files=(
        rf"{MODEL.files}|{_RECORD}|MLmodel|requirements[.]txt|planes[.]npz|model[.]onnx|code/coremargin_version[.]py"
    ),
    folders=rf"{MODEL.folders}|code",
)


class _Log(ChainedLog[Line]):
    def _read(self, data: bytes) -> Chain[Line]:
        return read_chain(data, self._first, str(self._path), versions.parse_line, self._chain)

    def _line_of(self, values: Mapping[str, Any]) -> Line:
        return Line(**values)


@dataclass(frozen=True)
class RegistryState:
    """Log lines, existing versions (ascending) and aliases at one moment."""

    lines: tuple[Line, ...]
    numbers: tuple[int, ...]
    aliases: dict[str, Alias]

    @property
    def newest(self) -> int | None:
        """Number of the newest version."""
        return self.numbers[-1] if self.numbers else None

    def version_of(self, alias: str) -> int | None:
        """The version that an alias points to, or None."""
        return self.aliases[alias].version if alias in self.aliases else None

    def lines_about(self, version: int) -> list[Line]:
        """In the order of the log."""
        return [line for line in self.lines if line.version == version]

    def decision(self, version: int) -> Line | None:
        """The latest result of the gates, or None if none has been evaluated."""
        return next(
            (line for line in reversed(self.lines_about(version)) if line.action in ("passed", "refused")), None
        )

    def aliases_of(self, version: int) -> list[str]:
        """In alphabetical order."""
        return sorted(name for name, alias in self.aliases.items() if alias.version == version)

    def previous_version(self, alias: str) -> int | None:
        """The version that a rollback of an alias restores."""
        current = self.version_of(alias)
        moves = [line for line in self.lines if line.action == "promoted" and line.alias == alias]
        move = next((line for line in reversed(moves) if line.version == current), None)
        return move.previous if move is not None and isinstance(move.previous, int) else None


class Registry:
    """An existing registry; ``create`` also makes new ones. Raises DataError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(local_path(path)))
        _, data = versions.read_head(self.path)
        self._first = hash_of(data)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Registry:
        """Open the registry at a path, or make one if the path is empty. Raises UsageError, OutputError, Busy."""
        place = Path(os.path.realpath(local_path(path)))
        if not (place / versions.FILE).exists():
            check_outside(place)
            with Locked(place / versions.LOG, "this registry", wait_s=LOCK_TIMEOUT_S), output_errors(place):
                _write_empty_registry(place)
        return cls(place)

    def __repr__(self) -> str:
        return f"Registry({str(self.path)!r})"

    def state(self) -> RegistryState:
        """Read the log and the folders. Raises DataError."""
        lines = versions.read_log(self.path, self._first).entries
        return RegistryState(lines, _version_numbers(self.path), _read_aliases(self.path))

    def record(self, number: int, state: RegistryState | None = None) -> VersionRecord:
        """The record of a version; state: avoids reading the log again.

        Raises DataError: no such version, or its record does not have the hash in the log.
        """
        record, data = versions.read_version(self.path, number)
        lines = versions.read_log(self.path, self._first).entries if state is None else state.lines
        sealed = next((line.record for line in lines if line.action == "trained" and line.version == number), None)
        if record.number != number or sealed not in (None, hash_of(data)):
            raise DataError(
                f"{folder_of(self.path, number)}: the record was changed: its hash differs from the one in the "
                "log; get an unaltered copy"
            )
        return record

    def folder(self, number: int) -> Path:
        """The folder of a version, whether or not it exists."""
        return folder_of(self.path, number)

    @contextmanager
    def writing(self) -> Iterator[RegistryWriter]:
        """Hold the lock and complete what a killed writer left. Raises Busy, OutputError, DataError."""
        advice = "try again in a moment"
        with Locked(self.path / versions.LOG, "this registry", advice=advice, wait_s=LOCK_TIMEOUT_S):
            log = _Log(self.path / versions.LOG, self._first, "the log of a registry")
            log.refresh()
            writer = RegistryWriter(self, log)
            writer.finish()
            yield writer


class RegistryWriter:
    """Changes a registry while its lock is held (``Registry.writing``)."""

    def __init__(self, registry: Registry, log: _Log) -> None:
        self.registry, self._log = registry, log

    @property
    def state(self) -> RegistryState:
        """As ``Registry.state``, with the log as this writer has read it."""
        return RegistryState(self._log.entries, _version_numbers(self.registry.path), _read_aliases(self.registry.path))

    @property
    def next_number(self) -> int:
        """Number of the next version; numbers of removed versions are not reused."""
        logged = (line.version for line in self._log.entries if line.version is not None)
        return max((0, *logged, *_version_numbers(self.registry.path))) + 1

    def append(self, action: versions.Action, version: int | None, comment: str = "", **more: Any) -> Line:
        """Append a line to the log and apply it. Raises OutputError."""
        entry = {"action": action, "version": version, "comment": comment, "who": current_user()[:_LONGEST_USER]}
        self._log.append([{**entry, "when": now(), **more}])
        self.finish()
        return self._log.entries[-1]

    def finish(self) -> None:
        """Apply the log to folders and aliases; add versions that a killed writer had not logged yet."""
        root = self.registry.path
        known = {line.version for line in self._log.entries if line.action == "trained"}
        removed = {line.version for line in self._log.entries if line.action == "removed"}
        for number in _version_numbers(self.registry.path):
            if number in removed:
                self._remove(number)
            elif number not in known:
                record, data = versions.read_version(root, number)
                entry = {"version": number, "who": record.by, "when": record.created, "comment": ""}
                candidate = versions.read_alias(root, versions.CANDIDATE)
                move = {"alias": versions.CANDIDATE, "previous": candidate.version if candidate else None}
                trained = {"action": "trained", "record": hash_of(data)}
                self._log.append([{**entry, **trained}, {**entry, "action": "promoted", **move}])
        for name, line in {line.alias: line for line in self._log.entries if line.action in versions.MOVES}.items():
            self._move_alias(str(name), line)
        for left in (root / versions.VERSIONS).glob(f".*{ASIDE}"):
            with output_errors(left):
                VERSION.make_way(left)

    def _move_alias(self, name: str, line: Line) -> None:
        current = versions.read_alias(self.registry.path, name)
        if current is not None and current.fence > line.number:
            raise DataError(
                f"{self.registry.path / versions.ALIASES / name}: was moved by line {current.fence} of the log, which "
                f"has {len(self._log.entries)} lines: lines are missing; get a complete copy of the log"
            )
        if current is None or current.fence < line.number:
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

    def add_folder(self, temporary: Path, number: int) -> None:
        """Rename a complete, synced folder to the version's folder, and log it."""
        folder = self.registry.folder(number)
        with output_errors(folder):
            os.rename(temporary, folder)
            sync_folder(folder.parent)
        self.finish()


def _version_numbers(path: Path) -> tuple[int, ...]:
    with suppress(FileNotFoundError):
        names = [entry.name for entry in os.scandir(path / versions.VERSIONS) if entry.is_dir()]
        return tuple(sorted(int(name) for name in names if re.fullmatch(r"[0-9]{6,9}", name)))
    return ()


def _read_aliases(path: Path) -> dict[str, Alias]:
    """Raises DataError."""
    found = dict[str, Alias]()
    with suppress(FileNotFoundError):
        for entry in os.scandir(path / versions.ALIASES):
            alias = versions.read_alias(path, entry.name) if versions.ALIAS.fullmatch(entry.name) else None
            if alias is not None:
                found[entry.name] = alias
    return dict(sorted(found.items()))


def _write_empty_registry(place: Path) -> None:
    """Complete a killed attempt, too. Raises UsageError: the folder has other files."""
    if (place / versions.FILE).exists():
        return
    foreign = sorted(one.name for one in place.iterdir() if one.name not in _OWN_FILES and not one.name.startswith("."))
    if foreign:
        raise UsageError(f"{place}: expected a registry or an empty folder, found {foreign[0]!r}; choose another path")
    for name in (versions.ALIASES, versions.VERSIONS):
        (place / name).mkdir(exist_ok=True)
    write_whole(place / versions.LOG, [b""])
    write_json(
        place / versions.FILE,
        {"format": versions.FORMAT, "version": versions.VERSION, "id": secrets.token_hex(32), "created": now()},
    )
    sync_folder(place)
