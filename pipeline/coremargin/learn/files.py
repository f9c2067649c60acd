"""Training from files: ingest them into a store next to the model, and reuse this store in a later run.

A run may end without a model: rows of one class, a wrong option, Ctrl-C. The same command then reuses the store if it
was made from the same files with the same options (``Provenance``, which the store contains). Otherwise it replaces the
store, but only as long as no run has left a model (a marker file shows that, store_paths.py).

Files are identified by path, size and time of change, as in ``make`` and ``rsync``, objects by address, size and ETag:
reading them again to hash them would take as long as ingesting them.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import asdict

from coremargin.data.files import output_errors
from coremargin.data.ingest import ingest
from coremargin.data.locked import Locked
from coremargin.data.owned import STORE
from coremargin.data.sources.files import find_files
from coremargin.data.sources.object_path import ObjectPath
from coremargin.data.sources.opening import label_files
from coremargin.data.store import Store
from coremargin.data.store_paths import store_beside, unfinished_mark
from coremargin.data.tables.column_options import COLUMN_ARGUMENTS, NO_COLUMN_OPTIONS, parse_column_options
from coremargin.engine.checkpoint import identity_then
from coremargin.errors import UsageError
from coremargin.formats.model_record import Strict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.ingest_pass import IngestReport
    from coremargin.data.sources.paths import FilePath
    from coremargin.engine.checkpoint import Begin
    from coremargin.formats.location import Location

KEY = "provenance"  #: in a store's record


@dataclass(frozen=True)
class TrainingStore:
    """The store next to a model. report: None if it was reused; message: why it was reused or replaced."""

    report: IngestReport | None
    message: str = ""


def ingest_for_model(source: Any, out: Location, begin: Begin, *, overwrite: bool, **options: Any) -> TrainingStore:
    """Ingest files into the store next to a model, or reuse the store if it has the same provenance.

    options: of ``ingest``. Raises UsageError (a store of other files that may still be needed), Busy (another job uses
    it), and as ``ingest``.
    """
    store, now = store_beside(out), provenance_of(source, options)
    with Locked(out, "this model"):
        then, message = _read_provenance(store), ""
        if then is not None and (begin == "resume" or not overwrite):
            changes = differences(then, now)
            if not changes and not now.state and begin != "resume":
                changes = [f"it was made from a {now.source} in memory, which may have had other rows"]
            if not changes:
                return TrainingStore(None, f"{store}: reused, since it was made from the same files")
            _check_replaceable(store, out, begin, "; ".join(changes))
            message = f"{store}: replaced, since no model was trained on it: {'; '.join(changes)}"
        mark = unfinished_mark(store)
        with output_errors(mark):
            mark.touch()
        about = {KEY: asdict(now)}
        return TrainingStore(ingest(source, store, overwrite=then is not None, about=about, **options), message)


def _read_provenance(store: Path) -> Provenance | None:
    """None if there is no store. Raises UsageError for anything that training from files has not made."""
    if not os.path.lexists(store):
        return None
    opened = Store.open(store) if STORE.is_at(store) else None
    then = provenance_in(opened.about) if opened is not None and opened.commits == 1 else None
    if then is None:
        raise UsageError(
            f"{store}: exists already, and was not made by `train` from files: train on it with `coremargin train "
            f"{store}`, move it away, or choose another place for the model"
        )
    return then


def _check_replaceable(store: Path, out: Location, begin: Begin, changes: str) -> None:
    """Raises UsageError if a model or a checkpoint may need the store."""
    if begin == "resume" and (os.path.lexists(out) or identity_then(out)):
        raise UsageError(
            f"{store}: was made from other files or options: {changes}; give the same ones again, resume on the "
            f"store by `coremargin train {store} --out {out} --resume`, or start again with --restart --overwrite"
        )
    if not unfinished_mark(store).exists():
        raise UsageError(
            f"{store}: exists already, and was made from other files or options: {changes}; replace it with "
            "--overwrite, or choose another place for the model"
        )


class Provenance(Strict, frozen=True, kw_only=True):
    """Files and options that a store was made from.

    state: hash over paths, sizes and times of change, or ETags; "" for rows in memory. options: as text.
    """

    source: str
    state: str
    options: dict[str, str]
    bytes: int = 0
    changed_ns: int = 0


def provenance_in(about: Mapping[str, Any]) -> Provenance | None:
    """From a store's record; None if there is none, or none that can be read."""
    try:
        return msgspec.convert(about.get(KEY), Provenance)
    except msgspec.ValidationError:
        return None


