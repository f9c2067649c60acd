"""A registry of models: immutable versions, aliases that point to them, and a log of all events.

formats/versions.py describes the files. A writer appends a line to the log, on condition that nobody else has, and
applies it; if it is killed in between, the next writer applies the line. On disk writers take turns by a lock; at an
address one that another was faster than begins again (``retried``). Readers take no lock and work on a read-only disk.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from msgspec import UNSET

from coremargin.data.chained_log import now
from coremargin.data.commits import current_user
from coremargin.data.files import ASIDE, output_errors, sync_folder
from coremargin.data.local_storage import LocalStorage
from coremargin.data.locked import Locked
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.owned import Kind
from coremargin.data.storage import ABSENT, Storage, write_json
from coremargin.data.storages import open_storage
from coremargin.errors import Busy, ChangedMeanwhile, DataError, NoAnswer, UsageError
from coremargin.formats import versions
from coremargin.formats.chained import Chain, bytes_of, hash_of, read_chain
from coremargin.formats.generation import FILE as CURRENT
from coremargin.formats.generation import is_of_generations
from coremargin.formats.local_path import local_path
from coremargin.formats.location import Location, is_remote, location
from coremargin.formats.model_files import NEAR_ROWS
from coremargin.formats.storage import rereading_refused
from coremargin.formats.versions import Alias, Line, VersionRecord, folder_of
from coremargin.models.files import MODEL, check_outside

P = ParamSpec("P")
T = TypeVar("T")
_LONGEST_USER = 200  # characters
LOCK_TIMEOUT_S = 30.0  #: other writers hold the lock for a moment only
_TRIES = 20  # of a change while other processes change the registry
_OWN_FILES = {versions.FILE, versions.LOG, versions.ALIASES, versions.VERSIONS, versions.WORK}
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


def retried(change: Callable[P, T]) -> Callable[P, T]:
    """``change``, which begins again where another process has changed the registry meanwhile."""

    @wraps(change)
    def change_again(*args: P.args, **options: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            with suppress(ChangedMeanwhile):
                return change(*args, **options)
        return change(*args, **options)

    return change_again


class _Log:
    """The log as it was when it was read, which is appended to if it is the same still."""

    def __init__(self, storage: Storage, first: str) -> None:
        self._storage, self._first = storage, first
        self._place = f"{storage.name}/{versions.LOG}"
        self.read()

    @property
    def entries(self) -> tuple[Line, ...]:
        """All lines."""
        return self._chain.entries

    @rereading_refused
    def read(self) -> None:
        """Read it as it is now. Raises DataError."""
        try:
            self._tag = self._storage.tag(versions.LOG)  # before the bytes: it is never that of later ones
        except FileNotFoundError:
            raise DataError(f"{self._place}: expected the log of a registry, found nothing; get a copy") from None
        data = versions.read_log_bytes(self._storage)
        self._chain = self._chain_of(data)
        self._data = data[: self._chain.whole]  # without half a line, as older versions may have left it
        self._storage.sync("")  # a killed writer may not have; an alias or a removal follows from what was read

    def append(self, entries: Iterable[Mapping[str, Any]]) -> tuple[Line, ...]:
        """Write lines, all but their numbers and hashes, all of them or, after an exception, none.

        Raises ChangedMeanwhile; NoAnswer: whether they were written is not known; OutputError: they do not last if the
        folder cannot be synced.
        """
        texts, before = list[bytes](), self._chain.hashes[-1] if self._chain.hashes else self._first
        for number, entry in enumerate(entries, start=len(self.entries) + 1):
            own = {"token": secrets.token_hex(8)} if self._storage.remote else {}
            texts.append(bytes_of(Line(**{"number": number, "before": before, **entry, **own})))
            before = hash_of(texts[-1])
        data = self._data + b"".join(text + b"\n" for text in texts)
        chain = self._chain_of(data)  # as a reader will
        try:
            self._tag = self._storage.write(versions.LOG, [data], replaces=self._tag)
            self._data, self._chain = data, chain
            self._storage.sync("")  # before an alias or a removal follows from it
        except (Busy, NoAnswer) as error:
            self.read()
            if self._chain.hashes[: len(chain.hashes)] != chain.hashes:
                if isinstance(error, NoAnswer):
                    raise
                raise ChangedMeanwhile(
                    f"{self._storage.name}: another process changed the registry first; nothing was changed here, do "
                    "it again"
                ) from None
        return chain.entries[-len(texts) :]

    def _chain_of(self, data: bytes) -> Chain[Line]:
        return read_chain(data, self._first, self._place, versions.parse_line)


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
    """An existing registry, in a folder or at an address; ``create`` also makes new ones. Raises DataError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.storage = _place_of(path)
        _, data = versions.read_head(self.storage)
        self._first = hash_of(data)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Registry:
        """Open the registry at a path, or make one if nothing is there. Raises UsageError, OutputError, Busy."""
        if is_remote(path):
            address = location(path)
            storage = ObjectStorage(address).resolved()
            if not ObjectStorage.of_generation(address, None).exists(versions.FILE):
                check_outside(address)
                _write_empty_registry(storage)
            return cls(address)
        folder = Path(os.path.realpath(local_path(path)))
        if not (folder / versions.FILE).exists():
            check_outside(folder)
            with Locked(folder / versions.LOG, "this registry", wait_s=LOCK_TIMEOUT_S), output_errors(folder):
                for name in (versions.ALIASES, versions.VERSIONS):
                    (folder / name).mkdir(exist_ok=True)
                _write_empty_registry(LocalStorage(folder))
        return cls(folder)

    def __repr__(self) -> str:
        return f"Registry({str(self.path)!r})"

    def state(self) -> RegistryState:
        """Read the log and the folders. Raises DataError."""
        return self.state_of(versions.read_log(self.storage, self._first).entries)

    def state_of(self, lines: tuple[Line, ...]) -> RegistryState:
        """The state with the log as it was read."""
        logged = {line.version for line in lines if line.action == "trained"}
        logged -= {line.version for line in lines if line.action == "removed"}
        numbers = tuple(number for number in self.numbers_there() if number in logged)
        aliases = versions.aliases_of_log(lines) if self.storage.remote else _read_aliases(self.storage)
        return RegistryState(lines, numbers, aliases)

    def numbers_there(self) -> list[int]:
        """Numbers of the folders of versions, ascending: whole ones, and at an address of unfinished ones, too."""
        entries = [one for one in self.storage.list(versions.VERSIONS) if one.kind in ("folder", "link")]
        return sorted(int(one.name) for one in entries if re.fullmatch(r"[0-9]{6,9}", one.name))

    @rereading_refused
    def record(self, number: int, state: RegistryState | None = None) -> VersionRecord:
        """The record of a version; state: avoids reading the log again.

        Raises DataError: no such version, or its record does not have the hash in the log.
        """
        record, data = versions.read_version(open_storage(self.folder(number)), number)
        lines = versions.read_log(self.storage, self._first).entries if state is None else state.lines
        sealed = next((line.record for line in lines if line.action == "trained" and line.version == number), None)
        if record.number != number or sealed not in (None, hash_of(data)):
            raise DataError(
                f"{folder_of(self.path, number)}: the record was changed: its hash differs from the one in the "
                "log; get an unaltered copy"
            )
        return record

    def folder(self, number: int) -> Path | Location:
        """The folder of a version, or its address, whether or not it exists."""
        return folder_of(self.path, number)

    @contextmanager
    def writing(self) -> Iterator[RegistryWriter]:
        """Complete what a killed writer left, and change the registry, on disk while the lock is held.

        Raises Busy, OutputError, DataError; the changes raise ChangedMeanwhile, as ``retried`` wants it.
        """
        with self._lock():
            writer = RegistryWriter(self, _Log(self.storage, self._first))
            writer.finish()
            yield writer

    def _lock(self) -> AbstractContextManager[object]:
        if not isinstance(self.path, Path):
            self.storage.resolved()  # which tests, once, whether the service keeps conditions
            return nullcontext()
        advice = "try again in a moment"
        return Locked(self.path / versions.LOG, "this registry", advice=advice, wait_s=LOCK_TIMEOUT_S)

    @retried
    def complete(self) -> None:
        """Apply what a killed writer has left in the log. Raises Busy, OutputError, DataError."""
        with self.writing():
            pass

    @retried
    def append(self, action: versions.Action, version: int | None, comment: str = "", **more: Any) -> Line:
        """Append a line that depends on no other, and apply it. Raises OutputError, Busy."""
        with self.writing() as writer:
            return writer.append(action, version, comment, **more)


