"""The two arrays of a store, as their ``zarr.json`` describes them, and where their chunks lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.codecs import Encoding, parsed
from coremargin.data.format import Facts, chunks_of
from coremargin.data.plain import CRC_BYTES, array_metadata, read_json
from coremargin.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class ArrayLayout:
    """One array: chunks of shape (chunk_rows, *tail); ``encoding`` None needs the general reader."""

    store: Path
    name: str  #: "X" or "y"
    chunk_rows: int
    tail: tuple[int, ...]
    dtype: np.dtype[Any]
    encoding: Encoding | None
    separator: str = "."

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, decoded."""
        return self.dtype.itemsize * int(np.prod(self.tail, dtype=np.int64))

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one whole chunk, decoded."""
        return self.chunk_rows * self.row_bytes

    @property
    def file_bytes(self) -> int | None:
        """Bytes of every chunk's file, when that is known beforehand."""
        if self.encoding is None or not self.encoding.raw:
            return None
        return self.chunk_bytes + (CRC_BYTES if self.encoding.checksum else 0)

    def key(self, chunk: int) -> str:
        """The chunk's file, relative to the store."""
        zeros = f"{self.separator}0" * len(self.tail)
        return f"{self.name}/c{self.separator}{chunk}{zeros}"

    def file(self, chunk: int) -> Path:
        """The chunk's file."""
        return self.store / self.key(chunk)

    def metadata(self, rows: int) -> dict[str, Any]:
        """The ``zarr.json`` of the array at a number of rows; only for encodings that a writer makes."""
        encoding = self.encoding or Encoding()
        names = ("row", "feature")[: 1 + len(self.tail)]
        return array_metadata(
            (rows, *self.tail),
            (self.chunk_rows, *self.tail),
            self.dtype,
            codecs=encoding.codecs(self.dtype.itemsize),
            fill=float("nan") if self.tail else -1,
            names=names,
        )


def layouts(path: Path, facts: Facts, encoding: Encoding) -> tuple[ArrayLayout, ArrayLayout]:
    """The arrays X and y of a store that is being written."""
    y = Encoding("none") if encoding.raw else encoding
    return (
        ArrayLayout(path, "X", facts.chunk_rows, (facts.features,), np.dtype(facts.dtype), encoding),
        ArrayLayout(path, "y", facts.chunk_rows, (), np.dtype("int32"), y),
    )


def read_layouts(path: Path, facts: Facts) -> tuple[ArrayLayout, ArrayLayout]:
    """The arrays X and y of the store at ``path``; StoreError when they do not fit the facts or each other."""
    return (
        _read(path, "X", facts, (facts.features,), np.dtype(facts.dtype)),
        _read(path, "y", facts, (), np.dtype("int32")),
    )


def _read(path: Path, name: str, facts: Facts, tail: tuple[int, ...], dtype: np.dtype[Any]) -> ArrayLayout:
    place = f"{path}/{name}/zarr.json"
    try:
        metadata = read_json(path / name / "zarr.json")
        shape = tuple(metadata["shape"])
        grid = tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"])
        keys = metadata["chunk_key_encoding"]
        separator = keys.get("configuration", {}).get("separator", "/")
        codecs, found = metadata["codecs"], metadata["data_type"]
        kinds = (
            metadata["node_type"],
            metadata["chunk_grid"]["name"],
            keys["name"],
            metadata.get("storage_transformers"),
        )
    except FileNotFoundError:
        raise StoreError(f"{place}: missing; restore the file from a copy") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{place}: broken metadata ({error!r}); restore the file from a copy") from error
    if kinds[:3] != ("array", "regular", "default") or kinds[3] or separator not in (".", "/"):
        raise StoreError(f"{place}: expected a regular array with default chunk keys, got {kinds} and {separator!r}")
    if found != dtype.name:
        raise StoreError(f"{place}: expected {dtype.name}, got {found!r}; restore the file from a copy")
    if len(shape) != 1 + len(tail) or shape[1:] != tail or not _at_least(shape[0], facts.rows):
        raise StoreError(
            f"{place}: expected shape {(facts.rows, *tail)}, got {shape}; X and y must have the store's rows"
        )
    if grid != (facts.chunk_rows, *tail):
        raise StoreError(
            f"{place}: expected chunks of {facts.chunk_rows} whole rows, shape {(facts.chunk_rows, *tail)}, "
            f"got {grid}; write the store again with `coremargin ingest`"
        )
    return ArrayLayout(path, name, facts.chunk_rows, tail, dtype, parsed(codecs, place), separator)


def _at_least(value: Any, rows: int) -> bool:
    return isinstance(value, int) and value >= rows and chunks_of(rows, 1) >= 0
