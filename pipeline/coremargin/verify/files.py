"""The arrays of a store for ``verify``: opened with zarr-python, checked against the root, read file by file.

Sparse rows are a CSR matrix in anndata's encoding: stored values, their features, and where each row starts.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import UNSET
from scipy.sparse import csr_array

from coremargin.errors import DamagedChunk, StoreError, raise_if_limit
from coremargin.formats.raw_array import CRC_BYTES
from coremargin.formats.row_types import stored_dtype
from coremargin.formats.storage import MISSING, object_size, opened_object
from coremargin.formats.store_record import GROUP_FILES
from coremargin.formats.zarr_metadata import Blosc, Crc32c, read_array_metadata, read_csr_group
from coremargin.verify.opener import is_fetched, zarr_array, zarr_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.storage import ReadableStorage
    from coremargin.formats.store_record import StoreRecord
    from coremargin.formats.zarr_metadata import ArrayMetadata

_BLOSC_HEADER = 16  # bytes; those from 4 to 8 say how many there will be, from 12 to 16 how many there are
_BESIDE = 1 << 16  # most bytes of checksums, headers and indices
_RECENT = 6  # most files of values in the cache
_RECENT_BYTES = 1 << 30  # most bytes, but at least two files: those of the values and of their features
_SPARSE = ("X/data", "X/indices", "X/indptr")


def bfloat16_numbers(bits: np.ndarray) -> np.ndarray:
    """The numbers, in float32, of which the upper halves are these bits."""
    pairs = np.zeros((*bits.shape, 2), "<u2")
    pairs[..., 1] = bits
    return pairs.view("<f4")[..., 0]


class Files:
    """The arrays by name: X, or its three parts when ``sparse``; y; weights when ``weighted``; groups of rows."""

    def __init__(self, store: ReadableStorage, record: StoreRecord) -> None:
        """Raises StoreError when an array does not fit the store's record."""
        self.path, self._store = store.name, store
        self.rows, self.features, self.chunk_rows = record.rows, record.features, record.chunk_rows
        self.sparse, self.weighted = record.sparse, record.weighted
        kinds: dict[str, tuple[str, int, tuple[int, ...]]] = {"X": (record.dtype, self.rows, (self.features,))}
        if self.sparse:
            kinds = {"X/data": (record.dtype, 0, ()), "X/indices": ("int32", 0, ())}
            kinds["X/indptr"] = ("int64", self.rows + 1, ())
            read_csr_group(store, "X", self.rows, self.features)
        kinds["y"] = ("int32", self.rows, ())
        if self.weighted:
            kinds["weights"] = ("float64", self.rows, ())
        if record.grouped:
            kinds |= {"groups": ("int64", 2, ()), "group_ids": ("uint8", 0, ())}
        entries = None if record.file_entries is UNSET else record.file_entries
        self._fetched = is_fetched(store)
        store.preload(f"{name}/zarr.json" for name in kinds)
        self._metadata = {name: self._checked(name, *kind, entries) for name, kind in kinds.items()}
        self._arrays = {name: self._open(name) for name in kinds}
        self._recent: dict[tuple[str, int], np.ndarray] = {}
        self._lock = threading.Lock()

    def _checked(self, name: str, dtype: str, length: int, tail: tuple[int, ...], entries: int | None) -> ArrayMetadata:
        """The metadata of an array in ``zarr.json``; raises StoreError unless they fit the rows."""
        metadata = read_array_metadata(self._store, name)
        step = entries if name in _SPARSE[:2] else GROUP_FILES.get(name, self.chunk_rows)  # some files follow no rows
        fits = metadata.shape[0] >= length and tuple(metadata.shape[1:]) == tail and metadata.chunks == (step, *tail)
        if not fits or metadata.data_type != dtype:
            raise StoreError(
                f"{self.path}/{name}: expected {dtype} for {length:,} rows in chunks of {step:,}, found "
                f"{metadata.data_type} of shape {metadata.shape} in chunks {metadata.chunks}; restore it from a copy"
            )
        return metadata

    def _open(self, name: str, chunks: Mapping[str, bytes] | None = None) -> Any:
        """The array; chunks: those that were fetched, by key, as zarr-python would read another one as fill values.

        zarr-python has no bfloat16: it reads their bits, as uint16.
        """
        import zarr

        # The metadata that were checked: a server might send others the second time.
        metadata = self._metadata[name]
        bits = metadata.data_type == "bfloat16"
        if bits:
            metadata = msgspec.structs.replace(metadata, data_type="uint16", fill_value=0)
        objects = {f"{name}/zarr.json": msgspec.json.encode(metadata), **(chunks or {})}
        try:
            node = zarr_node(self._store, name, objects)
            if bits:
                return zarr_array(node, msgspec.to_builtins(metadata))
            return zarr.open_array(node, mode="r", zarr_format=3)
        except Exception as error:  # zarr raises various errors for bad metadata
            raise_if_limit(error, f"{self.path}/{name}")
            raise StoreError(f"{self.path}/{name}: zarr cannot open it ({error}); restore it from a copy") from error

    def _open_changed(self, name: str, rows: int) -> None:
        """Labels or weights that a commit changed, up to this number of rows; thread-safe."""
        metadata = self._checked(name, "float64" if name.endswith("/weights") else "int32", rows, (), None)
        self._metadata[name] = metadata
        self._arrays[name] = self._open(name)

    def _step(self, name: str) -> int:
        return self._metadata[name].chunks[0]

    def read(self, name: str, start: int, stop: int, chunk: str) -> np.ndarray:
        """Entries [start, stop) of an array. Raises DamagedChunk; ``chunk``: the rows, for messages."""
        if name not in self._arrays:
            self._open_changed(name, stop)
        array, step = self._arrays[name], self._step(name)
        keys = [f"{name}/{self._metadata[name].key(number)}" for number in range(start // step, -(-stop // step))]
        fetched = {key: self._look_at(name, key, chunk) for key in keys}
        if self._fetched:
            array = self._open(name, fetched)
        try:
            values = np.ascontiguousarray(array[start:stop])
        except Exception as error:  # codecs raise various errors
            raise_if_limit(error, f"{self.path}/{name}")
            where = f"{name}/{self._metadata[name].key(start // step)}"
            raise DamagedChunk(
                f"{self.path}/{where}: {chunk} cannot be read ({error}); restore it from a copy"
            ) from error
        if len(values) != stop - start:
            raise DamagedChunk(f"{self.path}/{name}: {chunk} is cut short; restore zarr.json from a copy")
        return values

    def forget(self) -> None:
        """Read all files again that are read next."""
        with self._lock:
            self._recent.clear()

    def _look_at(self, name: str, key: str, chunk: str) -> bytes:
        """Check a chunk's object, which is returned where it has to be fetched.

        Raises DamagedChunk if it is missing, or is longer than allowed, also after decompression.
        """
        metadata, file = self._metadata[name], f"{self.path}/{key}"
        whole = math.prod(metadata.chunks) * stored_dtype(metadata.data_type).itemsize
        try:
            with opened_object(self._store, key, error=DamagedChunk) as stored:
                size = object_size(stored)
                data = stored.read(size if self._fetched and size <= 2 * whole + _BESIDE else _BLOSC_HEADER)
        except MISSING:
            raise DamagedChunk(
                f"{file}: {chunk} is missing; restore it from a copy, or ingest the data again"
            ) from None
        packed = metadata.codecs[1:2] and isinstance(metadata.codecs[1], Blosc)
        inflated, stated = whole, size
        if packed:
            crc_bytes = CRC_BYTES if isinstance(metadata.codecs[-1], Crc32c) else 0
            inflated, stated = int.from_bytes(data[4:8], "little"), int.from_bytes(data[12:16], "little") + crc_bytes
        if size > 2 * whole + _BESIDE or inflated != whole or stated != size:
            found = f"{size:,} bytes" + (f", the header promises {inflated:,} of {stated:,}" if packed else "")
            raise DamagedChunk(f"{file}: {chunk}: expected {whole:,} bytes, found {found}; restore it from a copy")
        return data

    def _values(self, name: str, first: int, last: int, chunk: str) -> np.ndarray:
        """Stored values [first, last); a file with the values of several chunks of rows is read once."""
        step, length = self._step(name), int(self._arrays[name].shape[0])
        parts = [np.empty(0, self._metadata[name].data_type)]
        for number in range(first // step, -(-last // step)):
            with self._lock:
                values = self._recent.get((name, number))
            if values is None:
                values = self.read(name, number * step, min(length, (number + 1) * step), chunk)
                self._keep((name, number), values)
            parts.append(values[max(0, first - number * step) : max(0, last - number * step)])
        return np.concatenate(parts)

    def _keep(self, file: tuple[str, int], values: np.ndarray) -> None:
        """Cache the values of a file for the next chunks; the oldest are dropped."""
        with self._lock:
            self._recent[file] = values
            while len(self._recent) > _RECENT or (
                len(self._recent) > 2 and sum(kept.nbytes for kept in self._recent.values()) > _RECENT_BYTES
            ):
                del self._recent[next(iter(self._recent))]

    def read_groups(self, first: np.ndarray, last: np.ndarray, chunk: str) -> tuple[np.ndarray, list[bytes]]:
        """Row ids (k,) at which groups begin, and their ids as stored, each with a line break at its end.

        first, last: the entries of both in ``groups`` and ``group_ids``. Raises DamagedChunk.
        """
        starts = self._values("groups", int(first[0]), int(last[0]), chunk)
        ids = self._values("group_ids", int(first[1]), int(last[1]), chunk).tobytes().split(b"\n")
        if len(ids) != len(starts) + 1 or ids[-1]:
            raise DamagedChunk(
                f"{self.path}/group_ids: {chunk}: expected ids of {len(starts):,} groups, found others; "
                "restore it from a copy"
            )
        return starts, [one + b"\n" for one in ids[:-1]]

    def read_sparse(self, start: int, stop: int, first: int, last: int, chunk: str) -> csr_array:
        """Rows [start, stop), whose stored values are [first, last).

        Raises DamagedChunk unless indices ascend within each row and stay below the number of features.
        """
        begins = self.read("X/indptr", start, stop, chunk)
        inside = ((begins >= first) & (begins <= last)).all()  # otherwise differences could wrap around
        lengths = np.diff(begins, append=last)
        if not (begins[0] == first and inside and (lengths >= 0).all() and (lengths <= self.features).all()):
            raise self._disordered(chunk)  # before memory for the values is allocated
        data, indices = (self._values(name, first, last, chunk) for name in _SPARSE[:2])
        follows = np.ones(len(indices), dtype=bool)  # not the first of its row
        follows[(begins - first)[begins < last]] = False
        ascending = (np.diff(indices, prepend=-1) > 0) | ~follows
        if not (ascending & (indices >= 0) & (indices < self.features)).all():
            raise self._disordered(chunk)
        indptr = np.append(begins, last) - first
        if indptr[-1] <= np.iinfo(np.int32).max:  # the type of the indices: otherwise SciPy would copy both
            indptr = indptr.astype(np.int32)
        return csr_array((data, indices, indptr), shape=(stop - start, self.features))

    def _disordered(self, chunk: str) -> DamagedChunk:
        return DamagedChunk(
            f"{self.path}/X: {chunk}: the row starts or the indices are not those of rows of {self.features:,} "
            f"features in ascending order; restore the store from a copy"
        )
