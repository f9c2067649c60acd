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
VERSION = 2  #: of what the kinds keep; another one is not read
_SEAL = "seal"
_FORM = "form"  #: the version, and type and shape of each other array, as JSON
#: What follows the name of arrays that lie in the second file.
_IN_NEAR_ROWS = f"@{NEAR_ROWS}"
_MOST_MEMBERS = 10_000
_PART = 1 << 20


def write_kept(model: Storage, kept: Mapping[str, np.ndarray | LazyArrays]) -> None:
    """Write what is kept beside the files of a model, which are there already; arrays of one name may be filed."""
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
    """What the model at ``path`` keeps, by name arrays or what is filed; None where it keeps nothing.

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
            f"{model.name}/{FILE}: expected what was written with this very model, found something else; remove the "
            "file, which costs reading the store once"
        )
    form = arrays.pop(_FORM, None)
    if form is None or form.tobytes() != _form(arrays):
        raise DataError(
            f"{model.name}/{FILE}: was written by another version, and holds other arrays than this one goes on from"
        )
    kept: dict[str, Any] = {}
    for name, values in arrays.items():
        filed = name.endswith(_IN_NEAR_ROWS)
        kept[name.removesuffix(_IN_NEAR_ROWS)] = _near_rows(model, values.tobytes()) if filed else values
    return kept


def _form(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The version, and what arrays there are."""
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
