"""Open stores and models for ``verify``, without code of those who wrote them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from coremargin.formats.local_path import local_path
from coremargin.formats.location import is_remote, location
from coremargin.formats.object_storage import ObjectReader, read_model_objects
from coremargin.formats.open_folder import read_folder
from coremargin.formats.plain_file import plain
from coremargin.formats.versions import resolve_model

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage

T = TypeVar("T")


class _Folder:
    """Files below a folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def open(self, key: str) -> BinaryIO:
        """A plain file, for reading."""
        return cast("BinaryIO", open(self.path / key, "rb", opener=plain))

    def exists(self, key: str = "") -> bool:
        """Whether there is a file or folder."""
        return (self.path / key).exists()

    def preload(self, keys: Iterable[str]) -> None:
        """Files are read as they are opened."""


def open_store(store: str | os.PathLike[str] | ReadableStorage) -> ReadableStorage:
    """The objects of a store, by its path or address. Raises UsageError for an address that cannot be opened."""
    if not isinstance(store, str | os.PathLike):
        return store
    return ObjectReader(location(store)) if is_remote(store) else _Folder(Path(os.path.abspath(local_path(store))))


def read_model(model: str | os.PathLike[str] | ReadableStorage, read: Callable[[ReadableStorage], T]) -> T:
    """``read`` of the objects of a model, by its path or its name in a registry. Raises DataError, UsageError."""
    if not isinstance(model, str | os.PathLike):
        return read(model)
    if is_remote(model):
        return read_model_objects(ObjectReader(location(model)), read)
    return read_folder(resolve_model(Path(os.path.abspath(local_path(model)))), read)


def is_fetched(store: ReadableStorage) -> bool:
    """Whether objects come from a service, by requests that take long, and may be damaged on their way."""
    return isinstance(store, ObjectReader)


def zarr_array(node: Any, metadata: Any) -> Any:
    """The array of a node by these metadata instead of its own."""
    import zarr
    from zarr.storage import LocalStore, StorePath

    place = StorePath(LocalStore(node, read_only=True)) if isinstance(node, str) else node
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=place))


def zarr_node(store: ReadableStorage, key: str, objects: Mapping[str, bytes]) -> Any:
    """The node that zarr-python opens as the array of this key; objects: those of it that were fetched, by key."""
    if isinstance(store, _Folder):
        return str(store.path / key)
    if is_fetched(store):
        from zarr.core.buffer.cpu import Buffer
        from zarr.storage import MemoryStore, StorePath

        return StorePath(MemoryStore({name: Buffer.from_bytes(data) for name, data in objects.items()}), key)
    return store.zarr_node(key)  # type: ignore[attr-defined]  # of a storage that the caller opened
