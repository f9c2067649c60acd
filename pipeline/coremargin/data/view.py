"""Views: sources made from other sources. Rows relabelled, rows masked, columns scaled; nothing is copied.

A view keeps rows, chunks and row ids of its base, so that a block means the same rows for both, and changes what it
says it changes: each view overrides the methods concerned and leaves the rest as here. Problems, probes and executors
do not know that their source is a view. What a view says without reading stays true of what it shows: counts are
exact, ``max_norm`` and ``radius`` are upper bounds, ``centres`` are points from which no row is farther than that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.groups import Groups
    from coremargin.data.source import Source
    from coremargin.data.statistics import ChunkScalars, ChunkStatistics
    from coremargin.formats.columns import ColumnsRecord


class View:
    """The rows of another source as they are. Subclasses say what differs.

    A subclass has its own ``kind`` and takes (base, *arguments), where ``arguments`` are plain values and arrays that
    decide all about it: they make its digest, and travel to workers in its handle.
    """

    kind: ClassVar[str] = "view"  #: one word for the digest; no two views that differ in meaning share it

    def __init__(self, base: Source, *arguments: Any) -> None:
        """base: any source, a view included."""
        self.base, self.arguments = base, arguments
        self.name, self.rows, self.features, self.dtype = base.name, base.rows, base.features, base.dtype
        self.classes, self.chunk_rows, self.chunks = base.classes, base.chunk_rows, base.chunks
        self.sparse = base.sparse
        self.digest = view_digest(base.digest, self.kind, arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels to another process as what it is made of."""
        return type(self), (self.base, *self.arguments)

    @property
    def groups(self) -> Groups | None:
        """The groups of rows; None where they are in none."""
        return self.base.groups

    @property
    def nbytes(self) -> int:
        """Bytes of all rows as they are handed out: those of the base."""
        return self.base.nbytes

    def span(self, chunk: int) -> tuple[int, int]:
        """Row ids ``[start, stop)`` of a chunk."""
        return self.base.span(chunk)

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Rows and codes of a chunk, read-only."""
        return self.base.read(chunk)

    def labels(self, chunk: int) -> np.ndarray:
        """Codes of a chunk, without its rows."""
        return self.base.labels(chunk)

    def weights(self, chunk: int) -> np.ndarray | None:
        """Sample weights (n,) of a chunk; None: all are 1."""
        return self.base.weights(chunk)

    def rows_at(self, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        """Rows (m, d) float64 and codes (m,) of the given row ids, in the order given."""
        return self.base.rows_at(ids)

    def statistics(self, start: int = 0, stop: int | None = None) -> ChunkStatistics:
        """What ingest counted, per chunk of [start, stop): of the rows as stored, whatever is shown of them."""
        return self.base.statistics(start, stop)

    def scalars(self) -> ChunkScalars:
        """The entries of ``statistics`` that are a number per chunk or per class and chunk."""
        return self.base.scalars()

    def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Centres (stop - start, d) float64 of the chunks [start, stop)."""
        return self.base.centres(start, stop)

    def handle(self) -> ViewHandle:
        """What another process needs to make the same view."""
        return ViewHandle(self.base.handle(), type(self), self.arguments, self.digest)


@dataclass(frozen=True, eq=False)
class ViewHandle:
    """A view on its way to another process; ``open_source`` (opened.py) makes it again, once per process."""

    base: Any  #: handle of the base
    view: type[View]
    arguments: tuple[Any, ...]
    digest: str

    def over(self, base: Source) -> View:
        """The view over its opened base."""
        return self.view(base, *self.arguments)

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells handles apart: equal keys, equal rows from the same place."""
        return self.digest, self.base.key if isinstance(self.base, ViewHandle) else self.base


def root(source: Source) -> Source:
    """The source under all views: the one that is on disk, or the arrays."""
    while isinstance(source, View):
        source = source.base
    return source


def scan_bytes(source: Source) -> int:
    """Bytes that reading all rows takes from where they are stored, uncompressed, whatever is made of them."""
    stored = root(source)
    return int(getattr(stored, "scan_bytes", stored.nbytes))


def bytes_read(source: Source, rows: int) -> int:
    """The same of so many rows."""
    return scan_bytes(source) * rows // root(source).rows


def columns_of(source: Source) -> ColumnsRecord | None:
    """What the features of a source come from; None if unknown."""
    return getattr(root(source), "columns", None)


def sha256_entry(source: Source) -> dict[str, Any]:
    """What a model's record says of the SHA-256 of its rows; nothing for rows in memory, and for stores without."""
    stored = root(source)
    sha256 = getattr(stored, "sha256", "") if stored.digest == source.digest else ""
    return {"store_sha256": {"chunk_rows": stored.chunk_rows, "digest": sha256}} if sha256 else {}


def contradicts(source: Source, sha256: Mapping[str, Any] | None) -> bool:
    """Whether a source has another SHA-256 than a model's record; not, if these are not of chunks of the same rows."""
    found = sha256_entry(source).get("store_sha256")
    comparable = found is not None and sha256 is not None and found["chunk_rows"] == sha256["chunk_rows"]
    return comparable and found != sha256


def view_digest(base: str, kind: str, arguments: tuple[Any, ...]) -> str:
    """Identity of a view's content: that of its base and what the view makes of it.

    arguments: None, bool, int, float, str, bytes, arrays, and tuples of these.
    """
    state = hashlib.sha256()
    for part in (base, kind, arguments):
        _absorb(state, part)
    return f"sha256:{state.hexdigest()}"


def _absorb(state: Any, value: Any) -> None:
    """Kind and length come first, so that no two values give the same bytes."""
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        state.update(f"array {little.dtype.str} {little.shape} ".encode())
        state.update(little.data.cast("B") if little.size else b"")
    elif isinstance(value, tuple):
        state.update(f"tuple {len(value)} ".encode())
        for entry in value:
            _absorb(state, entry)
    elif value is None or isinstance(value, bool | int | float | str | bytes):
        text = value if isinstance(value, bytes) else repr(value).encode()
        state.update(f"{type(value).__name__} {len(text)} ".encode() + text)
    else:
        raise TypeError(f"a view is made of plain values and arrays, got {type(value).__name__}")
