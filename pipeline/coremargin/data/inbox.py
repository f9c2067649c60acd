"""Inboxes: folders into which producers put files of rows. The rows of each file are ingested once, or not at all.

A file passes through three places, all by renames, so that a producer may put another file of the same name into the
inbox at any moment, and a kill at any moment loses no row and takes none twice:

1. ``INBOX/NAME``. A file that changed less than ``settle_s`` ago is left alone.
2. ``INBOX/.claimed/TOKEN/NAME``: the run has claimed the file. Its hash is added to the folder's name
   (``TOKEN-SHA256``) before its rows are read. Name, size and hash stand in the store's log, in the line of the very
   commit that brings the rows; a file that has changed since it was hashed is not committed.
3. ``done/NAME`` after the commit, or ``quarantine/NAME`` with the reason next to it (``NAME.why.txt``).

A run that is killed leaves its file in step 2. The next run finds it there: a hash in the log means that its rows are
in the store. A file that was written to after its rows were committed goes to the quarantine, since which of its rows
are new cannot be known.
"""

from __future__ import annotations

import bz2
import csv
import errno
import gzip
import hashlib
import lzma
import os
import re
import secrets
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.commits import CommitInfo, taken_before
from coremargin.data.files import ASIDE, output_errors, put_in_place, rename_new, sync_folder, write_whole
from coremargin.data.locked import Locked
from coremargin.data.storages import open_storage
from coremargin.errors import (
    Busy,
    ColumnsUnclear,
    CoremarginError,
    DamagedChunk,
    DataError,
    NoRows,
    Running,
    StoreError,
    UsageError,
    raise_if_limit,
)
from coremargin.formats.store_log import FileMark, read_record_and_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Endings of files that are ingested, some of which may follow another (rows.csv.gz).
ENDINGS = (".csv", ".tsv", ".parquet", ".pq")
_PACKED = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: Endings of other files and folders that may hold rows; an inbox does not take them, and says so.
_OTHER_ROWS = (
    ".npy",
    ".npz",
    ".svm",
    ".svmlight",
    ".libsvm",
    ".conll",
    ".mtx",
    ".zarr",
    ".h5",
    ".hdf5",
    ".h5ad",
    ".xls",
    ".xlsx",
    ".xlsm",
    ".ods",
    ".json",
    ".jsonl",
    ".ndjson",
    ".feather",
    ".arrow",
    ".orc",
    ".avro",
    ".zip",
    ".zst",
    ".lz4",
    ".7z",
    ".rar",
    ".tar",
    ".tgz",
)
DONE, QUARANTINE, WHY = "done", "quarantine", ".why.txt"
CLAIMED = ".claimed"  #: folder in the inbox, on its file system, that holds the file whose rows are being read
_CLAIM = re.compile(r"[0-9a-f]{16}(?:-([0-9a-f]{64}))?")
_LINK = ".link"  # in a claim's folder: a relative link while it is made absolute
_LONGEST_NAME = 255 - len(f".{WHY}{ASIDE}")  # bytes
SETTLE_S = 60.0  #: a file that changed less than so many seconds ago may still be written
_UNMOVABLE = {errno.EPERM, errno.EACCES, errno.EBUSY, errno.EXDEV}  # one file (sticky folder, mount), not the disk
_HEADER_BYTES = 1 << 20  # of a table without rows, in which the line that names the columns is looked for


class _Changed(Exception):
    """A file has changed while it was read."""


class _AlreadyIngested(Exception):
    """Another job has committed the same content while it was read."""


@dataclass(frozen=True)
class Inbox:
    """path: the folder; done, quarantine: where files go; settle_s: a file that changed so lately is left alone."""

    path: Path
    done: Path
    quarantine: Path
    settle_s: float = SETTLE_S

    def waiting(self) -> tuple[list[Path], list[Path], dict[str, str]]:
        """Files to ingest, by name; those that may still be written; and entries that are left where they are, and why.

        Files to ingest include whatever else has the name of a table and is no folder (a broken link, a pipe): these
        end in the quarantine. Names that begin with . or _ are ignored, since writers use them until a file is whole;
        so are names that say nothing of rows. Raises DataError: there is no folder.
        """
        ready, unsettled, left = list[Path](), list[Path](), dict[str, str]()
        try:
            entries = sorted(os.scandir(self.path), key=lambda entry: entry.name)
        except OSError as error:
            raise DataError(f"{self.path}: expected a folder of files to take in: {error.strerror}; make it") from error
        for entry in entries:
            if entry.name.startswith((".", "_")):
                continue
            path = Path(entry.path)
            if not is_table(entry.name):
                if is_other_rows(entry.name):
                    left[_shown(path)] = "an inbox takes CSV and Parquet files only"
                continue
            try:
                found = _look(path)
            except FileNotFoundError:  # its writer has renamed it
                continue
            if stat.S_ISDIR(found.st_mode):
                left[_shown(path)] = "is a folder; put its files into the inbox"
            else:
                (unsettled if self.is_unsettled(found) else ready).append(path)
        return ready, unsettled, left

    def is_unsettled(self, found: os.stat_result) -> bool:
        """Whether a file may still be written. A time in the future is that of a wrong clock, and does not count."""
        return 0 <= time.time() - found.st_mtime < self.settle_s


