"""The store's format: what the attributes of a Zarr v3 group must say for it to be a coremargin store.

::

    name.zarr/
      zarr.json             group; attributes: see ``Facts.attributes``
      columns.json          what the columns are, where they have names: see formats/columns.py; never changes
      X/                    (n, d) float16, bfloat16, int8, uint8, int16, float32 or float64, chunks of whole rows
                            (c.0.0, c.1.0, ...), fill value NaN, of integers -1 or 0
      X/data, indices, indptr   instead, when rows are sparse: a group in anndata's encoding "csr_matrix" 0.1.0
      y/                    (n,) int32 class codes, same rows per chunk (c.0, c.1, ...), -1 unlabelled
      weights/              (n,) float64 sample weights, when there are any, same rows per chunk
      groups/               (g + 1,) int64, when rows are in groups: the row at which each begins, and after the last n
      group_ids/            (b,) uint8: ids of the groups, UTF-8, each with a line break at its end
      log.jsonl             all commits: see formats/store_log.py; the root lists those that are read for the last one
      blocks/000000/ ...    statistics of the chunks [first, last) that one commit wrote; a later entry supersedes
      blocks/vectors/       of sparse rows: those that are a number per feature, a file per chunk (sparse_statistics.py)
      changes/000004/y/     labels of the chunks that a commit changed, at their numbers: see formats/store_record.py
      changes/000004/weights/   weights of the chunks that a commit changed; of a row that was taken out 0
      changes/000004/rows.npz   rows that a commit changed, as they were and became: a cache, see difference.py
      keys/000003-0/ ...    keys of rows, sorted, where rows have some: see key_runs.py
      group_keys/000003-0/  the same of groups: hashes of their ids, sorted, and their first rows

A commit replaces the root ``zarr.json``: rows beyond its ``rows`` do not exist, whatever lies on disk. Older commits
stay readable, because every byte of their rows stays: a growing chunk keeps its rows as a prefix, and labels and
weights that change are written elsewhere. So ``y`` has labels as they first came. Zarr has no array whose chunks lie in
several places: to read the last ones without coremargin, lay those of ``changes`` over it, in the order of the
commits::

    codes = group["y"][: group.attrs["rows"]]
    commits, chunk_rows = group.attrs["commits"], group.attrs["chunk_rows"]
    for commit in commits:
        if commit.get("moved"):
            entries = group["blocks"][commit["group"]]
            chunks = entries["chunk"][:] if commit.get("changed") else range(commit["first"], commit["last"])
            for chunk, array in zip(chunks, entries["array"][:]):
                start, stop = chunk * chunk_rows, min((chunk + 1) * chunk_rows, len(codes))
                if array:
                    part = group["changes"][f"{array:06d}"]["y"][start:stop]
                    codes[start : start + len(part)] = part

Only the last array of a chunk grows with it: an earlier one may end before the chunk does. Weights are the same, with
``weights_array`` and ``weights``, in commits that say ``weights``; rows that came without have weight 1.

Sparse rows: data (float32 or float64) and indices (int32) lie in files of ``file_entries`` stored values each, whatever
the rows; indptr (n + 1,) int64 has ``chunk_rows`` row starts per file. A chunk of rows is a run of stored values, whose
place follows from the numbers of stored values that the statistics hold.

Groups: entries of ``groups`` and bytes of ``group_ids`` lie in files of 128 KiB, whatever the rows. The statistics say
how many groups begin in each chunk of rows, and how many bytes their ids have. Commits add to the ends of both arrays.

Stores say version 5. Those from before 2026-11-26 have no log, and say 1, 2 with sparse rows or weights, 3 with changed
labels, 4 with names of columns.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, UnsetType, to_builtins
from msgspec.structs import asdict

from coremargin.data.plain import group_metadata
from coremargin.data.storage import ABSENT
from coremargin.errors import StoreError
from coremargin.formats.store_log import as_of, read_record_and_log
from coremargin.formats.store_record import (
    FORMAT,
    VERSION,
    CommitRecord,
    KeyRun,
    LogMark,
    StoreRecord,
    read_store_record,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.storage import Storage, Tag
    from coremargin.formats.choices import RowType
    from coremargin.formats.storage import ReadableStorage
    from coremargin.formats.store_log import LogEntry

#: Keys of the root, and of the groups in it.
ROOT, BLOCKS, CHANGES, KEYS, GROUP_KEYS = "zarr.json", "blocks", "changes", "keys", "group_keys"
VECTORS = f"{BLOCKS}/vectors"
KEY_PARTS = ("high", "low", "row", "first")  #: arrays of a run of keys
UNLABELLED = -1


@dataclass(frozen=True)
class Commit:
    """One atomic step of a store's history, see ``CommitRecord``."""

    number: int  #: its place among all
    rows: int
    classes: int
    first: int
    last: int
    group: str
    digest: str
    changed: int = 0  #: entries of its group, of a commit that changed labels or weights
    since: int = 0  #: the first commit whose changes it repeats
    moved: bool = False  #: its group says where changed labels lie
    weights: bool = False  #: its group says where changed weights lie
    sha256: str | UnsetType = UNSET  #: of its content; unset where chunks have CRC-32C alone

    def record(self) -> CommitRecord:
        """As stored."""
        return CommitRecord(**vars(self))


