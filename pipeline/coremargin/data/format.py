"""The store's format: what the attributes of a Zarr v3 group must say for it to be a coremargin store.

::

    name.zarr/
      zarr.json             group; attributes: see ``Facts.attributes``
      columns.json          what the columns are, where they have names: see formats/columns.py; never changes
      X/                    (n, d) float32 or float64, chunks of whole rows (c.0.0, c.1.0, ...), fill value NaN
      X/data, indices, indptr   instead, when rows are sparse: a group in anndata's encoding "csr_matrix" 0.1.0
      y/                    (n,) int32 class codes, same rows per chunk (c.0, c.1, ...), -1 unlabelled
      weights/              (n,) float64 sample weights, when there are any, same rows per chunk
      blocks/000000/ ...    statistics of the chunks [first, last) that one commit wrote; a later entry supersedes
      blocks/vectors/       of sparse rows: those that are a number per feature, a file per chunk (support.py)
      changes/000004/y/     labels of the chunks that a commit changed, at their numbers: see formats/store_record.py

A commit replaces the root ``zarr.json``: rows beyond its ``rows`` do not exist, whatever lies on disk. Older commits
stay readable, because every byte of their rows stays: a growing chunk keeps its rows as a prefix, and labels that
change are written elsewhere. So ``y`` has labels as they first came. Zarr has no array whose chunks lie in several
places: whoever reads the last ones without coremargin lays those of ``changes`` over it, in the order of the commits::

    codes = group["y"][: group.attrs["rows"]]
    commits, chunk_rows = group.attrs["commits"], group.attrs["chunk_rows"]
    for commit in commits:
        if commit.get("changed"):
            entries = group["blocks"][commit["group"]]
            for chunk, array in zip(entries["chunk"][:], entries["array"][:]):
                start, stop = chunk * chunk_rows, min((chunk + 1) * chunk_rows, len(codes))
                part = group["changes"][commits[array]["group"]]["y"][start:stop]
                codes[start : start + len(part)] = part

Only the last array of a chunk grows with it: an earlier one may end before the chunk does.

Sparse rows: data (float32 or float64) and indices (int32) lie in files of ``file_entries`` stored values each, whatever
the rows; indptr (n + 1,) int64 has ``chunk_rows`` row starts per file. A chunk of rows is a run of stored values, whose
place follows from the numbers of stored values that the statistics hold.

Version 1 is a store of dense rows without weights, version 2 one with either, version 3 one with changed labels,
version 4 one whose columns have names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import asdict

from coremargin.data.plain import group_metadata
from coremargin.errors import StoreError
from coremargin.formats.store_record import FORMAT, read_store_record, version_of

if TYPE_CHECKING:
    from pathlib import Path

UNLABELLED = -1
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Commit:
    """One atomic step of a store's history, see ``CommitRecord``."""

    rows: int
    classes: int
    first: int
    last: int
    group: str
    digest: str
    changed: int = 0  #: entries of its group, of a commit that changed labels
    since: int = 0  #: the first commit whose changes it repeats

    def record(self) -> dict[str, Any]:
        """As stored: only what a commit of its kind has, so that older readers know it."""
        return {name: value for name, value in vars(self).items() if self.changed or name not in ("changed", "since")}


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

    @property
    def sparse(self) -> bool:
        """Rows are sparse."""
        return self.file_entries > 0

    @property
    def rows(self) -> int:
        """Rows of the latest commit."""
        return self.commits[-1].rows if self.commits else 0

    @property
    def changed(self) -> bool:
        """A commit changed labels."""
        return any(commit.changed for commit in self.commits)

    def attributes(self) -> dict[str, Any]:
        """As stored in the root ``zarr.json``."""
        extra: dict[str, Any] = {"file_entries": self.file_entries} if self.sparse else {}
        extra |= {"weighted": True} if self.weighted else {}
        extra |= {"columns": self.columns} if self.columns else {}
        named = bool(self.columns)
        return {
            "format": FORMAT,
            "version": version_of(self.commits, sparse=self.sparse, weighted=self.weighted, named=named),
            "features": self.features,
            "dtype": self.dtype,
            "classes": list(self.classes),
            "rows": self.rows,
            "chunk_rows": self.chunk_rows,
            "commits": [commit.record() for commit in self.commits],
            "about": self.about,
            **extra,
        }

    def root(self) -> dict[str, Any]:
        """The root ``zarr.json``."""
        return group_metadata(self.attributes())


def read_facts(path: Path) -> Facts:
    """The facts of the store at ``path``. Raises StoreError: not a store, a newer format, broken or absurd metadata."""
    record = read_store_record(path)
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
    )


_NAMED = 8  # commits in a message


def commits_upto(
    commits: tuple[Commit, ...], store: Path, *, rows: int | None = None, digest: str | None = None
) -> tuple[Commit, ...]:
    """The commits of a store up to the last one with so many rows and this digest. Raises StoreError: none has."""
    for stop in range(len(commits), 0, -1):
        last = commits[stop - 1]
        if rows in (None, last.rows) and digest in (None, last.digest):
            return commits[:stop]
    wanted = [] if rows is None else [f"of {rows:,} rows"]
    wanted += [] if digest is None else [f"with the content {digest}"]
    known = ", ".join(f"{commit.digest} of {commit.rows:,} rows" for commit in commits[-_NAMED:])
    earlier = f"{len(commits) - _NAMED:,} earlier ones and " if len(commits) > _NAMED else ""
    raise StoreError(
        f"{store}: expected a commit {' '.join(wanted)}, found {earlier}{known}: the store was replaced or changed "
        f"since; restore it from a copy, or start again with what it has"
    )