@dataclass
class IntakeResult:
    """What became of the files of an inbox, by name.

    rows: of each file that was ingested. known: files that were ingested before, and by which commit. refused: those
    in quarantine (or that could not be moved there), and why. waiting: those that are still being written. left:
    entries that an inbox does not take, and why.
    """

    rows: dict[str, int] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything was done."""
        return bool(self.rows or self.known or self.refused)


@dataclass(frozen=True)
class _Claim:
    """A file that belongs to this run. folder: holds it and nothing else; sha256: of its content when it was read."""

    folder: Path
    name: str
    sha256: str = ""

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.folder / self.name


def take_in(inbox: Inbox, store: str | Path, options: Mapping[str, Any], *, new_labels: bool = False) -> IntakeResult:
    """Ingest the files that are ready; options: those of ``ingest`` about columns, for a store that does not exist yet.

    Raises DataError (no inbox; columns that need a decision), StoreError, UsageError (options that do not fit),
    OutputError, Busy, Running (another run reads this inbox): what was ingested before stays so.
    """
    ready, unsettled, left = inbox.waiting()
    result = IntakeResult(waiting=[_shown(path) for path in unsettled], left=left)
    claimed = inbox.path / CLAIMED
    if not ready and not os.path.lexists(claimed):
        return result
    lock = Locked(claimed, "the files of this inbox")
    try:
        lock.__enter__()
    except Busy:
        raise Running(f"{inbox.path}: another run is ingesting its files; try again later") from None
    try:
        _Intake(inbox, store, options, result, new_labels=new_labels).run(ready)
    finally:
        with suppress(OSError):
            claimed.rmdir()  # unless a file stays claimed
        lock.__exit__(None, None, None)
    return result


class _Intake:
    """The files of an inbox on their way into a store, while the lock of the inbox is held."""

    def __init__(
        self, inbox: Inbox, store: str | Path, options: Mapping[str, Any], result: IntakeResult, *, new_labels: bool
    ) -> None:
        self._inbox, self._store, self._options, self._result = inbox, store, options, result
        self._new_labels, self._last, self._committing = new_labels, False, False
        self._undecided = list[tuple[Path, CoremarginError | None]]()
        self._claimed = inbox.path / CLAIMED

    def run(self, ready: list[Path]) -> None:
        """Ingest all, in the order of their names; of two with one name the one that an earlier run has claimed."""
        works: list[_Claim | Path] = [*self._left_claims(), *ready]
        for work in sorted(works, key=lambda one: one.name):
            claim = self._claim(work) if isinstance(work, Path) else work
            if claim is not None:
                self._take(claim)
        errors = [error for _, error in self._undecided if error is not None]
        if errors and not open_storage(self._store).exists():
            raise errors[0]  # no file fits these options
        self._last = True
        for path, _ in self._undecided:  # the store says by now what its columns are, or only empty tables came
            if (claim := self._claim(path)) is not None:
                self._take(claim)

    def _left_claims(self) -> list[_Claim]:
        """Files that runs have claimed which were killed. Nothing else in that folder is touched."""
        if os.path.lexists(self._claimed) and not self._claimed.is_dir():
            with output_errors(self._claimed):
                os.rename(self._claimed, self._inbox.path / f"{CLAIMED}-{secrets.token_hex(8)}")
        found = list[_Claim]()
        with suppress(FileNotFoundError):
            for folder in sorted(os.scandir(self._claimed), key=lambda entry: entry.name):
                named = _CLAIM.fullmatch(folder.name)
                if named is None or not folder.is_dir(follow_symlinks=False):
                    continue
                try:
                    names = sorted(path.name for path in Path(folder.path).iterdir() if path.name != _LINK)
                except OSError as error:
                    self._result.left[folder.name] = f"{folder.path}: cannot be read: {error.strerror}"
                    continue
                found += [_Claim(Path(folder.path), name, named[1] or "") for name in names]
                if not names:
                    _remove_claim(Path(folder.path))
        return found

    def _claim(self, path: Path) -> _Claim | None:
        """Move a file out of the inbox; None where it has gone, or cannot be moved."""
        claim = _Claim(self._claimed / secrets.token_hex(8), path.name)
        with output_errors(claim.folder):
            claim.folder.mkdir(parents=True)
            try:
                os.rename(path, claim.path)
            except FileNotFoundError:  # its writer has renamed it
                claim.folder.rmdir()
                return None
            except OSError as error:
                claim.folder.rmdir()
                if error.errno not in _UNMOVABLE:
                    raise
                _record(self._result.refused, path, f"{path}: cannot be moved out of the inbox: {error.strerror}")
                return None
        return claim

    def _take(self, claim: _Claim) -> None:
        """Ingest a claimed file and move it to where it belongs; after an error it goes back into the inbox."""
        self._committing = False
        try:
            self._take_claimed(claim)
        except BaseException as error:
            if not self._committing:  # else its rows may be in the store, and the next run finds out
                with suppress(OSError):
                    self._put_back(self._current(claim))
            if isinstance(error, CoremarginError) and error.args and isinstance(error.args[0], str):
                error.args = (self._as_in_inbox(error.args[0]), *error.args[1:])
            raise

    def _take_claimed(self, claim: _Claim) -> None:
        result, inbox = self._result, self._inbox
        try:
            _make_absolute(claim, inbox.path)
            seen = claim.path.stat()
            if stat.S_ISDIR(seen.st_mode):  # it took the place of a file
                self._put_back(claim)
                return
            if not stat.S_ISREG(seen.st_mode):
                raise OSError(errno.EINVAL, "no regular file")
            if inbox.is_unsettled(seen):
                self._put_back(claim)
                result.waiting.append(_shown(claim.path))
                return
            sha256 = _hash(claim.path)
        except OSError as error:
            raise_if_limit(error, claim.path)
            self._refuse(claim, f"{claim.path}: cannot be read: {error.strerror}")
            return
        known, append = _ingested_hashes(self._store), open_storage(self._store).exists()
        if sha256 in known:
            _record(result.known, claim.path, known[sha256])
            self._finish(claim, sha256)
            return
        if claim.sha256 in known:
            self._refuse(claim, self._changed_after(claim, known[claim.sha256]))
            return
        claim = _marked(claim, sha256)
        mark = FileMark(name=_shown(claim.path), nbytes=seen.st_size, sha256=sha256)

        def commit_info() -> CommitInfo:
            if mark.sha256 in _ingested_hashes(self._store):  # no other process writes it now
                raise _AlreadyIngested
            if _identity(claim.path.stat()) != _identity(seen):
                raise _Changed
            self._committing = True
            return CommitInfo("append" if append else "ingest", note=mark.name, files=(mark,))

        try:
            _record(result.rows, claim.path, self._ingest(claim.path, commit_info, append=append))
        except (_Changed, FileNotFoundError):
            self._put_back(claim)
            result.waiting.append(_shown(claim.path))
            return
        except _AlreadyIngested:
            _record(result.known, claim.path, _ingested_hashes(self._store)[sha256])
        except (StoreError, DamagedChunk):
            raise
        except NoRows:
            try:
                _check_header(claim.path, self._store, self._options)
            except (DataError, UsageError) as error:
                if not append and not self._last and isinstance(error, UsageError):
                    self._postpone(claim, error)
                else:
                    why = str(error).removeprefix(f"{claim.path}: ")
                    self._refuse(
                        claim, f"{claim.path}: has no rows, and not the columns of a table without rows: {why}"
                    )
                return
            if not append and not self._last:
                self._postpone(claim, None)
                return
            _record(result.rows, claim.path, 0)
        except (DataError, UsageError) as error:
            if not append and isinstance(error, UsageError | ColumnsUnclear) and not open_storage(self._store).exists():
                self._postpone(claim, error)
                return
            if not append and open_storage(self._store).exists():  # another job has made it meanwhile
                self._take_claimed(claim)
                return
            self._refuse(claim, str(error))
            return
        if _identity(claim.path.stat()) != _identity(seen) and _hash(claim.path) != sha256:
            self._refuse(claim, self._changed_after(claim, _ingested_hashes(self._store).get(sha256)))
        else:
            self._finish(claim, sha256)

    def _ingest(self, path: Path, commit_info: Callable[[], CommitInfo], *, append: bool) -> int:
        """Commit the rows of a file; how many there are."""
        from coremargin.data.ingest import ingest  # heavy: not where nothing is to be ingested

        options = dict(self._options)
        if append:
            options = options_of_append(options, new_labels=self._new_labels)
        return ingest(path, self._store, commit_info=commit_info, **options).rows

    def _finish(self, claim: _Claim, sha256: str) -> None:
        _move(claim.path, self._inbox.done, sha256)
        _remove_claim(claim.folder)

    def _refuse(self, claim: _Claim, reason: str) -> None:
        """Move a file into the quarantine, with the reason next to it."""
        path, quarantine = claim.path, self._inbox.quarantine
        reason = self._as_in_inbox(reason)
        _record(self._result.refused, path, reason)
        with output_errors(quarantine):
            quarantine.mkdir(parents=True, exist_ok=True)
            mark = claim.sha256 or f"{path.lstat().st_mtime_ns:x}"
        write_whole(
            quarantine / f"{_free(path, quarantine, mark)}{WHY}", [f"{reason}\n".encode(errors="backslashreplace")]
        )
        _move(path, quarantine, mark)
        _remove_claim(claim.folder)

    def _postpone(self, claim: _Claim, error: CoremarginError | None) -> None:
        """Leave a file until the others are ingested: only the store shows whether it is wrong, or the options are.

        error: what is wrong; None: it is a table without rows.
        """
        self._put_back(claim)
        if error is not None:
            error.args = (self._as_in_inbox(str(error)), *error.args[1:])
        self._undecided.append((self._inbox.path / claim.name, error))

    def _put_back(self, claim: _Claim) -> None:
        """Move a file back into the inbox; where another has its name by now, it stays claimed until next time."""
        with suppress(FileExistsError, FileNotFoundError):
            rename_new(claim.path, self._inbox.path / claim.name)
            _remove_claim(claim.folder)

    def _current(self, claim: _Claim) -> _Claim:
        """Where a claimed file is now: its folder may have been given the hash."""
        token = claim.folder.name[:16]
        here = (replace(claim, folder=folder) for folder in self._claimed.glob(f"{token}*"))
        return next((one for one in here if os.path.lexists(one.path)), claim)

    def _changed_after(self, claim: _Claim, commit: int | None) -> str:
        return (
            f"{claim.path}: was written to after commit {commit} of {self._store} had its rows: compare the two, and "
            "put what is new into the inbox as a file of its own"
        )

    def _as_in_inbox(self, text: str) -> str:
        """A message that names files by their places in the inbox."""
        return re.sub(rf"{re.escape(str(self._claimed))}/{_CLAIM.pattern}(?=/)", lambda _: str(self._inbox.path), text)


def _look(path: Path) -> os.stat_result:
    """What a path leads to or, for a link that leads nowhere, what the link itself is. Raises FileNotFoundError."""
    with suppress(OSError):
        return path.stat()
    return path.lstat()


def _identity(found: os.stat_result) -> tuple[int, ...]:
    """What changes when a file is written to or replaced: the time of change of its record is set by the kernel."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _make_absolute(claim: _Claim, inbox: Path) -> None:
    """Let a link that was relative to the inbox lead to the same place from wherever it is moved."""
    if claim.path.is_symlink() and not (target := claim.path.readlink()).is_absolute():
        link = claim.folder / _LINK
        with output_errors(claim.path):
            link.unlink(missing_ok=True)
            link.symlink_to(inbox.absolute() / target)
            os.replace(link, claim.path)