@dataclass(frozen=True)
class Facts:
    """What the root attributes say."""

    features: int
    dtype: str
    chunk_rows: int
    classes: tuple[Any, ...]
    commits: tuple[Commit, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    file_entries: int = 0  #: of sparse rows: stored values per file of data and indices; 0: rows are dense
    weighted: bool = False
    columns: str = ""  #: digest of the file that says what the columns are, where they have names
    log: LogMark | None = None  #: what counts of the log; None of a new store
    keys: tuple[KeyRun, ...] = ()  #: of all rows, where they have some
    grouped: bool = False
    groups: tuple[KeyRun, ...] = ()  #: keys of all groups, where rows are in some
    root_tag: Tag = ABSENT  #: of the root when this was read

    @property
    def sparse(self) -> bool:
        """Rows are sparse."""
        return self.file_entries > 0

    @property
    def rows(self) -> int:
        """Rows of the latest commit."""
        return self.commits[-1].rows if self.commits else 0

    @property
    def number(self) -> int:
        """Of the next commit."""
        return self.commits[-1].number + 1 if self.commits else 0

    @property
    def moved(self) -> bool:
        """A commit changed labels or weights; groups of later ones say where those of their chunks lie."""
        return any(commit.moved for commit in self.commits)

    @property
    def hashed(self) -> bool:
        """Chunks have their SHA-256: those of a new store, and of one whose commits have theirs."""
        return all(commit.sha256 is not UNSET for commit in self.commits)

    @property
    def reweighed(self) -> bool:
        """A commit changed weights."""
        return any(commit.weights for commit in self.commits)

    def attributes(self) -> dict[str, Any]:
        """As stored in the root ``zarr.json``, once there is a log."""
        record = StoreRecord(
            format=FORMAT,
            version=VERSION,
            features=self.features,
            dtype=cast("RowType", self.dtype),
            classes=list(self.classes),
            rows=self.rows,
            chunk_rows=self.chunk_rows,
            commits=[commit.record() for commit in self.commits],
            about=self.about,
            weighted=self.weighted,
            file_entries=self.file_entries or UNSET,
            columns=self.columns or UNSET,
            log=cast("LogMark", self.log),
            keys=list(self.keys) or UNSET,
            groups=list(self.groups) if self.grouped else UNSET,
        )
        found: dict[str, Any] = to_builtins(record)
        return {name: value for name, value in found.items() if name != "weighted" or value}

    def root(self) -> dict[str, Any]:
        """The root ``zarr.json``."""
        return group_metadata(self.attributes())


def read_facts(storage: Storage) -> Facts:
    """The facts of a store. Raises StoreError: not a store, another format, broken or absurd metadata."""
    tag = ABSENT
    with suppress(OSError):  # which reading the root says better
        tag = storage.tag(ROOT)  # before it is read: a commit meanwhile is noticed
    return replace(_facts(read_store_record(storage)), root_tag=tag)


def facts_as_of(
    storage: ReadableStorage, *, rows: int | None = None, digest: str | None = None, number: int | None = None
) -> Facts:
    """As the last commit with so many rows and this digest left them, or the one of this number. Raises StoreError."""
    record = read_store_record(storage)
    facts = _facts(record)
    last = facts.commits[-1]
    if rows in (None, last.rows) and digest in (None, last.digest) and number in (None, last.number):
        return facts
    record, entries = read_record_and_log(storage)
    for entry in reversed(entries):
        one = entry.commit
        if rows in (None, one.rows) and digest in (None, one.digest) and number in (None, one.number):
            return _facts(_then(storage.name, record, entries, one.number))
    raise _no_commit(storage.name, entries, rows=rows, digest=digest, number=number)


def _then(path: str, record: StoreRecord, entries: list[LogEntry], number: int) -> StoreRecord:
    try:
        return as_of(record, entries, number)
    except ValueError as error:
        raise StoreError(
            f"{path}: as of commit {number}: {error}; restore zarr.json and the log from a copy"
        ) from error


def _facts(record: StoreRecord) -> Facts:
    return Facts(
        features=record.features,
        dtype=record.dtype,
        chunk_rows=record.chunk_rows,
        classes=tuple(record.classes),
        commits=tuple(Commit(**asdict(commit)) for commit in record.commits),
        about=record.about,
        file_entries=0 if record.file_entries is UNSET else record.file_entries,
        weighted=record.weighted,
        columns="" if record.columns is UNSET else record.columns,
        log=record.log,
        keys=() if record.keys is UNSET else tuple(record.keys),
        grouped=record.groups is not UNSET,
        groups=() if record.groups is UNSET else tuple(record.groups),
    )


_NAMED = 8  # commits in a message


def _no_commit(
    path: str, entries: Sequence[LogEntry], *, rows: int | None, digest: str | None, number: int | None
) -> StoreError:
    wanted = [] if rows is None else [f"of {rows:,} rows"]
    wanted += [] if digest is None else [f"with the content {digest}"]
    wanted += [] if number is None else [f"number {number}"]
    commits = [entry.commit for entry in entries]
    known = ", ".join(f"{commit.digest} of {commit.rows:,} rows" for commit in commits[-_NAMED:])
    earlier = f"{len(commits) - _NAMED:,} earlier ones and " if len(commits) > _NAMED else ""
    return StoreError(
        f"{path}: expected a commit {' '.join(wanted)}, found {earlier}{known}: the store was replaced or changed "
        f"since; restore it from a copy, or start again with what it has"
    )
