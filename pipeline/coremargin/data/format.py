"""The store's format: what the attributes of a Zarr v3 group must say for it to be a coremargin store.

::

    name.zarr/
      zarr.json             group; attributes: see ``Facts.attributes``
      X/                    (n, d) float32 or float64, chunks of whole rows (c.0.0, c.1.0, ...), fill value NaN
      X/data, indices, indptr   instead, when rows are sparse: a group in anndata's encoding "csr_matrix" 0.1.0
      y/                    (n,) int32 class codes, same rows per chunk (c.0, c.1, ...), -1 unlabelled
      weights/              (n,) float64 sample weights, when there are any, same rows per chunk
      blocks/000000/ ...    statistics of the chunks [first, last) that one commit wrote; a later entry supersedes
      blocks/vectors/       of sparse rows: those that are a number per feature, a file per chunk (support.py)

A commit replaces the root ``zarr.json``: rows beyond its ``rows`` do not exist, whatever lies on disk. Older commits
stay readable, because every byte of their rows stays: a growing chunk keeps its rows as a prefix.

Sparse rows: data (float32 or float64) and indices (int32) lie in files of ``file_entries`` stored values each, whatever
the rows; indptr (n + 1,) int64 has ``chunk_rows`` row starts per file. A chunk of rows is a run of stored values, whose
place follows from the numbers of stored values that the statistics hold.

Version 1 is a store of dense rows without weights, version 2 one with either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.plain import group_metadata, read_json
from coremargin.data.sizes import chunks_of
from coremargin.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMAT = "coremargin-store"
VERSION = 2  #: the newest; stores of dense rows without weights say 1, so that older readers open them
UNLABELLED = -1
DTYPES = ("float32", "float64")
LARGEST_CHUNK_BYTES = 1 << 30
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
    file_entries: int = 0  #: of sparse rows: stored values per file of data and indices; 0: rows are dense
    weighted: bool = False

    @property
    def sparse(self) -> bool:
        """Rows are sparse."""
        return self.file_entries > 0

    @property
    def rows(self) -> int:
        """Rows of the latest commit."""
        return self.commits[-1].rows if self.commits else 0

    def attributes(self) -> dict[str, Any]:
        """As stored in the root ``zarr.json``."""
        extra: dict[str, Any] = {"file_entries": self.file_entries} if self.sparse else {}
        extra |= {"weighted": True} if self.weighted else {}
        return {
            "format": FORMAT,
            "version": VERSION if extra else 1,
            "features": self.features,
            "dtype": self.dtype,
            "classes": list(self.classes),
            "rows": self.rows,
            "chunk_rows": self.chunk_rows,
            "commits": [vars(commit) for commit in self.commits],
            "about": self.about,
            **extra,
        }

    def root(self) -> dict[str, Any]:
        """The root ``zarr.json``."""
        return group_metadata(self.attributes())


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
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= VERSION:
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
        file_entries=_whole(attributes, "file_entries", 1, LARGEST_CHUNK_BYTES) if "file_entries" in attributes else 0,
        weighted=bool(attributes.get("weighted", False)),
    )
    rows = _whole(attributes, "rows", 1, MOST_ROWS)
    chunk_bytes = facts.chunk_rows * facts.features * np.dtype(facts.dtype).itemsize
    if not facts.sparse and chunk_bytes > max(LARGEST_CHUNK_BYTES, facts.features * np.dtype(facts.dtype).itemsize):
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
