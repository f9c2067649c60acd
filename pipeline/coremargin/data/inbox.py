"""Folders into which files of rows are put: each is taken in once, a bad one whole or not at all.

A file's name, size and hash stand in the store's log, in the line of the very commit that has its rows: so it is taken
in with them or not at all, and known again under whatever name it comes. Only then it is moved to ``done``; who is
killed in between leaves that to the next one. A file that cannot be taken in goes to ``quarantine``, with the reason
beside it, and the others are taken in. Several jobs may look into one inbox: whoever comes second finds a file gone, or
its hash in the log when it would commit.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.commits import Deed, taken_before
from coremargin.data.files import ASIDE, output_errors, put_in_place, sync_folder, write_whole
from coremargin.errors import ColumnsUnclear, CoremarginError, DamagedChunk, DataError, NoRows, StoreError, UsageError
from coremargin.formats.store_log import FileMark, read_log
from coremargin.formats.store_record import read_store_record

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Endings of files that are taken in, some of which may follow another (rows.csv.gz).
ENDINGS = (".csv", ".tsv", ".parquet")
_PACKED = ("", ".gz", ".bz2", ".xz")
DONE, QUARANTINE, WHY = "done", "quarantine", ".why.txt"
_LONGEST_NAME = 255 - len(f".{WHY}{ASIDE}")  # bytes
SETTLE_S = 60.0  #: a file that changed later than so long ago may still be written


class _Changed(Exception):
    """A file has changed while it was read."""


class _Known(Exception):
    """Another job has taken a file in while it was read."""


@dataclass(frozen=True)
class Inbox:
    """path: the folder; done, quarantine: where files go; settle_s: a file that changed so lately is left alone."""

    path: Path
    done: Path
    quarantine: Path
    settle_s: float = SETTLE_S

    def waiting(self) -> tuple[list[Path], list[Path]]:
        """Files to be taken in, by name, and those that may still be written. Raises DataError: there is no folder.

        Names that begin with . or _, and others than of CSV and Parquet, are nobody's business: writers use such until
        a file is whole.
        """
        ready, unsettled = list[Path](), list[Path]()
        try:
            entries = sorted(os.scandir(self.path), key=lambda entry: entry.name)
        except OSError as error:
            raise DataError(f"{self.path}: expected a folder of files to take in: {error.strerror}; make it") from error
        for entry in entries:
            if entry.name.startswith((".", "_")) or not _is_table(entry.name):
                continue
            try:
                found = entry.stat()
            except FileNotFoundError:  # its writer has renamed it
                continue
            if stat.S_ISREG(found.st_mode):
                age = time.time() - found.st_mtime
                # a time to come is that of a clock that was wrong: that it changes is seen before it is committed
                (unsettled if 0 <= age < self.settle_s else ready).append(Path(entry.path))
        return ready, unsettled


@dataclass
class Taken:
    """What became of the files of an inbox, by name.

    rows: of each file that was taken in. known: that were taken in before, and by which commit. refused: and why.
    waiting: that are still being written.
    """

    rows: dict[str, int] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anything was done."""
        return bool(self.rows or self.known or self.refused)


def take_in(inbox: Inbox, store: Path, words: Mapping[str, Any], *, new_labels: bool = False) -> Taken:
    """Take in what is ready; words: those of ``ingest`` about the columns, for a store that is not there yet.

    Raises DataError (no inbox; columns that need a word), StoreError, UsageError (words that do not fit), OutputError,
    Busy: what was taken in before stays so.
    """
    ready, unsettled = inbox.waiting()
    taken = Taken(waiting=[path.name for path in unsettled])
    unclear = list[tuple[Path, CoremarginError]]()
    for path in ready:
        error = _take(inbox, path, store, words, taken, new_labels=new_labels)
        if error is not None:
            unclear.append((path, error))
    if unclear and not store.exists():
        raise unclear[0][1]  # no file goes with these words
    for path, _ in unclear:  # others do, so this one is wrong
        _take(inbox, path, store, words, taken, new_labels=new_labels)
    return taken


