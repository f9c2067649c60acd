"""Files in the folders of models and fleets, and whether such a folder may be written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coremargin.errors import OutputError
from coremargin.learn.folder import recover, replacing
from coremargin.learn.record import json_text, plain


def write_run(folder: Path, run: Mapping[str, Any] | None, rounds: Sequence[Mapping[str, Any]]) -> None:
    """Write how a run went: ``run.json`` and ``rounds.jsonl``."""
    (folder / "run.json").write_text(json_text(run or {}), encoding="utf-8")
    lines = [json.dumps(plain(line), allow_nan=False) + "\n" for line in rounds]
    (folder / "rounds.jsonl").write_text("".join(lines), encoding="utf-8")


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

    Raises OutputError: something is there, no room, no permission. The caller holds the lock on ``path``.
    """
    place = Path(os.path.realpath(path))  # a symlink keeps pointing at the model that is replaced
    recover(place)
    check_target(place, overwrite=overwrite)
    with replacing(place) as folder:
        write(folder)
        write_run(folder, run, rounds)
        if report is not None:
            report(folder)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raises OutputError where ``save`` would: something else is there, or a model without leave to replace it."""
    if not os.path.lexists(path):
        return
    ours = any((path / name).is_file() for name in ("model.json", "fleet.json"))
    if not path.is_dir() or (any(path.iterdir()) and not ours):
        raise OutputError(f"{path}: expected a model or nothing, found something else there; choose another place")
    if any(path.iterdir()) and not overwrite:
        raise OutputError(f"{path}: a model is there already; choose another place, or give --overwrite")
