"""Small stores for the tests of the data room, and raw ways to look at them that bypass what is tested."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from coremargin.data.checksum import crc32c
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coremargin.data.source import Source


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A new folder in memory where the system has such a place: for tests of many small writes, each of them fsynced.

    A SIGKILL loses nothing that was handed to the kernel, so that tests of killed writers may live there, too.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def unnamed_files() -> int:
    """How many files without a name this process has open: what others open is none of these tests' business."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, by another thread
            found += str(link.readlink()).endswith("(deleted)")
    return found


def write_store(path: Path, X: np.ndarray, y: Any, *, chunk_rows: int = 64, **options: Any) -> Store:
    """A store with chunks of exactly ``chunk_rows`` rows, in one commit."""
    dtype = "float64" if X.dtype == np.float64 else "float32"
    chunk_bytes = chunk_rows * X.shape[1] * np.dtype(dtype).itemsize
    with StoreWriter.create(path, features=X.shape[1], dtype=dtype, chunk_bytes=chunk_bytes, **options) as writer:
        writer.write(X, y, origin="test")
    return Store.open(path)


def all_rows(source: Source) -> tuple[np.ndarray, np.ndarray]:
    """Copies of all rows and codes, chunk after chunk."""
    parts = [tuple(np.array(part) for part in source.read(chunk)) for chunk in range(source.chunks)]
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def edit_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file in place, as a careless hand would."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def edit_attributes(store: Path, **changes: Any) -> None:
    """Change root attributes of a store."""
    edit_json(store / "zarr.json", lambda root: root["attributes"].update(changes))


def edit_log(store: Path, number: int, **changes: Any) -> None:
    """Change what the log says of a commit, and what the root says of the log."""
    lines = [json.loads(line) for line in (store / "log.jsonl").read_text().splitlines()]
    lines[number]["commit"].update(changes)
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (store / "log.jsonl").write_bytes(data)
    edit_attributes(store, log={"commits": len(lines), "nbytes": len(data), "crc32c": crc32c(data)})


def rewrite_array(store: Path, name: str, **options: Any) -> None:
    """Store an array again with other codecs, through zarr-python."""
    group = zarr.open_group(store, mode="r+")
    array = group[name]
    assert isinstance(array, zarr.Array)
    values, chunks = array[:], array.chunks
    del group[name]
    group.create_array(
        name, shape=values.shape, chunks=chunks, dtype=values.dtype, fill_value=array.fill_value, **options
    )
    new = group[name]
    assert isinstance(new, zarr.Array)
    new[:] = values


def one_bit_flipped(data: bytes) -> bytes:
    """A fault of a disk or a cable, a third of the way into the file."""
    middle = len(data) // 3
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


#: What may become of a file, None: it is gone.
FAULTS: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "cut in half": lambda data: data[: len(data) // 2],
    "cut by one byte": lambda data: data[:-1],
    "empty": lambda data: b"",
    "one bit flipped": one_bit_flipped,
    "all zero": lambda data: bytes(len(data)),
    "extra bytes": lambda data: data + b"extra",
}
