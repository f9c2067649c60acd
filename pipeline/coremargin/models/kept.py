"""What a model keeps so that it can be made again for little when its store changes: ``retraining.npz`` beside it.

A cache, as the problem's checkpoint would have it. Nothing rests on it: without it a model is trained from scratch, and
``coremargin verify`` neither reads nor misses it. It is sealed with the model that it lies beside, so that damage, a
file of another model and a careless edit are found: by checksums, for every night reads it and writes another. Who
forges it, seal and all, makes a model whose claims ``coremargin verify`` refutes, for that reads all rows. It also says
which arrays it has, of which types and shapes, and by which version of this format: state of another version is as good
as none, and so is one with an array that is missing or shorter.

Rows that many nights in a row have no use for lie in a second file, ``near-rows.npz``, which the seal speaks of too. It
is read when a night needs them; where none does, the models of all these nights share one file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from coremargin.data.folder import write_arrays
from coremargin.data.lazy_arrays import LazyArrays, fingerprint
from coremargin.errors import DataError
from coremargin.formats.fleet_record import FILE as FLEET
from coremargin.formats.model_files import ARRAYS, NEAR_ROWS
from coremargin.formats.model_record import FILE as RECORD
from coremargin.formats.npz import read_arrays
from coremargin.formats.open_folder import open_file, opened, read_folder

FILE = "retraining.npz"
VERSION = 2  #: of what the kinds keep; another one is not read
_SEAL = "seal"
_FORM = "form"  #: the version, and type and shape of each other array, as JSON
#: What follows the name of arrays that lie in the second file.
_IN_NEAR_ROWS = f"@{NEAR_ROWS}"
_MOST_MEMBERS = 10_000
_PART = 1 << 20


def write_kept(folder: Path, kept: Mapping[str, np.ndarray | LazyArrays]) -> None:
    """Write what is kept beside the files of a model, which are there already; arrays of one name may be filed."""
    arrays = dict[str, np.ndarray]()
    for name, values in kept.items():
        if isinstance(values, LazyArrays):
            arrays[name + _IN_NEAR_ROWS] = np.frombuffer(values.put(folder / NEAR_ROWS), np.uint8)
        else:
            arrays[name] = values
    arrays[_FORM] = np.frombuffer(_form(arrays), np.uint8)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        seal = _seal(_digest(handle, folder), arrays)
    finally:
        os.close(handle)
    write_arrays(folder / FILE, {**arrays, _SEAL: seal})


def read_kept(path: Path) -> dict[str, Any] | None:
    """What the model at ``path`` keeps, by name arrays or what is filed; None where it keeps nothing.

    Raises DataError for a file that is damaged, was not written with this model, or by another version.
    """
    return read_folder(path, lambda folder: _read(folder, path))


def kept_bytes(path: Path) -> int | None:
    """The size of these files; None where there is none."""
    try:
        sizes = [(path / FILE).stat().st_size]
    except OSError:
        return None
    with suppress(OSError):
        sizes.append((path / NEAR_ROWS).stat().st_size)
    return sum(sizes)


def model_digest(path: Path) -> str:
    """The identity of a model, "sha256:...": that of its record and arrays. Raises DataError."""
    return f"sha256:{read_folder(path, lambda folder: _digest(folder, path)).hex()}"


def _read(folder: int, path: Path) -> dict[str, Any] | None:
    try:
        with opened(folder, path, FILE) as file:
            arrays = read_arrays(file, f"{path}/{FILE}", _MOST_MEMBERS)
    except FileNotFoundError:
        return None
    seal = arrays.pop(_SEAL, None)
    if seal is None or seal.tobytes() != _seal(_digest(folder, path), arrays).tobytes():
        raise DataError(
            f"{path}/{FILE}: expected what was written with this very model, found something else; remove the file, "
            "which costs reading the store once"
        )
    form = arrays.pop(_FORM, None)
    if form is None or form.tobytes() != _form(arrays):
        raise DataError(
            f"{path}/{FILE}: was written by another version, and holds other arrays than this one goes on from"
        )
    kept: dict[str, Any] = {}
    for name, values in arrays.items():
        filed = name.endswith(_IN_NEAR_ROWS)
        kept[name.removesuffix(_IN_NEAR_ROWS)] = _near_rows(folder, path, values.tobytes()) if filed else values
    return kept


def _form(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The version, and what arrays there are."""
    found = {name: [np.asarray(values).dtype.str, np.shape(values)] for name, values in sorted(arrays.items())}
    return json.dumps([VERSION, found]).encode()


def _near_rows(folder: int, path: Path, mark: bytes) -> LazyArrays:
    """The second file, which stays open. Raises DataError."""
    return LazyArrays.at(open_file(folder, path, NEAR_ROWS), path / NEAR_ROWS, mark)


def _digest(folder: int, path: Path) -> bytes:
    """Of the records and the arrays in the open folder of a model."""
    state = hashlib.sha256()
    for name in (RECORD, FLEET, ARRAYS):
        own = hashlib.sha256(name.encode())
        with suppress(FileNotFoundError), opened(folder, path, name) as file:
            while part := file.read(_PART):
                own.update(part)
        state.update(own.digest())
    return state.digest()


def _seal(model: bytes, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.frombuffer(fingerprint(arrays, model), np.uint8)
