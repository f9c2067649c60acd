"""What the root ``zarr.json`` of a store says of itself, checked (data/format.py says what it means).

A commit adds rows, or changes labels of rows that are there. One that changes labels (``changed`` > 0) has the rows of
the one before; nothing that an older commit reads is written over. Only the chunks whose labels differ are written, at
their numbers into an array of its own, ``changes/GROUP/y``, which else has no chunks; its group under ``blocks`` has an
entry for each of them instead of a run of chunks, columns of ``changed`` entries::

    chunk        (m,) int64   numbers of chunks, ascending
    array        (m,) int64   which commit's array holds the labels, by its place in ``commits``
    y            (m,) uint32  crc32c of the labels
    unlabelled   (m,) int64
    counts       (m, classes) int64

These stand in the place of what groups of earlier commits say of the same chunks. As groups of rows do, they repeat
what earlier ones say, from commit ``since`` on, so that few are read however many there are. A later commit of rows
describes its chunks anew; after the first change its group has a column ``array``, too: 0 is ``y``. A chunk that grows
is written where its labels are: they stay the beginning of it.

Other parts of rows can change in the same way: ``changes/GROUP/weights``, with columns for its arrays and checksums. A
row that is taken out would be one whose weight changes to 0, a correction is a label as here, and a store is compacted
by writing its last commit alone into a new one, where everything lies in ``y`` and ``weights`` again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import replace

from coremargin.errors import StoreError
from coremargin.formats.limits import LARGEST_CHUNK_BYTES, MOST_CLASSES, MOST_PADDING_BYTES
from coremargin.formats.model_record import (
    Count,
    Digest,
    Dtype,
    Features,
    Label,
    Rows,
    Strict,
    different_labels,
)
from coremargin.formats.strict_json import cut, typed
from coremargin.formats.zarr_metadata import read_group

FORMAT = "coremargin-store"
#: The newest: of stores whose columns have names. Others say 1, 2 with sparse rows or weights, 3 with changed labels:
#: older readers open them.
VERSION = 4
_CHANGED, _SPARSE = 3, 2
_START_BYTES = 8  # of a row start
_INDEX_BYTES = 4  # of a stored value's feature
_ITEM_BYTES = {"float32": 4, "float64": 8}


def most_chunk_rows(features: int, dtype: str, *, sparse: bool, rows: int | None = None) -> int:
    """Rows per chunk that a store may have, at least one; rows: of all of the store, when that is known.

    Chunks are stored at full size, and compressed padding costs next to nothing: without a limit, a few rows that say
    they are one of a billion would take the memory of a billion. Uncompressed ones may be files with holes.
    """
    row_bytes = _START_BYTES if sparse else features * _ITEM_BYTES[dtype]
    most = max(1, LARGEST_CHUNK_BYTES // row_bytes)
    return most if rows is None else min(most, rows + MOST_PADDING_BYTES // row_bytes)


def most_file_entries(features: int, dtype: str, rows: int) -> int:
    """Stored values per file that a store of so many sparse rows may have, for the same reason."""
    entry_bytes = _ITEM_BYTES[dtype] + _INDEX_BYTES
    return min(LARGEST_CHUNK_BYTES // entry_bytes, rows * features + MOST_PADDING_BYTES // entry_bytes)


class CommitRecord(Strict, frozen=True, kw_only=True):
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


class StoreRecord(Strict, frozen=True, kw_only=True):
    """The root attributes."""

    format: Literal["coremargin-store"]
    version: Annotated[int, Meta(ge=1, le=VERSION)]
    features: Features
    dtype: Dtype
    classes: Annotated[list[Label], Meta(max_length=MOST_CLASSES)]
    rows: Rows
    chunk_rows: Rows
    commits: Annotated[list[CommitRecord], Meta(min_length=1)]
    about: dict[str, Any] = field(default_factory=dict)
    file_entries: Annotated[int, Meta(ge=1)] | UnsetType = UNSET  #: of sparse rows
    weighted: bool = False
    columns: Digest | UnsetType = UNSET  #: of the file that says what the columns are, where they have names

    @property
    def sparse(self) -> bool:
        """Rows are sparse."""
        return self.file_entries is not UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        different_labels(self.classes)
        version = version_of(self.commits, sparse=self.sparse, weighted=self.weighted, named=self.columns is not UNSET)
        if self.version != version:
            raise ValueError(f"expected version {version} of such rows, found {self.version}")
        self._check_sizes()
        if len({commit.group for commit in self.commits}) < len(self.commits):
            raise ValueError("expected a group of its own for each commit, found one twice")
        before = covered = 0
        for number, commit in enumerate(self.commits):
            if commit.changed:
                self._check_change(number)
            elif commit.rows <= before or commit.classes > len(self.classes):
                raise ValueError(f"commit {commit.group!r} does not follow from the one before")
            elif not commit.first < commit.last == -(-commit.rows // self.chunk_rows):
                raise ValueError(f"commit {commit.group!r} covers chunks {commit.first} to {commit.last}")
            if commit.first > covered:
                raise ValueError(f"no commit covers chunk {covered}")
            before, covered = commit.rows, commit.last
        if before != self.rows:
            raise ValueError(f"expected the rows of the last commit, {before:,}, got {self.rows:,}")
        if self.commits[-1].classes != len(self.classes):  # both are written at once; the digest names these classes
            committed = self.commits[-1].classes
            raise ValueError(f"expected the classes of the last commit, {committed}, got {len(self.classes)}")

    def _check_change(self, number: int) -> None:
        """Raises ValueError unless a commit that changed labels follows from the one before."""
        commit = self.commits[number]
        before = self.commits[number - 1] if number else None
        if before is None or commit.rows != before.rows or not before.classes <= commit.classes <= len(self.classes):
            raise ValueError(f"commit {commit.group!r} changes labels of other rows than those of the one before")
        if not commit.first == commit.last == before.last or commit.changed > commit.last:
            raise ValueError(
                f"commit {commit.group!r} changes {commit.changed} chunks of {before.last}, and covers {commit.first} "
                f"to {commit.last}"
            )
        if not (commit.since <= number and self.commits[commit.since].changed):
            raise ValueError(f"commit {commit.group!r} repeats changes since commit {commit.since}, which made none")

    def upto(self, number: int) -> StoreRecord:
        """The record as the commit at a place left it. Raises ValueError: it would not go together."""
        commits = self.commits[: number + 1]
        last, named = commits[-1], self.columns is not UNSET
        version = version_of(commits, sparse=self.sparse, weighted=self.weighted, named=named)
        classes = self.classes[: last.classes]
        return replace(self, version=version, commits=commits, rows=last.rows, classes=classes)

    def _check_sizes(self) -> None:
        """Raises ValueError for chunks and files beyond what the rows need."""
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


C = TypeVar("C", bound=Covering)


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

    Of their entries those of chunks below ``stop`` count: a later commit of rows describes the others anew.
    """
    found, stop, since = [], commits[-1].last, len(commits)
    for number in range(len(commits) - 1, -1, -1):
        commit = commits[number]
        if not commit.changed:
            stop = min(stop, commit.first)
        elif number < since:
            found.append((number, stop, commit))
            since = commit.since
    return found[::-1]


def version_of(commits: Sequence[Covering], *, sparse: bool, weighted: bool, named: bool) -> int:
    """The oldest version of the format that knows of everything that a store has; named: of names of columns, too."""
    if named:
        return VERSION
    if any(commit.changed for commit in commits):
        return _CHANGED
    return _SPARSE if sparse or weighted else 1


def read_store_record(path: Path) -> StoreRecord:
    """The record of the store at ``path``. Raises StoreError: not a store, a newer format, broken or absurd."""
    if not path.exists():
        raise StoreError(f"{path}: expected a store, found nothing there; `coremargin ingest SOURCE {path}` makes one")
    try:
        attributes = read_group(path).attributes
    except (FileNotFoundError, NotADirectoryError):
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
    if isinstance(version, int) and not isinstance(version, bool) and version > VERSION:
        raise StoreError(
            f"{path}: made by a newer coremargin: expected format {VERSION}, found {version}; upgrade coremargin"
        )
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StoreError(
            f"{path}: expected format {VERSION}, found {cut(repr(version))}; restore zarr.json from a copy"
        )
    return typed(StoreRecord, attributes, f"{path}/zarr.json", error=StoreError)
