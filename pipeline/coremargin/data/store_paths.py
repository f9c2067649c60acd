"""Whether a path is that of a store, or of files that are to become one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from coremargin.data.owned import STORE
from coremargin.data.sources.paths import expand, is_path, is_there, named_as_file
from coremargin.errors import UsageError
from coremargin.formats.local_path import local_path
from coremargin.formats.location import Location, is_remote


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


def unfinished_mark(store: Path) -> Path:
    """The file that says that a store was made to train one model, and there is none yet: it may be replaced."""
    return store.with_name(f".{store.name}.unfinished")


def has_model(store: Path) -> None:
    """A model was made of a store: from now on it may be needed."""
    with suppress(OSError):
        unfinished_mark(store).unlink(missing_ok=True)


def store_beside(out: Path | Location) -> Path:
    """Where the rows of files lie from which a model is trained: rows.zarr next to rows.model.

    Raises UsageError for the address of a model.
    """
    if is_remote(out):
        raise UsageError(
            f"{out}: a model at an address is trained on a store, found files; `coremargin ingest` makes a store of "
            "them"
        )
    out = Path(out)
    return out.with_name(f"{out.name.removesuffix('.model')}.zarr")
