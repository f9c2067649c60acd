"""Files in the folders of models and fleets: what belongs there, how it is written and read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.folder import replacing
from coremargin.data.owned import STORE, Kind
from coremargin.errors import UsageError
from coremargin.formats.columns import FILE as COLUMNS
from coremargin.formats.fleet_record import FORMAT as FLEET_FORMAT
from coremargin.formats.local_path import local_path
from coremargin.formats.model_record import FORMAT
from coremargin.formats.run_record import ROUNDS, RUN
from coremargin.models.record import json_text, plain

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord

_ONE = r"model\.json|arrays\.npz|columns\.json"
#: The folder of a model or of a fleet. One whose arrays are damaged or missing is ours, too: training replaces it.
MODEL = Kind(
    what="a model",
    records={"model.json": FORMAT, "fleet.json": FLEET_FORMAT, "members/*/model.json": FORMAT},
    files=rf"{_ONE}|retraining\.npz|near-rows\.npz|fleet\.json|run\.json|rounds\.jsonl|report\.html|members/[^/]+/(?:{_ONE})",
    folders=r"members|members/[^/]+",
)


def write_record(place: Path, record: Mapping[str, Any]) -> None:
    """Write a record; half a character, as names of files may have, becomes its escape, which is JSON as well."""
    place.write_text(json_text(record), encoding="utf-8", errors="backslashreplace")


def write_columns(folder: Path, columns: ColumnsRecord | None) -> None:
    """Write what the columns are, the bytes that the store has; nothing where they have no names."""
    if columns is not None:
        (folder / COLUMNS).write_bytes(columns.encoded())


def write_run(folder: Path, run: Mapping[str, Any] | None, rounds: Sequence[Mapping[str, Any]]) -> None:
    """Write how a run went: ``run.json`` and ``rounds.jsonl``."""
    write_record(folder / RUN, run or {})
    lines = [json.dumps(plain(line), allow_nan=False) + "\n" for line in rounds]
    (folder / ROUNDS).write_text("".join(lines), encoding="utf-8")


def save_folder(
    path: str | os.PathLike[str],
    write: Callable[[Path], object],
    run: Mapping[str, Any] | None,
    rounds: Sequence[Mapping[str, Any]],
    report: Callable[[Path], object] | None,
    *,
    overwrite: bool,
) -> None:
    """Make a model's folder, whole or not at all: ``write`` fills it, then come how it was made and the report.

    Raises UsageError: something is there; OutputError: no room, no permission. The caller holds the lock on ``path``.
    """
    place = Path(os.path.realpath(local_path(path)))  # a symlink keeps pointing at the model that is replaced
    with replacing(place, MODEL, overwrite=overwrite) as folder:
        write(folder)
        write_run(folder, run, rounds)
        if report is not None:
            report(folder)


def check_outside(path: Path) -> None:
    """Raises UsageError for an output in a store or a model, where nothing else belongs, and for the root folder."""
    real = Path(os.path.realpath(local_path(path)))
    if not real.name:
        raise UsageError(f"{path}: expected a place with a name, found the root of all folders; choose another place")
    for folder in (real, *real.parents):
        for kind in (STORE, MODEL):
            if kind.is_at(folder) and (folder != real or kind is STORE):
                raise UsageError(f"{path}: lies in {kind.what}, {folder}; choose another place")