def provenance_of(source: Any, options: Mapping[str, Any]) -> Provenance:
    """Of files as they are now. options: of ``ingest``. Raises UsageError, DataError."""
    files, texts = find_files(source, None), _options_as_text(options)
    if files is None:
        return Provenance(source=type(source).__name__, state="", options=texts)
    paths = [file.path for file in files.files]
    if options.get("labels") is None:
        paths += label_files(files, unlabelled=options.get("unlabelled", False)) or []
    identities, state = [_identity(path) for path in paths], hashlib.sha256()
    for found in identities:
        state.update(b"%s\0%d %s\n" % (os.fsencode(found.name), found.nbytes, found.version.encode()))
    first = os.fsencode(identities[0].name).decode(errors="backslashreplace")  # JSON takes no other names
    return Provenance(
        source=first if len(paths) == 1 else f"{len(paths)} files ({first}, ...)",
        state=f"sha256:{state.hexdigest()}",
        options=texts,
        bytes=sum(found.nbytes for found in identities),
        changed_ns=max(found.changed_ns for found in identities),
    )


class _Identity(NamedTuple):
    """What tells a file from other files and from its earlier content; changed_ns: 0 where nothing says when."""

    name: str
    nbytes: int
    version: str
    changed_ns: int


def _identity(path: FilePath) -> _Identity:
    if isinstance(path, ObjectPath):
        return _Identity(str(path), path.nbytes, path.tag, 0)
    found = path.stat()
    return _Identity(os.path.abspath(path), found.st_size, f"{found.st_mtime_ns}", found.st_mtime_ns)


def differences(then: Provenance, now: Provenance) -> list[str]:
    """How files and options differ, for messages; empty if they do not."""
    found = []
    if (then.source, then.state) != (now.source, now.state):
        before, after = _describe_files(then), _describe_files(now)
        found.append(f"it was made from {before}, now {'one of them has changed' if before == after else after}")
    for name in sorted({*then.options, *now.options}):
        before, after = (one.options.get(name, "not set") for one in (then, now))
        if before != after:
            found.append(f"--{name.replace('_', '-')} was {before}, now {after}")
    return found


def _describe_files(record: Provenance) -> str:
    if not record.state:
        return f"a {record.source}"
    if not record.changed_ns:
        return f"{record.source} of {record.bytes:,} bytes"
    changed = str(np.datetime64(record.changed_ns // 1000, "us")).replace("T", " ")
    return f"{record.source} of {record.bytes:,} bytes, changed {changed} UTC"


def _options_as_text(options: Mapping[str, Any]) -> dict[str, str]:
    """Options that are set, in one form however they were given."""
    given: Any = {name: options[name] for name in COLUMN_ARGUMENTS if options.get(name) is not None}
    words = parse_column_options(**given)
    policies = [f"{column}={policy}" if column else policy for column, policy in words.missing]
    values = {n: getattr(words, n) for n in COLUMN_ARGUMENTS if getattr(words, n) != getattr(NO_COLUMN_OPTIONS, n)}
    values |= {"missing": policies} if policies else {}
    values |= {
        name: options[name] for name in ("label", "labels", "weights", "group", "drop") if options.get(name) is not None
    }
    return {name: text for name, value in values.items() if (text := _as_text(value))}


def _as_text(value: Any) -> str:
    if isinstance(value, list | tuple) and all(isinstance(one, str | int) for one in value):
        return ",".join(sorted(map(str, value)))
    return str(value) if isinstance(value, str | int) else "an array"
