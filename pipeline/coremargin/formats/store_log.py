"""The log of a store, ``log.jsonl``: a line for each commit, the first one first, with who made it, when, and what.

The root ``zarr.json`` has the number of its valid bytes and their checksum: a writer adds a line, and then replaces the
root. A line beyond them is not committed, and any commit can be opened again: its line has the root's fields
of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import crc32c
import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from coremargin.errors import StoreError
from coremargin.formats.model_record import Count, Strict
from coremargin.formats.storage import MISSING, object_size, opened_object, rereading_refused
from coremargin.formats.store_record import CommitRecord, StoreRecord, effective_commits, read_store_record

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage

FILE = "log.jsonl"
#: What a commit does.
Did = Literal["ingest", "append", "labels", "weights", "remove", "expire"]
_Text = Annotated[str, Meta(max_length=4000)]


class FileMark(Strict, frozen=True, kw_only=True):
    """A file whose rows a commit has: its name, how many bytes it had, and what identifies them. It comes once.

    sha256: their hash. tag: of an object, whose name is its address, its ETag instead.
    """

    name: _Text
    nbytes: Count
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | UnsetType = UNSET
    tag: Annotated[str, Meta(min_length=1, max_length=4000)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for both or neither."""
        if (self.sha256 is UNSET) == (self.tag is UNSET):
            raise ValueError("expected sha256 of a file, or tag of an object")


class LogEntry(Strict, frozen=True, kw_only=True):
    """A line of the log.

    commit: its entry in the root. did: the operation; "ingest" of the first one of a store. time: seconds since
    1970, by the clock of who wrote it. by: user and machine. note: the source of rows, or what
    its author had to state. counts: rows added, and rows whose label or weight is another one than before. files:
    that were taken in with the rows, where each is to come once (inbox.py).
    """

    commit: CommitRecord
    did: Did
    time: Annotated[float, Meta(gt=0)]
    by: _Text = ""
    note: _Text = ""
    counts: Mapping[Annotated[str, Meta(max_length=40)], Count] = msgspec.field(default_factory=dict)
    files: list[FileMark] | UnsetType = UNSET

    def encoded(self) -> bytes:
        """The line."""
        return msgspec.json.encode(self) + b"\n"


_DECODER = msgspec.json.Decoder(LogEntry, strict=True)


@rereading_refused
def read_record_and_log(storage: ReadableStorage) -> tuple[StoreRecord, list[LogEntry]]:
    """The record of a store, and the lines that it counts. Raises StoreError."""
    record = read_store_record(storage)
    return record, read_log(storage, record)


@rereading_refused
def read_log(storage: ReadableStorage, record: StoreRecord) -> list[LogEntry]:
    """All lines of a store that its record counts. Raises StoreError: lost, altered."""
    place, mark = f"{storage.name}/{FILE}", record.log
    try:
        with opened_object(storage, FILE, error=StoreError) as file:
            data = file.read(min(mark.nbytes, object_size(file)))
    except MISSING:
        raise StoreError(f"{place}: expected the log of the store's commits, found no file; restore it") from None
    found = crc32c.crc32c(data)
    if len(data) != mark.nbytes or found != mark.crc32c:
        raise StoreError(
            f"{place}: expected {mark.nbytes:,} bytes of checksum {mark.crc32c:08x}, found {len(data):,} of "
            f"{found:08x}: the log was altered; restore it from a copy"
        )
    try:
        entries = [_DECODER.decode(line) for line in data.splitlines()]
    except msgspec.MsgspecError as error:
        raise StoreError(f"{place}: expected a line for each commit, found others: {error}") from error
    if [entry.commit.number for entry in entries] != list(range(mark.commits)):
        raise StoreError(f"{place}: expected lines of {mark.commits:,} commits, in order; restore it from a copy")
    hashed = record.commits[-1].sha256 is not UNSET
    for entry in entries:
        if (entry.commit.sha256 is not UNSET) != hashed:
            raise StoreError(
                f"{place}: expected the SHA-256 of each commit or of none, found {'none' if hashed else 'one'} of "
                f"commit {entry.commit.number}; restore it from a copy"
            )
    return entries


def as_of(record: StoreRecord, entries: list[LogEntry], number: int) -> StoreRecord:
    """The record as the commit of this number left it. Raises ValueError: it would not go together."""
    upto = [entry.commit for entry in entries[: number + 1]]
    last = upto[-1]
    classes = record.classes[: last.classes]
    mark = replace(record.log, commits=number + 1)  # as many of its lines
    return replace(record, commits=effective_commits(upto), rows=last.rows, classes=classes, log=mark)