class RegistryWriter:
    """Changes a registry from the state in which it was read (``Registry.writing``)."""

    def __init__(self, registry: Registry, log: _Log) -> None:
        self.registry, self._log = registry, log

    @property
    def state(self) -> RegistryState:
        """As ``Registry.state``, with the log as this writer has read it."""
        return self.registry.state_of(self._log.entries)

    @property
    def next_number(self) -> int:
        """Number of the next version; numbers of removed versions are not reused."""
        return max((line.version for line in self._log.entries if line.version is not None), default=0) + 1

    def append(self, action: versions.Action, version: int | None, comment: str = "", **more: Any) -> Line:
        """Append a line to the log and apply it. Raises ChangedMeanwhile, OutputError."""
        (line,) = self._log.append([_line(action, version, comment, **more)])
        self.finish()
        return line

    def remove(self, numbers: Iterable[int], comment: str) -> None:
        """Remove versions. Raises ChangedMeanwhile, OutputError."""
        lines = [_line("removed", number, comment) for number in numbers]
        if lines:
            self._log.append(lines)
            self.finish()

    def finish(self) -> None:
        """Apply the log to folders and aliases; add versions that a killed writer had not logged yet."""
        for _ in range(_TRIES - 1):
            with suppress(ChangedMeanwhile):
                self._log_versions()
                break
        else:
            self._log_versions()
        if isinstance(self.registry.path, Path):
            for name, alias in versions.aliases_of_log(self._log.entries).items():
                self._move_alias(name, alias)
            for left in (self.registry.path / versions.VERSIONS).glob(f".*{ASIDE}"):
                with output_errors(left):
                    VERSION.make_way(left)

    def _log_versions(self) -> None:
        known = {line.version for line in self._log.entries if line.action == "trained"}
        removed = {line.version for line in self._log.entries if line.action == "removed"}
        for number in self.registry.numbers_there():
            if number in removed:
                self._remove(number)
            elif number not in known and (version := open_storage(self.registry.folder(number))).exists(
                versions.RECORD
            ):
                if not _is_whole(version):
                    self._log.append([_line("removed", number, "was not whole when it had been uploaded")])
                    self._remove(number)
                    continue
                record, data = versions.read_version(version, number)
                entry = {"version": number, "who": record.by, "when": record.created, "comment": ""}
                candidate = versions.aliases_of_log(self._log.entries).get(versions.CANDIDATE)
                move = {"alias": versions.CANDIDATE, "previous": candidate.version if candidate else None}
                trained = {"action": "trained", "record": hash_of(data)}
                self._log.append([{**entry, **trained}, {**entry, "action": "promoted", **move}])

    def _move_alias(self, name: str, moved: Alias) -> None:
        key = f"{versions.ALIASES}/{name}"
        current = versions.read_alias(self.registry.storage, name)
        if current is not None and current.fence > moved.fence:
            raise DataError(
                f"{self.registry.path}/{key}: was moved by line {current.fence} of the log, which "
                f"has {len(self._log.entries)} lines: lines are missing; get a complete copy of the log"
            )
        if current is None or current.fence < moved.fence:
            write_json(self.registry.storage, key, {"version": moved.version, "fence": moved.fence})
            self.registry.storage.sync(versions.ALIASES)

    def _remove(self, number: int) -> None:
        folder = self.registry.folder(number)
        if isinstance(folder, Location):
            version = ObjectStorage(folder)
            version.delete_found([CURRENT])  # from now on it is none, whatever else is there
            version.delete_found([found.path for found in version.list_found() if is_of_generations(found.path)])
            return
        aside = folder.with_name(f".{folder.name}{ASIDE}")
        with output_errors(folder):
            VERSION.make_way(aside)
            os.rename(folder, aside)
            sync_folder(folder.parent)
            VERSION.make_way(aside)

    @contextmanager
    def adding(self, number: int) -> Iterator[Path]:
        """An empty folder of this machine to fill, which becomes the version of this number at the end, and is logged.

        Raises ChangedMeanwhile: another version has the number by now; OutputError.
        """
        version = open_storage(self.registry.folder(number))
        try:
            with version.replacing(VERSION, overwrite=False) as folder:
                yield Path(folder.name)
                if isinstance(version, ObjectStorage):
                    version.copies = self._find_copies(LocalStorage(folder.name), number)
        except (Busy, UsageError) as error:
            if isinstance(version, ObjectStorage) and version.reopened().generation is not None:
                raise ChangedMeanwhile(str(error)) from None
            raise
        self.finish()
        if number not in self.state.numbers:
            raise Busy(f"{self.registry.path}: version {number} was removed while it was added; add it again")

    def _find_copies(self, folder: Storage, number: int) -> dict[str, str]:
        """The address of the near rows, which are large, if the version before has the same, as after quiet nights."""
        state, mine = self.state, versions.read_version(folder, number)[0].files.get(NEAR_ROWS)
        if mine is None or state.newest is None:
            return {}
        if self.registry.record(state.newest, state).files.get(NEAR_ROWS) != mine:
            return {}
        return {NEAR_ROWS: ObjectStorage(location(self.registry.folder(state.newest))).address_of(NEAR_ROWS)}


