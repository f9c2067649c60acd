"""How ``verify`` opens a store: by openers of its own, as it shares no code with what wrote it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from coremargin.formats.local_path import local_path
from coremargin.formats.plain_file import plain

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage


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


def open_store(store: str | os.PathLike[str] | ReadableStorage) -> ReadableStorage:
    """The objects of a store, by its path. Raises UsageError for an address that is none of this machine."""
    return _Folder(Path(os.path.abspath(local_path(store)))) if isinstance(store, str | os.PathLike) else store


def zarr_node(store: ReadableStorage, key: str) -> Any:
    """What zarr-python opens as the array of this key."""
    if isinstance(store, _Folder):
        return str(store.path / key)
    return store.zarr_node(key)  # type: ignore[attr-defined]  # of a storage that the caller opened
