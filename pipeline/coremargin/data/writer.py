"""Writing a store: rows in batches of any size become whole chunks; a commit makes them visible, all at once.

A new store is built apart from its place and moved there by its first commit; later commits replace the root
``zarr.json``. A writer that dies at any moment leaves what was committed, and nothing else that a reader could see.

What is written is Zarr v3, but not by zarr-python, which moves each chunk into its place for itself and does not fsync
it: rows, labels, weights and their statistics must appear together, and stay after a power cut.
"""

from __future__ import annotations

import json
import operator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, cast

import numpy as np

from coremargin.data.buffers import Content, DenseBuffer, SparseBuffer
from coremargin.data.chunk_hashes import describe_mismatch, hash_chunk
from coremargin.data.chunks import ChunkSink
from coremargin.data.codecs import COMPRESSIONS, Encoding, chosen
from coremargin.data.format import Facts
from coremargin.data.group_sink import GroupSink
from coremargin.data.groups import GroupRuns, group_runs
from coremargin.data.key_runs import KeySink, key_sink
from coremargin.data.labels import LabelCoder
from coremargin.data.narrow_rows import is_narrow
from coremargin.data.place import Place
from coremargin.data.row_selection import index_of
from coremargin.data.rows import as_narrow_rows, as_rows
from coremargin.data.sizes import (
    CHUNK_BYTES,
    MOST_SPARSE_CHUNK_ROWS,
    default_chunk_rows,
    fitting_chunk_rows,
    fitting_sparse,
)
from coremargin.data.sparse import as_sparse_rows
from coremargin.data.store import Store
from coremargin.data.weights import as_weights
from coremargin.errors import Busy, DamagedChunk, StoreError, UsageError
from coremargin.formats.choices import ROW_TYPES
from coremargin.formats.columns import FILE as COLUMNS
from coremargin.formats.limits import LARGEST_CHUNK_BYTES, MOST_FEATURES, MOST_ROWS
from coremargin.formats.row_types import WIDE_TYPES, stored_dtype
from coremargin.formats.store_record import most_chunk_rows, most_file_entries
from coremargin.maths.rows import Rows, is_sparse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from numpy.typing import DTypeLike

    from coremargin.data.commits import CommitInfo
    from coremargin.data.key_values import Keys
    from coremargin.data.storage import Storage
    from coremargin.data.storages import Address
    from coremargin.formats.columns import ColumnsRecord

_THREADS = 2  # chunks are measured, encoded and fsynced while the caller parses the next rows
_PENDING = 3  # whole chunks that may wait for that
_UPLOADS = 8  # the same of a bucket, where each takes a tenth of a second and hardly any CPU


def check_options(features: int, dtype: str, chunk_bytes: int, compression: str, *, sparse: bool) -> None:
    """Raises UsageError, StoreError for what no store can be."""
    types = WIDE_TYPES if sparse else ROW_TYPES
    if dtype not in types:
        rows = " of sparse rows" if sparse else ""
        raise UsageError(f"dtype: expected {', '.join(types[:-1])} or {types[-1]}{rows}, got {dtype!r}")
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression: expected one of {', '.join(COMPRESSIONS)}, got {compression!r}")
    if features == 0:
        raise StoreError("rows: expected at least one feature, got none")
    if not 1 <= features <= MOST_FEATURES:
        raise UsageError(f"features: expected 1 to {MOST_FEATURES:,}, got {features}")
    if not 1 <= chunk_bytes <= LARGEST_CHUNK_BYTES:
        raise UsageError(f"chunk_bytes: expected 1 to {LARGEST_CHUNK_BYTES:,}, got {chunk_bytes}")


def check_rows(chunk_rows: int | None, most: int) -> None:
    """Raises UsageError for other rows of a chunk than 1 to ``most``."""
    if chunk_rows is not None and not 1 <= chunk_rows <= most:
        raise UsageError(f"chunk_rows: expected 1 to {most:,} of such rows, got {chunk_rows:,}")


