"""The root ``zarr.json`` of a store, checked (data/format.py explains it).

A commit adds rows, or changes labels or weights of rows that are there. One that changes some (``changed`` > 0) has the
rows of the one before; nothing that an older commit reads is written over. Only the chunks that differ are written, at
their numbers into an array of its own, ``changes/GROUP/y``, which else has no chunks; its group under ``blocks`` has an
entry for each of them instead of a run of chunks, columns of ``changed`` entries::

    chunk        (m,) int64   numbers of chunks, ascending
    array        (m,) int64   which commit's array holds the labels, by its number; 0: they are in ``y``
    y            (m,) uint32  crc32c of the labels
    unlabelled   (m,) int64
    counts       (m, classes) int64
    weights_array, weights   (m,) int64 and uint32: the same of weights, where any commit changed some

These stand in the place of what groups of earlier commits say of the same chunks. As groups of rows do, they repeat
what earlier ones say, from commit ``since`` on, so that few are read however many there are. A later commit of rows
describes its chunks again; after the first change its group has a column ``array``, too: 0 is ``y``. A chunk that grows
is written where its labels are: they stay the beginning of it.

Weights change in the same way: ``changes/GROUP/weights``, float64. Rows that came without weights have weight 1. A row
that is taken out is one whose weight changes to 0. A store is compacted by writing its last commit alone into a new
one, where everything is in ``y`` and ``weights`` again.

The root lists the commits whose groups are read for the last one; ``log.jsonl`` has all of them (store_log.py).

CRC-32C tells damage, but bytes with a given one are easily made. So each group also has the SHA-256 of the parts of its
chunks, and each commit, in ``sha256``, that of its content, which follows from them. Both are of the values that
readers get, decoded and without padding, in little-endian order: they depend on how rows are cut into chunks, and not
on compression, nor on how chunks came in commits::

    sha256       (c, 5, 32) uint8   of x, y, indices, lengths, weights; zeros for what the rows do not have
                 x: rows, or the stored values of sparse ones; y: label codes; indices: features of the stored values,
                 int32; lengths: number of stored values of each row, int64; weights: float64, 1 where none were given
                 of a commit that changes labels or weights: (m, 2, 32), of y and weights

    content      SHA-256 of a JSON object, keys sorted: format, features, dtype, classes, rows, chunk_rows, and for each
                 of the five parts the SHA-256, in hexadecimal digits, of those of its chunks one after the other

Rows may be in groups: ``groups`` has the row at which each begins, ``group_ids`` their ids. The groups of commits that
added rows have of each chunk::

    groups         (c, 2) int64      how many groups begin in it, and bytes of their ids
    group_marks    (c, 2) uint32     crc32c of the row ids at which they begin, int64, and of their ids
    group_sha256   (c, 2, 32) uint8  SHA-256 of the same

The content then has two more entries, "groups" and "group_ids": the SHA-256 of the first and of the second ones of all
chunks. The root lists runs of their keys, as of rows, in ``group_keys``.

Stores written before 2026-11-28 have neither, and get none by later commits; ``compact`` writes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

import numpy as np
from msgspec import UNSET, Meta, UnsetType, field

from coremargin.errors import StoreError
from coremargin.formats.choices import RowType
from coremargin.formats.limits import LARGEST_CHUNK_BYTES, MOST_CLASSES, MOST_PADDING_BYTES, MOST_ROWS
from coremargin.formats.model_record import (
    Count,
    Digest,
    Features,
    Label,
    Rows,
    Strict,
    different_labels,
)
from coremargin.formats.row_types import WIDE_TYPES, read_dtype
from coremargin.formats.storage import MISSING, reading_errors, rereading_refused
from coremargin.formats.strict_json import cut, typed
from coremargin.formats.zarr_metadata import read_array_metadata, read_group

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage


FORMAT: Literal["coremargin-store"] = "coremargin-store"
VERSION: Literal[5] = 5
#: Arrays of rows in groups, and how many entries each of their files has.
GROUP_FILES = {"groups": 1 << 14, "group_ids": 1 << 17}
_START_BYTES = 8  # of a row start
_INDEX_BYTES = 4  # of a stored value's feature


def most_chunk_rows(features: int, dtype: str, *, sparse: bool, rows: int | None = None) -> int:
    """Rows per chunk that a store may have, at least one; rows: of all of the store, when that is known.

    Chunks are stored at full size, and compressed padding costs next to nothing: without a limit, a few rows that say
    they are one of a billion would take the memory of a billion. Uncompressed ones may be files with holes.
    """
    row_bytes = _START_BYTES if sparse else features * read_dtype(dtype).itemsize
    most = max(1, LARGEST_CHUNK_BYTES // row_bytes)
    return most if rows is None else min(most, rows + MOST_PADDING_BYTES // row_bytes)


def most_file_entries(features: int, dtype: str, rows: int) -> int:
    """Stored values per file that a store of so many sparse rows may have, for the same reason."""
    entry_bytes = read_dtype(dtype).itemsize + _INDEX_BYTES
    return min(LARGEST_CHUNK_BYTES // entry_bytes, rows * features + MOST_PADDING_BYTES // entry_bytes)


class CommitRecord(Strict, frozen=True, kw_only=True, omit_defaults=True):
    """One atomic step of a store's history; ``group`` holds the statistics of its chunks [first, last).

    changed: of a commit that changed labels, how many entries its group has; it describes no run of chunks.
    since: the first commit whose changes it repeats, by its place; its own where it repeats none.
    """

    rows: Rows
    classes: Annotated[int, Meta(ge=0, le=MOST_CLASSES)]
    first: Count
    last: Rows
    group: Annotated[str, Meta(pattern="^[0-9A-Za-z]{1,64}$")]
    digest: Digest
    changed: Count = 0
    since: Count = 0
    number: Count  #: its place among all commits
    moved: bool = False  #: its group has a column ``array``
    weights: bool = False  #: its group locates changed weights in a column ``weights_array``
    sha256: Digest | UnsetType = UNSET  #: of its content; unset in stores whose chunks have CRC-32C alone


class LogMark(Strict, frozen=True, kw_only=True):
    """The valid part of the log: so many commits in so many bytes, of this checksum."""

    commits: Rows
    nbytes: Rows
    crc32c: Annotated[int, Meta(ge=0, lt=1 << 32)]


class KeyRun(Strict, frozen=True, kw_only=True):
    """So many keys of rows, sorted, in ``keys/GROUP``: see data/key_runs.py. Lookups check them."""

    group: Annotated[str, Meta(pattern=r"^[0-9]{6,12}-[0-9]{1,9}\Z")]
    rows: Rows


class StoreRecord(Strict, frozen=True, kw_only=True):
    """The root attributes."""

    format: Literal["coremargin-store"]
    version: Literal[5]
    features: Features
    dtype: RowType
    classes: Annotated[list[Label], Meta(max_length=MOST_CLASSES)]
    rows: Rows
    chunk_rows: Rows
    commits: Annotated[list[CommitRecord], Meta(min_length=1)]
    about: dict[str, Any] = field(default_factory=dict)
    file_entries: Annotated[int, Meta(ge=1)] | UnsetType = UNSET  #: of sparse rows
    weighted: bool = False
    columns: Digest | UnsetType = UNSET  #: of the file that describes the columns, if they have names
    log: LogMark
    keys: list[KeyRun] | UnsetType = UNSET  #: of the rows of all commits, where they have keys
    groups: Annotated[list[KeyRun], Meta(min_length=1)] | UnsetType = UNSET  #: keys of all groups, if rows are in some

    @property
    def sparse(self) -> bool:
        """Rows are sparse."""
        return self.file_entries is not UNSET

    @property
    def grouped(self) -> bool:
        """Rows are in groups."""
        return self.groups is not UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        different_labels(self.classes)
        self._check_numbers()
        self._check_sizes()
        if self.grouped and any(commit.sha256 is UNSET for commit in self.commits):
            raise ValueError("expected the SHA-256 of each commit of rows in groups, found none")
        if len({commit.sha256 is UNSET for commit in self.commits}) > 1:
            raise ValueError("expected the SHA-256 of each commit or of none, found some")
        if len({commit.group for commit in self.commits}) < len(self.commits):
            raise ValueError("expected a group of its own for each commit, found one twice")
        before = covered = 0
        for place, commit in enumerate(self.commits):
            if commit.changed:
                self._check_change(place)
                before = commit.rows
                continue
            if commit.rows <= before or commit.classes > len(self.classes):
                raise ValueError(f"commit {commit.group!r} does not follow from the one before")
            if not commit.first < commit.last == -(-commit.rows // self.chunk_rows):
                raise ValueError(f"commit {commit.group!r} covers chunks {commit.first} to {commit.last}")
            if commit.first > covered:
                raise ValueError(f"no commit covers chunk {covered}")
            before, covered = commit.rows, commit.last
        if covered != self.commits[-1].last:
            raise ValueError(f"no commit covers chunk {covered}")
        if before != self.rows:
            raise ValueError(f"expected the rows of the last commit, {before:,}, got {self.rows:,}")
        if self.commits[-1].classes != len(self.classes):  # both are written at once; the digest names these classes
            committed = self.commits[-1].classes
            raise ValueError(f"expected the classes of the last commit, {committed}, got {len(self.classes)}")

    def _check_numbers(self) -> None:
        """Raises ValueError for other commits than those that are read for the last one."""
        numbers = [commit.number for commit in self.commits]
        groups = [group_of(number) for number in numbers]
        if sorted(set(numbers)) != numbers or groups != [commit.group for commit in self.commits]:
            raise ValueError(f"expected the groups {', '.join(groups)}, in order, found others")
        if numbers[-1] != self.log.commits - 1:
            raise ValueError(f"expected the last of {self.log.commits:,} commits, found number {numbers[-1]}")
        if effective_commits(self.commits) != self.commits:
            raise ValueError("expected the commits that are read for the last one, found more")

    def _check_change(self, place: int) -> None:
        """Raises ValueError for a commit that cannot have changed labels or weights."""
        commit = self.commits[place]
        if not commit.moved:
            raise ValueError(f"commit {commit.group!r} changes labels or weights, and does not say where these are")
        last = -(-commit.rows // self.chunk_rows)
        if not commit.first == commit.last == last or commit.changed > last or commit.classes > len(self.classes):
            raise ValueError(
                f"commit {commit.group!r} changes {commit.changed} chunks of {last}, and covers {commit.first} "
                f"to {commit.last}"
            )
        if not 0 < commit.since <= commit.number:
            raise ValueError(f"commit {commit.group!r} repeats changes since commit {commit.since}, which made none")

    def _check_sizes(self) -> None:
        """Raises ValueError for chunks and files beyond what the rows need, and for sparse rows in a narrow type."""
        if self.sparse and self.dtype not in WIDE_TYPES:
            raise ValueError(f"expected sparse rows of {' or '.join(WIDE_TYPES)}, found {self.dtype}")
        most = most_chunk_rows(self.features, self.dtype, sparse=self.sparse, rows=self.rows)
        if self.chunk_rows > most:
            raise ValueError(
                f"expected chunks of at most {most:,} of these {self.rows:,} rows, found chunks of {self.chunk_rows:,}"
            )
        entries = 0 if self.file_entries is UNSET else self.file_entries
        if entries > most_file_entries(self.features, self.dtype, self.rows):
            raise ValueError(
                f"expected files of at most {most_file_entries(self.features, self.dtype, self.rows):,} stored values "
                f"for {self.rows:,} rows, found {entries:,}"
            )


@rereading_refused
def read_store_record(storage: ReadableStorage) -> StoreRecord:
    """The record of a store. Raises StoreError: not a store, another format, broken or absurd."""
    path = storage.name
    try:
        attributes = read_group(storage).attributes
    except MISSING:
        with reading_errors(storage, "zarr.json", error=StoreError):
            there = storage.exists()  # asked last: a bucket may be one that may be read, not listed
        if getattr(storage, "generation", None) is not None and not there:
            raise StoreError(
                f"{path}: expected a store, found current.json, and nothing of the generation that it names: the store "
                "was copied in part, or is being removed; copy all of it, current.json last"
            ) from None
        if not there:
            raise StoreError(
                f"{path}: expected a store, found nothing there; `coremargin ingest SOURCE {path}` makes one"
            ) from None
        raise StoreError(
            f"{path}: expected a store (a folder with zarr.json), found something else; "
            f"`coremargin ingest` makes stores"
        ) from None
    if attributes.get("format") != FORMAT:
        raise StoreError(
            f"{path}: expected a Zarr group whose attribute 'format' is {FORMAT!r}, found another kind of Zarr data; "
            f"`coremargin ingest` makes stores"
        )
    version = attributes.get("version")
    if version != VERSION or isinstance(version, bool):
        raise StoreError(
            f"{path}: expected a store of format {VERSION}, found {cut(repr(version))}; this version of coremargin "
            f"reads no other: ingest the rows again, or use the version that wrote the store"
        )
    return typed(StoreRecord, attributes, f"{path}/zarr.json", error=StoreError)


def check_stored_values(
    storage: ReadableStorage, nonzeros: np.ndarray, *, rows: int, chunk_rows: int, features: int
) -> None:
    """Raises StoreError unless each chunk stores what its rows can have, and all of them what the files can.

    nonzeros (c,) int64: values stored of each chunk. Check it before you allocate room for values.
    """
    place = f"{storage.name}/blocks"
    chunk_sizes = np.minimum(chunk_rows, rows - chunk_rows * np.arange(len(nonzeros)))
    wrong = np.flatnonzero((nonzeros < 0) | (nonzeros > chunk_sizes * features))
    if len(wrong):
        chunk = int(wrong[0])
        raise StoreError(
            f"{place}: chunk {chunk}: expected 0 to {int(chunk_sizes[chunk]) * features:,} stored values in "
            f"a chunk of {chunk_sizes[chunk]:,} rows, found {nonzeros[chunk]:,}; restore it from a copy"
        )
    total = int(nonzeros.sum(dtype=object))  # of Python's numbers: no forged ones wrap around
    for name in ("X/data", "X/indices"):
        length = read_array_metadata(storage, name).shape[0]
        if total > length:
            raise StoreError(
                f"{place}: expected at most {length:,} stored values, as many as {name} has, found {total:,}; "
                f"restore it from a copy"
            )


# Which commits are read for the last one: later ones repeat what earlier ones say, and supersede it.


class Covering(Protocol):
    """A commit, as far as ``spans`` and ``changes`` go."""

    @property
    def first(self) -> int: ...  # noqa: D102
    @property
    def last(self) -> int: ...  # noqa: D102
    @property
    def changed(self) -> int: ...  # noqa: D102
    @property
    def since(self) -> int: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102


C = TypeVar("C", bound=Covering)


def group_of(number: int) -> str:
    """The group of a commit, by its place among all."""
    return f"{number:06d}"


def spans(commits: Sequence[C]) -> list[tuple[int, int, C]]:
    """Which chunks [first, stop) which commit's group describes, of a record's first commits, in order, none twice.

    Groups repeat what earlier ones say and supersede it, so that few are read.
    """
    found, stop = [], commits[-1].last
    for commit in reversed(commits):
        if commit.first < stop:
            found.append((commit.first, stop, commit))
            stop = commit.first
    return found[::-1]


def changes(commits: Sequence[C]) -> list[tuple[int, int, C]]:
    """Which groups of changed labels are read of a record's first commits, in order: (number, stop, commit).

    Of their entries those of chunks below ``stop`` count: a later commit of rows describes the others again.
    """
    found, stop, since = list[tuple[int, int, C]](), commits[-1].last, MOST_ROWS
    for commit in reversed(commits):
        if not commit.changed:
            stop = min(stop, commit.first)
        elif commit.number < since:
            found.append((commit.number, stop, commit))
            since = commit.since
    return found[::-1]


def effective_commits(commits: Sequence[C]) -> list[C]:
    """Those that are read for the last one: later ones repeat everything that the others still contribute."""
    read = {id(commit) for _, _, commit in (*spans(commits), *changes(commits))} | {id(commits[-1])}
    return [commit for commit in commits if id(commit) in read]