def _is_whole(version: Storage) -> bool:
    """Whether all objects of a version are there: ``vacuum`` may remove some during an upload that takes days."""
    if not isinstance(version, ObjectStorage) or version.generation is None or version.generation.objects is UNSET:
        return True
    sizes = dict(version.list_all())
    missing = [key for key, nbytes in version.generation.objects.items() if sizes.get(key) != nbytes]
    try:  # a listing may lag behind
        return all(version.head(key)[1] == version.generation.objects[key] for key in missing)
    except FileNotFoundError:
        return False


def _line(action: versions.Action, version: int | None, comment: str, **more: Any) -> dict[str, Any]:
    """A line of the log, but for its number and hash."""
    who = current_user()[:_LONGEST_USER]
    return {"action": action, "version": version, "comment": comment, "who": who, "when": now(), **more}


def _place_of(path: str | os.PathLike[str]) -> tuple[Path | Location, LocalStorage | ObjectStorage]:
    if is_remote(path):
        address = location(path)
        return address, ObjectStorage.of_generation(address, None)
    folder = Path(os.path.abspath(local_path(path)))
    return folder, LocalStorage(folder)


def _read_aliases(storage: Storage) -> dict[str, Alias]:
    """Raises DataError."""
    names = [entry.name for entry in storage.list(versions.ALIASES) if versions.ALIAS.fullmatch(entry.name)]
    found = {name: versions.read_alias(storage, name) for name in names}
    return {name: alias for name, alias in found.items() if alias is not None}


def _write_empty_registry(storage: Storage) -> None:
    """Complete a killed attempt, too. Raises UsageError: other files are there."""
    names = [entry.name for entry in storage.list()]
    if versions.FILE in names:
        return
    foreign = sorted(name for name in names if name not in _OWN_FILES and not name.startswith("."))
    if foreign:
        raise UsageError(
            f"{storage.name}: expected a registry or an empty folder, found {foreign[0]!r}; choose another path"
        )
    with suppress(Busy):  # of a killed attempt, or of another process, which also writes the next one
        storage.write(versions.LOG, [b""], replaces=ABSENT)
    head = {"format": versions.FORMAT, "version": versions.VERSION, "id": secrets.token_hex(32), "created": now()}
    with suppress(Busy):
        write_json(storage, versions.FILE, head, replaces=ABSENT)
    storage.sync("")
