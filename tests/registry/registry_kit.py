"""A store that grows, a model of each of its commits, and what must hold of a registry at any moment."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.formats.chained import hash_of
from coremargin.formats.object_storage import ObjectReader
from coremargin.formats.versions import read_head, read_log

if TYPE_CHECKING:
    from coremargin.formats.location import Location
    from coremargin.registry.registry import Registry

PLANE = np.array([0.6, 0.8, 0.0])


def rows(count: int, seed: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows pushed apart along a plane, moved by ``shift`` along the last feature."""
    X = np.random.default_rng(seed).standard_normal((count, 3))
    y = np.where(X @ PLANE >= 0, 1, -1)
    return (X + 0.5 * y[:, None] * PLANE + [0.0, 0.0, shift]).astype(np.float32), y


def append(store: Path, count: int, seed: int, shift: float = 0.0) -> None:
    """So many more rows, in a store that is made where none is."""
    made = StoreWriter.append(store) if store.exists() else StoreWriter.create(store, features=3, chunk_bytes=50 * 12)
    with made as writer:
        X, y = rows(count, seed, shift)
        writer.write(X, y, origin="test")


def grown(folder: Path, models: int) -> tuple[Path, list[Path]]:
    """The store, and a model of each of so many commits."""
    store, found = folder / "rows.zarr", list[Path]()
    for number in range(models):
        append(store, 100, number)
        out = folder / f"{number}.model"
        if number:
            coremargin.retrain(found[-1], store, out=out)
        else:
            coremargin.train(store, out=out)
        found.append(out)
    return store, found


def check_whole(registry: Registry) -> None:
    """Every version is there with all its files, as its record and the log have it; every name is a version's."""
    state = registry.state()
    read_log(registry.storage, hash_of(read_head(registry.storage)[1]))
    for number in state.numbers:
        files = version_files(registry.folder(number))
        files.pop("version.json")
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        assert hashes == registry.record(number).files
    for name, alias in state.aliases.items():
        assert alias.version in state.numbers, name
        options = getattr(registry.path, "options", None)
        coremargin.load(f"{registry.path}@{name}", storage_options=options)


def version_files(folder: Path | Location) -> dict[str, bytes]:
    """All files of a version, or its objects."""
    if isinstance(folder, Path):
        return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    reader = ObjectReader(folder)
    return {key: reader.open(key).read() for key, _ in reader.list_all()}
