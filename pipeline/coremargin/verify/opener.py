"""Open stores and models for ``verify``, without code of those who wrote them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coremargin.formats.local_path import local_path
from coremargin.formats.location import is_remote, location
from coremargin.formats.object_storage import ObjectReader, read_model_objects
from coremargin.formats.open_folder import Folder, read_folder
from coremargin.formats.versions import resolve_model

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage

T = TypeVar("T")


def open_store(store: str | os.PathLike[str] | ReadableStorage) -> ReadableStorage:
    """The objects of a store, by its path or address. Raises UsageError for an address that cannot be opened."""
    if not isinstance(store, str | os.PathLike):
        return store
    return ObjectReader(location(store)) if is_remote(store) else Folder(Path(os.path.abspath(local_path(store))))


def read_model(model: str | os.PathLike[str] | ReadableStorage, read: Callable[[ReadableStorage], T]) -> T:
    """``read`` of the objects of a model, by its path or its name in a registry. Raises DataError, UsageError."""
    if not isinstance(model, str | os.PathLike):
        return read(model)
    if is_remote(model):
        return read_model_objects(ObjectReader(location(resolve_model(location(model)))), read)
    return read_folder(Path(resolve_model(Path(os.path.abspath(local_path(model))))), read)


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
    if isinstance(store, Folder):
        return str(store.path / key)
    if is_fetched(store):
        from zarr.core.buffer.cpu import Buffer
        from zarr.storage import MemoryStore, StorePath

        return StorePath(MemoryStore({name: Buffer.from_bytes(data) for name, data in objects.items()}), key)
    return store.zarr_node(key)  # type: ignore[attr-defined]  # of a storage that the caller opened
