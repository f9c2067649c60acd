"""Whether a path is that of a store, or of files that are to become one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.local_storage import LocalStorage
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.owned import STORE
from coremargin.data.sources.paths import expand, is_path, is_there, named_as_file
from coremargin.errors import CoremarginError
from coremargin.formats.local_path import local_path
from coremargin.formats.location import Location, is_remote, location

if TYPE_CHECKING:
    from coremargin.data.storage import Storage


def is_store(source: Any) -> bool:
    """Whether a path or an address is that of a store, or of nothing: not that of files, nor a pattern of such."""
    if not is_path(source):
        return False
    if is_remote(source):
        return _is_store_address(source)
    path = local_path(source)
    if not is_there(path):
        return not any(mark in path.name for mark in "*?[") and path.suffix in ("", ".zarr")
    return path.is_dir() and (STORE.is_at(path) or (path / "zarr.json").exists())


def _is_store_address(address: Any) -> bool:
    """By its name, where that says it; else by what is there."""
    if named_as_file(address):
        return False
    if os.fsdecode(address).rstrip("/").endswith(".zarr"):
        return True
    found = expand(address)
    return len(found) == 1 and ((found[0] / "zarr.json").exists() or not found[0].exists())


def mark_unfinished(store: Path | Location) -> None:
    """Note that a store is made to train one model, and there is none yet: it may be replaced. Raises OutputError."""
    folder, name = _mark(store)
    folder.write(name, [b""])


def is_unfinished(store: Path | Location) -> bool:
    """Whether no model was trained on a store that was made to train one."""
    folder, name = _mark(store)
    return folder.exists(name)


def has_model(store: Path | Location) -> None:
    """A model was made of a store: from now on it may be needed."""
    with suppress(OSError, CoremarginError):
        folder, name = _mark(store)
        if folder.exists(name):
            folder.remove(name, lambda key, is_folder: not is_folder)


def _mark(store: Path | Location) -> tuple[Storage, str]:
    """An empty object next to the store, as the store itself is replaced as a whole."""
    if not is_remote(store):
        path = Path(os.path.abspath(store))
        return LocalStorage(path.parent), f".{path.name}.unfinished"
    folder, _, name = location(store).rpartition("/")
    return ObjectStorage.of_generation(Location(folder, location(store).options), None), f".{name}.unfinished"


def store_beside(out: Path | Location) -> Path | Location:
    """Where the rows of files lie from which a model is trained: rows.zarr next to rows.model."""
    if is_remote(out):
        return Location(f"{str(out).removesuffix('.model')}.zarr", location(out).options)
    out = Path(out)
    return out.with_name(f"{out.name.removesuffix('.model')}.zarr")
