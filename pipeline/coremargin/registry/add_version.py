"""Copy a trained model into a registry as a new version, with its provenance."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET

from coremargin.data.chained_log import now
from coremargin.data.commits import current_user
from coremargin.data.difference import earlier
from coremargin.data.files import linked, output_errors
from coremargin.data.local_storage import LocalStorage
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.store import Store
from coremargin.data.weights import rows_left
from coremargin.errors import CoremarginError, DataError, UsageError
from coremargin.formats import versions
from coremargin.formats.function import refuse_function
from coremargin.formats.location import Location, is_remote, location
from coremargin.formats.model_files import NEAR_ROWS
from coremargin.formats.run_record import RUN, read_run_record
from coremargin.models.files import MODEL, write_record
from coremargin.models.kept import model_digest
from coremargin.models.registry import load
from coremargin.models.single import SingleModel
from coremargin.problems.common.classes import count_weighted_rows
from coremargin.registry.pyfunc import write_pyfunc
from coremargin.registry.registry import retried
from coremargin.spec import parse_toml
from coremargin.version import version

if TYPE_CHECKING:
    from coremargin.models.fleet import AnyModel
    from coremargin.registry.registry import Registry, RegistryState


@retried
def add(registry: Registry, model: Path | Location, store: Path | Location | None = None) -> int:
    """Add the model in a folder, or at an address, as the newest version, and return its number.

    Adding the newest version again returns its number. store: default: as in the model's ``run.json``.
    Raises DataError (no model), StoreError (another store, or without the commit of the model), UsageError,
    OutputError, Busy.
    """
    if isinstance(model, Location):
        with TemporaryDirectory(prefix="coremargin-") as copied:
            ObjectStorage(model).read_whole(lambda found: _download(cast("ObjectStorage", found), Path(copied)))
            return add(registry, Path(copied), store)
    loaded, digest, run = load(model), model_digest(model), _read_run_record(model)
    refuse_function(loaded.parameters, "a version of a registry, which gates and MLflow run on their own,")
    rows = _open_training_rows(loaded, store, run, model)
    with registry.writing() as writer:
        state = writer.state
        if state.newest is not None and registry.record(state.newest, state).model_digest == digest:
            return state.newest
        number = writer.next_number
        with writer.adding(number) as folder, output_errors(folder):
            _copy_model(model, folder)
            record = _version_record(loaded, digest, run, rows) | {"number": number, **_ancestry(registry, state, run)}
            write_pyfunc(folder, loaded, digest, record["created"])
            record["files"] = {name: _hash_file(folder / name) for name in sorted(_list_files(folder))}
            write_record(LocalStorage(folder), versions.RECORD, record)
            if model_digest(folder) != digest:
                raise DataError(f"{model}: was replaced while it was copied; add it again")
    return number


def _download(model: ObjectStorage, folder: Path) -> None:
    """Copy the objects of a model and no others into a folder, in place of what is there."""
    MODEL.remove(folder)
    folder.mkdir(exist_ok=True)
    for name, _ in model.list_all():
        if re.fullmatch(MODEL.files, name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with model.open(name) as source, open(folder / name, "xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)


def _read_run_record(model: Path) -> dict[str, Any]:
    """``run.json``; empty for a model that was saved from Python."""
    try:
        return read_run_record(LocalStorage(model))
    except FileNotFoundError:
        return {}


def _open_training_rows(model: AnyModel, store: Path | Location | None, run: dict[str, Any], folder: Path) -> Store:
    """The store of a model, at its commit. Raises UsageError (unknown store), StoreError."""
    path = store or _store_of_run(run)
    if not path:
        raise UsageError(f"{folder}: the model has no record of its store; pass the store as well")
    return earlier(Store.open(path), model.store_digest, model.store_sha256)


def _store_of_run(run: dict[str, Any]) -> str | None:
    """The store that a run has recorded, an address with its options."""
    store: str | None = run.get("store")
    with suppress(CoremarginError, AttributeError):
        job = parse_toml(str(run.get("job", "")), where=RUN)
        if is_remote(store) and job["store"].pop("address") == store:
            return location(str(store), job["store"])
    return store


def _version_record(model: AnyModel, digest: str, run: dict[str, Any], rows: Store) -> dict[str, Any]:
    """``version.json`` except number, parent and files."""
    counts = count_weighted_rows(rows).tolist()
    software = {**(model.record.get("software") or {}), **(run.get("versions") or {})}
    return {
        "format": versions.VERSION_FORMAT,
        "version": versions.VERSION,
        "created": now(),
        "by": current_user()[:200],
        "model_digest": digest,
        "problem": model.kind,
        "status": model.status,
        "ratio": smallest_ratio(model),
        "store": rows.name,
        "store_digest": model.store_digest,
        **({} if model.store_sha256 is None else {"store_sha256": dict(model.store_sha256)}),
        "commit": rows.commits - 1,
        "rows": rows_left(rows),
        "features": rows.features,
        "classes": [list(pair) for pair in zip(rows.classes, counts, strict=True)],
        "job": str(run.get("job", "")),
        "bytes_read": int(run.get("bytes_read", 0)),
        "seconds": float(run.get("seconds", 0.0)),
        "software": {"coremargin": version(), **{k: str(v) for k, v in software.items() if v}},
    }


def smallest_ratio(model: AnyModel) -> float | None:
    """Of the certificates of all models that decide; None if one of them has no bounds."""
    ratios = [one.certificate.ratio for one in model.deciders() if isinstance(one, SingleModel)]
    return None if None in ratios else min((ratio for ratio in ratios if ratio is not None), default=None)


def _ancestry(registry: Registry, state: RegistryState, run: dict[str, Any]) -> dict[str, Any]:
    """The version that was retrained, found by its digest, and the job of its first ancestor."""
    retrained = run.get("retrained")
    digest = retrained.get("parent") if isinstance(retrained, dict) else None
    records = (registry.record(number, state) for number in reversed(state.numbers if digest else ()))
    parent = next((record for record in records if record.model_digest == digest), None)
    if parent is None:
        return {"parent": None}
    return {"parent": parent.number, "first_job": parent.job if parent.first_job is UNSET else parent.first_job}


def _copy_model(model: Path, target: Path) -> None:
    """Copy the files of a model and no others; cached rows, which are large, are hard-linked if possible."""
    for name in _list_files(model):
        if re.fullmatch(MODEL.files, name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            if name != NEAR_ROWS or not linked(model / name, target / name):
                shutil.copyfile(model / name, target / name, follow_symlinks=False)


def _list_files(folder: Path) -> list[str]:
    """Regular files in a folder and its subfolders, as relative POSIX paths."""
    found = list[str]()
    for place, _, names in os.walk(folder):
        below = Path(place).relative_to(folder)
        found += [(below / name).as_posix() for name in names if not (Path(place) / name).is_symlink()]
    return found


def _hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
