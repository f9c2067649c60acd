"""A store as a source: rows frozen at one commit, chunks checked against the manifest."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.arrays import checked_ids
from coremargin.data.format import UNLABELLED, Facts, facts_as_of
from coremargin.data.group_reader import StoreGroups
from coremargin.data.layout import read_layouts
from coremargin.data.manifest import Manifest
from coremargin.data.maps import MAP_BYTES
from coremargin.data.narrow_rows import widen
from coremargin.data.readers import CsrReader, Readers, ones, readers_of
from coremargin.data.reused import Reused
from coremargin.data.sizes import scanned_bytes
from coremargin.data.storages import open_storage
from coremargin.errors import DamagedChunk, StoreError
from coremargin.formats.columns import read_stored
from coremargin.formats.location import location
from coremargin.formats.row_types import read_dtype, stored_dtype
from coremargin.formats.store_log import read_record_and_log
from coremargin.maths.rows import as_float64, concatenate, nothing, take

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.layout import ObjectPart
    from coremargin.data.statistics import ChunkScalars, ChunkStatistics
    from coremargin.data.storage import Lock, Storage
    from coremargin.data.storages import Address
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.store_log import LogEntry


@dataclass(frozen=True)
class StoreHandle:
    """What another process needs to open the same rows of the same store."""

    path: str
    rows: int
    digest: str
    map_bytes: int = MAP_BYTES
    name: str | None = None  #: for messages; None: the path


class Store:
    """The committed rows of a store, frozen when it was opened: a store that grows meanwhile changes nothing here.

    Use ``Store.open``.

    Parameters
    ----------
    storage : Storage
        Where it lies.
    facts : Facts
        What its root records, or did after an earlier commit.
    map_bytes : int
        How many bytes of chunks this process may keep mapped.
    name : str, optional
        What messages call it; None: its path.

    Attributes
    ----------
    name : str
        For messages, the path by default.
    rows, features : int
        Rows of the commit, and features of each.
    dtype : dtype
        Of rows as they are read: float32 or float64.
    stored_dtype : str
        Of rows as they are stored: also "float16", "bfloat16", "int8", "uint8" or "int16".
    classes : tuple
        Labels as given at ingest, in order of first appearance: code = index.
    sparse : bool
        Rows come as CSR arrays.
    chunks, chunk_rows : int
        Number of chunks, and rows of each but the last, which may hold fewer.
    commits : int
        How many there are up to this one, whose number is one less.
    digest : str
        Identity of the content, "sha256:...", from the CRC-32C of its chunks; the same however rows are cut into
        chunks, and no proof against a forger.
    sha256 : str
        Identity of the content, "sha256:...", from the SHA-256 of its chunks; empty in a store from before
        2026-11-28, whose chunks have CRC-32C alone.
    about : mapping
        What ``synth`` wrote down of its recipe; empty for rows of other origin.
    groups : Groups or None
        The groups of rows; None where they are in none.
    columns : ColumnsRecord or None
        What the features come from: names, kinds, how they were made; None where the rows came without names.

    Examples
    --------
    >>> store = coremargin.Store.open("rows.zarr")  # doctest: +SKIP
    >>> rows, codes = store.read(0)  # doctest: +SKIP
    """

    def __init__(self, storage: Storage, facts: Facts, map_bytes: int, name: str | None = None) -> None:
        """Use ``Store.open``."""
        last = facts.commits[-1]
        self.storage, self.name, self._named = storage, name or storage.name, name
        self.rows, self.features, self.chunk_rows, self.chunks = last.rows, facts.features, facts.chunk_rows, last.last
        self.dtype: np.dtype[Any] = read_dtype(facts.dtype)
        self.stored_dtype = facts.dtype
        self.classes = facts.classes[: last.classes]
        self.sparse = facts.sparse
        self.digest, self.sha256 = last.digest, last.sha256 or ""
        self.about = facts.about
        self.commits = last.number + 1
        self.fetched = 0  #: bytes of rows that were read by their numbers
        self._map_bytes, self._columns = map_bytes, facts.columns
        self._buffers = Reused()
        self._layouts = read_layouts(storage, facts)
        self._manifest = Manifest(storage, facts, facts.commits)
        self._lock = threading.Lock()
        self._made: Readers | None = None
        self._reading: Lock | None = None

    @classmethod
    def open(
        cls,
        path: Address,
        *,
        map_bytes: int = MAP_BYTES,
        rows: int | None = None,
        digest: str | None = None,
        commit: int | None = None,
        name: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Store:
        """Open the latest commit, or that of a number, or the last one with ``digest``, or with so many ``rows``.

        Parameters
        ----------
        path : path-like
            The store's folder, or its address.
        map_bytes : int, default 512 MiB
            How many bytes of chunks this process may keep mapped.
        rows : int, optional
            Rows of the commit that is wanted; None: whatever it has.
        digest : str, optional
            Its content, "sha256:..."; None: the latest.
        commit : int, optional
            Its number, from 0, as ``coremargin log`` shows it.
        name : str, optional
            What messages are to call it; None: its path.
        storage_options : mapping, optional
            Options of an address such as ``s3://bucket/rows.zarr``: "endpoint", "region", "skip_signature",
            "request_payer", "allow_http", "virtual_hosted_style_request", "account_name". Credentials are found by
            each process itself.

        Returns
        -------
        Store
            Its rows, frozen.

        Raises
        ------
        StoreError
            It is no store, or one of a newer format, or has no such commit.
        RunError
            The service of an address refuses access, or does not answer.
        """
        if storage_options and isinstance(path, str | os.PathLike):
            path = location(os.fsdecode(path), storage_options)
        storage = open_storage(path)
        return cls(storage, facts_as_of(storage, rows=rows, digest=digest, number=commit), map_bytes, name)

    def __repr__(self) -> str:
        return f"Store({self.name!r}, {self.rows:,} rows, {self.features:,} features, {len(self.classes)} classes)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels to another process as its handle, not with its maps."""
        return opened, (self.handle(),)

    @property
    def path(self) -> Path:
        """The folder of a store on this machine; of another one its address, as far as a path can be one."""
        return Path(self.storage.name)

    @property
    def nbytes(self) -> int:
        """Bytes of all committed rows, labels and weights as they are read: of narrow types more than are stored."""
        return self._bytes_of(self.dtype.itemsize)

    @property
    def scan_bytes(self) -> int:
        """Bytes of all committed rows, labels and weights as they are stored, uncompressed."""
        return self._bytes_of(stored_dtype(self.stored_dtype).itemsize)

    def _bytes_of(self, itemsize: int) -> int:
        if self.sparse:
            return scanned_bytes(self.rows, itemsize, nonzeros=self.nonzeros, weighted=self.weighted)
        return scanned_bytes(self.rows, self.features * itemsize, weighted=self.weighted)

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays that hold rows, labels and weights, as folders of the store. Raises StoreError."""
        moved = {name for part in ("y", "weights") for name in self._manifest.folders(part).values()}
        return (*self._layouts, *sorted(moved))

    @property
    def nonzeros(self) -> int:
        """Values that are stored; of dense rows all are."""
        return int(self.scalars().nonzeros.sum())

    @cached_property
    def columns(self) -> ColumnsRecord | None:
        """What the features come from; None where the rows came without names. Raises StoreError."""
        return read_stored(self.storage, self._columns, self.features) if self._columns else None

    @cached_property
    def groups(self) -> StoreGroups | None:
        """The groups of rows; None where they are in none. Raises StoreError."""
        if "groups" not in self._layouts:  # nothing is read to see that
            return None
        self.scalars()  # checks what the manifest says of them
        columns = self._manifest.groups
        return None if columns is None else StoreGroups(self._layouts, columns, self.rows, self.span)

    @property
    def weighted(self) -> bool:
        """Rows have weights: they came with some, or were given others since."""
        return self._manifest.weighted

    @cached_property
    def log(self) -> tuple[LogEntry, ...]:
        """The commits up to this one, the first one first: by whom, when, what they did. Raises StoreError."""
        return tuple(read_record_and_log(self.storage)[1][: self.commits])

    @cached_property
    def compressed_bytes(self) -> int:
        """Bytes of the objects that hold rows, labels and weights; where none are listed those of the rows."""
        if not self.storage.lists:
            return self.scan_bytes
        return sum(self.storage.stored_bytes(name) for name in self.arrays)

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of all objects of the store."""
        return self.storage.stored_bytes()

    @property
    def compression(self) -> str:
        """How chunks are stored: "none", "lz4" or "zstd"."""
        return self._layouts["X/data" if self.sparse else "X"].encoding.compression

    def span(self, chunk: int) -> tuple[int, int]:
        """Row ids of a chunk.

        Parameters
        ----------
        chunk : int
            Its number, from 0.

        Returns
        -------
        tuple of two int
            The half-open range ``[start, stop)``.

        Raises
        ------
        IndexError
            There is no such chunk.
        """
        if not 0 <= chunk < self.chunks:
            raise IndexError(f"{self.name}: expected a chunk from 0 to {self.chunks - 1}, got {chunk}")
        return chunk * self.chunk_rows, min(self.rows, (chunk + 1) * self.chunk_rows)

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Rows and codes of a chunk, read-only.

        Parameters
        ----------
        chunk : int
            Its number, from 0.

        Returns
        -------
        rows : ndarray or csr_array of shape (n, d)
            In the store's ``dtype``.
        codes : ndarray of shape (n,)
            Int32: places of the labels in ``classes``, -1 where there is none.

        Raises
        ------
        DamagedChunk
            The chunk is missing, truncated or altered.
        """
        rows, codes = self.read_stored(chunk)
        return widen(rows, self._buffers), codes

    def read_stored(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Rows and codes of a chunk as they are stored, read-only.

        Parameters
        ----------
        chunk : int
            Its number, from 0.

        Returns
        -------
        rows : ndarray or csr_array of shape (n, d)
            In the stored type; bfloat16 as its bits, uint16.
        codes : ndarray of shape (n,)
            Int32, as of ``read``.

        Raises
        ------
        DamagedChunk
            The chunk is missing, truncated or altered.
        """
        self.span(chunk)
        return self.readers().X.read(chunk), self.labels(chunk)

    def in_memory(self, chunk: int) -> bool:
        """Whether the rows of a chunk that was read stay mapped, so that reading it again costs nothing.

        Parameters
        ----------
        chunk : int
            Its number, from 0.

        Returns
        -------
        bool
            False of sparse and of compressed rows, and once the memory for maps is used up.
        """
        reader = self.readers().X
        return not isinstance(reader, CsrReader) and reader.in_memory(chunk)

    def labels(self, chunk: int) -> np.ndarray:
        """Codes of a chunk, read-only, without its rows.

        Parameters
        ----------
        chunk : int
            Its number, from 0.

        Returns
        -------
        ndarray of shape (n,)
            Int32: places of the labels in ``classes``, -1 where there is none.

        Raises
        ------
        DamagedChunk
            The chunk is missing, truncated or altered.
        """
        start, stop = self.span(chunk)
        codes = self.readers().y.read(chunk)
        if codes.min() < UNLABELLED or codes.max() >= len(self.classes):
            raise DamagedChunk(
                f"{self.name}: chunk {chunk} (rows {start:,} to {stop - 1:,}): expected label codes from "
                f"{UNLABELLED} to {len(self.classes) - 1}, found {codes.min()} to {codes.max()}; restore it from a copy"
            )
        return codes

    def weights(self, chunk: int) -> np.ndarray | None:
        """Sample weights of a chunk, read-only.

        Parameters
        ----------
        chunk : int
            Its number, from 0.

        Returns
        -------
        ndarray of shape (n,) or None
            Float64; None: all are 1.

        Raises
        ------
        DamagedChunk
            The chunk is missing, truncated or altered.
        """
        self.span(chunk)
        reader = self.readers().weights
        if reader is None:
            return None
        return reader.read(chunk) if reader.has(chunk) else ones(int(self.scalars().rows[chunk]))

    def objects(self, chunk: int) -> list[ObjectPart]:
        """Where a chunk's rows, labels and weights lie, for who wants to fetch them before they are read.

        Parameters
        ----------
        chunk : int
            Its number, from 0.

        Returns
        -------
        list of ObjectPart
            Each with storage, key, start and number of bytes.
        """
        self.span(chunk)
        readers = self.readers()
        parts = [*readers.X.objects(chunk), *readers.y.objects(chunk)]
        if readers.weights is not None and readers.weights.has(chunk):
            parts += readers.weights.objects(chunk)
        return parts

    def rows_at(self, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        """Rows by number, in the order given; each chunk is read once.

        Parameters
        ----------
        ids : ndarray of shape (m,)
            Row ids.

        Returns
        -------
        rows : ndarray or csr_array of shape (m, d)
            Float64.
        codes : ndarray of shape (m,)
            Int32: places of the labels in ``classes``, -1 where there is none.
        """
        ids = checked_ids(ids, self.rows, self.name)
        codes = np.empty(len(ids), dtype=np.int32)
        readers = self.readers()
        order = np.argsort(ids, kind="stable")
        chunk_of = ids[order] // self.chunk_rows
        parts = [nothing(self.features, stored_dtype(self.stored_dtype), sparse=self.sparse)]
        for chunk in np.unique(chunk_of):
            where = order[np.searchsorted(chunk_of, chunk) : np.searchsorted(chunk_of, chunk, side="right")]
            offsets = ids[where] - chunk * self.chunk_rows
            parts.append(readers.X.take(int(chunk), offsets))
            codes[where] = readers.y.take(int(chunk), offsets)
        rows: Any = concatenate(parts)
        self.fetched += rows.data.nbytes + rows.indices.nbytes if self.sparse else rows.nbytes
        return as_float64(take(widen(rows), np.argsort(order, kind="stable"))), codes

    def sparse_head(self, values: int) -> tuple[np.ndarray, np.ndarray]:
        """What lies before a stored value in the file that holds it; for going on with a store.

        Parameters
        ----------
        values : int
            Number of the value, counted from the first of the store.

        Returns
        -------
        tuple of two ndarray
            Data and indices.

        Raises
        ------
        TypeError
            The rows are dense.
        """
        reader = self.readers().X
        if not isinstance(reader, CsrReader):
            raise TypeError(f"{self.name}: rows are dense")
        return reader.head(values)

    def statistics(self, start: int = 0, stop: int | None = None) -> ChunkStatistics:
        """Everything that ingest counted, per chunk: 5 d numbers each; ``scalars`` are less.

        Parameters
        ----------
        start, stop : int, optional
            The chunks [start, stop); by default all.

        Returns
        -------
        ChunkStatistics
            One entry per chunk.
        """
        return self._manifest.part(start, self.chunks if stop is None else stop, self.scalars())

    def scalars(self) -> ChunkScalars:
        """Rows, class counts, radius, norm and digest per chunk; loaded once.

        Returns
        -------
        ChunkScalars
            One entry per chunk.
        """
        return self._scalars

    def chunk_hashes(self) -> np.ndarray:
        """SHA-256 of the parts of each chunk, as they were when they were written; read at each call.

        Returns
        -------
        ndarray of shape (chunks, 5, 32)
            Uint8: of rows (or stored values), labels, indices, lengths of rows, weights; zeros for what is not there.

        Raises
        ------
        StoreError
            The store has none, or others than those that its commit is about.
        """
        if not self.sha256:
            raise StoreError(
                f"{self.name}: its chunks have CRC-32C alone, no SHA-256; `coremargin compact {self.name}` adds them"
            )
        return self._manifest.hashes(self.scalars().rows)

    def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Centres of chunks, dense whatever the rows are.

        Parameters
        ----------
        start, stop : int, optional
            The chunks [start, stop); by default all.

        Returns
        -------
        ndarray of shape (stop - start, d)
            Float64, the mean rows.
        """
        stop = self.chunks if stop is None else stop
        if self.sparse:
            return np.asarray(self._manifest.sparse_vectors(start, stop, self.scalars().rows)["centre"].toarray())
        return self._manifest.vectors("centre", start, stop)

    def handle(self) -> StoreHandle:
        """A small picklable value from which ``open_source`` makes the same source in another process.

        Returns
        -------
        StoreHandle
            Path, rows and digest.
        """
        return StoreHandle(self.storage.snapshot, self.rows, self.digest, self._map_bytes, self._named)

    @cached_property
    def _scalars(self) -> ChunkScalars:
        return self._manifest.scalars()

    def readers(self) -> Readers:
        """What reads rows, labels and weights, once the manifest is known, which describes them.

        Returns
        -------
        Readers
            Made once.
        """
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._reading = self.storage.lock_removal()
                    self._made = readers_of(
                        self._layouts, self._manifest, self.scalars(), self.features, self._map_bytes
                    )
        return self._made

    def release(self) -> None:
        """Read no more, until ``readers`` is called again: others may take the store away."""
        with self._lock:
            self._made = None
            if self._reading is not None:
                self._reading.release()


_opened: dict[tuple[str, str, int, str | None], Store] = {}
_opening = threading.RLock()


def opened(handle: StoreHandle) -> Store:
    """The store that a handle stands for, made once per process. Raises StoreError when it no longer has the commit."""
    key = (handle.path, handle.digest, handle.rows, handle.name)
    with _opening:
        store = _opened.get(key)
        if store is None:
            store = Store.open(handle.path, digest=handle.digest, map_bytes=handle.map_bytes, name=handle.name)
            for old in [known for known in _opened if known[0] == handle.path]:
                del _opened[old]  # an older commit; its readers hold it
            _opened[key] = store
        return store


def let_go(path: str) -> None:
    """Keep the stores with an address no longer that were opened by their handles."""
    with _opening:
        for key in [key for key in _opened if key[0] == path]:
            del _opened[key]