def _whole_number(name: str, value: object) -> int:
    """An argument as an int: records know no others. Raises UsageError."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise UsageError(f"{name}: expected a whole number, got {value!r}")
    return operator.index(cast("SupportsIndex", value))


def _flag(name: str, value: object) -> bool:
    """An argument as a bool. Raises UsageError, also for numbers: records would have them, and readers refuse these."""
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def shape_of(facts: Facts, rows: int, X: Rows, chunk_bytes: int, wanted: int | None, *, whole: bool) -> tuple[int, int]:
    """Rows per chunk of a new store, and for sparse ones values per file, by its first rows X.

    wanted: rows per chunk, if given. whole: X is one chunk, and more may follow; else it is all there is.
    """
    most = most_chunk_rows(facts.features, facts.dtype, sparse=is_sparse(X), rows=rows)
    if not is_sparse(X):
        full = whole or wanted is not None
        fitting = facts.chunk_rows if full else fitting_chunk_rows(rows, facts.features, facts.dtype, chunk_bytes)
        return min(most, fitting), 0
    chunk_rows, entries = fitting_sparse(rows, X.nnz, facts.dtype, chunk_bytes)
    if whole:
        chunk_rows, entries = fitting_sparse(MOST_ROWS, MOST_ROWS * X.nnz // rows, facts.dtype, chunk_bytes)
    return min(most, wanted or chunk_rows), min(entries, most_file_entries(facts.features, facts.dtype, rows))


class StoreWriter:
    """Context manager; leaving it commits what was written, leaving it by an exception does not."""

    def __init__(
        self, place: Place, facts: Facts, sink: ChunkSink | None = None, buffer: SparseBuffer | None = None
    ) -> None:
        """Use ``create`` or ``append``."""
        self._place, self._facts, self._sink = place, facts, sink
        self._compression, self._chunk_bytes = "none", CHUNK_BYTES
        self._chunk_rows: int | None = None
        self._columns: ColumnsRecord | None = None  # of a new store
        self.commit_info: CommitInfo | None = None  #: what the log says of the next commit; None: that rows came
        self.keys: KeySink | None = None  #: where those of rows go, if these have some
        self._groups: GroupSink | None = None
        self.sparse = facts.sparse or buffer is not None  #: rows are kept as CSR
        self._coder = LabelCoder(facts.classes)
        self._dtype = stored_dtype(facts.dtype)
        self._next = facts.rows // facts.chunk_rows  # the buffer's chunk
        self._buffer: DenseBuffer | SparseBuffer
        if self.sparse:
            self._buffer = buffer or SparseBuffer(facts.chunk_rows, facts.features, self._dtype, None)
        else:
            self._buffer = DenseBuffer(facts.chunk_rows, facts.features, self._dtype, weighted=facts.weighted)
        self._origin, self._origin_rows = "", 0
        threads, self._most_pending = (_UPLOADS, _UPLOADS) if place.storage.remote else (_THREADS, _PENDING)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="coremargin-write")
        self._pending: list[Future[None]] = []

    @classmethod
    def create(  # noqa: PLR0913 - one word for each decision about a store, all but two with a default
        cls,
        path: Address,
        *,
        features: int,
        dtype: DTypeLike | None = "float32",
        chunk_bytes: int = CHUNK_BYTES,
        compression: str = "none",
        overwrite: bool = False,
        sparse: bool = False,
        weighted: bool = False,
        grouped: bool = False,
        chunk_rows: int | None = None,
        columns: ColumnsRecord | None = None,
        about: Mapping[str, Any] | None = None,
        classes: Sequence[Any] = (),
        instead_of: Place | None = None,
    ) -> StoreWriter:
        """A writer of a new store; with ``overwrite`` an old one stays in place until the first commit.

        dtype: the type in which values are stored; all but float64 are read as float32.
        compression: "none" (can be mapped), "lz4", "zstd", or "auto" (lz4 where the first chunk shrinks by a third).
        sparse: keep rows as CSR; weighted: every row comes with a weight; grouped: with the id of its group.
        chunk_rows: rows of a chunk, instead of what fits ``chunk_bytes``; of sparse rows that is guessed from the first
        ones. Small stores have smaller chunks.
        columns: what the features come from, where that is known. about: what else is to be kept, as JSON has it.
        classes: labels that have codes from the start.
        instead_of: the place of the store to replace, if other writers are kept out meanwhile.
        Raises UsageError (a store is there, absurd numbers), OutputError (cannot write), Busy (another writer).
        """
        features, chunk_bytes = _whole_number("features", features), _whole_number("chunk_bytes", chunk_bytes)
        chunk_rows = None if chunk_rows is None else _whole_number("chunk_rows", chunk_rows)
        sparse, weighted = _flag("sparse", sparse), _flag("weighted", weighted)
        grouped, overwrite = _flag("grouped", grouped), _flag("overwrite", overwrite)
        try:
            name = str(dtype) if dtype is None else np.dtype(dtype).name
        except TypeError:  # no name of NumPy's
            name = str(dtype)
        check_options(features, name, chunk_bytes, compression, sparse=sparse)
        try:
            json.dumps(about, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(f"about: expected what JSON can hold: {error}") from error
        check_rows(chunk_rows, most_chunk_rows(features, name, sparse=sparse))
        rows = chunk_rows or (MOST_SPARSE_CHUNK_ROWS if sparse else default_chunk_rows(features, name, chunk_bytes))
        if columns is not None and columns.width != features:
            raise UsageError(f"columns: expected those of {features:,} features, got {columns.width:,}")
        named = "" if columns is None else columns.digest
        kinds: dict[str, Any] = {"weighted": weighted, "grouped": grouped, "columns": named}
        facts = Facts(features, name, rows, tuple(classes), about=dict(about or {}), **kinds)
        buffer = (
            SparseBuffer(rows, features, stored_dtype(name), None if chunk_rows else chunk_bytes) if sparse else None
        )
        writer = cls(Place.new(path, overwrite=overwrite, instead_of=instead_of), facts, buffer=buffer)
        writer._columns, writer.keys = columns, key_sink(writer._place, facts, columns)
        writer._groups = GroupSink(writer._place, facts) if grouped else None
        writer._compression, writer._chunk_bytes, writer._chunk_rows = compression, chunk_bytes, chunk_rows
        return writer

    @classmethod
    def append(cls, path: Address) -> StoreWriter:
        """A writer that continues after the last committed row. Raises StoreError, OutputError, Busy, DamagedChunk."""
        place = Place.existing(path)
        try:
            store = Store.open(place.target, map_bytes=0)
            sink = ChunkSink.resume(store, place)
            if sink.facts.commits[-1].digest != store.digest:  # of a writer that was stopped for long
                raise Busy(f"{place.name}: another writer has changed it meanwhile; nothing was written, do it again")
            writer = cls(place, sink.facts, sink)
            index_of(store)
            writer.keys = key_sink(place, sink.facts, store.columns)
            writer._groups = GroupSink.resume(store, place, sink.facts) if sink.facts.grouped else None
            if sink.facts.rows % sink.facts.chunk_rows:
                rows, codes = store.read_stored(writer._next)
                if store.sha256:  # its SHA-256 is computed again, of more rows: what was forged must not become honest
                    found, where = hash_chunk(rows, codes, store.weights(writer._next)), f"{store.name}: chunk"
                    if wrong := describe_mismatch(f"{where} {writer._next}", store.chunk_hashes()[-1], found):
                        raise DamagedChunk(wrong)
                # of rows that came without weights the sink knows those that were given some since
                weights = store.weights(writer._next) if sink.facts.weighted else None
                writer._buffer.add((rows, codes, weights), 0)
            return writer
        except BaseException:
            place.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()

    def close(self) -> None:
        """Stop writing; what was not committed is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for keys in (self.keys, None if self._groups is None else self._groups.keys):
            if keys is not None:
                keys.close()
        self._place.close()

    @property
    def classes(self) -> tuple[Any, ...]:
        """Labels seen so far; the code of each is its index."""
        return tuple(self._coder.classes)

    @property
    def storage(self) -> Storage:
        """Where objects go now: not where the store belongs until it is published."""
        return self._place.storage

    @property
    def features(self) -> int:
        """Numbers per row."""
        return self._facts.features

    @property
    def rows(self) -> int:
        """Rows written so far, committed or not."""
        return self._next * self._facts.chunk_rows + self._buffer.fill

    @property
    def committed(self) -> int:
        """Rows that readers see."""
        return self._sink.facts.rows if self._sink else 0

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk; a new store smaller than one chunk takes fewer at its first commit."""
        return self._facts.chunk_rows

    @property
    def bytes_written(self) -> int:
        """Bytes of chunk files so far."""
        return self._sink.bytes_written if self._sink else 0

    def write(
        self,
        X: Any,
        labels: Any = None,
        weights: Any = None,
        keys: Keys | None = None,
        groups: Any = None,
        *,
        origin: str = "",
    ) -> None:
        """Take rows X (m, d), an array or a SciPy matrix, whatever the store keeps, labels (m,) or None (unlabelled),
        and weights (m,), keys, and GroupRuns, or the id (m,) of each row's group, when the store has them. Nothing is
        taken when they are refused.

        origin names the place for messages, such as a file; rows are counted from where it last changed.
        Raises BadRow, LabelError, OutputError.
        """
        if origin != self._origin:
            self._origin, self._origin_rows = origin, 0
        place, first, facts = origin or "rows", self._origin_rows, self._facts
        rows = self._checked(X, place, first)
        if (weights is not None) != facts.weighted:
            have, got = ("weights", "none") if facts.weighted else ("no weights", "some")
            raise UsageError(f"{self._place.name}: the store has {have}, got {got}: give every row a weight or none")
        if (keys is not None) != (self.keys is not None and not self.keys.known):
            raise UsageError(f"{self._place.name}: {'rows have no keys' if keys else 'every row has a key'} there")
        kept = None if weights is None else as_weights(weights, rows.shape[0], place, first)
        if (groups is not None) != facts.grouped:
            have, got = ("groups", "rows without") if facts.grouped else ("no groups", "some")
            raise UsageError(f"{self._place.name}: the store has {have}, got {got}: give every row a group or none")
        if groups is not None and not isinstance(groups, GroupRuns):
            groups = group_runs(groups, rows.shape[0], lambda row: f"{place}: row {first + row}")
        codes = self._coder.encode(labels, rows.shape[0], place, first)
        if self._groups is not None and rows.shape[0]:
            self._groups.add(self.rows, groups, kept, self.chunk_rows)
        if keys is not None and self.keys is not None:
            self.keys.add(self.rows, keys)
        self._origin_rows += rows.shape[0]
        self._add((rows, codes, kept))

    def _checked(self, X: Any, place: str, first: int) -> Rows:
        """Finite rows of the store's kind and width, in the type that it keeps."""
        wanted: dict[str, Any] = {"dtype": self._dtype, "place": place, "features": self.features, "first": first}
        if is_narrow(self._dtype):  # of dense rows alone
            values = X.toarray() if is_sparse(X) else X
            return as_narrow_rows(values, name=self._facts.dtype, place=place, features=self.features, first=first)
        if is_sparse(X):
            rows = as_sparse_rows(X, **wanted)
            return rows if self.sparse else np.asarray(rows.toarray())
        dense = as_rows(X, **wanted)
        if not self.sparse:
            return dense
        from scipy.sparse import csr_array  # only here: stores of dense rows do without

        return as_sparse_rows(csr_array(dense), **wanted)

    def _add(self, content: Content) -> None:
        done = 0
        while done < content[0].shape[0]:
            done += self._buffer.add(content, done)
            if self._buffer.full:
                self._settle(self._buffer.fill, whole=True)
                if self._buffer.full:
                    self._hand_over()

    def commit(self, *, publish: bool = True) -> int:
        """Make everything written so far visible, atomically. Returns the committed rows. StoreError without rows.

        publish: a new store is moved to its place, which its last commit does at the latest.
        """
        rows = self.rows
        if rows == 0:
            raise StoreError(f"{self._place.name}: expected at least one row, got none; nothing was written")
        if rows == self.committed:
            return rows
        keys = () if self.keys is None else self.keys.runs()  # refused before anything else is written
        groups = () if self._groups is None else self._groups.keys.runs()
        sink = self._settle(rows)
        if self._buffer.full:  # a new store that became exactly one chunk
            self._hand_over()
        wait(self._pending)
        while self._pending:
            self._pending[0].result()  # stays first in line when it failed: a later commit fails, too
            self._pending.pop(0)
        last = None
        if self._buffer.fill:
            last, codes, weights = self._buffer.content()
            sink.put(self._next, last, codes, weights, len(self._coder.classes), sink.values)
        sink.close_values(last, rows)
        if self._groups is not None:
            begun = self._groups.take(rows, keep=True)
            if self._buffer.fill:
                sink.put_groups(self._next, *begun, whole=False)
            sink.close_groups(*begun, rows)
        if self._columns is not None:
            self._place.storage.write(COLUMNS, [self._columns.encoded()])
            self._columns = None
        sink.commit(rows, self.classes, self.commit_info, keys, groups, publish=publish)
        for known in (self.keys, self._groups):
            if known is not None:
                known.settle(sink.facts)
        return rows

    def publish(self) -> None:
        """Move a new store, whose commits did not do so, to its place."""
        if not self._place.published:
            self._place.publish()

    def _settle(self, rows: int, *, whole: bool = False) -> ChunkSink:
        """The sink; the first call decides, with the first rows at hand, how chunks are stored.

        whole: they are one chunk, and more may follow; else they are all there are for now.
        """
        if self._sink is None:
            X, codes, weights = self._buffer.content()
            chunk_rows, entries = shape_of(self._facts, rows, X, self._chunk_bytes, self._chunk_rows, whole=whole)
            self._facts = replace(self._facts, chunk_rows=chunk_rows, file_entries=entries)
            sample = X.data if is_sparse(X) else X[:chunk_rows]
            self._sink = ChunkSink(self._place, self._facts, Encoding(chosen(self._compression, sample)))
            self._buffer = self._buffer.fresh(chunk_rows)
            if self._groups is not None:
                self._groups.refuse_long(chunk_rows)
            self._add((X, codes, weights))
        return self._sink

    def _hand_over(self) -> None:
        """Give the full buffer to the writing threads and start a new one."""
        sink = self._settle(self._facts.chunk_rows)
        X, codes, weights = self._buffer.content()
        if self._groups is not None:
            sink.put_groups(self._next, *self._groups.take((self._next + 1) * self._facts.chunk_rows))
        for task in sink.tasks(self._next, X, codes, weights, len(self._coder.classes)):
            while len(self._pending) >= self._most_pending:
                self._pending[0].result()
                self._pending.pop(0)
            self._pending.append(self._pool.submit(task))
        self._buffer = self._buffer.fresh(self._facts.chunk_rows)
        self._next += 1
