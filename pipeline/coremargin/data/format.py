"""The store's format: what the attributes of a Zarr v3 group must say for it to be a coremargin store.

::

    name.zarr/
      zarr.json             group; attributes: see ``Facts.attributes``
      X/                    (n, d) float32 or float64, chunks of whole rows (c.0.0, c.1.0, ...), fill value NaN
      y/                    (n,) int32 class codes, same rows per chunk (c.0, c.1, ...), -1 unlabelled
      blocks/000000/ ...    statistics of the chunks [first, last) that one commit wrote; a later entry supersedes

A commit replaces the root ``zarr.json``: rows beyond its ``rows`` do not exist, whatever lies on disk. Older commits
stay readable, because every byte of their rows stays: a growing chunk keeps its rows as a prefix.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.checksum import joined
from coremargin.data.plain import group_metadata, read_json
from coremargin.data.sparse import INDEX_DTYPE, INDPTR_DTYPE
from coremargin.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMAT = "coremargin-store"
VERSION = 1
UNLABELLED = -1
LABEL_DTYPE = np.dtype("<i4")
WEIGHT_DTYPE = np.dtype("<f8")
INDICES, LENGTHS, WEIGHTS = range(3)  #: columns of ``ChunkStatistics.marks``
DTYPES = ("float32", "float64")
CHUNK_BYTES = 8 << 20  #: default size of a chunk of rows
SMALLEST_CHUNK_BYTES = 1 << 20  #: a store that is smaller than one chunk shrinks its chunks, but not below this
LARGEST_CHUNK_BYTES = 1 << 30
MOST_SPARSE_CHUNK_ROWS = 1 << 17  #: however few values a row has: what follows may have many more
MOST_FEATURES = 1 << 26
MOST_CLASSES = 4096
MOST_ROWS = 1 << 53


@dataclass(frozen=True)
class Commit:
    """One atomic step of a store's history; ``group`` holds the statistics of its chunks [first, last)."""

    rows: int
    classes: int
    first: int
    last: int
    group: str
    digest: str


@dataclass(frozen=True)
class Facts:
    """What the root attributes say."""

    features: int
    dtype: str
    chunk_rows: int
    classes: tuple[Any, ...]
    commits: tuple[Commit, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of the latest commit."""
        return self.commits[-1].rows if self.commits else 0

    def attributes(self) -> dict[str, Any]:
        """As stored in the root ``zarr.json``."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "features": self.features,
            "dtype": self.dtype,
            "classes": list(self.classes),
            "rows": self.rows,
            "chunk_rows": self.chunk_rows,
            "commits": [vars(commit) for commit in self.commits],
            "about": self.about,
        }

    def root(self) -> dict[str, Any]:
        """The root ``zarr.json``."""
        return group_metadata(self.attributes())


@dataclass(frozen=True)
class Digested:
    """What the digest of a store needs of its chunks (c,): rows, stored values, checksums; see ``ChunkStatistics``."""

    rows: np.ndarray
    nonzeros: np.ndarray
    digest: np.ndarray
    marks: np.ndarray

    @classmethod
    def of(cls, chunks: Any) -> Digested:
        """From ``ChunkStatistics`` or ``ChunkScalars``."""
        return cls(chunks.rows, chunks.nonzeros, chunks.digest, chunks.marks)

    def upto(self, chunks: int) -> Digested:
        """The first chunks."""
        return Digested(*(values[:chunks] for values in vars(self).values()))

    def then(self, other: Digested) -> Digested:
        """With the chunks that follow."""
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return Digested(*(np.concatenate(pair) for pair in both))