def _marked(claim: _Claim, sha256: str) -> _Claim:
    """The claim whose folder says what its file's content is."""
    if claim.sha256 == sha256:
        return claim
    folder = claim.folder.with_name(f"{claim.folder.name[:16]}-{sha256}")
    with output_errors(folder):
        os.rename(claim.folder, folder)
    return _Claim(folder, claim.name, sha256)


def _remove_claim(folder: Path) -> None:
    """Remove the folder of a claim whose file has gone."""
    with suppress(OSError):
        (folder / _LINK).unlink(missing_ok=True)
        folder.rmdir()


def _record(found: dict[str, Any], path: Path, value: Any) -> None:
    """Record what became of a file, next to others of its name."""
    name, number = _shown(path), 2
    while name in found:
        name, number = f"{_shown(path)} ({number})", number + 1
    found[name] = value


def _ingested_hashes(store: str | Path) -> dict[str, int]:
    storage = open_storage(store)
    return taken_before(read_record_and_log(storage)[1]) if storage.exists() else {}


def _packed(name: str) -> str | None:
    """How a table is compressed, as its name says; None for the name of no table."""
    return next((one for one in _PACKED for ending in ENDINGS if name.lower().endswith(f"{ending}{one}")), None)


def is_table(name: str) -> bool:
    """Whether a file has the name of a table that an inbox takes."""
    return _packed(name) is not None


