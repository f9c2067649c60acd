"""The store as ``verify`` reads it: plain zarr-python, every chunk once, in order, with its checksums.

Nothing of coremargin's own readers is used. A missing Zarr chunk reads as fill values without a word, so each chunk's
file is asked for before it is read, and its bytes are compared with the digest that ingest wrote down.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import crc32c
import numpy as np

from coremargin.errors import DamagedChunk, StoreError

T = TypeVar("T")

_CODECS = {"bytes", "crc32c", "blosc", "transpose", "sharding_indexed"}
_PENDING_BYTES = 256 << 20  # chunks in memory at a time


@dataclass(frozen=True)
class Chunk:
    """Rows x (n, d) in the store's precision and label codes (n,) of the rows [start, start + n)."""

    start: int
    x: np.ndarray
    codes: np.ndarray


class Rows:
    """The committed rows of a store. Raises StoreError when it is none, newer, or does not fit together."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        group = self._open()
        attributes = dict(group.attrs)
        if attributes.get("format") != "coremargin-store":
            raise StoreError(f"{self.path}: expected a coremargin store, found other Zarr data; give the store")
        if attributes.get("version") != 1:
            raise StoreError(
                f"{self.path}: expected format 1, found {attributes.get('version')!r}; verify with a newer coremargin"
            )
        try:
            self.rows, self.features = int(attributes["rows"]), int(attributes["features"])
            self.classes: tuple[Any, ...] = tuple(attributes["classes"])
            self.dtype, self.chunk_rows = str(attributes["dtype"]), int(attributes["chunk_rows"])
            self.commits = [dict(commit) for commit in attributes["commits"]]
            self._x, self._y = group["X"], group["y"]
            self.chunks = -(-self.rows // self.chunk_rows)
            self._check_arrays()
            self._digests = self._read_digests(group)
        except (KeyError, TypeError, ValueError, OSError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self.path}: the metadata is damaged ({error!r}); restore it from a copy") from error
        self.digest = ""  # known after a scan

    def _open(self) -> Any:
        import zarr

        if not (self.path / "zarr.json").is_file():
            raise StoreError(f"{self.path}: expected a store, found no zarr.json there; give the store")
        try:
            return zarr.open_group(str(self.path), mode="r", zarr_format=3)
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise StoreError(f"{self.path}/zarr.json: cannot be read ({error}); restore it from a copy") from error

    def _check_arrays(self) -> None:
        for array, tail in ((self._x, (self.features,)), (self._y, ())):
            grid = array.metadata.chunk_grid.chunk_shape
            if array.shape[0] < self.rows or array.shape[1:] != tail or grid != (self.chunk_rows, *tail):
                raise StoreError(
                    f"{self.path}/{array.path}: shape {array.shape} in chunks {grid} does not fit {self.rows:,} rows "
                    f"in chunks of {self.chunk_rows:,}; restore zarr.json from a copy"
                )
            codecs = {codec.to_dict()["name"] for codec in array.metadata.codecs}
            if codecs - _CODECS:
                unknown = ", ".join(map(str, codecs - _CODECS))
                raise StoreError(f"{self.path}/{array.path}: codec {unknown} is not one that stores use; it is not run")
        if str(self._x.dtype) != self.dtype or str(self._y.dtype) != "int32":
            raise StoreError(f"{self.path}: expected {self.dtype} and int32, found {self._x.dtype} and {self._y.dtype}")

    def _read_digests(self, group: Any) -> np.ndarray:
        """Digest of each chunk (c,) uint64: crc32c of its rows in the high half, of its labels in the low half."""
        digests = np.zeros(self.chunks, dtype=np.uint64)
        known = np.zeros(self.chunks, dtype=bool)
        for commit in self.commits:
            first, last = int(commit["first"]), int(commit["last"])
            digests[first:last] = group[f"blocks/{commit['group']}/digest"][: last - first]
            known[first:last] = True
        if not known.all():
            raise StoreError(f"{self.path}/blocks: chunk {int(np.argmin(known))} has no digest; restore it from a copy")
        return digests

    def scan(self, ask: Callable[[Chunk], T], *, threads: int | None = None) -> Generator[tuple[Chunk, T], None, None]:
        """``ask(chunk)`` for all chunks, in order, in threads; a bounded number of chunks is in memory at a time.

        At the end ``digest`` is the identity of the content, from the bytes themselves.
        Raises DamagedChunk: missing, truncated, altered; the place is named.
        """
        chunk_bytes = max(1, self.chunk_rows * self.features * np.dtype(self.dtype).itemsize)
        threads = max(1, min(threads or min(os.cpu_count() or 1, 8), _PENDING_BYTES // chunk_bytes))
        waiting: deque[Future[tuple[Chunk, T]]] = deque()
        crc_x = crc_y = 0
        with _one_blas_thread(), ThreadPoolExecutor(threads, thread_name_prefix="coremargin-verify") as pool:
            try:
                for index in range(self.chunks + threads):
                    if index < self.chunks:
                        waiting.append(pool.submit(lambda index: self._one(index, ask), index))
                    if index >= threads:
                        chunk, answer = waiting.popleft().result()
                        crc_x = crc32c.crc32c(_bytes(chunk.x), crc_x)
                        crc_y = crc32c.crc32c(_bytes(chunk.codes), crc_y)
                        yield chunk, answer
            finally:
                for future in waiting:
                    future.cancel()
        self.digest = self._identity(crc_x, crc_y)

    def _one(self, index: int, ask: Callable[[Chunk], T]) -> tuple[Chunk, T]:
        chunk = self._read(index)
        return chunk, ask(chunk)

    def _read(self, index: int) -> Chunk:
        start = index * self.chunk_rows
        stop = min(self.rows, start + self.chunk_rows)
        parts = []
        for array, key in ((self._x, (index, 0)), (self._y, (index,))):
            file = f"{array.path}/{array.metadata.encode_chunk_key(key)}"
            place = f"{self.path}/{file}: chunk {index} (rows {start:,} to {stop - 1:,})"
            if not (self.path / file).is_file():
                raise DamagedChunk(f"{place} is missing; restore it from a copy, or ingest the data again")
            try:
                parts.append(np.ascontiguousarray(array[start:stop]))
            except Exception as error:  # codecs raise what they like
                raise DamagedChunk(f"{place} cannot be read ({error}); restore it from a copy") from error
        x, codes = parts
        found = crc32c.crc32c(_bytes(x)) << 32 | crc32c.crc32c(_bytes(codes))
        expected = int(self._digests[index])
        if found != expected:
            what = "rows" if found >> 32 != expected >> 32 else "labels"
            raise DamagedChunk(
                f"{self.path}: chunk {index} (rows {start:,} to {stop - 1:,}): the {what} are not what was ingested: "
                f"expected digest {expected:016x}, got {found:016x}; restore the chunk from a copy"
            )
        if codes.max(initial=-1) >= len(self.classes):
            raise DamagedChunk(
                f"{self.path}: chunk {index} has label code {codes.max()}, there are {len(self.classes)}"
            )
        return Chunk(start, x, codes)

    def _identity(self, crc_x: int, crc_y: int) -> str:
        facts = {
            "format": "coremargin-store",
            "features": self.features,
            "dtype": self.dtype,
            "classes": list(self.classes[: int(self.commits[-1]["classes"])]),
            "rows": self.rows,
            "x": crc_x,
            "y": crc_y,
        }
        return "sha256:" + hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _bytes(values: np.ndarray) -> Any:
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8)  # a buffer without a copy


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
