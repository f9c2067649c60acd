"""The arrays of a store for ``verify``: opened with zarr-python, checked against the root, read file by file.

Sparse rows are a CSR matrix in anndata's encoding: stored values, their features, and where each row starts.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coremargin.errors import DamagedChunk, StoreError

_CODECS = {"bytes", "crc32c", "blosc", "transpose", "sharding_indexed"}
_RECENT = 6  # files of values in memory, besides the chunks made of them
_SPARSE = ("X/data", "X/indices", "X/indptr")


class Files:
    """The arrays by name: X, or its three parts when ``sparse``; y; weights when ``weighted``."""

    def __init__(self, path: Path, group: Any, attributes: dict[str, Any]) -> None:
        """Raises StoreError when an array does not fit; KeyError, TypeError, ValueError for absurd attributes."""
        self.path = path
        self.rows, self.features = int(attributes["rows"]), int(attributes["features"])
        self.dtype, self.chunk_rows = str(attributes["dtype"]), int(attributes["chunk_rows"])
        self.sparse, self.weighted = "file_entries" in attributes, bool(attributes.get("weighted"))
        kinds: dict[str, tuple[str, int, tuple[int, ...]]] = {"X": (self.dtype, self.rows, (self.features,))}
        if self.sparse:
            kinds = {"X/data": (self.dtype, 0, ()), "X/indices": ("int32", 0, ())}
            kinds["X/indptr"] = ("int64", self.rows + 1, ())
        kinds["y"] = ("int32", self.rows, ())
        if self.weighted:
            kinds["weights"] = ("float64", self.rows, ())
        self._arrays = {name: group[name] for name in kinds}
        self._recent: dict[tuple[str, int], np.ndarray] = {}
        self._lock = threading.Lock()
        for name, (dtype, length, tail) in kinds.items():
            own = name in _SPARSE[:2]  # files of values follow no rows
            self._check(name, dtype, length, ((self._step(name) if own else self.chunk_rows), *tail))

    def _step(self, name: str) -> int:
        return int(self._arrays[name].metadata.chunk_grid.chunk_shape[0])

    def _check(self, name: str, dtype: str, length: int, chunk: tuple[int, ...]) -> None:
        array = self._arrays[name]
        grid = array.metadata.chunk_grid.chunk_shape
        if array.shape[0] < length or array.shape[1:] != chunk[1:] or grid != chunk:
            raise StoreError(
                f"{self.path}/{array.path}: shape {array.shape} in chunks {grid} does not fit {self.rows:,} rows "
                f"in chunks of {self.chunk_rows:,}; restore zarr.json from a copy"
            )
        codecs = {codec.to_dict()["name"] for codec in array.metadata.codecs}
        if codecs - _CODECS:
            unknown = ", ".join(map(str, codecs - _CODECS))
            raise StoreError(f"{self.path}/{array.path}: codec {unknown} is not one that stores use; it is not run")
        if str(array.dtype) != dtype:
            raise StoreError(f"{self.path}/{array.path}: expected {dtype}, found {array.dtype}")

    def read(self, name: str, start: int, stop: int, chunk: str) -> np.ndarray:
        """Entries [start, stop) of an array. Raises DamagedChunk; ``chunk`` says which rows are read."""
        array, step = self._arrays[name], self._step(name)
        for number in range(start // step, -(-stop // step)):
            file = f"{array.path}/{array.metadata.encode_chunk_key((number, *(0 for _ in array.shape[1:])))}"
            if not (self.path / file).is_file():
                raise DamagedChunk(
                    f"{self.path}/{file}: {chunk} is missing; restore it from a copy, or ingest the data again"
                )
        try:
            values = np.ascontiguousarray(array[start:stop])
        except Exception as error:  # codecs raise what they like
            where = f"{array.path}/{array.metadata.encode_chunk_key((start // step, *(0 for _ in array.shape[1:])))}"
            raise DamagedChunk(
                f"{self.path}/{where}: {chunk} cannot be read ({error}); restore it from a copy"
            ) from error
        if len(values) != stop - start:
            raise DamagedChunk(f"{self.path}/{array.path}: {chunk} is cut short; restore zarr.json from a copy")
        return values

    def _values(self, name: str, first: int, last: int, chunk: str) -> np.ndarray:
        """Stored values [first, last): several chunks of rows lie in one file, which is read once for all of them."""
        step, length = self._step(name), int(self._arrays[name].shape[0])
        parts = [self.read(name, first, first, chunk)]
        for number in range(first // step, -(-last // step)):
            with self._lock:
                values = self._recent.get((name, number))
            if values is None:
                values = self.read(name, number * step, min(length, (number + 1) * step), chunk)
                with self._lock:
                    self._recent[name, number] = values
                    while len(self._recent) > _RECENT:
                        del self._recent[next(iter(self._recent))]
            parts.append(values[max(0, first - number * step) : max(0, last - number * step)])
        return np.concatenate(parts)

    def read_sparse(self, start: int, stop: int, first: int, last: int, chunk: str) -> csr_array:
        """Rows [start, stop), whose stored values are [first, last).

        Raises DamagedChunk unless indices ascend within each row and stay below the number of features.
        """
        begins = self.read("X/indptr", start, stop, chunk)
        lengths = np.diff(begins, append=last)
        data, indices = (self._values(name, first, last, chunk) for name in _SPARSE[:2])
        follows = np.ones(len(indices), dtype=bool)  # not the first of its row
        follows[(begins - first)[(begins >= first) & (begins < last)]] = False
        ascending = (np.diff(indices, prepend=-1) > 0) | ~follows
        inside = (indices >= 0) & (indices < self.features)
        if begins[0] != first or (lengths < 0).any() or not (ascending & inside).all():
            raise DamagedChunk(
                f"{self.path}/X: {chunk}: the row starts or the indices are not those of rows of {self.features:,} "
                f"features in ascending order; restore the store from a copy"
            )
        indptr = np.append(begins, last) - first
        if indptr[-1] <= np.iinfo(np.int32).max:  # of one kind with the indices: SciPy would copy both else
            indptr = indptr.astype(np.int32)
        return csr_array((data, indices, indptr), shape=(stop - start, self.features))
