"""The warm-start state of a model: ``retraining.npz`` in its folder, from which a retraining starts.

It is a cache, with the arrays of the problem's checkpoint. No claim depends on it: without it a model is trained from
scratch, and ``coremargin verify`` does not read it. A seal binds it to its model by checksums, which detect damage, the
file of another model and careless edits; a forged state with a forged seal leads to a model that ``coremargin verify``
rejects, because that reads all rows. The file also lists its arrays with their types and shapes and the version of this
format: state of another version, or with a missing or shorter array, is not used.

Rows near the margin that retrainings rarely need are in a second file, ``near-rows.npz``, which the seal covers. It is
read when a retraining needs them; otherwise successive models share one file by hard links.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.folder import write_arrays
from coremargin.data.lazy_arrays import LazyArrays, fingerprint
from coremargin.data.storages import open_storage
from coremargin.errors import DataError
from coremargin.formats.fleet_record import FILE as FLEET
from coremargin.formats.model_files import ARRAYS, NEAR_ROWS
from coremargin.formats.model_record import FILE as RECORD
from coremargin.formats.npz import read_arrays
from coremargin.formats.storage import MISSING, ReadableStorage, opened_object, reading_errors

if TYPE_CHECKING:
    from coremargin.data.storage import Storage
    from coremargin.data.storages import Address

FILE = "retraining.npz"
VERSION = 2  #: of the arrays of all kinds; another one is not read
_SEAL = "seal"
_FORM = "form"  #: the version, and type and shape of each other array, as JSON
#: Suffix of the names of arrays that are in the second file.
_IN_NEAR_ROWS = f"@{NEAR_ROWS}"
_MOST_MEMBERS = 10_000
_PART = 1 << 20


def write_kept(model: Storage, kept: Mapping[str, np.ndarray | LazyArrays]) -> None:
    """Write the state into a complete model; ``LazyArrays`` go into the second file."""
    arrays = dict[str, np.ndarray]()
    for name, values in kept.items():
        if isinstance(values, LazyArrays):
            arrays[name + _IN_NEAR_ROWS] = np.frombuffer(values.put(model, NEAR_ROWS), np.uint8)
        else:
            arrays[name] = values
    arrays[_FORM] = np.frombuffer(_form(arrays), np.uint8)
    seal = _seal(_digest(model), arrays)
    with model.create(FILE) as file:
        write_arrays(file, {**arrays, _SEAL: seal})


def read_kept(path: Address) -> dict[str, Any] | None:
    """The state of the model at ``path``, arrays and lazy arrays by name; None if it has none.

    Raises DataError for a file that is damaged, was not written with this model, or by another version.
    """
    return open_storage(path).read_whole(_read)


def kept_bytes(model: Address) -> int | None:
    """The size of these files; None where there is none."""
    sizes = {entry.name: entry.nbytes for entry in open_storage(model).list()}
    return sizes[FILE] + sizes.get(NEAR_ROWS, 0) if FILE in sizes else None


def model_digest(path: Address) -> str:
    """The identity of a model, "sha256:...": that of its record and arrays. Raises DataError."""
    return f"sha256:{open_storage(path).read_whole(_digest).hex()}"


def _read(model: ReadableStorage) -> dict[str, Any] | None:
    try:
        with opened_object(model, FILE) as file:
            arrays = read_arrays(file, f"{model.name}/{FILE}", _MOST_MEMBERS)
    except MISSING:
        return None
    seal = arrays.pop(_SEAL, None)
    if seal is None or seal.tobytes() != _seal(_digest(model), arrays).tobytes():
        raise DataError(
            f"{model.name}/{FILE}: expected the state written with this model, found something else; remove the "
            "file, which costs one more read of the store"
        )
    form = arrays.pop(_FORM, None)
    if form is None or form.tobytes() != _form(arrays):
        raise DataError(f"{model.name}/{FILE}: was written by another version, whose arrays this one does not use")
    kept: dict[str, Any] = {}
    for name, values in arrays.items():
        filed = name.endswith(_IN_NEAR_ROWS)
        kept[name.removesuffix(_IN_NEAR_ROWS)] = _near_rows(model, values.tobytes()) if filed else values
    return kept


def _form(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The version, and the names, types and shapes of the arrays."""
    found = {name: [np.asarray(values).dtype.str, np.shape(values)] for name, values in sorted(arrays.items())}
    return json.dumps([VERSION, found]).encode()


def _near_rows(model: ReadableStorage, mark: bytes) -> LazyArrays:
    """The second file, which stays open. Raises DataError."""
    with reading_errors(model, NEAR_ROWS):
        return LazyArrays.at(model.open(NEAR_ROWS), Path(model.name, NEAR_ROWS), mark)


def _digest(model: ReadableStorage) -> bytes:
    """Of the records and the arrays of a model."""
    state = hashlib.sha256()
    for name in (RECORD, FLEET, ARRAYS):
        own = hashlib.sha256(name.encode())
        with suppress(*MISSING), opened_object(model, name) as file:
            while part := file.read(_PART):
                own.update(part)
        state.update(own.digest())
    return state.digest()


def _seal(model: bytes, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.frombuffer(fingerprint(arrays, model), np.uint8)
