"""A trained model becomes a version: its files and what it came from, in a folder that appears whole and stays."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coremargin.data.chained_log import now
from coremargin.data.commits import whoever
from coremargin.data.difference import earlier
from coremargin.data.files import aside_of, linked, output_errors, sync_folder
from coremargin.data.folder import sync_tree
from coremargin.data.local_storage import LocalStorage
from coremargin.data.store import Store
from coremargin.data.weights import rows_left
from coremargin.errors import DataError, UsageError
from coremargin.formats import versions
from coremargin.formats.function import refuse_function
from coremargin.formats.model_files import NEAR_ROWS
from coremargin.formats.plain_file import read_plain
from coremargin.formats.run_record import RUN
from coremargin.formats.strict_json import LARGEST, read_object
from coremargin.models.files import MODEL, write_record
from coremargin.models.kept import model_digest
from coremargin.models.registry import load
from coremargin.models.single import Single
from coremargin.problems.common.classes import count_weighted_rows
from coremargin.registry.kind import VERSION
from coremargin.registry.pyfunc import write_beside
from coremargin.version import version

if TYPE_CHECKING:
    from coremargin.models.fleet import AnyModel
    from coremargin.registry.registry import Registry, Standing


def add(registry: Registry, model: Path, store: Path | None = None) -> int:
    """Put the model in a folder into a registry, as its newest version; the number of that version.

    A model that is the newest version already is not added twice. store: where its rows are; None: where its run says.
    Raises DataError (no model), StoreError (another store, or a commit that is gone), UsageError, OutputError, Busy.
    """
    loaded, digest, run = load(model), model_digest(model), _run_of(model)
    refuse_function(loaded.parameters, "a version of a registry, which gates and MLflow are to run by itself,")
    rows = _rows_of(loaded, store, run, model)
    with registry.writing() as writing:
        standing = writing.standing
        newest = standing.numbers[-1] if standing.numbers else None
        if newest is not None and registry.record(newest, standing).model == digest:
            return newest
        number = writing.next_number
        aside = aside_of(registry.folder(number))
        with output_errors(aside):
            VERSION.make_way(aside)
            _copy(model, aside)
            record = _described(loaded, digest, run, rows) | {"number": number, **_from(registry, standing, run)}
            write_beside(aside, loaded, digest, record["made"])
            record["files"] = {name: _hash(aside / name) for name in sorted(_files_below(aside))}
            write_record(LocalStorage(aside), versions.RECORD, record)
            sync_tree(aside)
            sync_folder(aside.parent)
        if model_digest(aside) != digest:
            raise DataError(f"{model}: was replaced while it was copied; add it again")
        writing.put(aside, number)
        return number


def _run_of(model: Path) -> dict[str, Any]:
    """How it was made; empty for a model that was saved from Python."""
    try:
        return read_object(read_plain(model / RUN, LARGEST), str(model / RUN), names=True)
    except FileNotFoundError:
        return {}


def _rows_of(model: AnyModel, store: Path | None, run: dict[str, Any], place: Path) -> Store:
    """The store of a model, at its commit. Raises UsageError where nobody says which, StoreError."""
    found = store or run.get("store")
    if not found:
        raise UsageError(f"{place}: does not say which store it was trained on; give the store as well")
    return earlier(Store.open(found), model.store_digest)


def _described(model: AnyModel, digest: str, run: dict[str, Any], rows: Store) -> dict[str, Any]:
    """What a version's record says, but for its number, its parent and its files."""
    counts = count_weighted_rows(rows).tolist()
    software = {**(model.record.get("software") or {}), **(run.get("versions") or {})}
    return {
        "format": versions.VERSION_FORMAT,
        "version": versions.VERSION,
        "made": now(),
        "by": whoever()[:200],
        "model": digest,
        "problem": model.kind,
        "status": model.status,
        "ratio": ratio_of(model),
        "store": str(rows.path),
        "digest": model.store_digest,
        "commit": rows.commits - 1,
        "rows": rows_left(rows),
        "features": rows.features,
        "classes": [list(pair) for pair in zip(rows.classes, counts, strict=True)],
        "job": str(run.get("job", "")),
        "bytes_read": int(run.get("bytes_read", 0)),
        "seconds": float(run.get("seconds", 0.0)),
        "software": {"coremargin": version(), **{k: str(v) for k, v in software.items() if v}},
    }


def ratio_of(model: AnyModel) -> float | None:
    """The least ratio of the bounds of those of its certificates that decide; None where nothing is bounded."""
    found = [one.certificate.ratio for one in model.deciders() if isinstance(one, Single)]
    return None if None in found or not found else min(ratio for ratio in found if ratio is not None)


def _from(registry: Registry, standing: Standing, run: dict[str, Any]) -> dict[str, Any]:
    """The version that a run went on from, by its digest, and the job that this has come of."""
    about = run.get("retrained")
    digest = about.get("parent") if isinstance(about, dict) else None
    records = (registry.record(number, standing) for number in reversed(standing.numbers if digest else ()))
    parent = next((record for record in records if record.model == digest), None)
    if parent is None:
        return {"parent": None}
    return {"parent": parent.number, "first_job": parent.job if parent.first_job is UNSET else parent.first_job}


def _copy(model: Path, aside: Path) -> None:
    """Copy the files of a model, and nothing else that lies beside them; near rows are shared where that can be."""
    for name in _files_below(model):
        if re.fullmatch(MODEL.files, name):
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            if name != NEAR_ROWS or not linked(model / name, aside / name):
                shutil.copyfile(model / name, aside / name, follow_symlinks=False)


def _files_below(folder: Path) -> list[str]:
    """Plain files of a folder and below, as paths with slashes."""
    found = list[str]()
    for place, _, names in os.walk(folder):
        below = Path(place).relative_to(folder)
        found += [(below / name).as_posix() for name in names if not (Path(place) / name).is_symlink()]
    return found


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