def is_other_rows(name: str) -> bool:
    """Whether a file seems to hold rows that an inbox does not take."""
    return name.lower().endswith(_OTHER_ROWS)


def options_of_append(options: Mapping[str, Any], *, new_labels: bool) -> dict[str, Any]:
    """Options of ``ingest`` for rows that join others: how they are read; what becomes of columns is decided."""
    kept = {name: options[name] for name in ("label", "drop", "delimiter", "header") if name in options}
    return kept | {"append": True, "new_labels": new_labels}


def _check_header(path: Path, store: str | Path, options: Mapping[str, Any]) -> None:
    """See whether a table without rows has the columns that rows are to have. Raises DataError, UsageError: others."""
    from coremargin.data.sources.column_choice import choose_columns
    from coremargin.data.sources.options import SourceOptions
    from coremargin.data.store import Store

    base = Store.open(store, map_bytes=0) if open_storage(store).exists() else None
    known, drop = None if base is None else base.columns, options.get("drop", ())
    key = options.get("key") if known is None else known.key
    wanted = SourceOptions(
        label=options.get("label"),
        drop=(drop,) if isinstance(drop, str | int) else tuple(drop),
        key=key,
        group=options.get("group") if known is None else known.group,
        weights=options.get("weights"),
        columns=known,
        columns_of="" if base is None else base.name,
    )
    problem: CoremarginError = DataError(f"{path}: no line names columns")
    most = 0
    for names in _headers(path, options.get("delimiter")):
        try:
            found = choose_columns(names, len(names), wanted, str(path), "column {}".format)
            if found.features and (base is None or known is not None or len(found.features) == base.features):
                return
            error: CoremarginError = DataError(f"{path}: other columns than those of the rows before")
        except (DataError, UsageError) as other:
            error = other
        if len(names) > most:
            most, problem = len(names), error
    raise problem


