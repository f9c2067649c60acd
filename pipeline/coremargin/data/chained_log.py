"""A chained log (formats/chained.py) as it is written: each line is on disk before anybody hears that it is taken."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from coremargin.data.files import output_errors, sync_folder, write_whole
from coremargin.errors import DataError, raise_if_limit
from coremargin.formats.chained import Chain, Linked, bytes_of, hash_of
from coremargin.formats.plain_file import opened_plain
from coremargin.formats.strict_json import cut

if TYPE_CHECKING:
    from msgspec import Struct

log = logging.getLogger(__name__)

TELLING = "telling"  #: lines that are to be in the log together; there while they are written, with where they begin

E = TypeVar("E", bound=Linked)


class ChainedLog(ABC, Generic[E]):
    """A log on disk, and what was read of it; users hold the lock of its subject.

    path: of the file; first: what its first line has as the hash of the line before; what: it is, for messages.
    telling: name of the file for lines that go together, one of its own for each log of a folder.
    """

    def __init__(self, path: Path, first: str, what: str, telling: str = TELLING) -> None:
        self._path, self._first, self._what = path, first, what
        self._telling = path.with_name(telling)
        self._chain: Chain[E] = Chain((), (), 0)

    @abstractmethod
    def _read(self, data: bytes) -> Chain[E]:
        """The chain with the lines in bytes that follow those which are known. Raises DataError."""

    @abstractmethod
    def _line_of(self, values: Mapping[str, Any]) -> Struct:
        """A line with these values."""

    def _checked(self, chain: Chain[E]) -> Chain[E]:
        """What others have written, where it goes together. Raises DataError."""
        return chain

    def _know(self, chain: Chain[E]) -> None:
        """Take what was read or written for what is there."""
        self._chain = chain

    @property
    def entries(self) -> tuple[E, ...]:
        """All of them."""
        return self._chain.entries

    @property
    def path(self) -> Path:
        """Of its file."""
        return self._path

    @property
    def last(self) -> str:
        """The hash of the last line, or of what the log is about."""
        return self._chain.hashes[-1] if self._chain.hashes else self._first

    def refresh(self) -> None:
        """Read what others have written since; half a line, as a killed writer leaves it, is cut off.

        Lines that were to be written together are written to their end. Raises DataError: the file is missing or
        shorter than it was, or a line is not as written here.
        """
        known = self._chain.whole
        self._finish()
        try:
            with opened_plain(self._path) as file:
                size = os.fstat(file.fileno()).st_size
                if size == known:
                    return
                file.seek(known)
                data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(f"{self._path}: expected {self._what}, found nothing; get a whole copy") from None
        except OSError as error:
            raise_if_limit(error, self._path)
            raise DataError(f"{self._path}: cannot be read: {error.strerror}; get a whole copy") from error
        if size < known:
            raise DataError(
                f"{self._path}: expected at least {known:,} bytes, found {size:,}: lines are gone; get a copy"
            )
        found = self._checked(self._read(data))
        if found.whole < size:
            log.warning(
                "%s: %d bytes of half a line after line %d are cut off: a writer was killed before it was kept",
                self._path,
                size - found.whole,
                len(found.entries),
            )
            self._cut(found.whole)
        self._know(found)

    def append(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Write lines, all but their numbers and hashes, to the disk, all of them or, after an OutputError, none.

        Whoever reads the log after a kill in between writes the rest.
        """
        self.refresh()  # what an interrupted call has left
        before, texts = self.last, []
        for number, entry in enumerate(entries, start=len(self.entries) + 1):
            text = bytes_of(self._line_of({"number": number, "before": before, **entry}))
            before = hash_of(text)
            texts.append(text + b"\n")
        data = b"".join(texts)
        written = self._read(data)  # as a reader will
        if len(texts) > 1:
            write_whole(self._telling, [f"{self._chain.whole}\n".encode(), data])
            sync_folder(self._path.parent)
        with output_errors(self._path, len(data)):
            try:
                self._write(data)
            except OSError:
                self._cut(self._chain.whole)  # before that which would have them written to their end
                self._telling.unlink(missing_ok=True)
                raise
        self._know(written)
        with suppress(OSError):  # everything is there: the next reader removes it
            self._telling.unlink(missing_ok=True)

    def _finish(self) -> None:
        """Write what a killed writer has not of lines that go together."""
        try:
            with opened_plain(self._telling) as file:
                start, _, data = file.read().partition(b"\n")
            if not start.isdigit():
                raise DataError(f"{self._telling}: expected where its lines begin in the log, found {cut(repr(start))}")
            with opened_plain(self._path) as file:
                file.seek(int(start))
                there = file.read(len(data) + 1)
        except FileNotFoundError:  # as nearly always
            return
        with output_errors(self._path, len(data)):
            if data.startswith(there) and self._path.stat().st_size >= int(start):
                self._write(data[len(there) :])
            self._telling.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        with open(self._path, "ab", buffering=0) as file:
            view = memoryview(data)
            while view:  # a raw write may stop early on a signal or a nearly full disk
                view = view[file.write(view) or 0 :]
            os.fsync(file.fileno())

    def _cut(self, length: int) -> None:
        with output_errors(self._path), open(self._path, "r+b", buffering=0) as file:
            file.truncate(length)
            os.fsync(file.fileno())


def now() -> str:
    """The time as lines have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
