"""``zarr.json`` of groups and arrays, as Zarr v3 has it and stores use it.

Only the codecs that stores are written with are ever run: metadata of an unknown store cannot name code to import, nor
codecs within codecs whose sizes are not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from msgspec import Meta, Struct

from coremargin.errors import StoreError
from coremargin.formats.row_types import stored_dtype
from coremargin.formats.storage import MISSING, read_object_bytes, rereading_refused
from coremargin.formats.strict_json import cut, read_object, typed

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage

LARGEST = 64 << 20  #: bytes of metadata; a store of many commits lists them all
COMPRESSIONS = ("none", "lz4", "zstd")
_CODECS = ("bytes", "blosc", "crc32c")  # in this order

Size = Annotated[int, Meta(ge=0, le=1 << 53)]
Step = Annotated[int, Meta(ge=1, le=1 << 53)]
Kind = Literal[
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"
]


class _Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Endian(_Strict, frozen=True, kw_only=True):
    """Which byte comes first."""

    endian: Literal["little"]


class Bytes(_Strict, frozen=True, kw_only=True, tag_field="name", tag="bytes"):
    """Values as they are."""

    configuration: Endian


class Crc32c(_Strict, frozen=True, kw_only=True, tag_field="name", tag="crc32c"):
    """A checksum behind them."""

    configuration: dict[str, str] = {}


class _BloscConfiguration(_Strict, frozen=True, kw_only=True):
    cname: Literal["lz4", "zstd"]
    clevel: Annotated[int, Meta(ge=0, le=9)]
    shuffle: Literal["noshuffle", "shuffle", "bitshuffle"]
    typesize: Annotated[int, Meta(ge=1, le=255)]
    blocksize: Annotated[int, Meta(ge=0, le=1 << 31)]


class Blosc(_Strict, frozen=True, kw_only=True, tag_field="name", tag="blosc"):
    """Compressed."""

    configuration: _BloscConfiguration


Codec: TypeAlias = Bytes | Crc32c | Blosc
_CHAINS = ([Bytes], [Bytes, Crc32c], [Bytes, Blosc], [Bytes, Blosc, Crc32c])


class _Grid(_Strict, frozen=True, kw_only=True):
    chunk_shape: Annotated[list[Step], Meta(max_length=8)]


class _ChunkGrid(_Strict, frozen=True, kw_only=True):
    name: Literal["regular"]
    configuration: _Grid


class _Separator(_Strict, frozen=True, kw_only=True):
    separator: Literal[".", "/"] = "/"


class _KeyEncoding(_Strict, frozen=True, kw_only=True):
    name: Literal["default"]
    configuration: _Separator = _Separator()


class ArrayMetadata(_Strict, frozen=True, kw_only=True):
    """``zarr.json`` of an array."""

    zarr_format: Literal[3]
    node_type: Literal["array"]
    shape: Annotated[list[Size], Meta(min_length=1, max_length=8)]
    data_type: Kind
    chunk_grid: _ChunkGrid
    chunk_key_encoding: _KeyEncoding
    fill_value: int | float | Literal["NaN", "Infinity", "-Infinity"]
    codecs: Annotated[list[Codec], Meta(min_length=1, max_length=8)]
    attributes: dict[str, Any] = {}
    dimension_names: list[str | None] | None = None
    storage_transformers: Annotated[list[Any], Meta(max_length=0)] = []

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        if len(self.chunks) != len(self.shape):
            raise ValueError(f"chunks of shape {self.chunks} do not fit an array of shape {tuple(self.shape)}")
        if [type(codec) for codec in self.codecs] not in _CHAINS:
            raise ValueError("expected the codecs bytes, then blosc or not, then crc32c or not")
        kind, fill = stored_dtype(self.data_type), self.fill_value
        floats = kind.kind == "f" or self.data_type == "bfloat16"
        if not floats and not (type(fill) is int and np.iinfo(kind).min <= fill <= np.iinfo(kind).max):
            raise ValueError(f"the fill value {fill!r} is no {self.data_type}")

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a chunk."""
        return tuple(self.chunk_grid.configuration.chunk_shape)

    @property
    def separator(self) -> str:
        """What stands between the numbers of a chunk's name."""
        return self.chunk_key_encoding.configuration.separator

    def key(self, chunk: int) -> str:
        """The key of a chunk of whole rows, below that of the array."""
        return self.separator.join(["c", str(chunk), *("0" for _ in self.shape[1:])])


class GroupMetadata(_Strict, frozen=True, kw_only=True):
    """``zarr.json`` of a group. Nothing is consolidated: that would hide what was appended since."""

    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: dict[str, Any] = {}
    consolidated_metadata: None = None


class _Csr(_Strict, frozen=True, kw_only=True, rename={"kind": "encoding-type", "version": "encoding-version"}):
    kind: Literal["csr_matrix"]
    version: Literal["0.1.0"]
    shape: Annotated[list[Size], Meta(min_length=2, max_length=2)]


@rereading_refused
def read_group(storage: ReadableStorage, group: str = "") -> GroupMetadata:
    """group: its key, "" for the root. Raises StoreError; ``MISSING`` pass."""
    content, place = _read(storage, group)
    return typed(GroupMetadata, content, place, error=StoreError)


@rereading_refused
def read_csr_group(storage: ReadableStorage, group: str, rows: int, features: int) -> None:
    """Check the group of sparse rows, a matrix in anndata's encoding. Raises StoreError."""
    place = f"{storage.name}/{group}/zarr.json"
    try:
        attributes = read_group(storage, group).attributes
    except MISSING:
        raise StoreError(f"{place}: missing; restore the file from a copy") from None
    matrix: _Csr = typed(_Csr, attributes, place, error=StoreError)
    if matrix.shape[0] < rows or matrix.shape[1:] != [features]:  # what was written after the last commit may be there
        raise StoreError(f"{place}: expected a matrix of {rows} x {features}, found {matrix.shape}; restore it")


@rereading_refused
def read_array_metadata(storage: ReadableStorage, array: str) -> ArrayMetadata:
    """Raises StoreError for an array that a store cannot have."""
    try:
        content, place = _read(storage, array)
    except MISSING:
        raise StoreError(f"{storage.name}/{array}/zarr.json: missing; restore the file from a copy") from None
    _allowed(content.get("codecs"), place)
    return typed(ArrayMetadata, content, place, error=StoreError)


def _read(storage: ReadableStorage, node: str) -> tuple[dict[str, Any], str]:
    """The content of a node's ``zarr.json``, and what messages call it."""
    key = f"{node}/zarr.json" if node else "zarr.json"
    data, place = read_object_bytes(storage, key, LARGEST, error=StoreError), f"{storage.name}/{key}"
    return read_object(data, place, largest=LARGEST, error=StoreError), place


def _allowed(codecs: Any, place: str) -> None:
    """Raises StoreError for a codec that is not on the allow-list."""
    for codec in codecs if isinstance(codecs, list) else []:
        name = codec.get("name") if isinstance(codec, dict) else None
        if name not in _CODECS:
            raise StoreError(
                f"{place}: codec {cut(repr(name))} is not allowed, and is not run; expected {', '.join(_CODECS)}; "
                f"write the store again with one of the compressions {', '.join(COMPRESSIONS)}"
            )
