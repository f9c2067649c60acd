"""The arrays of a store, as their ``zarr.json`` describes them, and where their chunks lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coremargin.data.codecs import Encoding, encoding_of
from coremargin.data.plain import array_metadata, group_metadata
from coremargin.data.sizes import LABEL_DTYPE, WEIGHT_DTYPE
from coremargin.data.sparse import INDEX_DTYPE, INDPTR_DTYPE
from coremargin.errors import StoreError
from coremargin.formats.raw_array import CRC_BYTES
from coremargin.formats.row_types import BFLOAT16_BITS, BFLOAT16_NAN, stored_dtype, zarr_type
from coremargin.formats.store_record import GROUP_FILES
from coremargin.formats.zarr_metadata import read_array_metadata, read_csr_group

if TYPE_CHECKING:
    from coremargin.data.format import Facts
    from coremargin.data.storage import Storage

#: Names of the dimensions of arrays that have no entry per row.
_DIMENSIONS = {"X/data": ("value",), "X/indices": ("value",), "groups": ("group",), "group_ids": ("byte",)}


class ObjectPart(NamedTuple):
    """Bytes of an object that are read: so many at most, from ``start``."""

    storage: Storage
    key: str
    start: int
    nbytes: int


@dataclass(frozen=True)
class ArrayLayout:
    """One array: chunks of shape (chunk_rows, *tail)."""

    storage: Storage = field(repr=False)
    name: str  #: "X", or "X/data" and so on of sparse rows; "y", "weights"
    chunk_rows: int
    tail: tuple[int, ...]
    dtype: np.dtype[Any]
    encoding: Encoding
    separator: str = "."
    moved: Mapping[int, str] = field(default_factory=dict)  #: folders of chunks that a commit changed, by number
    whole_array: bool = True  #: other chunks are there, too

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
        """Bytes of every chunk's object, when that is known beforehand."""
        if not self.encoding.raw:
            return None
        return self.chunk_bytes + (CRC_BYTES if self.encoding.checksum else 0)

    @property
    def most_encoded_bytes(self) -> int:
        """Bytes that a chunk's object has at most, however it is encoded."""
        return self.chunk_bytes + self.chunk_bytes // 8 + 65536

    def key(self, chunk: int) -> str:
        """The chunk's object."""
        zeros = f"{self.separator}0" * len(self.tail)
        return f"{self.moved.get(chunk, self.name)}/c{self.separator}{chunk}{zeros}"

    def has(self, chunk: int) -> bool:
        """Whether the array has this chunk."""
        return self.whole_array or chunk in self.moved

    def whole(self, chunk: int) -> ObjectPart:
        """All of the chunk's object; compressed, it is hardly longer than its bytes decoded."""
        return ObjectPart(self.storage, self.key(chunk), 0, self.file_bytes or self.chunk_bytes)

    def metadata(self, length: int) -> dict[str, Any]:
        """The ``zarr.json`` of the array at a length."""
        return array_metadata(
            (length, *self.tail),
            (self.chunk_rows, *self.tail),
            self.dtype,
            codecs=self.encoding.codecs(self.dtype.itemsize),
            fill=self.fill,
            names=_DIMENSIONS.get(self.name, ("row", "feature")[: 1 + len(self.tail)]),
        )

    @property
    def fill(self) -> float | int:
        """What pads the last chunk: of floats and labels, no row has it."""
        if self.dtype.kind == "f":
            return float("nan")
        return BFLOAT16_NAN if self.dtype == BFLOAT16_BITS else 0 if self.dtype.kind == "u" else -1

    def padded(self, values: np.ndarray) -> np.ndarray:
        """A whole chunk that begins with these values; Zarr stores the last chunk at full size."""
        if len(values) == self.chunk_rows:
            return np.ascontiguousarray(values, dtype=self.dtype)
        whole = np.full((self.chunk_rows, *self.tail), self.fill, dtype=self.dtype)
        whole[: len(values)] = values
        return whole


def layouts(storage: Storage, facts: Facts, encoding: Encoding) -> dict[str, ArrayLayout]:
    """The arrays of a store that is being written, by name."""
    plain = Encoding("none") if encoding.raw else encoding
    dtype = stored_dtype(facts.dtype)
    if facts.sparse:
        found = [
            ArrayLayout(storage, "X/data", facts.file_entries, (), dtype, encoding),
            ArrayLayout(storage, "X/indices", facts.file_entries, (), INDEX_DTYPE, encoding),
            ArrayLayout(storage, "X/indptr", facts.chunk_rows, (), INDPTR_DTYPE, plain),
        ]
    else:
        found = [ArrayLayout(storage, "X", facts.chunk_rows, (facts.features,), dtype, encoding)]
    labels = ArrayLayout(storage, "y", facts.chunk_rows, (), LABEL_DTYPE, plain)
    found += [labels, weights_like(labels)] if facts.weighted else [labels]
    if facts.grouped:
        for (name, entries), kind in zip(GROUP_FILES.items(), ("<i8", "u1"), strict=True):
            found.append(ArrayLayout(storage, name, entries, (), np.dtype(kind), plain))
    return {layout.name: layout for layout in found}