def _take(
    inbox: Inbox, path: Path, store: Path, words: Mapping[str, Any], taken: Taken, *, new_labels: bool
) -> CoremarginError | None:
    """Take in a file; an error that is of the words, not of the file, where no store says that they are right."""
    found = _looked_at(inbox, path, taken)
    if found is None:
        return None
    (seen, sha256), known, append = found, _known(store), store.exists()
    if sha256 in known:
        taken.known[path.name] = known[sha256]
        _move(path, inbox.done, sha256)
        return None
    mark = FileMark(name=_name(path), nbytes=seen.st_size, sha256=sha256)
    try:
        taken.rows[path.name] = _ingest(path, store, mark, seen, words, append=append, new_labels=new_labels)
    except _Changed:
        taken.waiting.append(path.name)
        return None
    except _Known:
        taken.known[path.name] = _known(store)[sha256]
    except (StoreError, DamagedChunk):
        raise
    except NoRows:  # a day on which nothing happened
        taken.rows[path.name] = 0
    except (DataError, UsageError) as error:
        if not path.exists():
            return None
        if not append and store.exists():  # another job has made it meanwhile
            return _take(inbox, path, store, words, taken, new_labels=new_labels)
        if not append and isinstance(error, UsageError | ColumnsUnclear):
            return error
        taken.refused[path.name] = str(error)
        _refuse(path, inbox.quarantine, sha256, str(error))
        return None
    _move(path, inbox.done, sha256)
    return None


def _looked_at(inbox: Inbox, path: Path, taken: Taken) -> tuple[os.stat_result, str] | None:
    """What a file is, and the hash of its content; None: it has gone, or cannot be read and is put aside."""
    try:
        seen = path.stat()
        try:
            return seen, _hash(path)
        except PermissionError as error:
            why = f"{path}: cannot be read: {error.strerror}"
    except FileNotFoundError:  # another job has taken it
        return None
    taken.refused[path.name] = why
    _refuse(path, inbox.quarantine, f"{seen.st_mtime_ns:x}", why)
    return None


def _ingest(
    path: Path, store: Path, mark: FileMark, seen: os.stat_result, words: Mapping[str, Any], *, append: bool,
    new_labels: bool,
) -> int:  # fmt: skip
    """Commit the rows of a file, with its mark; how many there are. append: the store was there."""
    from coremargin.data.ingest import ingest  # heavy: not where nothing is to be taken in

    def deed() -> Deed:
        if mark.sha256 in _known(store):  # nobody else writes it now
            raise _Known
        try:
            now = path.stat()
        except FileNotFoundError:
            raise _Changed(f"{path}: has gone while it was read") from None
        if (now.st_size, now.st_mtime_ns, now.st_ino) != (seen.st_size, seen.st_mtime_ns, seen.st_ino):
            raise _Changed(f"{path}: has changed while it was read")
        return Deed("append" if append else "ingest", note=mark.name, files=(mark,))

    options = {"append": True, "new_labels": new_labels, **_of_every(words)} if append else dict(words)
    return ingest(path, store, deed=deed, **options).rows


def _of_every(words: Mapping[str, Any]) -> dict[str, Any]:
    """Words that an append takes as well: how a file is read, not what becomes of its columns."""
    return {name: words[name] for name in ("label", "drop", "delimiter", "header") if name in words}


def _known(store: Path) -> dict[str, int]:
    return taken_before(read_log(store, read_store_record(store))) if store.exists() else {}


def _is_table(name: str) -> bool:
    return any(name.lower().endswith(f"{ending}{packed}") for ending in ENDINGS for packed in _PACKED)


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _name(path: Path) -> str:
    """A file's name as a log can hold it."""
    return os.fsencode(path.name).decode(errors="backslashreplace")


def _refuse(path: Path, quarantine: Path, sha256: str, reason: str) -> None:
    with output_errors(quarantine):
        quarantine.mkdir(parents=True, exist_ok=True)
    write_whole(quarantine / f"{_free(path, quarantine, sha256)}{WHY}", [f"{reason}\n".encode()])
    _move(path, quarantine, sha256)


def _move(path: Path, folder: Path, mark: str) -> None:
    """Move a file into a folder, by another name where its own is taken there by another file, or is too long."""
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / _free(path, folder, mark)
        try:
            os.rename(path, place)
        except FileNotFoundError:  # another job was faster
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(path, place)  # a kill before the next line leaves a file whose hash is known
            path.unlink()
        sync_folder(folder)
        sync_folder(path.parent)


def _copy(path: Path, place: Path) -> None:
    """Copy a file to another file system, whole."""
    with put_in_place(place) as aside, open(path, "rb") as source, open(aside, "xb") as copied:
        shutil.copyfileobj(source, copied)
        copied.flush()
        os.fsync(copied.fileno())


def _free(path: Path, folder: Path, mark: str) -> str:
    """A name that no other file has there, with room for the endings that others add."""
    name = os.fsencode(path.name)
    if len(name) <= _LONGEST_NAME and not os.path.lexists(folder / path.name):
        return path.name
    return f"{mark[:12]}-{os.fsdecode(name[-_LONGEST_NAME + 13 :])}"