def _headers(path: Path, delimiter: str | None) -> Iterator[tuple[str, ...]]:
    """What may name the columns of a table without rows: of text each line, however its fields are separated."""
    if path.name.lower().endswith((".parquet", ".pq")):
        import pyarrow as pa
        import pyarrow.parquet as pq

        with pa.OSFile(os.fsencode(path)) as file:
            yield tuple(pq.ParquetFile(file).schema_arrow.names)
        return
    unpacked: Any = _PACKED[_packed(path.name) or ""]
    with unpacked(path, "rb") as packed:
        lines = packed.read(_HEADER_BYTES).decode("utf-8-sig", "replace").splitlines()
    for line in filter(str.strip, lines):
        for mark in [delimiter] if delimiter else [",", ";", "\t", "|"]:
            with suppress(csv.Error):  # a line that is one field to this mark, and longer than fields may be
                yield tuple(name.strip() for name in next(csv.reader([line], delimiter=mark)))


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shown(path: Path) -> str:
    """A file's name as a log and a terminal can hold it."""
    name = os.fsencode(path.name).decode(errors="backslashreplace")
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in name)


def _move(path: Path, folder: Path, mark: str) -> None:
    """Move a file into a folder, by another name where its own is in use there, or is too long."""
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            place = folder / _free(path, folder, mark)
            try:
                rename_new(path, place)
                break
            except FileExistsError:  # another job came first
                continue
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy(path, place)  # a kill before the next line leaves a file whose hash is known
                path.unlink()
                break
        sync_folder(folder)
        sync_folder(path.parent)


def _copy(path: Path, place: Path) -> None:
    """Copy a file or link to another file system, whole; of a pipe or the like, which cannot be, its name."""
    with put_in_place(place) as temporary:
        if path.is_symlink() and not path.is_file():
            temporary.symlink_to(path.readlink())
            return
        with open(temporary, "xb") as copied:
            if path.is_file():
                with open(path, "rb") as source:
                    shutil.copyfileobj(source, copied)
            copied.flush()
            os.fsync(copied.fileno())


def _free(path: Path, folder: Path, mark: str) -> str:
    """A name that no other file has there, with room for the endings that others add."""
    name, number = os.fsencode(path.name), 1
    if len(name) <= _LONGEST_NAME and not os.path.lexists(folder / path.name):
        return path.name
    while True:
        prefix = f"{mark[:12]}-" if number == 1 else f"{mark[:12]}-{number}-"
        found = prefix + os.fsdecode(name[len(prefix) - _LONGEST_NAME :])
        if not os.path.lexists(folder / found):
            return found
        number += 1