def weights_like(labels: ArrayLayout) -> ArrayLayout:
    """Where weights lie of rows that came with some; those of others lie in changes alone."""
    return replace(labels, name="weights", dtype=WEIGHT_DTYPE, moved={})


def lengths(facts: Facts, rows: int, nonzeros: int, groups: Sequence[int] = (0, 0)) -> dict[str, int]:
    """How long each array is at so many rows, by its name. groups: how many, and bytes of their ids."""
    X = {"X/data": nonzeros, "X/indices": nonzeros, "X/indptr": rows + 1} if facts.sparse else {"X": rows}
    found = X | {"y": rows} | ({"weights": rows} if facts.weighted else {})
    return found | ({"groups": groups[0] + 1, "group_ids": groups[1]} if facts.grouped else {})


def sparse_group(facts: Facts, rows: int) -> dict[str, Any]:
    """The ``zarr.json`` of X when rows are sparse, as anndata writes and reads it."""
    shape = [rows, facts.features]
    return group_metadata({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape})


def read_layouts(storage: Storage, facts: Facts) -> dict[str, ArrayLayout]:
    """The arrays of a store; StoreError when they do not fit the facts or each other."""
    names = [*layouts(storage, facts, Encoding()), *["X"] * facts.sparse]
    storage.preload(f"{name}/zarr.json" for name in names)
    if facts.sparse:
        read_csr_group(storage, "X", facts.rows, facts.features)
    expected = layouts(storage, facts, Encoding())
    least = lengths(facts, facts.rows, 0)  # the statistics know how many values are stored
    return {name: _read(layout, least[name]) for name, layout in expected.items()}


def own_encoding(storage: Storage, facts: Facts) -> Encoding:
    """How chunks are stored, of a store whose arrays are as this writer makes them. Raises StoreError."""
    found = read_layouts(storage, facts)
    encoding = found["X/data" if facts.sparse else "X"].encoding
    if layouts(storage, facts, encoding) != found:
        text = "expected codecs and chunk names as this writer makes them, found others; ingest into a new store"
        raise StoreError(f"{storage.name}: {text}")
    return encoding


def check_changed(layout: ArrayLayout, rows: int) -> None:
    """Raises StoreError unless arrays of labels or weights that commits changed are stored as others are.

    rows: up to so many.
    """
    last = dict[str, int]()
    for chunk, name in layout.moved.items():
        last[name] = max(chunk, last.get(name, 0))
    for name, chunk in last.items():
        least = min(rows, (chunk + 1) * layout.chunk_rows)
        found = _read(replace(layout, name=name), least)
        if (found.encoding, found.separator) != (layout.encoding, layout.separator):
            place = f"{layout.storage.name}/{name}/zarr.json"
            raise StoreError(
                f"{place}: expected codecs and chunk names as those of {layout.name}, found others; restore it from a "
                "copy"
            )


def _read(expected: ArrayLayout, rows: int) -> ArrayLayout:
    storage, name, tail = expected.storage, expected.name, expected.tail
    dtype, step = expected.dtype, expected.chunk_rows
    place, metadata = f"{storage.name}/{name}/zarr.json", read_array_metadata(storage, name)
    shape, grid = tuple(metadata.shape), metadata.chunks
    if metadata.data_type != zarr_type(dtype):
        raise StoreError(
            f"{place}: expected {zarr_type(dtype)}, got {metadata.data_type!r}; restore the file from a copy"
        )
    if shape[1:] != tail or shape[0] < rows:
        raise StoreError(
            f"{place}: expected shape {(rows, *tail)}, got {shape}; all arrays must have what the store's rows need"
        )
    if grid != (step, *tail):
        what = "values" if name in _DIMENSIONS else "whole rows"
        raise StoreError(
            f"{place}: expected chunks of {step} {what}, shape {(step, *tail)}, "
            f"got {grid}; write the store again with `coremargin ingest`"
        )
    return ArrayLayout(storage, name, step, tail, dtype, encoding_of(metadata), metadata.separator)
