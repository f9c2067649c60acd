"""Files in the folders of models and fleets: what belongs there, how it is written and read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.owned import STORE, Kind, stated_format
from coremargin.data.storages import open_storage
from coremargin.errors import RunError, UsageError
from coremargin.formats import generation
from coremargin.formats.columns import FILE as COLUMNS
from coremargin.formats.fleet_record import FORMAT as FLEET_FORMAT
from coremargin.formats.local_path import local_path
from coremargin.formats.location import Location, is_remote, location
from coremargin.formats.model_record import FORMAT
from coremargin.formats.object_storage import ObjectReader
from coremargin.formats.run_record import ROUNDS, RUN
from coremargin.models.record import json_text, plain

if TYPE_CHECKING:
    from coremargin.data.storage import Storage
    from coremargin.data.storages import Address
    from coremargin.formats.columns import ColumnsRecord

_ONE = r"model\.json|arrays\.npz|columns\.json"
#: The folder of a model or of a fleet. One whose arrays are damaged or missing is ours, too: training replaces it.
MODEL = Kind(
    what="a model",
    records={"model.json": FORMAT, "fleet.json": FLEET_FORMAT, "members/*/model.json": FORMAT},
    files=rf"{_ONE}|retraining\.npz|near-rows\.npz|fleet\.json|run\.json|rounds\.jsonl|report\.html|members/[^/]+/(?:{_ONE})",
    folders=r"members|members/[^/]+",
)


def write_record(model: Storage, key: str, record: Mapping[str, Any]) -> None:
    """Write a record; half a character, as names of files may have, becomes its escape, which is JSON as well."""
    model.write(key, [json_text(record).encode("utf-8", "backslashreplace")])


def write_columns(model: Storage, columns: ColumnsRecord | None, below: str = "") -> None:
    """Write what the columns are, the bytes that the store has; nothing where they have no names."""
    if columns is not None:
        model.write(below + COLUMNS, [columns.encoded()])


def write_run(model: Storage, run: Mapping[str, Any] | None, rounds: Sequence[Mapping[str, Any]]) -> None:
    """Write how a run went: ``run.json`` and ``rounds.jsonl``."""
    write_record(model, RUN, run or {})
    lines = [json.dumps(plain(line), allow_nan=False) + "\n" for line in rounds]
    model.write(ROUNDS, ["".join(lines).encode()])


def save_folder(
    path: Address,
    write: Callable[[Storage], object],
    run: Mapping[str, Any] | None,
    rounds: Sequence[Mapping[str, Any]],
    report: Callable[[Path], object] | None,
    *,
    overwrite: bool,
) -> None:
    """Make a model, whole or not at all: ``write`` begins, then come how it was made and the report.

    Raises UsageError: something is there; OutputError: no room, no permission. The caller holds the lock on ``path``.
    """
    with open_storage(path).resolved().replacing(MODEL, overwrite=overwrite) as model:
        write(model)
        write_run(model, run, rounds)
        if report is not None:
            report(Path(model.name))


def check_outside(path: str | os.PathLike[str]) -> None:
    """Raises UsageError for an output in a store or a model, where nothing else belongs, and for the root folder."""
    if is_remote(path):
        _check_address_outside(location(path))
        return
    real = Path(os.path.realpath(local_path(path)))
    if not real.name:
        raise UsageError(f"{path}: expected a place with a name, found the root of all folders; choose another place")
    for folder in (real, *real.parents):
        for kind in (STORE, MODEL):
            if kind.is_at(folder) and (folder != real or kind is STORE):
                raise UsageError(f"{path}: lies in {kind.what}, {folder}; choose another place")


def _check_address_outside(address: Location) -> None:
    scheme, _, rest = address.partition("://")
    if scheme.startswith("http"):  # only read, as whoever writes is told
        return
    bucket, *names = rest.split("/")
    if not names:
        raise UsageError(f"{address}: expected a place with a name, found a bucket; choose another place")
    whole = ObjectReader.of_generation(Location(f"{scheme}://{bucket}", address.options), None)
    records = {name: form for kind in (STORE, MODEL) for name, form in kind.records.items() if "/" not in name}
    folders = ["/".join([*names[:depth], ""]) for depth in range(len(names))]  # the bucket itself first
    for folder, (name, form) in product(folders, (records | {generation.FILE: generation.FORMAT}).items()):
        with suppress(RunError):  # without the right to read there
            if stated_format(whole, folder + name) == form:
                place = f"{whole.name}/{folder}".rstrip("/")
                raise UsageError(f"{address}: lies in a store or a model, {place}; choose another place")
