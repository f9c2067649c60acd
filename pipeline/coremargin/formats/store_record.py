"""What the root ``zarr.json`` of a store says of itself, checked (data/format.py says what it means)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

from msgspec import UNSET, Meta, UnsetType, field

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
VERSION = 2  #: the newest; stores of dense rows without weights say 1, so that older readers open them
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
    """One atomic step of a store's history; ``group`` holds the statistics of its chunks [first, last)."""

    rows: Rows
    classes: Annotated[int, Meta(ge=0, le=MOST_CLASSES)]
    first: Count
    last: Rows
    group: Annotated[str, Meta(pattern="^[0-9A-Za-z]{1,64}$")]
    digest: Digest


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

    @property
    def sparse(self) -> bool:
        """Rows are sparse."""
        return self.file_entries is not UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        different_labels(self.classes)
        plain = not self.sparse and not self.weighted
        if self.version != (1 if plain else VERSION):
            raise ValueError(f"expected version {1 if plain else VERSION} of such rows, found {self.version}")
        self._check_sizes()
        if len({commit.group for commit in self.commits}) < len(self.commits):
            raise ValueError("expected a group of its own for each commit, found one twice")
        before = covered = 0
        for commit in self.commits:
            if commit.rows <= before or commit.classes > len(self.classes):
                raise ValueError(f"commit {commit.group!r} does not follow from the one before")
            if not commit.first < commit.last == -(-commit.rows // self.chunk_rows):
                raise ValueError(f"commit {commit.group!r} covers chunks {commit.first} to {commit.last}")
            if commit.first > covered:
                raise ValueError(f"no commit covers chunk {covered}")
            before, covered = commit.rows, commit.last
        if before != self.rows:
            raise ValueError(f"expected the rows of the last commit, {before:,}, got {self.rows:,}")
        if self.commits[-1].classes != len(self.classes):  # both are written at once; the digest names these classes
            committed = self.commits[-1].classes
            raise ValueError(f"expected the classes of the last commit, {committed}, got {len(self.classes)}")

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
    """A commit, as far as ``spans`` goes: its group describes the chunks [first, last)."""

    @property
    def first(self) -> int: ...  # noqa: D102
    @property
    def last(self) -> int: ...  # noqa: D102


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