def chunks_of(rows: int, chunk_rows: int) -> int:
    """Chunks that hold so many rows."""
    return -(-rows // chunk_rows)


def default_chunk_rows(features: int, dtype: str, chunk_bytes: int) -> int:
    """Rows per chunk of about ``chunk_bytes``, at least one."""
    return max(1, chunk_bytes // (features * np.dtype(dtype).itemsize))


def sparse_chunk_rows(rows: int, nonzeros: int, dtype: str, chunk_bytes: int) -> int:
    """Rows per chunk of about ``chunk_bytes`` of values and indices, by the average of some rows; at least one."""
    entry = np.dtype(dtype).itemsize + INDEX_DTYPE.itemsize
    return max(1, min(MOST_SPARSE_CHUNK_ROWS, rows * chunk_bytes // max(1, nonzeros * entry)))


def fitting_chunk_rows(rows: int, features: int, dtype: str, chunk_bytes: int) -> int:
    """Rows per chunk of a new store of so many rows; Zarr stores chunks at full size: small stores get small ones."""
    full = default_chunk_rows(features, dtype, chunk_bytes)
    least = default_chunk_rows(features, dtype, min(chunk_bytes, SMALLEST_CHUNK_BYTES))
    return min(full, max(rows, least))


def scanned_bytes(rows: int, row_bytes: int, *, nonzeros: int | None = None, weighted: bool = False) -> int:
    """Bytes that a scan of so many rows reads, uncompressed: values, labels, and weights where there are any.

    row_bytes: of one dense row; nonzeros: stored values of sparse rows, then ``row_bytes`` is that of one value.
    """
    beside = LABEL_DTYPE.itemsize + (WEIGHT_DTYPE.itemsize if weighted else 0)
    if nonzeros is None:
        return rows * (row_bytes + beside)
    return nonzeros * (row_bytes + INDEX_DTYPE.itemsize) + rows * (INDPTR_DTYPE.itemsize + beside)


def store_digest(
    *,
    features: int,
    dtype: str,
    classes: Sequence[Any],
    chunks: Digested,
    sparse: bool = False,
    weighted: bool = False,
) -> str:
    """Identity of the committed content, from the rows and the checksums of each chunk.

    Depends on the rows, their order, the codes, the classes, the weights, and whether the rows are sparse; not on
    compression, nor on how rows were cut into chunks or commits: the checksums of the chunks are joined into those of
    all rows, of all labels, and so on.
    """
    rows = [int(n) for n in chunks.rows]
    digests = [int(digest) for digest in chunks.digest]
    values = [int(n) for n in chunks.nonzeros]
    itemsize = np.dtype(dtype).itemsize

    def mark(column: int, counts: list[int], size: int) -> int:
        crcs = [int(crc) for crc in chunks.marks[:, column]]
        return joined((crc, n * size) for crc, n in zip(crcs, counts, strict=True))

    facts: dict[str, Any] = {
        "format": FORMAT,
        "features": features,
        "dtype": dtype,
        "classes": list(classes),
        "rows": sum(rows),
        "x": joined((digest >> 32, n * itemsize) for n, digest in zip(values, digests, strict=True)),
        "y": joined((digest & 0xFFFFFFFF, n * LABEL_DTYPE.itemsize) for n, digest in zip(rows, digests, strict=True)),
    }
    if sparse:
        facts["indices"] = mark(INDICES, values, INDEX_DTYPE.itemsize)
        facts["lengths"] = mark(LENGTHS, rows, INDPTR_DTYPE.itemsize)
    if weighted:
        facts["weights"] = mark(WEIGHTS, rows, WEIGHT_DTYPE.itemsize)
    return "sha256:" + hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_facts(path: Path) -> Facts:
    """The facts of the store at ``path``. Raises StoreError: not a store, a newer format, broken or absurd metadata."""
    if not path.exists():
        raise StoreError(f"{path}: expected a store, found nothing there; `coremargin ingest SOURCE {path}` makes one")
    try:
        root = read_json(path / "zarr.json")
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(
            f"{path}: expected a store (a folder with zarr.json), found something else; "
            f"`coremargin ingest` makes stores"
        ) from None
    attributes = root.get("attributes")
    if not isinstance(attributes, dict) or attributes.get("format") != FORMAT:
        raise StoreError(
            f"{path}: expected a Zarr group whose attribute 'format' is {FORMAT!r}, found another kind of Zarr data; "
            f"`coremargin ingest` makes stores"
        )
    version = attributes.get("version")
    if version != VERSION:
        if isinstance(version, int) and version > VERSION:
            raise StoreError(
                f"{path}: made by a newer coremargin: expected format {VERSION}, found {version}; upgrade coremargin"
            )
        raise StoreError(f"{path}: expected format {VERSION}, found {version!r}; restore zarr.json from a copy")
    try:
        facts = _parse(attributes)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        text = f"{path}/zarr.json: cannot be used: {what}; ingest again or restore the file from a copy"
        raise StoreError(text) from error
    return facts


def _parse(attributes: dict[str, Any]) -> Facts:
    for key, what in (("features", "feature"), ("rows", "row")):
        if attributes[key] == 0:
            raise ValueError(f"expected at least one {what}, found none")
    facts = Facts(
        features=_whole(attributes, "features", 1, MOST_FEATURES),
        dtype=_one_of(attributes, "dtype", DTYPES),
        chunk_rows=_whole(attributes, "chunk_rows", 1, MOST_ROWS),
        classes=tuple(_list(attributes, "classes")),
        commits=tuple(_commit(entry) for entry in _list(attributes, "commits")),
        about=dict(attributes.get("about") or {}),
    )
    rows = _whole(attributes, "rows", 1, MOST_ROWS)
    chunk_bytes = facts.chunk_rows * facts.features * np.dtype(facts.dtype).itemsize
    if chunk_bytes > max(LARGEST_CHUNK_BYTES, facts.features * np.dtype(facts.dtype).itemsize):
        raise ValueError(f"expected chunks of at most {LARGEST_CHUNK_BYTES:,} bytes, got {chunk_bytes:,}")
    if len(facts.classes) > MOST_CLASSES or not all(isinstance(label, str | int | float) for label in facts.classes):
        raise ValueError(f"expected at most {MOST_CLASSES} classes, each a text or a number")
    if rows != facts.rows:
        raise ValueError(f"expected the rows of the last commit, {facts.rows:,}, got {rows:,}")
    before = 0
    for commit in facts.commits:
        if commit.rows <= before or commit.classes > len(facts.classes):
            raise ValueError(f"commit {commit.group!r} does not follow from the one before")
        if not 0 <= commit.first < commit.last == chunks_of(commit.rows, facts.chunk_rows):
            raise ValueError(f"commit {commit.group!r} covers chunks {commit.first} to {commit.last}")
        before = commit.rows
    return facts


def _commit(entry: Any) -> Commit:
    if not isinstance(entry, dict):
        raise ValueError(f"expected a commit, got {entry!r}")
    group, digest = entry["group"], entry["digest"]
    if not isinstance(group, str) or not group.isalnum() or not isinstance(digest, str):
        raise ValueError(f"expected the name of a commit's statistics and a digest, got {group!r} and {digest!r}")
    return Commit(
        rows=_whole(entry, "rows", 1, MOST_ROWS),
        classes=_whole(entry, "classes", 0, MOST_CLASSES),
        first=_whole(entry, "first", 0, MOST_ROWS),
        last=_whole(entry, "last", 1, MOST_ROWS),
        group=group,
        digest=digest,
    )


def _whole(values: dict[str, Any], key: str, low: int, high: int) -> int:
    value = values[key]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"expected {key} to be a whole number from {low} to {high:,}, got {value!r}")
    return value


def _one_of(values: dict[str, Any], key: str, known: Sequence[str]) -> str:
    value = values[key]
    if value not in known:
        raise ValueError(f"expected {key} to be one of {', '.join(known)}, got {value!r}")
    return str(value)


def _list(values: dict[str, Any], key: str) -> list[Any]:
    value = values[key]
    if not isinstance(value, list):
        raise ValueError(f"expected {key} to be a list, got {value!r}")
    return value
